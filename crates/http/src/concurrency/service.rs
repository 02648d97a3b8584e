//! The service, and the future of a response: take a slot, ask the service, let go of the slot.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Request, Response, StatusCode, request};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::Settings;
use super::answer::Stopped;
#[cfg(feature = "ws")]
use super::upgrade::Relay;
use crate::{ResponseBody, Slot};

/// A service whose requests need slots. [`ConcurrencyLayer`](crate::ConcurrencyLayer) makes it.
#[derive(Clone)]
pub struct ConcurrencyService<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> ConcurrencyService<S> {
    pub(super) const fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S, A, B> Service<Request<A>> for ConcurrencyService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    B: Body,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ConcurrencyFuture<S, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (request, body) = request.into_parts();
        if !self.settings.limits(&request) {
            let future = self.inner.call(Request::from_parts(request, body));
            return State::Service { future, held: None }.into();
        }
        // The service that was polled is the one that must be called.
        let service = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, service);
        let settings = Arc::clone(&self.settings);
        let taking = Box::pin(take(Arc::clone(&settings), request));
        let waiting = Some(Box::new((service, body, settings)));
        State::Taking { taking, waiting }.into()
    }
}

/// Takes a slot, and says what is to be done with it afterwards.
async fn take(settings: Arc<Settings>, mut request: request::Parts) -> Taken {
    let slot = match settings.take(&request).await {
        Ok(slot) => slot,
        Err(stopped) => return (request, Err(stopped)),
    };
    #[cfg(feature = "ws")]
    let relay = Relay::instead_of(&mut request).await;
    request.extensions.insert(slot.clone());
    let held = Held {
        slot,
        method: request.method.clone(),
        to_the_last_byte: settings.to_the_last_byte,
        #[cfg(feature = "ws")]
        relay,
    };
    (request, Ok(held))
}

type Taken = (request::Parts, Result<Held, Stopped>);

struct Held {
    slot: Slot,
    method: Method,
    to_the_last_byte: bool,
    /// What the connection may become.
    #[cfg(feature = "ws")]
    relay: Option<Relay>,
}

impl Held {
    /// Who has the slot from now on.
    fn hand_over<B: Body>(self, response: Response<B>) -> Response<ResponseBody<B>> {
        let status = response.status();
        #[cfg(feature = "ws")]
        if let Some(relay) = self.relay
            && (status == StatusCode::SWITCHING_PROTOCOLS
                || (self.method == Method::CONNECT && status.is_success()))
        {
            relay.run(self.slot);
            return response.map(ResponseBody::service);
        }
        let empty = self.method == Method::HEAD
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || response.body().is_end_stream();
        if !self.to_the_last_byte || empty {
            return response.map(ResponseBody::service);
        }
        response.map(|body| ResponseBody::held(body, self.slot))
    }
}

pin_project! {
    /// The future of a response.
    pub struct ConcurrencyFuture<S, A>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S::Future, S, A>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, S, A> {
        Taking {
            taking: Pin<Box<dyn Future<Output = Taken> + Send>>,
            waiting: Option<Box<(S, A, Arc<Settings>)>>,
        },
        Service { #[pin] future: F, held: Option<Held> },
    }
}

impl<S, A> From<State<S::Future, S, A>> for ConcurrencyFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn from(state: State<S::Future, S, A>) -> Self {
        Self { state }
    }
}

impl<S, A, B> Future for ConcurrencyFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                Projected::Taking { taking, waiting } => {
                    let (mut request, taken) = ready!(taking.as_mut().poll(cx));
                    let (mut service, body, settings) =
                        *waiting.take().expect("polled after it was done");
                    match taken {
                        Ok(held) => State::Service {
                            future: service.call(Request::from_parts(request, body)),
                            held: Some(held),
                        },
                        Err(stopped) => {
                            return Poll::Ready(Ok(settings.answer(stopped, &mut request)));
                        }
                    }
                }
                Projected::Service { future, held } => {
                    let response = ready!(future.poll(cx));
                    let held = held.take();
                    return Poll::Ready(response.map(|response| match held {
                        Some(held) => held.hand_over(response),
                        None => response.map(ResponseBody::service),
                    }));
                }
            };
            state.set(next);
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for ConcurrencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, A> fmt::Debug for ConcurrencyFuture<S, A>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Taking { .. } => "ConcurrencyFuture(taking)",
            State::Service { .. } => "ConcurrencyFuture(service)",
        })
    }
}
