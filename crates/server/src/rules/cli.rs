//! `tollgate rules`: compares, applies and exports rules, through a service or in its store.

mod difference;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Subcommand};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tollgate::Limiter;
use tollgate_http::{HeaderStyle, RequestId};

use difference::{Difference, differences, is_of_file, obstacles};

use super::document::{self, written};
use super::store::RuleStore;
use super::{Compiler, Rule, Rules, read, rest};
use crate::output::{Lines, chain, complain};
use crate::{Outcome, SUCCESS, store};

/// `rules diff`: there is a difference.
pub const DRIFT: u8 = 2;
/// `rules`: it could not be done.
pub const FAILED: u8 = 1;

/// How long one step may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The most that is read of an answer.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// Compares, applies and exports rules.
///
/// They are those of a running service, by --url, or those in its store, by --backend; a service
/// that uses that store has them in force within a second (Redis) or its cache time.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RulesArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RulesCommand,
    /// The service, such as http://127.0.0.1:8000
    #[arg(long, global = true, value_name = "URL", env = "TOLLGATE_URL")]
    pub url: Option<String>,
    /// What it asks of administrators; better set by the environment
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "ADMIN_TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// The store, in place of the service; may hold a password, so better set by the environment
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TOLLGATE_BACKEND",
        hide_env_values = true
    )]
    pub backend: Option<String>,
    /// What the keys in the store begin with, if the service was told
    #[arg(long, global = true, value_name = "TEXT", env = "TOLLGATE_PREFIX")]
    pub prefix: Option<String>,
}

/// What to do with rules.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Show how the rules differ from a file; status 2 if they do. Those that come from the rule
    /// file of the service are left out
    Diff {
        /// Rules in YAML or JSON
        file: PathBuf,
    },
    /// Make the rules those of a file: create, change and delete what differs. All of it is looked
    /// at before, but each rule is a change of its own: one that is refused undoes no other
    Apply {
        /// Rules in YAML or JSON
        file: PathBuf,
    },
    /// Write the rules into a file, JSON if its name says so, else YAML; - is standard output
    Export {
        /// The file
        file: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  tollgate rules export --url http://127.0.0.1:8000 rules.yaml
  tollgate rules diff --url http://127.0.0.1:8000 rules.yaml
  TOLLGATE_BACKEND=redis://127.0.0.1:6379 tollgate rules apply rules.yaml

Output of diff, a line for each: `+ id` is in the file only, `- id` is not in the file, and
`~ id: field: is -> will be`.

Exit codes:
  0  done; diff: no difference
  1  it could not be done: neither --url nor --backend, an unreadable file, a service or store
     that failed, a rule refused
  2  diff: there is a difference; wrong arguments";

/// Runs the command.
pub(crate) fn run(args: &RulesArgs, matches: &ArgMatches) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(command(args, matches));
    runtime.shutdown_background();
    // 2 is what a difference is told by.
    result.or_else(|problem| {
        complain(&format!("tollgate: {problem}"));
        Ok(FAILED)
    })
}

async fn command(args: &RulesArgs, matches: &ArgMatches) -> Result<u8, String> {
    let wanted = match &args.command {
        RulesCommand::Diff { file } | RulesCommand::Apply { file } => read_file(file)?,
        RulesCommand::Export { .. } => BTreeMap::new(),
    };
    let service = Service::of(args, matches).await?;
    let found = service.rules().await?;
    let of_file = found.values().filter(|rule| is_of_file(rule));
    let of_file: Vec<&str> = of_file.map(|rule| &*rule.id).collect();
    let note = |what: &str| {
        if !of_file.is_empty() {
            let ids = of_file.join(", ");
            complain(&format!(
                "tollgate: from the rule file of the service, {what}: {ids}"
            ));
        }
    };
    match &args.command {
        RulesCommand::Diff { .. } => {
            note("and left out");
            let changes = differences(&found, &wanted);
            tell(changes.iter().flat_map(|it| it.lines(&found, &wanted)))?;
            Ok(if changes.is_empty() { SUCCESS } else { DRIFT })
        }
        RulesCommand::Apply { .. } => {
            note("and left out");
            let obstacles = obstacles(&found, &wanted);
            if obstacles.is_empty() {
                return service.apply(&found, &wanted).await;
            }
            for obstacle in obstacles {
                complain(&format!("tollgate: {obstacle}"));
            }
            Err("nothing was changed".into())
        }
        RulesCommand::Export { file } => {
            note("and written as others are");
            let rules: Vec<Rule> = found.into_values().collect();
            export(file, &rules)?;
            Ok(SUCCESS)
        }
    }
}

