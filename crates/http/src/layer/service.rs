//! The service, and the future of a response: decide, ask the service, settle, write the fields.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Method, Request, Response, request};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::answer::Refusal;
use super::decide::{Charges, Unlimited, Verdict, all, joined};
use super::prepared::{Of, Prepared};
use super::sent::Watch;
use super::settle::{ActualCost, Settle, settle};
use super::{CostMeter, Hooks, SentEnd};
use crate::{Limited, ResponseBody};

/// A service whose requests are limited. [`RateLimitLayer`](crate::RateLimitLayer) makes it.
#[derive(Clone)]
pub struct RateLimitService<S> {
    inner: S,
    prepared: Arc<Prepared>,
}

impl<S> RateLimitService<S> {
    pub(super) const fn new(inner: S, prepared: Arc<Prepared>) -> Self {
        Self { inner, prepared }
    }
}

impl<S, A, B> Service<Request<A>> for RateLimitService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    B: Body,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, A, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let Some(number) = self.prepared.number((&request).into()) else {
            return self.pass(request);
        };
        let entry = self.prepared.entry(number);
        // Most requests end here, and are not taken apart.
        let verdict = match self.prepared.decide_by_address(entry, (&request).into()) {
            Some(Verdict::Admitted(charges)) => {
                let head = request.method() == Method::HEAD;
                let limited = joined(&charges);
                let nested = request.extensions_mut().insert(limited).is_some();
                let after = After::new(&self.prepared, number, charges, nested, head);
                return State::Service {
                    future: self.inner.call(request),
                    after: Some(after),
                }
                .into();
            }
            other => other,
        };
        self.call_slowly(number, request, verdict)
    }
}

impl<S> RateLimitService<S> {
    /// Nothing limits it.
    fn pass<A, B>(&mut self, request: Request<A>) -> ResponseFuture<S, A, B>
    where
        S: Service<Request<A>>,
    {
        let future = self.inner.call(request);
        State::Service {
            future,
            after: None,
        }
        .into()
    }

    /// What was not admitted at first sight, or needs all that there is to see.
    #[inline(never)]
    fn call_slowly<A, B>(
        &mut self,
        number: usize,
        request: Request<A>,
        verdict: Option<Verdict>,
    ) -> ResponseFuture<S, A, B>
    where
        S: Service<Request<A>> + Clone,
    {
        let (mut request, body) = request.into_parts();
        let entry = self.prepared.entry(number);
        if self.prepared.settings.exempt.is_by_test(&request) {
            return self.pass(Request::from_parts(request, body));
        }
        let verdict = verdict.or_else(|| self.prepared.decide_now(entry, &request));
        let Some(verdict) = verdict else {
            let of = Of::new(&self.prepared, number);
            // The service that was polled is the one that must be called.
            let service = self.inner.clone();
            let service = std::mem::replace(&mut self.inner, service);
            let waiting = Some(Box::new((service, body, of.clone())));
            let deciding = Box::pin(async move {
                let verdict = of.prepared.decide(of.entry(), &request).await;
                (request, verdict)
            });
            return State::Deciding { deciding, waiting }.into();
        };
        match verdict_on(&self.prepared, number, &mut request, verdict) {
            Then::Answer(response) => State::Answer {
                response: Some(response),
            },
            Then::Go(after) => State::Service {
                future: self.inner.call(Request::from_parts(request, body)),
                after,
            },
        }
        .into()
    }
}

/// What follows from a verdict.
enum Then<B> {
    Answer(Box<Response<ResponseBody<B>>>),
    /// And nothing is done afterwards, if nothing limits it.
    Go(Option<After>),
}

/// What is done once the response is there.
struct After {
    of: Of,
    /// A layer around this one writes fields too.
    nested: bool,
    /// Nothing was charged: the refusal was overruled.
    overruled: bool,
    charges: Charges,
    watch: Option<Box<Watch>>,
    /// The client asked for no body.
    head: bool,
}

