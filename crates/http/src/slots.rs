//! What a limit on concurrency gives, whatever counts it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tollgate_core::{Key, NoSlot};

/// A slot, or why there is none; it may take its time.
pub type Holding<'a> = Pin<Box<dyn Future<Output = Result<Slot, NoSlot>> + Send + 'a>>;

/// A limit on how many run at the same time, for each key. `tollgate::Concurrency` is one.
pub trait Slots: fmt::Debug + Send + Sync + 'static {
    /// What it is called.
    fn name(&self) -> &str;

    /// Whether each client has slots of its own.
    fn per_client(&self) -> bool;

    /// Takes a slot of this key, waiting for it as long as the limit says.
    ///
    /// # Cancellation
    /// A call that is dropped holds nothing.
    fn take<'a>(&'a self, key: &'a Key<'a>) -> Holding<'a>;
}

/// One that is held, until this is dropped.
pub trait HeldSlot: Send + Sync + 'static {
    /// Its fencing number: who holds a slot later has a larger one.
    fn fence(&self) -> u64;

    /// Whether it was lost.
    fn is_lost(&self) -> bool;

    /// Returns when it is.
    fn lost(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The slot of a request: in its extensions, and an extractor of axum.
///
/// Clones share it, and it is given back when the last one is dropped. So a handler that wants to
/// keep it longer than its response, in a job that it starts, moves it there.
///
/// ```
/// use tollgate_http::Slot;
///
/// async fn render() -> String {
///     "a picture".into()
/// }
///
/// async fn handler(slot: Slot) -> Result<String, &'static str> {
///     tokio::select! {
///         picture = render() => Ok(picture),
///         // Somebody else may have it by now.
///         () = slot.lost() => Err("stopped"),
///     }
/// }
/// ```
#[derive(Clone)]
#[must_use = "the slot is given back when this is dropped"]
pub struct Slot(Arc<dyn HeldSlot>);

impl Slot {
    /// Of something that holds one.
    pub fn new(held: impl HeldSlot) -> Self {
        Self(Arc::new(held))
    }

    /// The number of this holding. It only grows: who holds a slot later has a larger one. What the
    /// request writes to can refuse a smaller number than it has seen.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.0.fence()
    }

    /// Whether it was lost: it could not be renewed in time.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Returns when it is lost. Somebody else may have it then, so the work should stop.
    pub async fn lost(&self) {
        self.0.lost().await;
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "axum")]
mod extract {
    use axum::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::StatusCode;
    use http::request::Parts;

    use super::Slot;

    /// 500 for a route that has no layer. Extract an `Option` where that may be.
    impl<S: Sync> FromRequestParts<S> for Slot {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
            parts.extensions.get::<Self>().cloned().ok_or((
                StatusCode::INTERNAL_SERVER_ERROR,
                "this route has no slots: put a ConcurrencyLayer around it",
            ))
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Slot {
        type Rejection = std::convert::Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _: &S,
        ) -> Result<Option<Self>, Self::Rejection> {
            Ok(parts.extensions.get::<Self>().cloned())
        }
    }
}
