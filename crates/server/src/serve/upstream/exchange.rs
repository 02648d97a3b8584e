//! One answer that comes from an upstream, and the connection it comes by.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Frame;
use tokio::io::{AsyncRead, ReadBuf, ReadHalf, WriteHalf, split};
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::chunks::Part;
use super::connection::Connection;
use super::framing::Framing;
use super::outgoing::Outgoing;
use super::pool::Pool;
use super::reading::{LITTLE, MUCH, poll_bytes};
use super::stream::Stream;
use super::unreadable::Unreadable;
use crate::serve::patience::Patience;
use crate::serve::upload::Progress;

/// An answer's body that comes, and the connection it comes by, which ends with it if it does not
/// come to its end.
#[derive(Debug)]
pub(in crate::serve) struct Exchange {
    /// None once the answer is over, or broke off.
    source: Option<Source>,
    framing: Framing,
    /// What has come and is not passed on.
    unread: Bytes,
    /// There was as much as was asked for the last time.
    is_busy: bool,
    /// Where the connection goes once the answer is over, if it can be used again.
    keep: Option<Arc<Pool>>,
    times: Times,
    /// Since when the next part is awaited.
    waiting: Option<Instant>,
    /// It broke off, and the client is not told yet.
    broken: Option<Broken>,
}

/// Where an answer comes from.
#[derive(Debug)]
pub(super) enum Source {
    Whole(Connection),
    /// The request is still being sent, by a task of its own, which learns by the last that the
    /// answer is over.
    Shared(
        ReadHalf<Stream>,
        Patience,
        #[expect(dead_code, reason = "it is dropped, not used")] Sender<()>,
    ),
}

/// When an answer is late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When its request came.
    pub(super) start: Instant,
    /// How long the next part may take.
    pub(super) idle: Duration,
    /// When all of it must be there.
    pub(super) end: Option<Instant>,
}

/// Why an answer did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum Broken {
    /// The upstream broke off.
    #[error("the upstream broke off")]
    Off(#[source] Unreadable),
    /// The next part, or all of it, did not come in time.
    #[error("the upstream did not go on with its answer, or end it, in time")]
    Stalled,
}

impl Exchange {
    /// An answer whose head has come, and `unread` with it.
    pub(super) const fn new(
        source: Source,
        framing: Framing,
        unread: Bytes,
        keep: Option<Arc<Pool>>,
        times: Times,
    ) -> Self {
        Self {
            source: Some(source),
            framing,
            unread,
            is_busy: false,
            keep,
            times,
            waiting: None,
            broken: None,
        }
    }

