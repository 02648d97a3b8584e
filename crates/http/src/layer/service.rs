//! The service, and the future of a response: decide, ask the service, settle, write the fields.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, request, response};
use pin_project_lite::pin_project;
use tollgate_core::Decision;
use tower_service::Service;

use super::answer::Refusal;
use super::decide::{Charges, Unlimited, Verdict, joined};
use super::prepared::{Entry, Prepared};
use super::settle::{Settle, said, settle};
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
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, A, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (mut request, body) = request.into_parts();
        let Some(entry) = self.prepared.entry(&request) else {
            let future = self.inner.call(Request::from_parts(request, body));
            return State::Service {
                future,
                after: None,
            }
            .into();
        };
        let Some(verdict) = self.prepared.decide_now(entry, &request) else {
            let (prepared, entry) = (Arc::clone(&self.prepared), Arc::clone(entry));
            // The service that was polled is the one that must be called.
            let service = self.inner.clone();
            let service = std::mem::replace(&mut self.inner, service);
            let context = (Arc::clone(&prepared), Arc::clone(&entry));
            let deciding = Box::pin(async move {
                let verdict = prepared.decide(&entry, &request).await;
                (request, verdict)
            });
            return State::Deciding {
                deciding,
                waiting: Some(Box::new((service, body, context))),
            }
            .into();
        };
        match verdict_on(&self.prepared, entry, &mut request, verdict) {
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
    prepared: Arc<Prepared>,
    entry: Arc<Entry>,
    /// A layer around this one writes fields too.
    nested: bool,
    outcome: Outcome,
}

enum Outcome {
    Charged(Charges),
    /// The refusal was overruled.
    Overruled(Charges, Decision),
}

fn verdict_on<B>(
    prepared: &Arc<Prepared>,
    entry: &Arc<Entry>,
    request: &mut request::Parts,
    verdict: Verdict,
) -> Then<B> {
    let nested = request.extensions.get::<Limited>().is_some();
    let outcome = match verdict {
        Verdict::Admitted(charges) => {
            let decision = joined(&charges);
            let policy = charges.iter().next().map(|it| entry.policy(0, it).clone());
            let policy = policy.unwrap_or_else(|| entry.policies[0].clone());
            request.extensions.insert(Limited::new(policy, decision));
            Outcome::Charged(charges)
        }
        Verdict::Refused(charges) => match prepared.refused(entry, &charges, request, nested) {
            Refusal::Answer(response) => return Then::Answer(response),
            Refusal::Continue(decision) => {
                let limited = Limited::new(entry.policies[0].clone(), decision.clone());
                request.extensions.insert(limited);
                Outcome::Overruled(charges, decision)
            }
        },
        Verdict::Unlimited(Unlimited::Exempt) => return Then::Go(None),
        Verdict::Unlimited(Unlimited::Denied(denied)) => {
            return Then::Answer(Box::new(prepared.settings.telling.denied(denied, request)));
        }
    };
    Then::Go(Some(After {
        prepared: Arc::clone(prepared),
        entry: Arc::clone(entry),
        nested,
        outcome,
    }))
}

impl After {
    fn write(&self, charges: &Charges, decision: &Decision, response: &mut response::Parts) {
        self.prepared.write(
            &self.prepared.headers(&self.entry, charges),
            decision,
            false,
            self.nested,
            &mut response.headers,
            &mut response.extensions,
        );
    }

    /// The fields of what was charged.
    fn finish<B>(&self, response: Response<B>) -> Response<ResponseBody<B>> {
        let (mut parts, body) = response.into_parts();
        match &self.outcome {
            Outcome::Charged(charges @ Charges::One(charge)) => {
                self.write(charges, &charge.decision, &mut parts);
            }
            Outcome::Charged(charges) => self.write(charges, &joined(charges), &mut parts),
            Outcome::Overruled(charges, decision) => self.write(charges, decision, &mut parts),
        }
        Response::from_parts(parts, ResponseBody::service(body))
    }
}

type Deciding = Pin<Box<dyn Future<Output = (request::Parts, Verdict)> + Send>>;
type Settling = Pin<Box<dyn Future<Output = Charges> + Send>>;
type Of = (Arc<Prepared>, Arc<Entry>);

pin_project! {
    /// The future of a response.
    pub struct ResponseFuture<S, A, B>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S::Future, S, A, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<F, S, A, B> {
        Deciding { deciding: Deciding, waiting: Option<Box<(S, A, Of)>> },
        Service { #[pin] future: F, after: Option<After> },
        Settling { settling: Settling, waiting: Option<Box<(After, Response<B>)>> },
        Answer { response: Option<Box<Response<ResponseBody<B>>>> },
    }
}

impl<S, A, B> From<State<S::Future, S, A, B>> for ResponseFuture<S, A, B>
where
    S: Service<Request<A>>,
{
    fn from(state: State<S::Future, S, A, B>) -> Self {
        Self { state }
    }
}

impl<S, A, B> Future for ResponseFuture<S, A, B>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const ONCE: &str = "polled after it was done";
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                Projected::Deciding { deciding, waiting } => {
                    let (mut request, verdict) = ready!(deciding.as_mut().poll(cx));
                    let (mut service, body, (prepared, entry)) = *waiting.take().expect(ONCE);
                    match verdict_on(&prepared, &entry, &mut request, verdict) {
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
                    let response = ready!(future.poll(cx))?;
                    let Some(after) = after.take() else {
                        return Poll::Ready(Ok(response.map(ResponseBody::service)));
                    };
                    match settling(after, response) {
                        Ok(response) => return Poll::Ready(Ok(response)),
                        Err(state) => state.into_state(),
                    }
                }
                Projected::Settling { settling, waiting } => {
                    let charges = ready!(settling.as_mut().poll(cx));
                    let (mut after, response) = *waiting.take().expect(ONCE);
                    after.outcome = Outcome::Charged(charges);
                    return Poll::Ready(Ok(after.finish(response)));
                }
                Projected::Answer { response } => {
                    return Poll::Ready(Ok(*response.take().expect(ONCE)));
                }
            };
            state.set(next);
        }
    }
}

/// A settlement that takes its time.
struct Unsettled<B> {
    settling: Settling,
    after: After,
    response: Response<B>,
}

impl<B> Unsettled<B> {
    fn into_state<F, S, A>(self) -> State<F, S, A, B> {
        State::Settling {
            settling: self.settling,
            waiting: Some(Box::new((self.after, self.response))),
        }
    }
}

/// The response, or what has to be settled first.
fn settling<B>(
    mut after: After,
    response: Response<B>,
) -> Result<Response<ResponseBody<B>>, Box<Unsettled<B>>> {
    let Outcome::Charged(_) = &after.outcome else {
        return Ok(after.finish(response));
    };
    if after.entry.hooks.is_empty() && response.extensions().is_empty() {
        return Ok(after.finish(response));
    }
    let (parts, body) = response.into_parts();
    let said = said(&after.entry.hooks, &parts);
    let response = Response::from_parts(parts, body);
    if said == Settle::Keep {
        return Ok(after.finish(response));
    }
    let nothing = Outcome::Charged(Charges::Many(Vec::new()));
    let Outcome::Charged(charges) = std::mem::replace(&mut after.outcome, nothing) else {
        unreachable!("it was just looked at")
    };
    Err(Box::new(Unsettled {
        settling: Box::pin(settle(charges, said)),
        after,
        response,
    }))
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
