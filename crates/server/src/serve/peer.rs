//! Who is at the other end of a connection, and what its requests have in common.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;

use super::forwarding;
use super::known::Offered;
use super::open::Slot;
use crate::engine::Verdict;

/// The other end of a connection. While one of these is there, the connection has its place.
#[derive(Debug)]
pub(super) struct Peer {
    address: IpAddr,
    encrypted: bool,
    begun: AtomicUsize,
    ended: AtomicUsize,
    sending: AtomicBool,
    /// Its latest request was refused.
    refused: AtomicBool,
    /// The bytes of its latest request were kept for a moment.
    offered: AtomicBool,
    /// What was decided of its next request already.
    decided: Mutex<Option<Box<Verdict>>>,
    /// A client asks for the same host again and again: that, and what is said of such a request.
    forwarded: Mutex<Option<(HeaderValue, Box<[u8]>)>>,
    _slot: Slot,
}

impl Peer {
    pub(super) fn new(address: IpAddr, encrypted: bool, slot: Slot) -> Self {
        Self {
            address: address.to_canonical(),
            encrypted,
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            sending: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            offered: AtomicBool::new(false),
            decided: Mutex::new(None),
            forwarded: Mutex::new(None),
            _slot: slot,
        }
    }

    /// Its address; one of IPv4 as such, however it came.
    pub(super) const fn address(&self) -> IpAddr {
        self.address
    }

    /// What it speaks with us.
    pub(super) const fn scheme(&self) -> &'static str {
        if self.encrypted { "https" } else { "http" }
    }

    /// A request begins, and lasts until the answer is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        self.begun.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// How many requests it has made, if none is being answered.
    pub(super) fn idle_after(&self) -> Option<usize> {
        let begun = self.begun.load(Ordering::Relaxed);
        (self.ended.load(Ordering::Relaxed) == begun).then_some(begun)
    }

    /// Whether it may still be sending the body of a request that is answered already.
    pub(super) fn may_send(&self) -> bool {
        self.sending.load(Ordering::Relaxed)
    }

    pub(super) fn set_sending(&self, may_send: bool) {
        self.sending.store(may_send, Ordering::Relaxed);
    }

    /// Whether its latest request was refused.
    pub(super) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn set_refused(&self, refused: bool) {
        self.refused.store(refused, Ordering::Relaxed);
    }

    /// The bytes of its request of this number are kept for a moment.
    pub(super) fn offer(&self, number: usize) -> Offered {
        self.offered.store(true, Ordering::Relaxed);
        self.called(number)
    }

    /// Those of the request that begun last, if they were kept.
    pub(super) fn take_offered(&self) -> Option<Offered> {
        let offered = self.offered.swap(false, Ordering::Relaxed);
        offered.then(|| self.called(self.begun.load(Ordering::Relaxed)))
    }

    fn called(&self, number: usize) -> Offered {
        Offered {
            connection: std::ptr::from_ref(self).addr(),
            number,
        }
    }

    /// This was decided of its next request.
    pub(super) fn decide(&self, verdict: Box<Verdict>) {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        *decided = Some(verdict);
    }

    /// What was decided of its request already.
    pub(super) fn take_decided(&self) -> Option<Box<Verdict>> {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        decided.take()
    }

    /// Whether the latest request was for this host, too, and it was found to be one.
    pub(super) fn knows(&self, host: &HeaderValue) -> bool {
        let latest = self
            .forwarded
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        matches!(&*latest, Some((of, _)) if of == host)
    }

    /// Writes the fields that say where its request to this host came from; made once.
    pub(super) fn write_forwarded(&self, host: Option<&HeaderValue>, out: &mut Vec<u8>) {
        let write = |out: &mut Vec<u8>| {
            forwarding::write_chain(&[self.address], host, self.scheme(), out);
        };
        let Some(host) = host else {
            return write(out);
        };
        let mut latest = self
            .forwarded
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some((of, fields)) if of == host => out.extend_from_slice(fields),
            _ => {
                let mut fields = Vec::new();
                write(&mut fields);
                out.extend_from_slice(&fields);
                // A copy: the value that came keeps all that was read with it, which is 8 KiB.
                let host = HeaderValue::from_bytes(host.as_bytes());
                *latest = host.ok().map(|host| (host, fields.into()));
            }
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Peer>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}
