//! `tollgate health`: whether a service answers, for images without a shell.

use std::time::Duration;

use bytes::Bytes;
use clap::ArgMatches;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::cli::HealthArgs;
use crate::config::{Given, values};
use crate::output::{self, Lines};
use crate::{NEGATIVE, Outcome, SUCCESS};

/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest answer that is read.
const MOST: usize = 64 << 10;

/// Runs the command.
pub(crate) fn run(args: &HealthArgs, matches: &ArgMatches) -> Outcome {
    let url = match &args.url {
        Some(url) => url.clone(),
        None => {
            let given = Given::new(matches, "health").with_file(None);
            let mut listen = given.value("listen", values::listen);
            let admin = given.optional("admin.listen", values::listen);
            let encrypted = given.optional("tls.certificate", values::text).is_some();
            given.finish()?;
            if encrypted {
                // This command speaks no TLS; the admin listener has /health in clear.
                listen = admin.ok_or(
                    "the service speaks TLS, and this command does not; set TOLLGATE_ADMIN_LISTEN \
                     to an address on this machine, such as 127.0.0.1:8001, which is asked then",
                )?;
            }
            format!("http://{}/health", reachable(&listen))
        }
    };
    let uri: Uri = url
        .parse()
        .map_err(|error| format!("{url}: it is no URL: {error}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let asked = runtime.block_on(async { tokio::time::timeout(TIMEOUT, ask(&uri)).await });
    runtime.shutdown_background();
    let problem = match asked {
        Ok(Ok((StatusCode::OK, body))) => {
            let mut lines = Lines::new();
            lines.text(&body)?;
            lines.flush()?;
            return Ok(SUCCESS);
        }
        Ok(Ok((status, _))) => format!("it answers {status}"),
        Ok(Err(error)) => output::chain(&*error),
        Err(_) => format!("no answer within {TIMEOUT:?}"),
    };
    output::complain(&format!("tollgate: {url}: {problem}"));
    Ok(NEGATIVE)
}

/// An address that can be asked, of one that stands for all of them.
fn reachable(listen: &str) -> String {
    match listen.rsplit_once(':') {
        Some(("0.0.0.0", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => listen.into(),
    }
}

async fn ask(uri: &Uri) -> Outcome<(StatusCode, String)> {
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
    let authority = authority.ok_or("write http://host:port/path")?;
    let port = authority.port_u16().unwrap_or(80);
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, port)).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(http::header::HOST, authority.as_str())
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST).collect().await?;
        Ok((
            status,
            String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        ))
    };
    let connection = async {
        // What became of it the exchange is told, too.
        let _ = connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        answer = exchange => answer,
        never = connection => match never {},
    }
}
