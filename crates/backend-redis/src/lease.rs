//! Concurrency slots: one sorted set a key, one script call a step.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate_core::{
    BackendError, ErrorKind, LeaseAnswer, LeaseBackend, LeaseSubject, MAX_EXACT, lease_key,
};

use crate::{Args, RedisBackend, RedisExecutor, ScriptCall, script};

/// Each call is one `EVALSHA`, by the server's clock, however many slots are held. Keys are
/// `{prefix}:lease:v1:{name}:{digest}`; a key lives a minute longer than its last holder, and with
/// it the last fencing number: a number is smaller than one before only if the server's clock
/// moved back by more while nobody held a slot.
impl<E: RedisExecutor> LeaseBackend for RedisBackend<E> {
    async fn acquire(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        slots: NonZeroU32,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.lease(subject, "acquire", holder, ttl, slots.get())
            .await
    }

    async fn renew(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
        ttl: Duration,
    ) -> Result<LeaseAnswer, BackendError> {
        self.lease(subject, "renew", holder, ttl, 0).await
    }

    async fn release(
        &self,
        subject: LeaseSubject<'_>,
        holder: &str,
    ) -> Result<LeaseAnswer, BackendError> {
        self.lease(subject, "release", holder, Duration::ZERO, 0)
            .await
    }

    async fn in_use(&self, subject: LeaseSubject<'_>) -> Result<u32, BackendError> {
        let answer = self.lease(subject, "count", "", Duration::ZERO, 0).await?;
        Ok(answer.in_use)
    }
}

impl<E: RedisExecutor> RedisBackend<E> {
    async fn lease(
        &self,
        subject: LeaseSubject<'_>,
        call: &str,
        holder: &str,
        ttl: Duration,
        slots: u32,
    ) -> Result<LeaseAnswer, BackendError> {
        let mut args = Args::with_capacity(5);
        args.push(call);
        // No holder is the member that has the number.
        args.push(&format!("h{holder}"));
        args.push_number(micros(ttl));
        args.push_number(slots.into());
        if let Some(at) = subject.at {
            args.push_number(at.as_micros());
        }
        let key = lease_key(self.prefix(), subject.name, subject.key);
        let call = ScriptCall {
            script: &script::LEASE,
            key: &key,
            others: &[],
            args: &args,
        };
        let reply = self.executor().run(call).await?;
        answer(&reply).ok_or_else(|| {
            let context = format!("the script of leases replied {reply:?}");
            BackendError::new(ErrorKind::Malformed, context)
        })
    }
}

fn answer(reply: &[i64]) -> Option<LeaseAnswer> {
    let [ok @ (0 | 1), in_use, fence] = *reply else {
        return None;
    };
    Some(LeaseAnswer {
        ok: ok == 1,
        in_use: u32::try_from(in_use).ok()?,
        fence: u64::try_from(fence).ok().filter(|fence| *fence > 0),
    })
}

/// Far below what a double holds exactly: with any moment added it still is.
fn micros(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_micros()).map_or(MAX_EXACT, |micros| micros.min(MAX_EXACT))
}
