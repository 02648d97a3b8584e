//! The body of a response: the service's, or the layer's own.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::layer::Watch;
use crate::{SentEnd, Slot};

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
        Service { #[pin] body: B, watch: Option<Box<Watch>> },
        Held { #[pin] body: B, slot: Option<Slot> },
        Own { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn service(body: B) -> Self {
        Self {
            kind: Kind::Service { body, watch: None },
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

impl<B: Body> ResponseBody<B> {
    /// The service's, whose end settles something.
    pub(crate) fn watched(body: B, mut watch: Box<Watch>) -> Self {
        let mut all = Self::service(body);
        if let Kind::Service { body, watch: kept } = &mut all.kind {
            match body.is_end_stream() {
                true => watch.ended(SentEnd::Whole),
                false => *kept = Some(watch),
            }
        }
        all
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
            ProjectedKind::Service { body, watch: None } => body.poll_frame(cx),
            ProjectedKind::Service { mut body, watch } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                watched(&frame, body.is_end_stream(), watch);
                Poll::Ready(frame)
            }
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
            Kind::Service { body, .. } | Kind::Held { body, .. } => body.is_end_stream(),
            Kind::Own { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body, .. } | Kind::Held { body, .. } => body.size_hint(),
            Kind::Own { bytes } => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64))
            }
        }
    }
}

/// Tells of a frame; at the end there is nothing more to watch, and it settles.
fn watched<D: Buf, E>(
    frame: &Option<Result<Frame<D>, E>>,
    last: bool,
    watch: &mut Option<Box<Watch>>,
) {
    let Some(watching) = watch else { return };
    let over = match frame {
        Some(Ok(frame)) => {
            watching.passed(frame.data_ref().map_or(0, Buf::remaining));
            last.then_some(SentEnd::Whole)
        }
        Some(Err(_)) => Some(SentEnd::Failed),
        None => Some(SentEnd::Whole),
    };
    if let Some(end) = over {
        watching.ended(end);
        *watch = None;
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