fn verdict_on<B>(
    prepared: &Arc<Prepared>,
    number: usize,
    request: &mut request::Parts,
    verdict: Verdict,
) -> Then<B> {
    let (charges, limited, overruled) = match verdict {
        Verdict::Admitted(charges) => {
            let limited = joined(&charges);
            (charges, limited, false)
        }
        Verdict::Refused(charges) => {
            let nested = request.extensions.get::<Limited>().is_some();
            match prepared.refused(prepared.entry(number), &charges, request, nested) {
                Refusal::Answer(response) => return Then::Answer(response),
                Refusal::Continue(limited) => (charges, limited, true),
            }
        }
        Verdict::Unlimited(Unlimited::Exempt) => return Then::Go(None),
        Verdict::Unlimited(Unlimited::Denied(denied)) => {
            return Then::Answer(Box::new(prepared.settings.telling.denied(denied, request)));
        }
    };
    let head = request.method == Method::HEAD;
    let nested = request.extensions.insert(limited).is_some();
    Then::Go(Some(match overruled {
        true => After {
            of: Of::new(prepared, number),
            nested,
            overruled,
            charges,
            watch: None,
            head,
        },
        false => After::new(prepared, number, charges, nested, head),
    }))
}

impl After {
    /// Of what was admitted.
    fn new(
        prepared: &Arc<Prepared>,
        number: usize,
        charges: Charges,
        nested: bool,
        head: bool,
    ) -> Self {
        let of = Of::new(prepared, number);
        let watched = of.entry().hooks.watch();
        Self {
            watch: watched.then(|| Box::new(Watch::new(of.clone(), charges.clone(), head))),
            of,
            nested,
            overruled: false,
            charges,
            head,
        }
    }

    /// Whether nobody has anything to say of this response, and nobody waits for its end: mostly.
    fn is_quiet<B>(&self, response: &Response<B>) -> bool {
        self.watch.is_none()
            && (self.overruled
                || (!self.of.entry().hooks.hear() && response.extensions().is_empty()))
    }

    /// The response with the fields of what was charged.
    fn finish<B: Body>(mut self, mut response: Response<B>) -> Response<ResponseBody<B>> {
        self.write(&mut response);
        let Some(mut watch) = self.watch.take() else {
            return response.map(ResponseBody::service);
        };
        let (parts, body) = response.into_parts();
        watch.answered(&parts);
        Response::from_parts(parts, ResponseBody::watched(body, watch))
    }

    fn write<B>(&self, response: &mut Response<B>) {
        let several;
        let decision = match &self.charges {
            Charges::One(charge) => charge.decision(),
            Charges::Many(charges) => {
                several = all(charges);
                &several
            }
        };
        let prepared = &self.of.prepared;
        let fields = prepared.headers(self.of.entry(), &self.charges);
        prepared.write(&fields, decision, false, self.nested, response);
    }

    /// What becomes of the charge now that the head of the response is there.
    fn said<B>(&mut self, response: Response<B>) -> (Settle, Response<B>) {
        if self.overruled {
            return (Settle::Keep, response);
        }
        let hooks: &Hooks = &self.of.entry().hooks;
        let (parts, body) = response.into_parts();
        let said = if let Some(ActualCost(cost)) = parts.extensions.get() {
            Settle::Cost(*cost)
        } else if parts.extensions.get::<CostMeter>().is_some() {
            if self.watch.is_none() {
                let watch = Watch::new(self.of.clone(), self.charges.clone(), self.head);
                self.watch = Some(Box::new(watch));
            }
            Settle::Keep
        } else {
            hooks.answered(&parts)
        };
        (said, Response::from_parts(parts, body))
    }

    /// What becomes of the charge now that there is an error in place of a response.
    fn failed(&mut self) -> Settle {
        if self.overruled {
            return Settle::Keep;
        }
        if self.of.entry().hooks.refund_failures() {
            return Settle::Refund;
        }
        if let Some(watch) = &mut self.watch {
            watch.ended(SentEnd::Failed);
        }
        Settle::Keep
    }

