//! Sending to the collector, in the thread of the exporter: requests never wait for it.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service as _;

use crate::config::Upstream;
use crate::{Outcome, output, serve};

/// How long a batch of spans may take to be sent.
const WITHIN: Duration = Duration::from_secs(5);

/// As much of an answer is read; it only says how many spans were not wanted.
const ANSWER: usize = 64 * 1024;

/// Where spans go, by a new connection for each batch.
pub(super) struct Collector {
    /// Of the exporter's thread, which is in no other.
    runtime: Mutex<Runtime>,
    address: Uri,
    host: HeaderValue,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// That it is, was told.
    away: AtomicBool,
}

impl Collector {
    pub(super) fn new(endpoint: &Upstream, ca: Option<&Path>) -> Outcome<Self> {
        let tls = match endpoint.server_name() {
            Some(name) => Some((serve::connector(ca)?, name)),
            None => None,
        };
        Ok(Self {
            runtime: Mutex::new(Builder::new_current_thread().enable_all().build()?),
            address: endpoint.address(),
            host: endpoint.host(),
            tls,
            away: AtomicBool::new(false),
        })
    }

    async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        request.headers_mut().insert(HOST, self.host.clone());
        if let Some(path) = request.uri().path_and_query() {
            *request.uri_mut() = path.clone().into();
        }
        let io = HttpConnector::new().call(self.address.clone()).await?;
        match &self.tls {
            None => exchange(io, request).await,
            Some((tls, name)) => {
                let io = tls.connect(name.clone(), io.into_inner()).await?;
                exchange(TokioIo::new(io), request).await
            }
        }
    }

    fn tell(&self, problem: Option<&dyn fmt::Display>) {
        match problem {
            None if self.away.swap(false, Ordering::Relaxed) => {
                tracing::info!("traces can be sent again");
            }
            Some(problem) if !self.away.swap(true, Ordering::Relaxed) => {
                let problem = problem.to_string();
                tracing::warn!(
                    problem,
                    "traces cannot be sent, and are dropped until they can"
                );
            }
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = async { timeout(WITHIN, self.send(request)).await };
        let sent = match self.runtime.lock().block_on(sending) {
            Ok(sent) => sent,
            Err(_) => Err("the collector did not answer in time".into()),
        };
        match &sent {
            Ok(response) if response.status().is_success() => self.tell(None),
            Ok(response) => self.tell(Some(&format!("it answered {}", response.status()))),
            Err(error) => self.tell(Some(&output::chain(&**error))),
        }
        sent
    }
}

async fn exchange<I>(io: I, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError>
where
    I: Read + Write + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(io).await?;
    // It ends with the answer: nothing else is asked of it.
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request.map(Full::new)).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
    connection.abort();
    Ok(Response::from_parts(head, body))
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
