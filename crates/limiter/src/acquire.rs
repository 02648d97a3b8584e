//! A charge or a peek in the making: what it costs is said before it is awaited.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use tollgate_core::{
    BackendError, Cost, CostError, CounterBackend, Decision, Key, Policy, Timestamp,
};
use tracing::Instrument;

use crate::tiered::{Asked, Recall};
use crate::{Error, RateLimit};

type Answer = Result<Decision, Error>;
type Running<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// A charge that is made when it is awaited.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let tokens = limiter.policy("tokens", Quota::parse_list("100/minute")?)?;
/// assert_eq!(tokens.acquire("alice").cost(70).await?.granted(), 70);
/// // At least 10, and as much as there is up to 50.
/// assert_eq!(tokens.acquire("alice").cost(10).up_to(50).await?.granted(), 30);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is charged until it is awaited"]
pub struct Acquire<'a> {
    limit: &'a RateLimit,
    key: Key<'a>,
    cost: u64,
    max: Option<u64>,
}

impl<'a> Acquire<'a> {
    pub(crate) const fn new(limit: &'a RateLimit, key: Key<'a>) -> Self {
        Self {
            limit,
            key,
            cost: 1,
            max: None,
        }
    }

    /// How much: 1 to the capacity of the policy.
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// As much as there is up to `max`, if the cost is there at least.
    pub const fn up_to(mut self, max: u64) -> Self {
        self.max = Some(max);
        self
    }
}

impl<'a> IntoFuture for Acquire<'a> {
    type Output = Answer;
    type IntoFuture = AcquireFuture<'a>;

    fn into_future(self) -> AcquireFuture<'a> {
        AcquireFuture(State::New(self))
    }
}

/// The future of a charge.
///
/// What this process knows by itself is answered without a single allocation: a remembered refusal,
/// and whatever a store in memory says.
#[must_use = "futures do nothing unless polled"]
pub struct AcquireFuture<'a>(State<'a>);

enum State<'a> {
    New(Acquire<'a>),
    Running(Running<'a>),
    Done,
}

impl Future for AcquireFuture<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        if let State::New(_) = self.0 {
            let State::New(acquire) = std::mem::replace(&mut self.0, State::Done) else {
                unreachable!("it was just looked at")
            };
            match start(acquire) {
                Ok(running) => self.0 = State::Running(running),
                Err(answer) => return Poll::Ready(answer),
            }
        }
        let State::Running(running) = &mut self.0 else {
            panic!("polled after it was done");
        };
        let answer = running.as_mut().poll(cx);
        if answer.is_ready() {
            self.0 = State::Done;
        }
        answer
    }
}

/// What is known without waiting: the answer, or what to ask the store with.
#[inline]
fn start_now<E: From<CostError> + From<BackendError>>(
    limit: &RateLimit,
    key: &Key<'_>,
    cost: u64,
    max: Option<u64>,
) -> Result<(Cost, Option<Timestamp>, Asked), Result<Decision, E>> {
    let cost = chargeable(limit.policy(), cost, max).map_err(|error| Err(error.into()))?;
    // Virtual time is asked once, here.
    let subject = limit.limiter().subject(limit.policy(), key);
    let stack = &limit.limiter().0.stack;
    let asked = match stack.recall(subject, cost) {
        Recall::Ask(asked) => asked,
        Recall::Refused(decision) => {
            limit.made(&decision);
            return Err(Ok(decision));
        }
    };
    // A store in this process needs no future, and so no room for one.
    match stack.ask_now(subject, cost, asked) {
        Some(Ok(decision)) => {
            limit.made(&decision);
            Err(Ok(decision))
        }
        Some(Err(error)) => Err(Err(error.into())),
        None => Ok((cost, subject.at, asked)),
    }
}

/// The answer to a charge, if it takes no waiting. `None`: nothing was charged.
#[cfg(feature = "http")]
#[inline]
pub(crate) fn now<E: From<CostError> + From<BackendError>>(
    limit: &RateLimit,
    key: &Key<'_>,
    cost: u64,
) -> Option<Result<Decision, E>> {
    start_now(limit, key, cost, None).err()
}

/// Answers at once if it can, else asks.
fn start(acquire: Acquire<'_>) -> Result<Running<'_>, Answer> {
    let Acquire {
        limit,
        key,
        cost,
        max,
    } = acquire;
    let (cost, at, asked) = start_now(limit, &key, cost, max)?;
    let stack = &limit.limiter().0.stack;
    let asking = async move {
        let subject = tollgate_core::Subject {
            policy: limit.policy(),
            key: &key,
            at,
        };
        let decision = stack.ask(subject, cost, asked).await?;
        limit.made(&decision);
        Ok(decision)
    };
    Ok(traced(limit, asking))
}

/// In a span, if anybody looks.
fn traced<'a>(limit: &RateLimit, asking: impl Future<Output = Answer> + Send + 'a) -> Running<'a> {
    if tracing::enabled!(tracing::Level::DEBUG) {
        let span = tracing::debug_span!("tollgate.acquire", policy = limit.name());
        Box::pin(asking.instrument(span))
    } else {
        Box::pin(asking)
    }
}

/// The cost, if the policy can ever grant it.
pub(crate) fn chargeable(policy: &Policy, cost: u64, max: Option<u64>) -> Result<Cost, CostError> {
    let chargeable = Cost::range(cost, max.unwrap_or(cost))?;
    let capacity = policy.capacity();
    if cost > capacity {
        return Err(CostError::ExceedsCapacity { cost, capacity });
    }
    Ok(chargeable)
}

impl fmt::Debug for AcquireFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::New(_) => "AcquireFuture(new)",
            State::Running(_) => "AcquireFuture(running)",
            State::Done => "AcquireFuture(done)",
        })
    }
}

/// A question that is asked when it is awaited.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
/// let tokens = limiter.policy("tokens", Quota::parse_list("100/minute")?)?;
/// tokens.acquire("alice").cost(70).await?;
/// let peek = tokens.peek("alice").cost(40).await?;
/// assert_eq!((peek.allowed(), peek.remaining()), (false, Some(30)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct Peek<'a> {
    limit: &'a RateLimit,
    key: Key<'a>,
    cost: u64,
}

impl<'a> Peek<'a> {
    pub(crate) const fn new(limit: &'a RateLimit, key: Key<'a>) -> Self {
        Self {
            limit,
            key,
            cost: 1,
        }
    }

    /// Would so much be admitted?
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }
}

impl<'a> IntoFuture for Peek<'a> {
    type Output = Answer;
    type IntoFuture = Running<'a>;

    fn into_future(self) -> Running<'a> {
        let Self { limit, key, cost } = self;
        Box::pin(async move {
            let cost = Cost::new(cost)?;
            let limiter = limit.limiter();
            let subject = limiter.subject(limit.policy(), &key);
            Ok(limiter.0.stack.peek(subject, cost).await?)
        })
    }
}
