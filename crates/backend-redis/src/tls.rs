//! TLS by rustls with ring. The provider is named here and never installed for the whole process,
//! so that an application that links another one does not make connecting panic.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tollgate_core::{BackendError, ErrorKind};

use crate::url::TlsFiles;

/// How connections are encrypted, and whom we trust.
#[derive(Clone)]
pub(crate) struct Encryption(TlsConnector);

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encryption")
    }
}

impl Encryption {
    /// Reads the certificates.
    pub(crate) fn new(files: &TlsFiles) -> Result<Self, BackendError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(format!("TLS cannot be set up: {error}")))?;
        let builder = if files.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        } else {
            builder.with_root_certificates(roots(files)?)
        };
        let config = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let key =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
                builder
                    .with_client_auth_cert(certificates(cert)?, key)
                    .map_err(|error| bad(format!("the client certificate: {error}")))?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => return Err(bad("a client certificate needs both cert and key".into())),
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Encrypts a stream to `host`.
    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, BackendError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| bad("the host's name cannot be in a certificate".into()))?;
        self.0.connect(name, stream).await.map_err(|error| {
            BackendError::new(
                ErrorKind::Unavailable,
                format!("TLS with {host} failed: {error}"),
            )
        })
    }
}

fn roots(files: &TlsFiles) -> Result<RootCertStore, BackendError> {
    let mut roots = RootCertStore::empty();
    let found = match &files.ca {
        Some(ca) => certificates(ca)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err(bad(
            "there are no certificates to trust; name one with ?ca=/path".into(),
        ));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BackendError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &impl fmt::Display) -> BackendError {
    bad(format!("cannot read {}: {error}", path.display()))
}

fn bad(why: String) -> BackendError {
    BackendError::new(ErrorKind::Config, why)
}

/// Trusts everybody: for tests, when the URL says `insecure=true`.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
