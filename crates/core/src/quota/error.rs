//! Why a quota was refused, and what would do instead.

use std::fmt;
use std::time::Duration;

use super::snippet::Snippet;
use super::{Algorithm, MAX_EXACT, Quota, nearest};

/// What is wrong with a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaFault {
    /// `limit` is 0. A block list is no quota: refuse such requests before they are counted.
    LimitIsZero,
    /// `limit` is above 2^52.
    LimitTooLarge,
    /// `period` is below 1 ms.
    PeriodTooShort,
    /// `period` is above 2^52 us (about 142 years).
    PeriodTooLong,
    /// `period` has a part below a microsecond.
    PeriodNotWholeMicros,
    /// `burst` is 0.
    BurstIsZero,
    /// `burst` is above 2^52.
    BurstTooLarge,
    /// `burst` was given for an algorithm that has no bucket.
    BurstWithoutBucket,
    /// The numbers are in range, but no tick counts them with integers up to 2^52.
    NotExact,
    /// The text is no quota. What is wrong, without the words it is about.
    Syntax(&'static str),
}

/// A quota that cannot be built: the field, its value, and what to write instead.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::Quota;
///
/// let error = Quota::fixed_window(5, Duration::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "period: 0ns is shorter than 1ms; use 1ms or more");
///
/// let error = Quota::parse_list("10/s, 5/fortnight").unwrap_err();
/// assert!(error.to_string().starts_with("quota 2 of 2: \"fortnight\" is no unit of time"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    fault: QuotaFault,
    algorithm: Algorithm,
    limit: u64,
    period: Duration,
    burst: Option<u64>,
    /// The part of the text that is wrong.
    wrong: Option<Snippet>,
    /// Which quota of a list, from 1, and of how many.
    place: Option<(u8, u8)>,
}

impl QuotaError {
    pub(super) const fn new(
        fault: QuotaFault,
        algorithm: Algorithm,
        limit: u64,
        period: Duration,
        burst: Option<u64>,
    ) -> Self {
        Self {
            fault,
            algorithm,
            limit,
            period,
            burst,
            wrong: None,
            place: None,
        }
    }

    /// `wrong` is the part of the text that `what` speaks of.
    pub(super) fn syntax(wrong: &str, what: &'static str) -> Self {
        let fault = QuotaFault::Syntax(what);
        let error = Self::new(fault, Algorithm::TokenBucket, 0, Duration::ZERO, None);
        Self {
            wrong: Some(Snippet::new(wrong)),
            ..error
        }
    }

    /// The same of one quota in a list, counted from 0.
    pub(super) fn in_list(mut self, index: usize, count: usize) -> Self {
        let number = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        if count > 1 {
            self.place = Some((number(index + 1), number(count)));
        }
        self
    }

    /// What is wrong.
    #[must_use]
    pub const fn fault(&self) -> QuotaFault {
        self.fault
    }

    /// The nearest quota that can be counted exactly, when that is what was wrong.
    #[must_use]
    pub fn nearest(&self) -> Option<Quota> {
        match self.fault {
            QuotaFault::NotExact => {
                let micros = u64::try_from(self.period.as_micros()).ok()?;
                nearest::nearest(self.algorithm, self.limit, micros, self.burst)
            }
            _ => None,
        }
    }
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, period, .. } = self;
        let burst = self.burst.unwrap_or(self.limit);
        if let Some((number, count)) = self.place {
            write!(f, "quota {number} of {count}: ")?;
        }
        match self.fault {
            QuotaFault::LimitIsZero => write!(
                f,
                "limit: 0 would admit nothing; use 1 or more, and refuse outright what must never pass"
            ),
            QuotaFault::LimitTooLarge => {
                write!(
                    f,
                    "limit: {limit} is above {MAX_EXACT} (2^52); use at most that"
                )
            }
            QuotaFault::PeriodTooShort => {
                write!(f, "period: {period:?} is shorter than 1ms; use 1ms or more")
            }
            QuotaFault::PeriodTooLong => {
                write!(
                    f,
                    "period: {period:?} is longer than 2^52 us; use 52124d or less"
                )
            }
            QuotaFault::PeriodNotWholeMicros => write!(
                f,
                "period: {period:?} has a part below a microsecond; use {:?}",
                Duration::from_micros(
                    u64::try_from(period.as_micros())
                        .unwrap_or(u64::MAX)
                        .max(1_000)
                )
            ),
            QuotaFault::BurstIsZero => {
                write!(
                    f,
                    "burst: 0 would admit nothing; use 1 or more, or leave it out"
                )
            }
            QuotaFault::BurstTooLarge => {
                write!(
                    f,
                    "burst: {burst} is above {MAX_EXACT} (2^52); use at most that"
                )
            }
            QuotaFault::BurstWithoutBucket => write!(
                f,
                "burst: {burst} was given for {}, which has no bucket; leave it out or use token_bucket",
                self.algorithm
            ),
            QuotaFault::NotExact => {
                write!(
                    f,
                    "limit: {limit} in {period:?} by {} (capacity {burst}) cannot be counted exactly with integers up to 2^52",
                    self.algorithm
                )?;
                match self.nearest() {
                    Some(quota) => write!(f, "; the nearest quota that can is \"{quota}\""),
                    None => write!(f, "; use a smaller limit or a period of whole seconds"),
                }
            }
            QuotaFault::Syntax(what) => {
                if let Some(wrong) = &self.wrong {
                    write!(f, "{wrong} ")?;
                }
                write!(
                    f,
                    "{what}; write N/[n]unit [algorithm] [burst=N], for example \"100/60s sliding_window\""
                )
            }
        }
    }
}

impl std::error::Error for QuotaError {}