    /// Begins to settle in place of whoever else would.
    fn settle(&mut self, said: Settle) -> Settling {
        if let Some(watch) = self.watch.take() {
            watch.disarm();
        }
        Box::pin(settle(self.of.clone(), self.charges.clone(), said))
    }
}

type Deciding = Pin<Box<dyn Future<Output = (request::Parts, Verdict)> + Send>>;
type Settling = Pin<Box<dyn Future<Output = Charges> + Send>>;
/// The service that was polled, the body of the request, and its rule.
type Waiting<S, A> = Box<(S, A, Of)>;
/// What settles first, and what is answered then.
type Answer<B, E> = Box<(After, Result<Response<B>, E>)>;

pin_project! {
    /// The future of a response.
    pub struct ResponseFuture<S, A, B>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S::Future, S, A, B, S::Error>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, S, A, B, E> {
        Deciding { deciding: Deciding, waiting: Option<Waiting<S, A>> },
        Service { #[pin] future: F, after: Option<After> },
        Settling { settling: Settling, waiting: Option<Answer<B, E>> },
        Answer { response: Option<Box<Response<ResponseBody<B>>>> },
    }
}

impl<S, A, B> From<State<S::Future, S, A, B, S::Error>> for ResponseFuture<S, A, B>
where
    S: Service<Request<A>>,
{
    fn from(state: State<S::Future, S, A, B, S::Error>) -> Self {
        Self { state }
    }
}

impl<S, A, B> Future for ResponseFuture<S, A, B>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const ONCE: &str = "polled after it was done";
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                Projected::Deciding { deciding, waiting } => {
                    let (mut request, verdict) = ready!(deciding.as_mut().poll(cx));
                    let (mut service, body, of) = *waiting.take().expect(ONCE);
                    match verdict_on(&of.prepared, of.number, &mut request, verdict) {
                        Then::Answer(response) => State::Answer {
                            response: Some(response),
                        },
                        Then::Go(after) => State::Service {
                            future: service.call(Request::from_parts(request, body)),
                            after,
                        },
                    }
                }
                Projected::Service { future, after } => {
                    let mut answer = ready!(future.poll(cx));
                    if let (Some(after), Ok(response)) = (&*after, &mut answer)
                        && after.is_quiet(response)
                    {
                        after.write(response);
                        return Poll::Ready(answer.map(|it| it.map(ResponseBody::service)));
                    }
                    let Some(mut after) = after.take() else {
                        return Poll::Ready(answer.map(|it| it.map(ResponseBody::service)));
                    };
                    let (said, answer) = match answer {
                        Ok(response) => {
                            let (said, response) = after.said(response);
                            if said == Settle::Keep {
                                return Poll::Ready(Ok(after.finish(response)));
                            }
                            (said, Ok(response))
                        }
                        Err(error) => {
                            let said = after.failed();
                            if said == Settle::Keep {
                                return Poll::Ready(Err(error));
                            }
                            (said, Err(error))
                        }
                    };
                    State::Settling {
                        settling: after.settle(said),
                        waiting: Some(Box::new((after, answer))),
                    }
                }
                Projected::Settling { settling, waiting } => {
                    let charges = ready!(settling.as_mut().poll(cx));
                    let (mut after, answer) = *waiting.take().expect(ONCE);
                    after.charges = charges;
                    return Poll::Ready(answer.map(|response| after.finish(response)));
                }
                Projected::Answer { response } => {
                    return Poll::Ready(Ok(*response.take().expect(ONCE)));
                }
            };
            state.set(next);
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimitService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, A, B> fmt::Debug for ResponseFuture<S, A, B>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Deciding { .. } => "ResponseFuture(deciding)",
            State::Service { .. } => "ResponseFuture(service)",
            State::Settling { .. } => "ResponseFuture(settling)",
            State::Answer { .. } => "ResponseFuture(answer)",
        })
    }
}
