//! The client's address as a source.

use http::request::Parts;
use tollgate_core::Key;

use super::{Identified, Identity, IdentitySource};
use crate::client::{ClientIp, NO_PEER, Once, peer_ip, warn_of_unresolved};
use crate::head::Head;
use crate::{AddressPrefixes, PrefixError};

/// One for the process: that nobody resolves the headers is a fact of the service.
static WARNED: Once = Once::new();

const SOURCE: &str = "ip";

/// The client's address: [`ClientIp`] where it was resolved, else the peer of the socket.
///
/// IPv6 counts by /64, see [`AddressPrefixes`]. This source reads no header; where forwarding
/// headers come in and nobody resolves them, it says so once, in a warning. A service that does
/// not know its peers is misconfigured: a clear error, never a panic.
///
/// ```
/// use http::Request;
/// use tollgate_http::{Identified, IdentitySource, Ip, PeerAddr};
///
/// let mut request = Request::new(());
/// request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 51_000).into()));
/// let (parts, ()) = request.into_parts();
/// let source = Ip::default().client_network(24, 48)?;
/// assert!(matches!(source.identify_now(&parts), Some(Identified::As(it)) if it.source() == "ip"));
/// # Ok::<(), tollgate_http::PrefixError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ip {
    prefixes: AddressPrefixes,
    warned: &'static Once,
}

impl Default for Ip {
    fn default() -> Self {
        Self::new(AddressPrefixes::default())
    }
}

impl Ip {
    /// With so much of an address being one client.
    #[must_use]
    pub const fn new(prefixes: AddressPrefixes) -> Self {
        Self {
            prefixes,
            warned: &WARNED,
        }
    }

    /// By networks of so many bits of IPv4 and of IPv6.
    ///
    /// # Errors
    /// IPv4 has 1 to 32 bits, IPv6 1 to 128.
    pub const fn client_network(mut self, v4: u8, v6: u8) -> Result<Self, PrefixError> {
        match AddressPrefixes::new(v4, v6) {
            Ok(prefixes) => self.prefixes = prefixes,
            Err(error) => return Err(error),
        }
        Ok(self)
    }

    /// What the limit counts for, without an identity around it; or what is missing.
    pub(crate) fn key(&self, head: Head<'_>) -> Result<Key<'static>, &'static str> {
        let address = match head.extensions.get::<ClientIp>() {
            Some(ClientIp(address)) => *address,
            None => {
                let peer = peer_ip(head.extensions).ok_or(NO_PEER)?;
                warn_of_unresolved(head.headers, self.warned);
                peer
            }
        };
        // Most are this, on the path of every request: no text to allocate.
        Ok(match self.prefixes.single_v4(address) {
            Some((text, length)) => Identity::key_of(SOURCE, &text[..length]),
            None => Identity::key_of(SOURCE, self.prefixes.client_key(address).as_bytes()),
        })
    }

    #[cfg(test)]
    pub(super) const fn warns(mut self, once: &'static Once) -> Self {
        self.warned = once;
        self
    }
}

impl IdentitySource for Ip {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        Some(match self.key(request.into()) {
            Ok(key) => Identified::As(Identity::with_key(SOURCE, key)),
            Err(missing) => Identified::Misconfigured(missing),
        })
    }
}
