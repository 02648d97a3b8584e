//! The body of a response: the service's, or the layer's own.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::Slot;

pin_project! {
    /// The body that the service made, or that of a refusal.
    #[project = Projected]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = ProjectedKind]
    enum Kind<B> {
        Service { #[pin] body: B },
        Held { #[pin] body: B, slot: Option<Slot> },
        Own { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn service(body: B) -> Self {
        Self {
            kind: Kind::Service { body },
        }
    }

    /// Which has a slot to its last byte.
    pub(crate) const fn held(body: B, slot: Slot) -> Self {
        let slot = Some(slot);
        Self {
            kind: Kind::Held { body, slot },
        }
    }

    pub(crate) fn own(bytes: Bytes) -> Self {
        let bytes = (!bytes.is_empty()).then_some(bytes);
        Self {
            kind: Kind::Own { bytes },
        }
    }

    pub(crate) const fn empty() -> Self {
        Self {
            kind: Kind::Own { bytes: None },
        }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            ProjectedKind::Service { body } => body.poll_frame(cx),
            ProjectedKind::Held { mut body, slot } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                // Given back before the last byte leaves: whoever reads it may ask again at once.
                if matches!(frame, None | Some(Err(_))) || body.is_end_stream() {
                    *slot = None;
                }
                Poll::Ready(frame)
            }
            ProjectedKind::Own { bytes } => Poll::Ready(bytes.take().map(|it| Ok(Frame::data(it)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body } | Kind::Held { body, .. } => body.is_end_stream(),
            Kind::Own { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body } | Kind::Held { body, .. } => body.size_hint(),
            Kind::Own { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64))
            }
        }
    }
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::service(B::default())
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Service { .. } => "ResponseBody(service)",
            Kind::Held { .. } => "ResponseBody(held)",
            Kind::Own { .. } => "ResponseBody(own)",
        })
    }
}