    /// The whole body, if it is there already. Then the connection is free.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.framing.length()?).ok()?;
        if self.unread.len() < length {
            return None;
        }
        self.framing = Framing::Over;
        let body = self.unread.split_to(length);
        self.complete();
        Some(body)
    }

    /// The next part.
    pub(in crate::serve) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(broken) = self.broken.take() {
            return Poll::Ready(Some(Err(broken)));
        }
        let next = ready!(self.poll_part(cx));
        // Where there is always more, nothing is waited for.
        let late = self.times.end.is_some_and(|end| Instant::now() >= end);
        let next = match next {
            Ok(Part::Data(_) | Part::Trailers(_)) if late => Err(Broken::Stalled),
            next => next,
        };
        self.waiting = None;
        if self.framing.is_over() {
            self.complete();
        }
        Poll::Ready(match next {
            Ok(Part::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Part::Trailers(fields)) => Some(Ok(Frame::trailers(fields))),
            Ok(Part::End) => None,
            Err(broken) => {
                self.source = None;
                self.broken = Some(broken);
                // A server of HTTP/1 ends its connection at once, but sends what it has, such as
                // the head, when it is told to wait.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Part, Broken>> {
        loop {
            match self.framing.next(&mut self.unread) {
                Ok(Some(part)) => return Poll::Ready(Ok(part)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(Broken::Off(error))),
            }
            let Some(source) = &mut self.source else {
                return Poll::Ready(Ok(Part::End));
            };
            let more = if self.is_busy { MUCH as u64 } else { 0 };
            let bytes = match poll_bytes(source, cx, self.framing.expected().max(more)) {
                Poll::Ready(Ok(bytes)) => bytes,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Broken::Off(error.into()))),
                Poll::Pending => {
                    let since = *self.waiting.get_or_insert_with(Instant::now);
                    ready!(source.poll_late(cx, since, &self.times));
                    return Poll::Ready(Err(Broken::Stalled));
                }
            };
            if bytes.is_empty() {
                self.keep = None;
                let ended = self.framing.end().map_err(Broken::Off);
                return Poll::Ready(ended.map(|()| Part::End));
            }
            self.is_busy = bytes.len() >= LITTLE;
            self.unread = bytes;
        }
    }

    /// Whether nothing more will come.
    pub(in crate::serve) const fn is_over(&self) -> bool {
        self.framing.is_over() && self.broken.is_none()
    }

    /// How many bytes will come, if that is known.
    pub(in crate::serve) const fn length(&self) -> Option<u64> {
        self.framing.length()
    }

    /// The answer is there to its last byte: the connection is free for another request, if nothing
    /// has come behind it.
    fn complete(&mut self) {
        let Some(Source::Whole(connection)) = self.source.take() else {
            return;
        };
        match self.keep.take().filter(|_| self.unread.is_empty()) {
            Some(pool) => pool.put(self.times.start, connection),
            None => connection.close(),
        }
    }
}

impl Source {
    /// From now on the request is sent by a task of its own: it must not wait until the client
    /// takes the answer.
    pub(super) fn shared(
        connection: Connection,
        outgoing: Outgoing,
        progress: Arc<Progress>,
        times: &Times,
    ) -> Self {
        let (reading, writing) = split(connection.stream);
        let (answering, answered) = channel();
        tokio::spawn(send_on(outgoing, writing, progress, answered, *times));
        Self::Shared(reading, connection.patience, answering)
    }

    /// Ready if what is awaited since then is late.
    fn poll_late(&mut self, cx: &mut Context<'_>, since: Instant, times: &Times) -> Poll<()> {
        let idle = since + times.idle;
        let deadline = times.end.map_or(idle, |end| end.min(idle));
        let (Self::Whole(Connection { patience, .. }) | Self::Shared(_, patience, _)) = self;
        patience.poll(cx, deadline)
    }
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Whole(connection) => Pin::new(&mut connection.stream).poll_read(cx, into),
            Self::Shared(stream, ..) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

/// Sends the rest of a request, until it is sent, or the upstream takes nothing for too long, or
/// the client sends nothing for too long once it has the answer: its request has no place and no
/// permit any more, but would hold a connection to the upstream. (Before that it may wait for what
/// the answer says.)
async fn send_on(
    mut outgoing: Outgoing,
    mut to: WriteHalf<Stream>,
    progress: Arc<Progress>,
    mut answered: Receiver<()>,
    times: Times,
) {
    let mut patience = Patience::default();
    let mut over = None;
    poll_fn(|cx| {
        if outgoing.poll_send(&mut to, cx).is_ready() {
            return Poll::Ready(());
        }
        // Nothing is sent by it: it is dropped.
        if over.is_none() && Pin::new(&mut answered).poll(cx).is_ready() {
            over = Some(Instant::now());
        }
        let since = match over {
            None => (!progress.waits_for_client()).then(|| progress.latest()),
            Some(over) => Some(progress.latest().max(over)),
        };
        let idle = since.map(|since| since + times.idle);
        match idle.into_iter().chain(times.end).min() {
            Some(deadline) => patience.poll(cx, deadline),
            None => Poll::Pending,
        }
    })
    .await;
}
