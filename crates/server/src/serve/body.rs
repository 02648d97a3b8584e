//! The body of an answer, and what is held until its last byte is sent.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::peer::InFlight;
use super::upstream::{Broken, Exchange};
use super::websocket::Tunnel;
use crate::metrics::Outcome;

/// The body of an answer: whole, or as the upstream sends it.
#[derive(Debug)]
pub(super) struct Body {
    kind: Kind,
    /// What became of the request, where this is not the backend's answer.
    outcome: Option<Outcome>,
    in_flight: Option<InFlight>,
    held: Option<Held>,
}

#[derive(Debug)]
enum Kind {
    Whole(Option<Bytes>),
    /// In a box: answers are moved about.
    Streamed(Box<Exchange>),
    /// None: what follows is no HTTP.
    Tunnel(Option<Box<Tunnel>>),
}

/// Something that is given back when the answer is over, such as a permit.
struct Held(#[expect(dead_code, reason = "it is dropped, not read")] Box<dyn Any + Send>);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl Body {
    /// All of it.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(Kind::Whole(Some(bytes.into())))
    }

    /// What the upstream sends.
    pub(super) fn streamed(exchange: Exchange) -> Self {
        Self::new(Kind::Streamed(Box::new(exchange)))
    }

    /// What comes after the answer.
    pub(super) fn tunnel(tunnel: Tunnel) -> Self {
        Self::new(Kind::Tunnel(Some(Box::new(tunnel))))
    }

    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            outcome: None,
            in_flight: None,
            held: None,
        }
    }

    pub(super) const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    pub(super) const fn set_outcome(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// The request is in flight until the answer is over.
    pub(super) fn in_flight(&mut self, request: InFlight) {
        self.in_flight = Some(request);
    }

    /// Holds this until the answer is over.
    pub(super) fn hold(&mut self, permit: impl Any + Send) {
        self.held = Some(Held(Box::new(permit)));
    }

    /// Begins the tunnel, if this is one. It holds what this would have held.
    pub(super) fn begin_tunnel(&mut self) {
        if let Kind::Tunnel(tunnel) = &mut self.kind
            && let Some(tunnel) = tunnel.take()
        {
            // It ends when either side does, or with this thread.
            tokio::spawn(tunnel.run((self.in_flight.take(), self.held.take())));
        }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.kind {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Streamed(exchange) => exchange.poll_frame(cx),
            Kind::Tunnel(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Streamed(exchange) => exchange.is_over(),
            Kind::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Kind::Streamed(exchange) => exchange
                .length()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
            Kind::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}
