//! The quota closest to one that cannot be counted exactly.
//!
//! Runs only to word an error, so it is thorough rather than fast: in every tick it looks at each
//! divisor of the period, since what makes a bucket's unit coarse enough is a common factor of the
//! limit and the period.

use std::time::Duration;

use super::{Algorithm, MAX_EXACT, Quota, TICKS};

pub(super) fn nearest(
    algorithm: Algorithm,
    limit: u64,
    period: u64,
    burst: Option<u64>,
) -> Option<Quota> {
    let candidates = match algorithm {
        Algorithm::TokenBucket => bucket(limit, period, burst),
        Algorithm::SlidingWindow => window(limit, period),
        Algorithm::FixedWindow | Algorithm::SlidingLog => return None,
    };
    candidates.into_iter().min_by(|a, b| {
        distance(a, limit, period, burst).total_cmp(&distance(b, limit, period, burst))
    })
}

/// How far a quota is from what was asked, as the sum of the relative changes.
fn distance(quota: &Quota, limit: u64, period: u64, burst: Option<u64>) -> f64 {
    let apart = |a: u64, b: u64| (a.max(b) as f64 / a.min(b).max(1) as f64).ln();
    let depth = burst.map_or(0.0, |burst| apart(quota.capacity(), burst));
    apart(quota.limit(), limit) + apart(quota.period, period) + depth
}

/// Other limits with the same period, and the same limit with a smaller bucket.
fn bucket(limit: u64, period: u64, burst: Option<u64>) -> Vec<Quota> {
    let mut found = Vec::new();
    let mut offer = |limit: u64, burst: Option<u64>| {
        found.extend(
            Quota::build(
                Algorithm::TokenBucket,
                limit,
                Duration::from_micros(period),
                burst,
            )
            .ok(),
        );
    };
    for tick in TICKS
        .into_iter()
        .filter(|tick| period.is_multiple_of(*tick))
    {
        let ticks = period / tick;
        for common in divisors(ticks) {
            // A limit that is a multiple of `common` has a token of at most `ticks / common` units.
            let below = limit / common * common;
            // Where the bucket is as deep as the limit, this is the largest limit that still fits.
            let fits = MAX_EXACT / (ticks / common) / common * common;
            for limit in [below, below.saturating_add(common), fits.min(below)] {
                offer(limit, burst);
            }
        }
        // The same rate with the deepest bucket that fits.
        let token = ticks / super::gcd(limit, ticks);
        offer(limit, Some(MAX_EXACT / token));
    }
    found
}

/// Smaller limits, and periods of a coarser tick.
fn window(limit: u64, period: u64) -> Vec<Quota> {
    let mut found = Vec::new();
    for tick in TICKS {
        for period in [period / tick * tick, (period / tick + 1) * tick] {
            for limit in [limit, (MAX_EXACT / (period / tick).max(1)).min(limit)] {
                found.extend(Quota::sliding_window(limit, Duration::from_micros(period)).ok());
            }
        }
    }
    found
}

fn divisors(of: u64) -> Vec<u64> {
    let mut found = vec![1];
    let mut rest = of;
    let mut add = |prime: u64, rest: &mut u64| {
        let known = found.len();
        let mut power = 1;
        while rest.is_multiple_of(prime) {
            *rest /= prime;
            power *= prime;
            for i in 0..known {
                found.push(found[i] * power);
            }
        }
    };
    add(2, &mut rest);
    let mut prime = 3;
    while prime * prime <= rest {
        add(prime, &mut rest);
        prime += 2;
    }
    if rest > 1 {
        let last = rest;
        add(last, &mut rest);
    }
    found
}
