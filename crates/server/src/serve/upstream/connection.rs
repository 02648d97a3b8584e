//! A connection to an upstream. It has no task of its own: whoever waits for the answer drives it,
//! so that a request goes out and its answer comes in without a switch to another task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::{Read, Write};
use tokio::time::Instant;

use crate::serve::patience::Patience;
use crate::serve::upload::Upload;

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// A connection to the upstream.
pub(super) struct Connection {
    sender: SendRequest<Upload>,
    /// What writes and reads; none once the connection has ended, or has a task of its own.
    driver: Option<Driver>,
    patience: Patience,
}

impl Connection {
    /// One over a stream that is open.
    pub(super) async fn new<I>(io: I) -> hyper::Result<Self>
    where
        I: Read + Write + Send + Unpin + 'static,
    {
        let (sender, driver) = handshake(io).await?;
        Ok(Self {
            sender,
            driver: Some(Box::pin(driver.with_upgrades())),
            patience: Patience::default(),
        })
    }

    /// Begins to send a request. Its answer comes while the connection is driven.
    pub(super) fn send(
        &mut self,
        request: Request<Upload>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Upload>>>> + use<>
    {
        self.sender.try_send_request(request)
    }

    /// Drives the connection, and then looks for what it should bring, which need wake nobody.
    pub(super) fn poll_for<T>(
        &mut self,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.drive(cx);
        match self.driver {
            Some(_) => look(&mut Context::from_waker(Waker::noop())),
            None => look(cx),
        }
    }

    /// The next part of an answer's body.
    pub(super) fn poll_frame(
        &mut self,
        body: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if self.driver.is_some() {
            let mut nobody = Context::from_waker(Waker::noop());
            let here = Pin::new(&mut *body).poll_frame(&mut nobody);
            if here.is_ready() {
                return here;
            }
        }
        self.poll_for(cx, |cx| Pin::new(body).poll_frame(cx))
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && let Poll::Ready(ended) = driver.as_mut().poll(cx)
        {
            // What waits for it learns of the end.
            self.driver = None;
            note(ended);
        }
    }

    /// Ready once it is later than this.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        self.patience.poll(cx, deadline)
    }

    /// Gives the connection a task of its own, in which it ends; it is not used again.
    pub(super) fn detach(&mut self) {
        if let Some(driver) = self.driver.take() {
            tokio::spawn(async move { note(driver.await) });
        }
    }

    /// Whether it can take a request, as far as was seen when it was driven the last time.
    pub(super) fn is_ready(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Looks whether it can take a request. Nobody is woken when that changes.
    pub(super) fn look(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// Closes an idle connection as its protocol wants it: TLS says goodbye.
    pub(super) fn close(self) {
        drop(self.sender);
        if let Some(mut driver) = self.driver {
            let _ = driver
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

fn note(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        let error = &error as &dyn std::error::Error;
        tracing::debug!(error, "a connection to the upstream ended");
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}
