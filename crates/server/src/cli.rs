//! What people type. The help text of the program is here.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Exact rate limits, shared by every process of a service.
///
/// `serve` is a gateway that limits HTTP requests by client address, `check` makes one decision,
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
    /// The least severe messages that are written to standard error: error, warn, info, debug or
    /// trace, or off.
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        env = "TOLLGATE_LOG",
        default_value = "info"
    )]
    pub log: String,
    /// One message a line, as text or as JSON.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        env = "TOLLGATE_LOG_FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,
}

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    // An empty variable is none.
    #[value(alias = "")]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a gateway that limits HTTP requests by client address
    Serve(Box<ServeArgs>),
    /// Make one decision and print it as JSON
    Check(CheckArgs),
    /// Run traces in virtual time and print, or check, the answers
    Replay(ReplayArgs),
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

/// Runs a gateway that limits every request by the address of its client.
///
/// Admitted requests are forwarded to the upstream, streaming both ways; without an upstream they
/// are answered with a document that says what would have been forwarded. The others get 429, or
/// 503 while the backend is down and the policy is to refuse. Answers carry the headers RateLimit,
/// RateLimit-Policy and X-RateLimit-*. GET /health and GET /ready are never limited.
///
/// Each setting is taken from its flag, else from its environment variable, else from the file
/// given by --config (field names are those of the flags, with underscores), else the default.
#[derive(Debug, Args)]
#[command(after_long_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// A TOML file with settings
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub config: Option<PathBuf>,
    /// Address and port to listen on; port 0 takes a free one, which is printed [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDRESS", env = "TOLLGATE_LISTEN")]
    pub listen: Option<String>,
    /// Where counters live; may hold a password, so better set by the environment [default: memory://]
    #[arg(
        long,
        value_name = "URL",
        env = "TOLLGATE_BACKEND",
        hide_env_values = true
    )]
    pub backend: Option<String>,
    /// Where admitted requests go, such as http://127.0.0.1:3000. UPSTREAM_BASE_URL is read too,
    /// after TOLLGATE_UPSTREAM [default: nowhere, demo answers]
    #[arg(long, value_name = "URL", env = "TOLLGATE_UPSTREAM")]
    pub upstream: Option<String>,
    /// How much each client may do, such as 100/60s; several are joined by commas [default: 100/60s]
    #[arg(
        long,
        value_name = "QUOTA",
        env = "TOLLGATE_QUOTA",
        allow_hyphen_values = true
    )]
    pub quota: Option<String>,
    /// How long the backend may take to decide [default: 50ms]
    #[arg(
        long,
        value_name = "DURATION",
        env = "TOLLGATE_TIMEOUT",
        allow_hyphen_values = true
    )]
    pub timeout: Option<String>,
    /// What happens to requests while the backend fails: open admits them, closed refuses them
    /// (503), local counts in this process [default: open]
    #[arg(long, value_name = "POLICY", env = "TOLLGATE_ON_FAILURE")]
    pub on_failure: Option<String>,
    /// How long a refused client is refused by this process alone, without asking the backend: the
    /// time within which `check --reset` helps it. 0 asks each time [default: 1s]
    #[arg(
        long,
        value_name = "DURATION",
        env = "TOLLGATE_REMEMBER_REFUSALS",
        allow_hyphen_values = true
    )]
    pub remember_refusals: Option<String>,
    /// What the keys in the backend begin with [default: rate-limit]
    #[arg(long, value_name = "TEXT", env = "TOLLGATE_PREFIX")]
    pub prefix: Option<String>,
    /// Whether to exit when the backend cannot be reached at start. A wrong password or an
    /// unsupported version always ends the program [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        env = "TOLLGATE_REQUIRE_BACKEND_AT_START",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub require_backend_at_start: Option<String>,
    /// The most clients that the memory backend tells apart; those beyond share one counter
    /// [default: 1000000]
    #[arg(
        long,
        value_name = "N",
        env = "TOLLGATE_MAX_KEYS",
        allow_hyphen_values = true
    )]
    pub max_keys: Option<String>,
    /// Rate limit headers on answers: ietf, triple and x-ratelimit joined by commas, or none
    /// [default: ietf,x-ratelimit]
    #[arg(long, value_name = "STYLE", env = "TOLLGATE_HEADERS")]
    pub headers: Option<String>,
    /// Bodies of refusals: problem (application/problem+json) or plain (application/json)
    /// [default: problem]
    #[arg(long, value_name = "STYLE", env = "TOLLGATE_BODY")]
    pub body: Option<String>,
    /// How many leading bits of an IPv4 address are one client [default: 32]
    #[arg(
        long,
        value_name = "BITS",
        env = "TOLLGATE_IPV4_PREFIX",
        allow_hyphen_values = true
    )]
    pub ipv4_prefix: Option<String>,
    /// How many leading bits of an IPv6 address are one client [default: 64]
    #[arg(
        long,
        value_name = "BITS",
        env = "TOLLGATE_IPV6_PREFIX",
        allow_hyphen_values = true
    )]
    pub ipv6_prefix: Option<String>,
    /// How long the upstream may take to begin its answer once it has the request [default: 30s]
    #[arg(
        long,
        value_name = "DURATION",
        env = "TOLLGATE_UPSTREAM_TIMEOUT",
        allow_hyphen_values = true
    )]
    pub upstream_timeout: Option<String>,
    /// The largest request body in bytes, or with a unit of KiB, MiB or GiB; more is 413
    /// [default: no bound; bodies are streamed, never held in memory]
    #[arg(
        long,
        value_name = "SIZE",
        env = "TOLLGATE_MAX_BODY",
        allow_hyphen_values = true
    )]
    pub max_body: Option<String>,
    /// How long a client may take to send the head of a request, may be idle between requests, and
    /// may take no part of an answer [default: 30s]
    #[arg(
        long,
        value_name = "DURATION",
        env = "TOLLGATE_HEADER_TIMEOUT",
        allow_hyphen_values = true
    )]
    pub header_timeout: Option<String>,
    /// The most connections at once; more wait to be accepted [default: 10000]
    #[arg(
        long,
        value_name = "N",
        env = "TOLLGATE_MAX_CONNECTIONS",
        allow_hyphen_values = true
    )]
    pub max_connections: Option<String>,
    /// After SIGTERM, how long to keep serving while /ready says 503, so that balancers notice
    /// [default: 1s]
    #[arg(
        long,
        value_name = "DURATION",
        env = "TOLLGATE_DRAIN_DELAY",
        allow_hyphen_values = true
    )]
    pub drain_delay: Option<String>,
    /// When stopping, how long requests in flight may take to finish [default: 30s]
    #[arg(
        long,
        value_name = "DURATION",
        env = "TOLLGATE_SHUTDOWN_TIMEOUT",
        allow_hyphen_values = true
    )]
    pub shutdown_timeout: Option<String>,
}

