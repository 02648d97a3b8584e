//! The program `tollgate`: a rate limiting gateway, and a command line tool for its stores.
//!
//! - [`cli`] is what people type; `tollgate help` prints it.
//! - [`config`] is what `serve` is told, by flags, environment and file.
//! - `serve` is the gateway, `check` one decision, `replay` traces in virtual time.
//!
//! The binary is [`run`] and nothing else. This crate is a library for the sake of its documentation
//! and its tests; to limit requests in a program of your own use the crate `tollgate`.

mod admin;
mod check;
pub mod cli;
pub mod config;
mod config_command;
mod duration;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod engine;
mod health;
pub mod identity;
mod keys;
mod log;
mod metrics;
mod openapi;
mod output;
mod pages;
mod replay;
mod replica;
pub mod rules;
mod serve;
mod service;
mod store;
mod tasks;
mod traces;
#[cfg(feature = "ui")]
mod ui;
mod usage;
mod v1;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use cli::{Cli, Command};
use config::{Given, values};

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
    let (code, logs) = run_command(&cli, &matches);
    if let Some(logs) = logs {
        logs.finish();
    }
    code
}

fn run_command(cli: &Cli, matches: &ArgMatches) -> (ExitCode, Option<log::Logs>) {
    // What is wrong with the settings is told on standard error, before anything is logged.
    let (name, settings) = match &cli.command {
        Command::Serve(args) => match serve::settings(args, matches) {
            Ok(Some(settings)) => ("serve", Some(settings)),
            Ok(None) => return (ExitCode::SUCCESS, None),
            Err(error) => return (failure(&*error), None),
        },
        _ => (matches.subcommand_name().unwrap_or_default(), None),
    };
    let logs = match &settings {
        Some(settings) => Ok((settings.log, settings.log_format)),
        // It tells every mistake, of these settings too, so it cannot end with one of them.
        None if matches!(cli.command, Command::Config(_)) => Ok((
            Given::default("log", values::level),
            Given::default("log_format", values::log_format),
        )),
        None => log_settings(matches, name),
    };
    let logs = match logs {
        Ok((level, format)) => log::start(level, format),
        Err(error) => return (failure(&error), None),
    };
    let result = match (&cli.command, settings) {
        (Command::Serve(_), Some(settings)) => serve::run(settings, matches),
        (Command::Serve(_), None) => Ok(SUCCESS),
        (Command::Config(args), _) => config_command::run(args, matches),
        (Command::Health(args), _) => health::run(args, matches),
        (Command::Check(args), _) => check::run(args, matches),
        (Command::Replay(args), _) => replay::run(args, matches),
        (Command::Rules(args), _) => rules::cli::run(args, matches),
        #[cfg(feature = "dynamodb")]
        (Command::Dynamodb(args), _) => dynamodb::run(args),
    };
    let code = match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => failure(&*error),
    };
    (code, Some(logs))
}

/// How a command without a file of settings logs.
fn log_settings(
    matches: &ArgMatches,
    command: &str,
) -> Result<(log::Level, cli::LogFormat), config::Mistakes> {
    let given = Given::new(matches, command);
    let level = given.value("log", values::level);
    let format = given.value("log_format", values::log_format);
    given.finish().map(|()| (level, format))
}

/// What a command comes to: an exit code, or the reason why it could not do its work.
type Outcome<T = u8> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn failure(error: &dyn std::error::Error) -> ExitCode {
    output::complain(&format!("tollgate: {}", output::chain(error)));
    ExitCode::from(FAILURE)
}
