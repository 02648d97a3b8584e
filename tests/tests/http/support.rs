//! Stores in virtual time, servers on loopback, and a client with an address of its own.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tollgate::http::{Identified, Identity, IdentitySource};
use tollgate::{Connect, Limiter, ManualClock, Quota, RateLimit, SharedBackend, Timestamp};
use tollgate_testkit::shared_redis;

/// An edge of every window up to a day.
pub(crate) const T0: Timestamp = Timestamp::from_micros(1_700_006_400_000_000);

/// So long that only a store that hangs meets it.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

/// A prefix that no other test, run or process uses.
fn fresh() -> String {
    let random = RandomState::new().hash_one(std::process::id());
    format!("http-{random:016x}")
}

/// A limiter in virtual time over one store, with keys of its own.
pub(crate) struct Store {
    pub(crate) name: &'static str,
    pub(crate) prefix: String,
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
}

impl Store {
    pub(crate) fn over(name: &'static str, prefix: String, backend: SharedBackend) -> Self {
        let clock = ManualClock::new(T0);
        let limiter = Limiter::builder(backend)
            .timeout(PATIENT)
            .clock(clock.clone())
            .build();
        Self {
            name,
            prefix,
            limiter,
            clock,
        }
    }

    pub(crate) fn limit(&self, name: &str, quotas: &str) -> RateLimit {
        let quotas = Quota::parse_list(quotas).unwrap();
        self.limiter.policy(name, quotas).unwrap()
    }
}

pub(crate) async fn stores() -> [Store; 2] {
    [memory().await, redis().await]
}

pub(crate) async fn memory() -> Store {
    let backend = tollgate::connect("memory://").await.unwrap();
    Store::over("memory", String::new(), backend)
}

pub(crate) async fn redis() -> Store {
    let prefix = fresh();
    let connect = Connect::new(shared_redis().await.url())
        .prefix(prefix.clone())
        .timeout(PATIENT)
        .require(true);
    Store::over("redis", prefix, connect.connect().await.unwrap())
}

/// A server on loopback, until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// With connect info.
    pub(crate) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        Self { address, task }
    }

    /// Without.
    pub(crate) async fn blind(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, task }
    }

    /// The client at 127.0.0.`last`.
    pub(crate) fn client(&self, last: u8) -> Client {
        Client::new(self.address, last, false)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.client(1).get(path).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    inner: HyperClient<HttpConnector, Full<Bytes>>,
    server: SocketAddr,
}

impl Client {
    pub(crate) fn new(server: SocketAddr, last: u8, http2: bool) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_local_address(Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))));
        connector.set_nodelay(true);
        let inner = HyperClient::builder(TokioExecutor::new())
            .http2_only(http2)
            .build(connector);
        Self { inner, server }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[]).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &[u8])],
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.server));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self
            .inner
            .request(request.body(Full::default()).unwrap())
            .await
            .unwrap();
        let (parts, body) = response.into_parts();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// A field, empty if it is not there.
    pub(crate) fn field(&self, name: &str) -> String {
        let values = self.headers.get_all(name).iter();
        let values: Vec<_> = values.map(|value| value.to_str().unwrap()).collect();
        values.join(", ")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// The statuses of some answers.
pub(crate) async fn statuses(client: &Client, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(client.get(path).await.status.as_u16());
    }
    statuses
}

/// Who a request is from by a header, as an application's own source would say.
#[derive(Debug)]
pub(crate) struct FromHeader(pub(crate) &'static str);

impl IdentitySource for FromHeader {
    fn identify_now(&self, request: &http::request::Parts) -> Option<Identified> {
        let value = request.headers.get(self.0).map(|value| value.as_bytes());
        Some(match value {
            None | Some(b"") => Identified::Unknown,
            Some(value) => Identified::As(Identity::new(format!("header:{}", self.0), value)),
        })
    }
}
