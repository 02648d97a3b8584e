//! The address of the client: the socket's peer, or what trusted proxies say of it.
//!
//! One extension, [`ClientIp`], is the client for everybody. [`TrustedProxies`] writes it, and is
//! the only one that reads forwarding headers; without it the peer of the socket counts.

mod cidr;
mod hop;
mod layer;
mod proxies;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;
use http::header::HeaderMap;

pub use cidr::{Cidr, CidrError, CidrSet};
pub use layer::TrustedProxiesService;
pub use proxies::{ForwardedBy, ProxiesError, TrustedProxies};

/// Who the request comes from, as an extension of the request.
///
/// Written by [`TrustedProxies`], or by a service's own middleware that knows better. With the
/// feature `axum` it is an extractor, too.
///
/// ```
/// use tollgate_http::{ClientIp, client_ip};
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(ClientIp([203, 0, 113, 9].into()));
/// assert_eq!(client_ip(request.extensions()), Some([203, 0, 113, 9].into()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientIp(pub IpAddr);

/// The other end of the connection, as an extension of the request: for services that are not
/// axum's, such as plain hyper, to insert for each connection.
///
/// ```
/// use tollgate_http::{PeerAddr, client_ip};
///
/// let mut request = http::Request::new(());
/// assert_eq!(client_ip(request.extensions()), None);
/// request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 51_000).into()));
/// assert_eq!(client_ip(request.extensions()), Some([192, 0, 2, 1].into()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// The client of a request: [`ClientIp`], else the peer of the socket. `None` where the service
/// was built without connection information.
#[must_use]
pub fn client_ip(extensions: &Extensions) -> Option<IpAddr> {
    match extensions.get::<ClientIp>() {
        Some(ClientIp(address)) => Some(*address),
        None => peer_ip(extensions),
    }
}

/// The peer of the socket: [`PeerAddr`], else axum's `ConnectInfo<SocketAddr>`.
#[must_use]
pub fn peer_ip(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(PeerAddr(peer)) = extensions.get() {
        return Some(peer.ip());
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(peer)) =
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(peer.ip());
    }
    None
}

/// What to do where no address is known.
pub(crate) const NO_PEER: &str = "the service does not know its clients' addresses: serve it with \
    into_make_service_with_connect_info::<SocketAddr>() (axum), or insert \
    tollgate_http::PeerAddr for each connection";

/// Headers by which proxies tell where a request came from.
const FORWARDING: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];

fn has_forwarding_headers(headers: &HeaderMap) -> bool {
    // On the path of every request: their names are told by their length mostly, and hashing all
    // three takes longer.
    headers.keys().any(|name| {
        let name = name.as_str();
        matches!(name.len(), 9 | 15) && FORWARDING.contains(&name)
    })
}

/// A warning that is given once.
#[derive(Debug, Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether it was given.
    pub(crate) fn happened(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether this is the first time.
    pub(crate) fn first(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Tells, once, of forwarding headers that nobody resolves.
pub(crate) fn warn_of_unresolved(headers: &HeaderMap, once: &Once) {
    if !once.happened() && has_forwarding_headers(headers) && once.first() {
        tracing::warn!(
            "requests carry forwarding headers and nobody resolves them: all clients behind the \
             proxy share one bucket; add TrustedProxies with the addresses of the proxy"
        );
    }
}

#[cfg(feature = "axum")]
impl<S: Send + Sync> axum::extract::FromRequestParts<S> for ClientIp {
    type Rejection = (http::StatusCode, &'static str);

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        client_ip(&parts.extensions).map(Self).ok_or_else(|| {
            tracing::error!("{NO_PEER}");
            (
                http::StatusCode::INTERNAL_SERVER_ERROR,
                "The service does not know its clients' addresses",
            )
        })
    }
}
