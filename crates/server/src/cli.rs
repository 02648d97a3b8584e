//! What people type. The help text of the program is here.

mod serve;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use serve::ServeArgs;

/// Exact rate limits, shared by every process of a service.
///
/// `serve` is a gateway that limits HTTP requests, `check` makes one decision,
/// and `replay` runs traces in virtual time against any store.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_long_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How messages are logged.
    #[command(flatten)]
    pub log: LogArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  success; check: admitted; replay --check: no difference
  1  check: refused; replay --check: there is a difference; dynamodb: the table cannot be used
  2  wrong arguments or settings, unreadable input, or a store that failed

Backends:
  memory://[?max_keys=N]               this process only
  redis://[[user]:password@]host[:port][/database]   Redis 6.2 or later, or Valkey
  redis+unix://[[user]:password@]/path[?db=N]        a socket
  redis+cluster://host[:port],..       a cluster, found from any of its nodes
  redis+sentinel://host[:port],../master[/database]  whoever is the master
  rediss://, rediss+cluster://, ..     encrypted; a build with --features redis-tls
  dynamodb://table?region=R[&endpoint=U]      a build with --features dynamodb
  memcached://host[:port],..           a build with --features memcached
  Redis settings, after ?: protocol=2|3, db=N; ca=, cert=, key= (files), insecure=true;
  for sentinels sentinel_user=, sentinel_password=. valkey:// and the like mean the same.
  `tollgate serve --help` has examples of all settings.";

/// How messages are logged.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// The least severe messages that are written to standard error: error, warn, info, debug,
    /// trace or off; Python's names work too. LOG_LEVEL is read after TOLLGATE_LOG [default: info]
    #[arg(long, global = true, value_name = "LEVEL", env = "TOLLGATE_LOG")]
    pub log: Option<String>,
    /// One message a line, as text or as json [default: text]
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        env = "TOLLGATE_LOG_FORMAT"
    )]
    pub log_format: Option<String>,
}

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway and the service of rules
    Serve(Box<ServeArgs>),
    /// Check a file of settings, or print its schema
    Config(ConfigArgs),
    /// Ask a running service whether it is well, for containers without a shell
    Health(HealthArgs),
    /// Make one decision and print it as JSON
    Check(CheckArgs),
    /// Run traces in virtual time and print, or check, the answers
    Replay(ReplayArgs),
    /// Compare, apply and export rules
    Rules(crate::rules::cli::RulesArgs),
    /// Make or show the DynamoDB table that counters are kept in
    #[cfg(feature = "dynamodb")]
    Dynamodb(DynamodbArgs),
}

/// Makes or shows the DynamoDB table that counters are kept in.
///
/// Credentials come from the environment, a profile or the role, as for every tool of AWS.
#[cfg(feature = "dynamodb")]
#[derive(Debug, Args)]
pub struct DynamodbArgs {
    /// What to do with the table.
    #[command(subcommand)]
    pub command: DynamodbCommand,
}

/// What to do with the table.
#[cfg(feature = "dynamodb")]
#[derive(Debug, Subcommand)]
pub enum DynamodbCommand {
    /// Make the table, with expiry, unless it is there; wait until it can be used, and show it
    CreateTable(CreateTableArgs),
    /// Show the table and what is wrong with it; status 1 if something is
    Describe(DescribeArgs),
}

/// Arguments of `dynamodb create-table`.
#[cfg(feature = "dynamodb")]
#[derive(Debug, Args)]
pub struct CreateTableArgs {
    /// dynamodb://table?region=R[&endpoint=U]
    pub url: String,
    /// Paid for beforehand, with so many read units [default: on demand]
    #[arg(long, value_name = "N", requires = "write_units")]
    pub read_units: Option<u32>,
    /// The same for write units
    #[arg(long, value_name = "N", requires = "read_units")]
    pub write_units: Option<u32>,
}

/// Arguments of `dynamodb describe`.
#[cfg(feature = "dynamodb")]
#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// dynamodb://table?region=R[&endpoint=U]
    pub url: String,
}

/// Asks a running service whether it is well, and prints its answer.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Exit codes:\n  0  it answers 200\n  1  it does not\n  2  wrong arguments or settings"
)]
pub struct HealthArgs {
    /// What to ask [default: /health where TOLLGATE_LISTEN says, or with TLS, where TOLLGATE_ADMIN_LISTEN does]
    pub url: Option<String>,
}

/// Checks a file of settings, or prints its schema.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Tell every mistake in a file, in the environment and in .env, as `serve` would find them
    #[command(after_long_help = "Exit codes:\n  0  no mistake\n  2  there is one, or several")]
    Check {
        /// The file, .toml, .yaml or .yml; without it, the one that TOLLGATE_CONFIG names
        file: Option<PathBuf>,
    },
    /// Print a JSON schema of the file of settings, for editors
    Schema,
}

