//! A key set by URL, over HTTP/1.1 and TLS.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::jwks::MAX_DOCUMENT;
use super::{FetchError, FetchJwks, Fetching};

/// Fetches a key set from one URL: `https://`, trusting the certificates of the system (or those
/// that `SSL_CERT_FILE` names), or `http://` to this machine itself.
///
/// A new connection each time, no redirects, and only an answer of 200 counts. The URL is yours;
/// nothing that a token says is part of it.
///
/// ```
/// use tollgate_http::{HttpFetch, Jwks, Jwt};
///
/// let keys = Jwks::new(HttpFetch::new("https://issuer.example/.well-known/jwks.json")?);
/// let source = Jwt::new("https://issuer.example", "orders", keys);
/// assert!(HttpFetch::new("http://issuer.example/keys").is_err());
/// # Ok::<(), tollgate_http::FetchError>(())
/// ```
#[derive(Clone)]
pub struct HttpFetch {
    host: String,
    port: u16,
    path: String,
    tls: Option<Arc<ClientConfig>>,
}

impl HttpFetch {
    /// From this URL.
    ///
    /// # Errors
    /// When it is no URL of that kind, or the system has no certificates to trust.
    pub fn new(url: &str) -> Result<Self, FetchError> {
        Self::trusting(url, || rustls_native_certs::load_native_certs().certs)
    }

    pub(super) fn trusting(
        url: &str,
        certificates: impl FnOnce() -> Vec<CertificateDer<'static>>,
    ) -> Result<Self, FetchError> {
        const FIX: &str = "write https://host[:port]/path";
        let wrong = |problem: &str| FetchError::new(format!("JWKS URL: {problem}; {FIX}"));
        let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("it has a user"));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let (port, tls) = match uri.scheme_str() {
            Some("https") => (443, Some(config(certificates())?)),
            Some("http") if is_local(&host) => (80, None),
            Some("http") => {
                return Err(wrong("keys that came in clear could be anybody's"));
            }
            _ => return Err(wrong("it does not begin with https://")),
        };
        Ok(Self {
            port: authority.port_u16().unwrap_or(port),
            path: uri
                .path_and_query()
                .map_or("/", |it| it.as_str())
                .to_owned(),
            host,
            tls,
        })
    }

    async fn document(self) -> Result<Vec<u8>, FetchError> {
        let failed = |what: &str, error: &dyn fmt::Display| {
            FetchError::new(format!("{what} {} failed: {error}", self.host))
        };
        let stream = TcpStream::connect((&*self.host, self.port))
            .await
            .map_err(|error| failed("connecting to", &error))?;
        match &self.tls {
            None => self.ask(stream).await,
            Some(config) => {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|error| failed("TLS with", &error))?;
                let stream = TlsConnector::from(Arc::clone(config))
                    .connect(name, stream)
                    .await
                    .map_err(|error| failed("TLS with", &error))?;
                self.ask(stream).await
            }
        }
    }

    async fn ask<S>(&self, stream: S) -> Result<Vec<u8>, FetchError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let failed = |error: &dyn fmt::Display| FetchError::new(format!("HTTP failed: {error}"));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let host = match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        };
        let request = Request::get(&self.path)
            .header(HOST, host)
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .header(USER_AGENT, "tollgate")
            .body(Empty::<Bytes>::new())
            .map_err(|error| failed(&error))?;
        let exchange = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| failed(&error))?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::new(format!(
                    "the answer is {}",
                    response.status()
                )));
            }
            let body = Limited::new(response.into_body(), MAX_DOCUMENT)
                .collect()
                .await;
            Ok(body.map_err(|error| failed(&error))?.to_bytes().to_vec())
        };
        // The connection is driven here and not in a task of its own, so that it ends with this.
        let mut connection = std::pin::pin!(connection);
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            biased;
            document = &mut exchange => document,
            _ = &mut connection => exchange.await,
        }
    }
}

impl FetchJwks for HttpFetch {
    fn fetch(&self) -> Fetching {
        Box::pin(self.clone().document())
    }
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

fn config(certificates: Vec<CertificateDer<'static>>) -> Result<Arc<ClientConfig>, FetchError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(FetchError::new(
            "JWKS URL: there are no certificates to trust; install ca-certificates, or set SSL_CERT_FILE",
        ));
    }
    // The provider is named, so that another one in the program does no harm.
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| FetchError::new(format!("TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

impl fmt::Debug for HttpFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFetch")
            .field("host", &self.host)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}
