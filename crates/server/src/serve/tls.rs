//! TLS for clients, with certificates that are read again when their files change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// What HTTP/2 is called in a handshake.
pub(super) const HTTP2: &[u8] = b"h2";
/// And the first version.
pub(super) const HTTP1: &[u8] = b"http/1.1";

/// A certificate with its key, for all handshakes from now on.
pub(super) struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    files: Files,
}

/// What is in the files. Comparing it is cheaper than it is to trust times of change, which links
/// that are switched do not have.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    #[error("{}: it cannot be read: {cause}", path.display())]
    Unreadable {
        path: PathBuf,
        cause: std::io::Error,
    },
    #[error("{}: it holds no {what}; write the PEM file with {fix}", path.display())]
    Empty {
        path: PathBuf,
        what: &'static str,
        fix: &'static str,
    },
    #[error(
        "{} and {}: they cannot be used together: {cause}",
        certificate.display(),
        key.display()
    )]
    Unusable {
        certificate: PathBuf,
        key: PathBuf,
        cause: rustls::Error,
    },
}

impl TlsError {
    /// The one file that it is about.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Unreadable { path, .. } | Self::Empty { path, .. } => Some(path),
            Self::Unusable { .. } => None,
        }
    }
}

impl Tls {
    /// Reads both files.
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let files = Files::read(certificate, key)?;
        Ok(Self {
            current: RwLock::new(Current {
                config: Arc::new(files.config(certificate, key)?),
                files,
            }),
            certificate: certificate.into(),
            key: key.into(),
        })
    }

    /// What the next handshake is made with.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.config).into()
    }

    /// Uses what is in the files now. What cannot be used is told, and the certificate stays.
    pub(super) fn refresh(&self) {
        match self.renewed() {
            Ok(true) => tracing::info!("the certificate was read again"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the certificate stays as it was"),
        }
    }

    fn renewed(&self) -> Result<bool, TlsError> {
        let files = Files::read(&self.certificate, &self.key)?;
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if files == current.files {
            return Ok(false);
        }
        drop(current);
        // One file may be there before the other is: then they do not go together, yet.
        let config = Arc::new(files.config(&self.certificate, &self.key)?);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Current { config, files };
        Ok(true)
    }
}

impl Files {
    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|cause| TlsError::Unreadable {
                path: path.into(),
                cause,
            })
        };
        Ok(Self {
            certificate: read(certificate)?,
            key: read(key)?,
        })
    }

    fn config(&self, certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .filter_map(Result::ok)
            .collect();
        if chain.is_empty() {
            return Err(TlsError::Empty {
                path: certificate.into(),
                what: "certificate",
                fix: "the chain, this server's own first",
            });
        }
        let private = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| TlsError::Empty {
            path: key.into(),
            what: "private key",
            fix: "an unencrypted key",
        })?;
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(chain, private)
            });
        let mut config = config.map_err(|cause| TlsError::Unusable {
            certificate: certificate.into(),
            key: key.into(),
            cause,
        })?;
        config.alpn_protocols = vec![HTTP2.into(), HTTP1.into()];
        Ok(config)
    }
}

/// The key is left out.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}