/// Makes one decision and prints it as JSON.
///
/// The backend is asked directly: its failure is an error, never an admission.
#[derive(Debug, Args)]
#[command(
    after_long_help = CHECK_EXAMPLES,
    override_usage = "tollgate check --backend <URL> --quota <QUOTA> --key <KEY> [OPTIONS]\n       \
                      tollgate check --backend <URL> --slots <N> --key <KEY> [OPTIONS]"
)]
pub struct CheckArgs {
    /// Where counters live; may hold a password, so better set by the environment. memory:// always
    /// starts fresh
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_BACKEND",
        hide_env_values = true
    )]
    pub backend: Option<String>,
    /// The quota, such as '5/15m sliding_window' or '100/60s burst=20', or several joined by commas
    #[arg(
        long,
        value_name = "QUOTA",
        env = "TOLLGATE_QUOTA",
        allow_hyphen_values = true
    )]
    pub quota: Option<String>,
    /// How many may run at the same time: takes one of so many slots instead of charging a quota.
    /// Nobody renews it, so it is free again after --ttl
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub slots: Option<String>,
    /// With --slots: how long the slot is held [default: 60s]
    #[arg(
        long,
        value_name = "DURATION",
        requires = "slots",
        allow_hyphen_values = true
    )]
    pub ttl: Option<String>,
    /// With --slots: who holds it. Who is in already holds it for another --ttl [default: somebody
    /// new]
    #[arg(
        long,
        value_name = "TEXT",
        requires = "slots",
        allow_hyphen_values = true
    )]
    pub holder: Option<String>,
    /// Whom to count for: any text, as a program with the library would name it. Clients of `serve`
    /// have keys of another form: ask its /usage and /v1/check
    #[arg(long, allow_hyphen_values = true)]
    pub key: String,
    /// How much to charge [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cost: Option<String>,
    /// Only ask; charge nothing
    #[arg(long)]
    pub peek: bool,
    /// Forget what was counted for this key. Programs that remember a refusal notice it when that
    /// is over. With --slots: give back the slot of --holder
    #[arg(long, conflicts_with_all = ["peek", "cost"])]
    pub reset: bool,
    /// The name under which it counts: that of the policy, or of the concurrency limit, in the
    /// program
    #[arg(long, value_name = "NAME", default_value = "check")]
    pub policy: String,
    /// What the keys in the backend begin with
    /// [default: tollgate]
    #[arg(long, value_name = "TEXT", env = "TOLLGATE_PREFIX")]
    pub prefix: Option<String>,
    /// How long all of it may take, connecting included [default: 2s]
    #[arg(
        long,
        value_name = "DURATION",
        env = "TOLLGATE_TIMEOUT",
        allow_hyphen_values = true
    )]
    pub timeout: Option<String>,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  tollgate check --backend redis://127.0.0.1 --quota '5/15m sliding_window' --key alice
  tollgate check --backend redis://127.0.0.1 --quota '100/60s' --key 203.0.113.9 \\
    --policy api --peek
  tollgate check --backend redis://127.0.0.1 --slots 4 --ttl 60s --policy ocr --key all

The backend is asked directly: its failure is an error, never an admission. It has no default,
unlike that of serve: memory:// counts in this process, which ends, so that an answer of it says
nothing of any other. A cost above the capacity is refused with
a retry_after_us of null: no wait helps.

Environment:
  TOLLGATE_BACKEND, TOLLGATE_QUOTA, TOLLGATE_PREFIX and TOLLGATE_TIMEOUT stand for the flags of
  these names; a flag goes first.

Output, one line:
  {\"allowed\":true,\"granted\":1,\"remaining\":4,\"limit\":5,\"retry_after_us\":null,
   \"reset_after_us\":1200000000,\"origin\":\"shared\"}
  with several quotas {\"allowed\",\"retry_after_us\",\"origin\",\"each\":[..]}; with --reset: null
  with --slots {\"allowed\":true,\"in_use\":1,\"limit\":4,\"holder\":\"check-5b1..\",
   \"ttl_us\":60000000,\"fence\":1764500000000000,\"origin\":\"shared\"}

Exit codes:
  0  admitted, or reset
  1  refused
  2  wrong arguments, or the backend failed (then nothing is printed on standard output)";

/// Runs traces in virtual time and prints the answers.
///
/// A trace is one line of JSON: a quota or a number of slots, and steps with the time of each. Every trace counts under a
/// name of its own, so that it starts from nothing. For each trace a line {\"name\",\"answers\"} is
/// printed.
#[derive(Debug, Args)]
#[command(
    after_long_help = REPLAY_EXAMPLES,
    override_usage = "tollgate replay --backend <URL> [OPTIONS] <FILE>..."
)]
pub struct ReplayArgs {
    /// Where counters live; may hold a password, so better set by the environment
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_BACKEND",
        hide_env_values = true
    )]
    pub backend: Option<String>,
    /// Compare the answers with those that the traces expect, and print the differences only
    #[arg(long)]
    pub check: bool,
    /// What the keys in the backend begin with
    /// [default: tollgate]
    #[arg(long, value_name = "TEXT", env = "TOLLGATE_PREFIX")]
    pub prefix: Option<String>,
    /// How long each call of the backend may take [default: 5s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub timeout: Option<String>,
    /// Files of traces, one a line; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  tollgate replay --backend memory:// traces.jsonl
  tollgate replay --backend redis://127.0.0.1 --check vectors/*.jsonl
  head -1 traces.jsonl | tollgate replay --backend memory:// -

A trace (here on several lines; a file has it on one):
  {\"name\": \"one\",
   \"quota\": {\"algorithm\": \"token_bucket\", \"limit\": 5, \"period_us\": 1000000},
   \"steps\": [{\"at_us\": 1700000000000000, \"op\": \"acquire\", \"key\": \"a\", \"cost\": 1}]}
  Each step may have \"expect\": the answer, as it is printed. With --check a step without it is a
  difference. The page docs/algorithms.md of the project describes every field.

Environment:
  TOLLGATE_BACKEND and TOLLGATE_PREFIX stand for the flags of these names; a flag goes first.

With --check the last line is \"N traces, M steps, D differences\", of what was run.

Exit codes:
  0  ran; with --check: no difference
  1  --check: there is a difference
  2  a file that cannot be read, a quota that cannot be built, or the backend failed";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