type ById = BTreeMap<String, Rule>;

fn by_id(rules: Vec<Rule>) -> ById {
    rules
        .into_iter()
        .map(|rule| (rule.id.clone(), rule))
        .collect()
}

fn read_file(path: &Path) -> Result<ById, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    match document::parse(&text) {
        Ok(Some(rules)) => Ok(by_id(rules)),
        Ok(None) => Err(format!(
            "{shown}: there is nothing in it; `rules: []` stands for no rules"
        )),
        Err(faults) => Err(format!("{shown}: {faults}")),
    }
}

fn export(path: &Path, rules: &[Rule]) -> Result<(), String> {
    let json = path.extension().is_some_and(|it| it == "json");
    let text = document::write(rules, json);
    if path.as_os_str() == "-" {
        return tell([text.trim_end().to_owned()]);
    }
    // Whoever reads the file meanwhile finds the one or the other, and nothing half.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn tell(lines: impl IntoIterator<Item = String>) -> Result<(), String> {
    let mut output = Lines::new();
    for line in lines {
        output.text(&line).map_err(|error| error.to_string())?;
    }
    output.flush().map(drop).map_err(|error| error.to_string())
}

/// Whoever answers requests about rules.
enum Service {
    There {
        host: String,
        port: u16,
        token: Option<HeaderValue>,
    },
    Here(Box<Rules>),
}

impl Service {
    async fn of(args: &RulesArgs, matches: &ArgMatches) -> Result<Self, String> {
        let matches = matches.subcommand_matches("rules").unwrap_or(matches);
        let by_flag = |name: &str| {
            let below = matches.subcommand().map(|(_, below)| below);
            [Some(matches), below]
                .into_iter()
                .flatten()
                .any(|it| it.value_source(name) == Some(ValueSource::CommandLine))
        };
        let given = |value: &Option<String>| value.clone().filter(|it| !it.is_empty());
        let backend = given(&args.backend)
            .or_else(|| std::env::var("REDIS_URL").ok().filter(|it| !it.is_empty()));
        match (given(&args.url), backend) {
            (Some(_), Some(_)) if by_flag("url") && by_flag("backend") => {
                Err("--url and --backend are both given; keep one".into())
            }
            (Some(url), backend) if backend.is_none() || !by_flag("backend") => {
                Self::there(&url, given(&args.token))
            }
            (_, Some(backend)) => Self::here(&backend, given(&args.prefix)).await,
            (_, None) => Err(
                "which rules? Give --url http://127.0.0.1:8000 for a service, or --backend redis://.. for its store".into(),
            ),
        }
    }

    fn there(url: &str, token: Option<String>) -> Result<Self, String> {
        let wrong = || {
            "--url: is no address such as http://127.0.0.1:8000; of a service behind TLS use --backend, or a port that is not".to_owned()
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?;
        if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
            return Err(wrong());
        }
        let token = token
            .map(|token| HeaderValue::from_str(&format!("Bearer {token}")))
            .transpose()
            .map_err(|_| "--token: has characters that no token has".to_owned())?;
        Ok(Self::There {
            host: host.trim_matches(['[', ']']).into(),
            port: uri.port_u16().unwrap_or(80),
            token,
        })
    }

    async fn here(url: &str, prefix: Option<String>) -> Result<Self, String> {
        let prefix = prefix.as_deref().unwrap_or(super::store::PREFIX);
        if url.starts_with("memory:") {
            return Err("--backend memory:// is a memory of its own; use --url".into());
        }
        let connect = store::connect(url, prefix, LIMIT);
        let backend = tokio::time::timeout(LIMIT, connect)
            .await
            .map_err(|_| "the store does not answer".to_owned())?
            .map_err(|error| store::failed(None, url, &error))?;
        let store = RuleStore::of(&backend, prefix);
        if !store.is_there() {
            return Err(
                "this store keeps no rules; those of the rule file are all there are".into(),
            );
        }
        let compiler = Compiler {
            limiter: Limiter::builder(backend).build(),
            headers: HeaderStyle::GATEWAY,
            // Nothing is counted here.
            default: Vec::new(),
            normalise: std::sync::Arc::new(|_, value| value.into()),
        };
        let rules = Rules::of_store(compiler, store).map_err(|error| chain(&error))?;
        Ok(Self::Here(Box::new(rules)))
    }

