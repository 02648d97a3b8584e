//! `tollgate serve`: a flag for each setting of the table.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::config::{FIELDS, Field, GLOBAL, Kind, Secret};

/// What `serve` is told apart from its settings, which [`Settings`](crate::config::Settings) reads.
#[derive(Debug)]
pub struct ServeArgs {
    /// A file with settings.
    pub config: Option<PathBuf>,
    /// Whether only to print the settings.
    pub print_config: bool,
}

const ABOUT: &str = "\
Runs a gateway that limits every request.

Admitted requests are forwarded to the upstream, streaming both ways; without an upstream they are \
answered with a document that says what would have been forwarded. The others get 429, or 503 while \
the backend is down and the policy is to refuse. Answers carry the headers RateLimit, \
RateLimit-Policy and X-RateLimit-*. GET /health and GET /ready are never limited.

Each setting is taken from its flag, else from its variable TOLLGATE_*, else from the variable that \
other gateways use, else from .env in the working directory, else from the file given by --config, \
else the default.";

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

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .env("TOLLGATE_CONFIG")
            .value_parser(OsStringValueParser::new().map(PathBuf::from))
            .help("A file with settings, TOML or, by its extension, YAML");
        let print = Arg::new("print_config")
            .long("print-config")
            .action(ArgAction::SetTrue)
            .help("Print the settings in force and where each is from, secrets hidden, and exit");
        let command = command
            .about("Run a gateway that limits HTTP requests")
            .long_about(ABOUT)
            .after_long_help(SERVE_EXAMPLES)
            .arg(config)
            .arg(print);
        let fields = FIELDS.iter().filter(|field| !GLOBAL.contains(&field.path));
        command.args(fields.map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self {
            config: matches.get_one::<PathBuf>("config").cloned(),
            print_config: matches.get_flag("print_config"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn arg(field: &'static Field) -> Arg {
    let mut help = field.help.to_owned();
    if let Some(bare) = field.bare {
        help.push_str(&format!(". {bare} is read too, after {}", field.variable()));
    }
    if let Some(default) = field.default {
        help.push_str(&format!(" [default: {default}]"));
    }
    let (name, hyphens) = match field.kind {
        Kind::Text => ("TEXT", false),
        Kind::Bool => ("BOOL", false),
        Kind::Number => ("N", true),
        Kind::Duration => ("DURATION", true),
        Kind::Size => ("SIZE", true),
        Kind::Ratio => ("RATIO", true),
        Kind::Choice(_) => ("WORD", false),
        // A quota of -1 is told as one.
        Kind::List | Kind::Proxies => ("LIST", field.path == "quota"),
        Kind::Tables(_) => ("JSON", false),
    };
    let arg = Arg::new(field.path)
        .long(field.flag())
        .value_name(name)
        .env(field.variable())
        .hide_env_values(field.secret != Secret::No)
        .allow_hyphen_values(hyphens)
        .help(help);
    let arg = match field.place().0 {
        Some(table) => arg.help_heading(format!("[{table}]")),
        None => arg,
    };
    match field.kind {
        Kind::Bool => arg.num_args(0..=1).default_missing_value("true"),
        _ => arg,
    }
}
