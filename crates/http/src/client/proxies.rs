//! Whose word counts for where a request came from, and how far.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{FORWARDED, HeaderMap, HeaderName};
use http::request::Parts;

use super::hop;
use super::{CidrError, CidrSet, ClientIp, Once, has_forwarding_headers, peer_ip};

/// The header that the proxies write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedBy {
    /// `X-Forwarded-For`: each proxy appends the address it was called from.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239): the same, with `for=`.
    Forwarded,
    /// A header of one's own, such as `CF-Connecting-IP`: one address, or a list like
    /// `X-Forwarded-For`.
    Named(HeaderName),
}

impl ForwardedBy {
    /// By the name of the header, in any case.
    ///
    /// # Errors
    /// When it is no name of a header.
    pub fn header(name: &str) -> Result<Self, ProxiesError> {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| ProxiesError::Header(name.into()))?;
        Ok(match name.as_str() {
            "x-forwarded-for" => Self::XForwardedFor,
            "forwarded" => Self::Forwarded,
            _ => Self::Named(name),
        })
    }
}

#[derive(Clone, Debug)]
enum Trust {
    Networks(CidrSet),
    Hops(usize),
}

/// The proxies whose forwarding header is believed: a layer that finds out the client and writes
/// [`ClientIp`].
///
/// The header is read from the right, where the nearest proxy wrote. The walk goes on as long as
/// it meets trusted proxies, and the first other address is the client. What is further left was
/// sent by that client and is never looked at. A hop that is malformed or names no address
/// (`unknown`) ends the walk: the proxy that wrote it counts as the client. From a peer that is
/// not trusted nothing is believed, and it is the client.
///
/// Put it outside of the rate limit layer, so that it runs first.
///
/// ```
/// use http::Request;
/// use tollgate_http::{ClientIp, PeerAddr, TrustedProxies};
///
/// let proxies = TrustedProxies::networks(["10.0.0.0/8"])?;
/// let mut request = Request::new(());
/// request.extensions_mut().insert(PeerAddr(([10, 0, 0, 5], 443).into()));
/// request.headers_mut().insert("x-forwarded-for", "1.1.1.1, 203.0.113.9".parse()?);
/// let (mut parts, ()) = request.into_parts();
/// proxies.resolve(&mut parts);
/// assert_eq!(parts.extensions.get(), Some(&ClientIp([203, 0, 113, 9].into())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    trust: Trust,
    by: ForwardedBy,
    hint: Arc<Once>,
}

impl TrustedProxies {
    /// Proxies at these addresses.
    ///
    /// # Errors
    /// The first that is no network.
    pub fn networks<T: AsRef<str>>(
        networks: impl IntoIterator<Item = T>,
    ) -> Result<Self, CidrError> {
        CidrSet::parse(networks).map(Self::set)
    }

    /// Proxies in these networks.
    #[must_use]
    pub fn set(networks: CidrSet) -> Self {
        Self::new(Trust::Networks(networks))
    }

    /// So many proxies, wherever they are: with 1, the peer is the proxy and the last address of
    /// the header is the client. Only for services that nobody can reach past those proxies: who
    /// can, chooses his address.
    #[must_use]
    pub fn hops(count: usize) -> Self {
        Self::new(Trust::Hops(count))
    }

    fn new(trust: Trust) -> Self {
        Self {
            trust,
            by: ForwardedBy::default(),
            hint: Arc::default(),
        }
    }

    /// Which header the proxies write; `X-Forwarded-For` by default. Others are not read.
    #[must_use]
    pub fn forwarded_by(mut self, header: ForwardedBy) -> Self {
        self.by = header;
        self
    }

    /// Whether this peer is a proxy that is believed. By number of hops every peer is.
    #[must_use]
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match &self.trust {
            Trust::Networks(networks) => networks.contains(peer.to_canonical()),
            Trust::Hops(count) => *count > 0,
        }
    }

    /// The client of a request that came from `peer`.
    #[must_use]
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        let mut left = match &self.trust {
            Trust::Networks(networks) if !networks.contains(peer) => {
                let sent = has_forwarding_headers(headers)
                    || matches!(&self.by, ForwardedBy::Named(name) if headers.contains_key(name));
                if sent && self.hint.first() {
                    tracing::warn!(
                        "a peer that is no trusted proxy sent forwarding headers, which are \
                         ignored: if it is your proxy, all clients behind it share one bucket \
                         until TrustedProxies names its address"
                    );
                }
                return peer;
            }
            Trust::Networks(_) => usize::MAX,
            Trust::Hops(count) => *count,
        };
        let mut client = peer;
        let mut step = |hop: Option<IpAddr>| {
            if left == 0 {
                return false;
            }
            left -= 1;
            match hop {
                Some(hop) => client = hop,
                None => return false,
            }
            match &self.trust {
                Trust::Networks(networks) => networks.contains(client),
                Trust::Hops(_) => true,
            }
        };
        match &self.by {
            ForwardedBy::Forwarded => {
                'all: for value in headers.get_all(FORWARDED).iter().rev() {
                    let Some(elements) = hop::split(value.as_bytes(), b',') else {
                        break;
                    };
                    for element in elements.into_iter().rev() {
                        if !step(hop::forwarded_for(element)) {
                            break 'all;
                        }
                    }
                }
            }
            ForwardedBy::XForwardedFor => walk(headers, &X_FORWARDED_FOR, step),
            ForwardedBy::Named(name) => walk(headers, name, step),
        }
        client
    }

    /// Writes [`ClientIp`] into a request. Where the peer is not known nothing is written: the
    /// limit then answers with a clear error.
    pub fn resolve(&self, request: &mut Parts) {
        if let Some(peer) = peer_ip(&request.extensions) {
            let client = self.client(peer, &request.headers);
            request.extensions.insert(ClientIp(client));
        }
    }
}

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Addresses joined by commas, from the right, several fields as one.
fn walk(headers: &HeaderMap, name: &HeaderName, mut step: impl FnMut(Option<IpAddr>) -> bool) {
    for value in headers.get_all(name).iter().rev() {
        for hop in value.as_bytes().rsplit(|b| *b == b',') {
            if !step(hop::address(hop)) {
                return;
            }
        }
    }
}

/// Proxies that cannot be trusted as they were given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxiesError {
    /// No name of a header.
    #[error("forwarding header: {0:?} is no name of a header; write X-Forwarded-For or Forwarded")]
    Header(Box<str>),
}
