//! The limiter over a memcached that refuses, stays silent, is slow, dies, and comes back.

use tollgate::{Limiter, Origin};
use tollgate_testkit::{FaultProxy, MemcachedServer, Rule};

use crate::outage::{
    all_pass_in_time, each_policy_answers_in_its_own_way, limiter_over, opens, plenty, recovers,
    timed,
};
use crate::support::seconds;

async fn limiter(url: &str) -> Limiter {
    limiter_over(tollgate::connect(url).await.unwrap())
}

/// What a store does to its callers.
#[derive(Clone, Copy, Debug)]
enum Mischief {
    OutOfMemory,
    Busy,
    Silence,
    Slow,
    Cut,
    LoseAnswer,
    Gone,
}

impl Mischief {
    async fn begin(self, proxy: &FaultProxy) {
        let any = || Rule::any().always();
        match self {
            Self::OutOfMemory => proxy.on(any().answer("SERVER_ERROR out of memory\r\n")),
            Self::Busy => proxy.on(any().answer("SERVER_ERROR temporary failure\r\n")),
            Self::Silence => proxy.stay_silent(),
            Self::Slow => proxy.delay_replies(seconds(5)),
            Self::Cut => proxy.on(any().cut()),
            Self::LoseAnswer => proxy.on(any().forward_then_cut()),
            Self::Gone => proxy.refuse().await,
        }
    }
}

#[test]
fn b65_a_store_that_refuses_hangs_or_breaks_holds_nobody_up() {
    timed(mischief());
}

async fn mischief() {
    let server = MemcachedServer::start().await;
    let proxy = FaultProxy::start_memcached(server.address()).await;
    for mischief in [
        Mischief::OutOfMemory,
        Mischief::Busy,
        Mischief::Silence,
        Mischief::Slow,
        Mischief::Cut,
        Mischief::LoseAnswer,
        Mischief::Gone,
    ] {
        let limiter = limiter(&proxy.url()).await;
        let limit = plenty(&limiter);
        assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::Shared);
        mischief.begin(&proxy).await;
        let before = proxy.commands();
        all_pass_in_time(&limit, 100).await;
        assert!(proxy.commands() - before <= 300, "{mischief:?}");
        let health = limiter.health();
        assert_eq!(
            (health.enforcing, health.unenforced),
            (false, 100),
            "{mischief:?}"
        );
        opens(&limiter, &limit).await;
        // Nobody is asked any more, but for a probe now and then.
        let asked = proxy.commands();
        all_pass_in_time(&limit, 50).await;
        assert!(proxy.commands() - asked <= 2, "{mischief:?}");
        proxy.restore().await;
        recovers(&limit).await;
        assert!(limiter.health().enforcing, "{mischief:?}");
    }
}

#[test]
fn b67_a_server_that_freezes_or_dies_is_used_again() {
    timed(dies());
}

async fn dies() {
    let mut server = MemcachedServer::start().await;
    let limiter = limiter(&server.url()).await;
    let limit = plenty(&limiter);
    for frozen in [true, false] {
        recovers(&limit).await;
        if frozen {
            server.pause();
        } else {
            server.kill();
        }
        all_pass_in_time(&limit, 50).await;
        if frozen {
            server.resume();
        } else {
            server.restart().await;
        }
        recovers(&limit).await;
    }
}

#[tokio::test]
async fn b68_every_policy_answers_in_its_own_way() {
    // Nobody listens there.
    let limiter = limiter("memcached://127.0.0.1:1").await;
    each_policy_answers_in_its_own_way(&limiter).await;
}
