//! Connecting to an upstream.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use super::connection::Connection;
use super::stream::Stream;
use crate::config::{Proxy, Upstream};
use crate::serve::tls::HTTP1;

/// Why there is no connection.
pub(super) type DialError = Box<dyn Error + Send + Sync>;

/// How an upstream is reached.
#[derive(Clone)]
pub(super) struct Dial {
    connector: HttpConnector,
    address: Uri,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    within: Duration,
}

impl Dial {
    /// `tls` is what encrypted upstreams are met with.
    pub(super) fn new(upstream: &Upstream, proxy: &Proxy, tls: Option<&TlsConnector>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // Of each address; there may be several.
        connector.set_connect_timeout(Some(proxy.connect_timeout));
        Self {
            connector,
            address: upstream.address(),
            tls: tls.cloned().zip(upstream.server_name()),
            within: proxy.connect_timeout,
        }
    }

    /// A new connection.
    pub(super) async fn connect(&self, end: Option<Instant>) -> Result<Connection, DialError> {
        let deadline = Instant::now() + self.within;
        let deadline = end.map_or(deadline, |end| end.min(deadline));
        let connecting = async {
            let io = self.connector.clone().call(self.address.clone()).await?;
            let stream = io.into_inner();
            let stream = match &self.tls {
                None => Stream::Plain(stream),
                Some((tls, name)) => {
                    Stream::Encrypted(Box::new(tls.connect(name.clone(), stream).await?))
                }
            };
            Ok(Connection::new(stream))
        };
        match timeout_at(deadline, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err("it did not accept a connection in time".into()),
        }
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial")
            .field("address", &self.address)
            .field("encrypted", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// What encrypted upstreams are met with: the system's authorities, and those of a file.
pub(crate) fn connector(authorities: Option<&Path>) -> Result<TlsConnector, DialError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = authorities {
        let failed = |cause: &dyn fmt::Display| {
            format!(
                "upstream_ca: {}: {cause}; write a file of certificates (PEM)",
                path.display()
            )
        };
        let text = std::fs::read(path).map_err(|cause| failed(&cause))?;
        let count = roots.len();
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|cause| failed(&cause))?;
            roots.add(certificate).map_err(|cause| failed(&cause))?;
        }
        if roots.len() == count {
            return Err(failed(&"there is no certificate in it").into());
        }
    }
    let system = rustls_native_certs::load_native_certs();
    for error in system.errors {
        tracing::warn!(%error, "certificates of the system could not be read");
    }
    roots.add_parsable_certificates(system.certs);
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP1.into()];
    Ok(Arc::new(config).into())
}
