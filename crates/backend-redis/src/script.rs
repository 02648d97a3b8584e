//! Which script counts which policy.

use std::sync::LazyLock;

use tollgate_core::{Algorithm, Quota};

use crate::Script;

/// How many there are.
pub(crate) const SCRIPTS: usize = 12;

macro_rules! scripts {
    ($($index:literal $name:ident $text:literal),*) => {$(
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| Script {
            name: $text,
            source: tollgate_lua::$name,
            sha: redis::Script::new(tollgate_lua::$name).get_hash().to_owned(),
            index: $index,
        });
    )*};
}

scripts! {
    0 TOKEN_BUCKET_US "token_bucket_us",
    1 TOKEN_BUCKET "token_bucket",
    2 SLIDING_WINDOW "sliding_window",
    3 FIXED_WINDOW "fixed_window",
    4 SLIDING_LOG "sliding_log",
    5 POLICY "policy",
    6 POLICY_WITH_LOG "policy_with_log",
    7 RESET "reset",
    8 PING "ping",
    9 LEASE "lease",
    10 TOKEN_BUCKET_US_MANY "token_bucket_us_many",
    11 DOCUMENT "document"
}

/// The script that runs any operation on a policy of these quotas.
pub(crate) fn of(quotas: &[Quota]) -> &'static Script {
    let log = |quota: &Quota| quota.algorithm() == Algorithm::SlidingLog;
    if quotas.iter().any(log) {
        &POLICY_WITH_LOG
    } else {
        &POLICY
    }
}

/// The script that makes one charge on a single quota. It may decline.
pub(crate) fn of_one(quotas: &[Quota]) -> Option<(&'static Script, &Quota)> {
    let [quota] = quotas else { return None };
    let script: &'static Script = match quota.algorithm() {
        // Its record is the short one, which only its own script and the one for all know.
        Algorithm::TokenBucket if in_micros(quotas).is_some() => return None,
        Algorithm::TokenBucket => &TOKEN_BUCKET,
        Algorithm::SlidingWindow => &SLIDING_WINDOW,
        Algorithm::FixedWindow => &FIXED_WINDOW,
        _ => &SLIDING_LOG,
    };
    Some((script, quota))
}

/// The script that makes charges of 1 on a single quota as it would make one of that many or less.
pub(crate) fn of_ones(quotas: &[Quota]) -> Option<(&'static Script, &Quota)> {
    // A log's script tells only what one charge needs to know.
    of_one(quotas).filter(|(_, quota)| quota.algorithm() != Algorithm::SlidingLog)
}

/// Whether a charge of a fixed cost takes the short way: one token bucket whose whole record is a
/// moment in microseconds.
pub(crate) fn in_micros(quotas: &[Quota]) -> Option<&Quota> {
    match quotas {
        [quota]
            if quota.algorithm() == Algorithm::TokenBucket
                && quota.tick_micros() == 1
                && quota.units_per_tick() == 1 =>
        {
            Some(quota)
        }
        _ => None,
    }
}
