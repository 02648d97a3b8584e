//! Bodies on their way: what a response cost where that is known only when its last byte has gone.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use http::header::CONTENT_LENGTH;
use http::response;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::decide::Charges;
use super::prepared::Of;
use super::settle::{Settle, settle};

/// The most settlements that are under way at a time in a layer. Further charges stay as they were.
const MOST: usize = 10_000;

/// How a response went out, for [`RateLimitLayer::when_sent`](crate::RateLimitLayer::when_sent).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// The bytes of the body that were passed on.
    pub bytes: u64,
    /// How it ended.
    pub end: SentEnd,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SentEnd {
    /// All of it was passed on.
    Whole,
    /// The service failed: instead of a response, or amid its body.
    Failed,
    /// The client went away: before there was a response, or amid its body.
    Left,
}

/// What a streamed response costs, counted while it is made: tokens, rows, seconds.
///
/// Put a clone into the extensions of the response, and [`add`](Self::add) where the stream is made.
/// Once the last byte has gone, or the client, the charge is settled to what was counted until then.
/// It goes before all hooks.
///
/// ```
/// use axum::Extension;
/// use axum::body::Body;
/// use axum::response::IntoResponse;
/// use tollgate_http::CostMeter;
///
/// fn complete(words: Vec<&'static str>) -> impl IntoResponse {
///     let meter = CostMeter::new();
///     let counting = meter.clone();
///     let words = words.into_iter().map(move |word| {
///         counting.add(1);
///         Ok::<_, std::io::Error>(word)
///     });
///     (Extension(meter), Body::from_stream(futures_util::stream::iter(words)))
/// }
/// # let _ = complete(vec!["once", " upon", " a time"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CostMeter(Arc<AtomicU64>);

impl CostMeter {
    /// At 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// It cost so much more.
    pub fn add(&self, cost: u64) {
        let add = |so_far: u64| Some(so_far.saturating_add(cost));
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// What it cost so far.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Charges that are settled when this is dropped: with the body, or with the request if there is no
/// response.
pub(crate) struct Watch {
    of: Of,
    charges: Option<Charges>,
    meter: Option<CostMeter>,
    sent: Sent,
    /// How long the body is, as far as it is sent.
    length: Option<u64>,
}

impl Watch {
    /// Until something else is known, the client has left. `head`: it asked for no body.
    pub(super) fn new(of: Of, charges: Charges, head: bool) -> Self {
        Self {
            of,
            charges: Some(charges),
            meter: None,
            sent: Sent {
                bytes: 0,
                end: SentEnd::Left,
            },
            length: head.then_some(0),
        }
    }

    /// There is a response.
    pub(super) fn answered(&mut self, response: &response::Parts) {
        self.meter = response.extensions.get().cloned();
        let length = response.headers.get(CONTENT_LENGTH);
        let length = length.and_then(|it| it.to_str().ok()?.parse().ok());
        self.length = self.length.or(length);
        self.passed(0);
    }

    /// So much of the body was passed on.
    pub(crate) fn passed(&mut self, bytes: usize) {
        self.sent.bytes = self.sent.bytes.saturating_add(bytes as u64);
        // A server that knows the length does not ask for an end.
        if self.length.is_some_and(|all| self.sent.bytes >= all) {
            self.ended(SentEnd::Whole);
        }
    }

    pub(crate) const fn ended(&mut self, end: SentEnd) {
        self.sent.end = end;
    }

    /// Somebody else settles.
    pub(super) fn disarm(mut self) {
        self.charges = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(charges) = self.charges.take() else {
            return;
        };
        let said = match &self.meter {
            Some(meter) => Settle::Cost(meter.cost()),
            None => self.of.entry().hooks.sent(&self.sent),
        };
        if said != Settle::Keep {
            let of = self.of.clone();
            let settling = settle(of.clone(), charges, said);
            of.prepared.afterwards.run(async move {
                settling.await;
            });
        }
    }
}

/// Settlements that no request waits for. Each ends by itself: a limit bounds its calls.
#[derive(Default)]
pub(super) struct Afterwards(Mutex<JoinSet<()>>);

impl Afterwards {
    fn run(&self, settling: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime there is nobody who could wait for a store.
        let Ok(runtime) = Handle::try_current() else {
            tracing::debug!("there is no runtime, and a settlement was lost");
            return;
        };
        let mut settling = Box::pin(settling);
        // A store in this process answers at once.
        let now = settling
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(()) = now {
            return;
        }
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= MOST {
            tracing::debug!("too many settlements are under way, and one was lost");
            return;
        }
        tasks.spawn_on(settling, &runtime);
    }
}
