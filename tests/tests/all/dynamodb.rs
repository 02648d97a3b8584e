//! The limiter over a DynamoDB that throttles, stays silent, is slow, dies, and comes back.

use tollgate::{BreakerState, Limiter, Origin, SharedBackend};
use tollgate_dynamodb::DynamoBackend;
use tollgate_testkit::{DynamoFlavor, DynamoProxy, DynamoServer, LocalDynamo, Mischief};

use crate::outage::{
    all_pass_in_time, each_policy_answers_in_its_own_way, limiter_over, opens, plenty, recovers,
    timed,
};
use crate::support::{dynamodb_table as table, dynamodb_url as url, fresh, seconds};

async fn limiter(endpoint: &str) -> Limiter {
    let builder = DynamoBackend::builder(url(endpoint)).connect_timeout(seconds(2));
    let backend = builder.connect_or_degrade().await.unwrap();
    limiter_over(SharedBackend::new(backend))
}

#[test]
fn b65_b80_a_store_that_throttles_hangs_or_breaks_holds_nobody_up() {
    timed(mischief());
}

async fn mischief() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let proxy = DynamoProxy::start(server.address()).await;
    for mischief in [
        Mischief::exception("ProvisionedThroughputExceededException"),
        Mischief::exception("ThrottlingException"),
        Mischief::Answer(500, "InternalServerError".into()),
        Mischief::Silence,
        Mischief::Delay(seconds(5)),
        Mischief::Cut,
        Mischief::LoseAnswer,
    ] {
        let limiter = limiter(&proxy.endpoint()).await;
        let limit = plenty(&limiter);
        assert_eq!(limit.acquire("k").await.unwrap().origin(), Origin::Shared);
        proxy.always(mischief.clone());
        let before = proxy.all_calls();
        all_pass_in_time(&limit, 100).await;
        assert!(proxy.all_calls() - before <= 300, "{mischief:?}");
        let health = limiter.health();
        assert_eq!(
            (health.enforcing, health.unenforced),
            (false, 100),
            "{mischief:?}"
        );
        opens(&limiter, &limit).await;
        // Nobody is asked any more, but for a probe now and then.
        let asked = proxy.all_calls();
        all_pass_in_time(&limit, 50).await;
        assert!(proxy.all_calls() - asked <= 2, "{mischief:?}");
        proxy.well();
        recovers(&limit).await;
        assert!(limiter.health().enforcing, "{mischief:?}");
    }
}

#[test]
fn b67_a_server_that_freezes_or_dies_is_used_again() {
    timed(dies());
}

async fn dies() {
    let mut server = DynamoServer::start(DynamoFlavor::Dynoxide).await;
    table(&server.endpoint()).await;
    let limiter = limiter(&server.endpoint()).await;
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
    let limiter = limiter("http://127.0.0.1:1").await;
    each_policy_answers_in_its_own_way(&limiter).await;
}

#[tokio::test]
async fn b74_refusals_never_open_the_breaker() {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let backend = DynamoBackend::builder(url(&server.endpoint()))
        .connect()
        .await
        .unwrap();
    // No memory of refusals, so that each of them is one of the store's.
    let limiter = Limiter::builder(SharedBackend::new(backend))
        .timeout(seconds(20))
        .forget_refusals()
        .build();
    let limit = limiter
        .policy(&fresh("b74"), ["1/60s".parse().unwrap()])
        .unwrap();
    let mut refused = 0;
    for _ in 0..200 {
        let decision = limit.acquire("k").await.unwrap();
        assert_eq!(decision.origin(), Origin::Shared);
        refused += u32::from(!decision.allowed());
    }
    assert_eq!(refused, 199);
    let health = limiter.health();
    assert_eq!(
        (health.breaker, health.unenforced),
        (BreakerState::Closed, 0)
    );
}

#[tokio::test]
async fn a_log_that_no_item_can_hold_is_refused_when_the_policy_is_built() {
    // Nobody listens there: it is known without asking.
    let limiter = limiter("http://127.0.0.1:1").await;
    for quotas in [
        "20001/h sliding_log",
        "15000/h sliding_log, 15000/d sliding_log",
    ] {
        let quotas = tollgate::Quota::parse_list(quotas).unwrap();
        let error = limiter.policy("big", quotas).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("at most 20000"), "{text}");
    }
    let quotas = tollgate::Quota::parse_list("20000/h sliding_log").unwrap();
    assert!(limiter.policy("fits", quotas).is_ok());
}
