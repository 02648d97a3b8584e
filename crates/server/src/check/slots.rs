//! `tollgate check --slots`: one slot, taken, looked at or given back.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tollgate::{CounterBackend, Key, LeaseBackend, LeaseSubject};

use super::{Failure, answered, timeout};
use crate::cli::CheckArgs;
use crate::config::{ConfigError, Given, Source, values};
use crate::output::Lines;
use crate::{NEGATIVE, Outcome, SUCCESS, store};

/// How long a slot is held unless it is said.
const TTL: Duration = Duration::from_secs(60);

/// What is printed.
#[derive(Serialize)]
struct Answer<'a> {
    /// Whether the holder is in; with `--peek`, whether another one would be; with `--reset`,
    /// whether it was.
    allowed: bool,
    in_use: u32,
    limit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    origin: &'static str,
}

/// Runs the command.
pub(super) fn run(args: &CheckArgs, given: &Given<'_>) -> Outcome {
    let quota = given.find("quota", values::text)?;
    if let Some((_, Source::Flag(_))) = quota {
        return Err("--quota and --slots: give one of them".into());
    }
    if args.cost.is_some() {
        return Err("--cost: a slot has none; leave it out".into());
    }
    if args.reset && args.holder.is_none() {
        return Err(
            "--reset: with --slots it gives back the slot of one holder: add --holder".into(),
        );
    }
    let slots = given
        .flag("slots", values::count::<u32>)?
        .and_then(NonZeroU32::new)
        .ok_or(ConfigError::Missing {
            field: "slots",
            fix: "such as 4",
        })?;
    let ttl = given.flag("ttl", values::ttl)?.unwrap_or(TTL);
    let backend = store::given(given)?;
    let prefix = store::prefix(given)?;
    // The name is part of a key: the same rules as for a policy.
    let any = tollgate::Quota::token_bucket(1, Duration::from_secs(1))?;
    tollgate::Policy::new(&args.policy, [any]).map_err(|error| format!("--policy: {error}"))?;
    let random = || format!("check-{:016x}", RandomState::new().hash_one(0));
    let holder = args.holder.clone().unwrap_or_else(random);

    let limit = timeout(given)?;
    let patience = limit.0;
    let asked = async {
        let store = store::connect(&backend.0, &prefix, patience).await?;
        let Some(leases) = Arc::new(store).leases() else {
            let why =
                "this store cannot hold leases; use redis://, dynamodb:// or memory:// for them";
            return Err(Failure::from(why));
        };
        leases.accepts_slots(slots)?;
        let key = Key::from(&args.key);
        let subject = LeaseSubject {
            name: &args.policy,
            key: &key,
            at: None,
        };
        if args.peek {
            let in_use = leases.in_use(subject).await?;
            return Ok((in_use < slots.get(), in_use, None));
        }
        let answer = match args.reset {
            true => leases.release(subject, &holder).await?,
            false => leases.acquire(subject, &holder, slots, ttl).await?,
        };
        Ok((answer.ok, answer.in_use, answer.fence))
    };
    let (allowed, in_use, fence) = answered(&backend, limit, asked)?;
    let held = allowed && !args.peek && !args.reset;
    let mut lines = Lines::new();
    lines.json(&Answer {
        allowed,
        in_use,
        limit: slots.get(),
        holder: held.then_some(&*holder),
        ttl_us: held.then(|| super::micros(ttl)),
        fence,
        origin: "shared",
    })?;
    lines.flush()?;
    Ok(if allowed { SUCCESS } else { NEGATIVE })
}