    async fn call(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Bytes, String> {
        let response = tokio::time::timeout(LIMIT, self.answer(method, path, body))
            .await
            .map_err(|_| "there is no answer".to_owned())??;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let problem: Option<Value> = serde_json::from_slice(response.body()).ok();
        let detail = problem.as_ref().and_then(|it| it["detail"].as_str());
        let hint = match status {
            StatusCode::UNAUTHORIZED => "; give ADMIN_TOKEN",
            _ => "",
        };
        Err(format!(
            "{status}: {}{hint}",
            detail.unwrap_or("no reason is given")
        ))
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Bytes>, String> {
        let request = Request::builder().method(method).uri(path);
        match self {
            Self::Here(rules) => {
                let request = request
                    .body(Bytes::from(body))
                    .map_err(|it| it.to_string())?;
                let id = RequestId::of(request.headers());
                Ok(rest::handle(rules, request, &id).await)
            }
            Self::There { host, port, token } => {
                let failed =
                    |error: &dyn std::error::Error| format!("{host}:{port}: {}", chain(error));
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = TokioIo::new(stream.map_err(|error| failed(&error))?);
                let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
                    .await
                    .map_err(|error| failed(&error))?;
                let mut request = request
                    .header(HOST, format!("{host}:{port}"))
                    .header(CONTENT_TYPE, "application/json")
                    .body(Full::<Bytes>::from(body))
                    .map_err(|error| error.to_string())?;
                if let Some(token) = token {
                    request.headers_mut().insert(AUTHORIZATION, token.clone());
                }
                let exchange = async {
                    let response = sender
                        .send_request(request)
                        .await
                        .map_err(|it| failed(&it))?;
                    let (head, body) = response.into_parts();
                    let body = Limited::new(body, MAX_ANSWER).collect().await;
                    let body = body.map_err(|error| failed(&*error))?;
                    Ok(Response::from_parts(head, body.to_bytes()))
                };
                tokio::pin!(connection);
                tokio::select! {
                    biased;
                    answer = exchange => answer,
                    ended = &mut connection => Err(match ended {
                        Ok(()) => format!("{host}:{port}: it hung up"),
                        Err(error) => failed(&error),
                    }),
                }
            }
        }
    }

    async fn rules(&self) -> Result<ById, String> {
        let body = self.call(Method::GET, rest::PATH, Vec::new()).await?;
        let list: Vec<Value> = serde_json::from_slice(&body)
            .map_err(|_| "what answers has no rules; is it this program?".to_owned())?;
        let rules = list.iter().map(|it| {
            read::stored(it)
                .map_err(|faults| format!("a rule of the service cannot be read: {faults}"))
        });
        rules.collect::<Result<Vec<_>, _>>().map(by_id)
    }

    async fn apply(&self, found: &ById, wanted: &ById) -> Result<u8, String> {
        let mut failures = 0;
        for difference in differences(found, wanted) {
            let (method, path, rule) = match &difference {
                Difference::Extra(id) => (Method::DELETE, format!("{}/{id}", rest::PATH), None),
                Difference::Other(id) => (
                    Method::PUT,
                    format!("{}/{id}", rest::PATH),
                    Some(&wanted[*id]),
                ),
                Difference::Missing(id) => (Method::POST, rest::PATH.into(), Some(&wanted[*id])),
            };
            let body = rule.map_or_else(Vec::new, |rule| written(rule).to_string().into_bytes());
            let lines = difference.lines(found, wanted);
            match self.call(method, &path, body).await {
                Ok(_) => tell(lines)?,
                Err(problem) => {
                    failures += 1;
                    complain(&format!("tollgate: {}: {problem}", lines.join(", ")));
                }
            }
        }
        Ok(if failures == 0 { SUCCESS } else { FAILED })
    }
}