const SERVE_EXAMPLES: &str = "\
Examples:
  Try it; the sixth request within ten seconds is refused:
    tollgate serve --quota '5/10s'
    curl -i http://127.0.0.1:8000/orders

  In front of a service, 10 a second and 1,000 an hour for each client, shared through Redis:
    TOLLGATE_BACKEND=redis://:secret@redis.internal:6379 \\
      tollgate serve --listen 0.0.0.0:8000 --upstream http://127.0.0.1:3000 \\
        --quota '10/s burst=20, 1000/hour sliding_window'

  The same from a file (tollgate serve --config tollgate.toml):
    listen = \"0.0.0.0:8000\"
    upstream = \"http://127.0.0.1:3000\"
    quota = \"10/s burst=20, 1000/hour sliding_window\"
    require_backend_at_start = false

Quotas:
  N/[n]unit, units ms, s, m, h, d; algorithms token_bucket (the default), sliding_window,
  fixed_window, sliding_log; burst=N for token_bucket.

Probes:
  /health is always 200 and tells in its body whether the backend answers; /ready is 200 unless
  the program is stopping, and tells whether limits are being enforced.

Exit codes:
  0  stopped by SIGTERM or SIGINT
  2  wrong settings, a backend that is required and cannot be reached, an address in use";

/// Makes one decision and prints it as JSON.
///
/// The backend is asked directly: its failure is an error, never an admission.
#[derive(Debug, Args)]
#[command(
    after_long_help = CHECK_EXAMPLES,
    override_usage = "tollgate check --backend <URL> --quota <QUOTA> --key <KEY> [OPTIONS]"
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
    /// Whom to count for: any text. The gateway's clients are addresses such as 203.0.113.9 and
    /// networks such as 2001:db8:1:2::/64
    #[arg(long, allow_hyphen_values = true)]
    pub key: String,
    /// How much to charge [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cost: Option<String>,
    /// Only ask; charge nothing
    #[arg(long)]
    pub peek: bool,
    /// Forget what was counted for this key. A gateway admits the client again as soon as it
    /// forgets its refusal, which takes as long as its --remember-refusals (1s by default)
    #[arg(long, conflicts_with_all = ["peek", "cost"])]
    pub reset: bool,
    /// The name under which it counts; the gateway's is default
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
    --policy default --peek

The backend is asked directly: its failure is an error, never an admission. memory:// counts in
this process, which ends, so that it always starts fresh. A cost above the capacity is refused with
a retry_after_us of null: no wait helps.

Environment:
  TOLLGATE_BACKEND, TOLLGATE_QUOTA, TOLLGATE_PREFIX and TOLLGATE_TIMEOUT stand for the flags of
  these names; a flag goes first.

Output, one line:
  {\"allowed\":true,\"granted\":1,\"remaining\":4,\"limit\":5,\"retry_after_us\":null,
   \"reset_after_us\":1200000000,\"origin\":\"shared\"}
  with several quotas {\"allowed\",\"retry_after_us\",\"origin\",\"each\":[..]}; with --reset: null

Exit codes:
  0  admitted, or reset
  1  refused
  2  wrong arguments, or the backend failed (then nothing is printed on standard output)";

/// Runs traces in virtual time and prints the answers.
///
/// A trace is one line of JSON: a quota, and steps with the time of each. Every trace counts under a
/// name of its own, so that it starts from nothing. For each trace a line {\"name\",\"answers\"} is
/// printed, or {\"name\",\"skipped\"} with the reason why it cannot be run.
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
