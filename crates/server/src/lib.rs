//! The program `tollgate`: a rate limiting gateway, and a command line tool for its stores.
//!
//! - [`cli`] is what people type; `tollgate help` prints it.
//! - [`config`] is what `serve` is told, by flags, environment and file.
//! - `serve` is the gateway, `check` one decision, `replay` traces in virtual time.
//!
//! The binary is [`run`] and nothing else. This crate is a library for the sake of its documentation
//! and its tests; to limit requests in a program of your own use the crate `tollgate`.

mod check;
pub mod cli;
pub mod config;
mod duration;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod engine;
pub mod identity;
mod log;
mod output;
mod replay;
pub mod rules;
mod serve;
mod store;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use cli::{Cli, Command};

/// It worked; for `check`: admitted; for `replay --check`: no difference.
pub const SUCCESS: u8 = 0;
/// `check`: refused. `replay --check`: there is a difference. `dynamodb`: the table cannot be used.
pub const NEGATIVE: u8 = 1;
/// Wrong arguments or settings, an input that cannot be read, or a store that failed.
pub const FAILURE: u8 = 2;

/// Runs the program with these arguments, the first of which is its own name.
///
/// Messages go to standard error, results to standard output.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let parsed = Cli::command()
        .try_get_matches_from(arguments)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // A closed pipe is no reason to fail; clap chooses the stream.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { FAILURE } else { SUCCESS });
        }
    };
    let logs = match log::start(&cli.log) {
        Ok(logs) => logs,
        Err(error) => return failure(&error),
    };
    let result = match &cli.command {
        Command::Serve(args) => serve::run(args, &matches),
        Command::Check(args) => check::run(args, &matches),
        Command::Replay(args) => replay::run(args, &matches),
        #[cfg(feature = "dynamodb")]
        Command::Dynamodb(args) => dynamodb::run(args),
    };
    let code = match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => failure(&*error),
    };
    logs.finish();
    code
}

/// What a command comes to: an exit code, or the reason why it could not do its work.
type Outcome = Result<u8, Box<dyn std::error::Error + Send + Sync>>;

fn failure(error: &dyn std::error::Error) -> ExitCode {
    output::complain(&format!("tollgate: {}", output::chain(error)));
    ExitCode::from(FAILURE)
}
