//! Many callers at once (`race` in docs/faults.md).

use std::sync::{Arc, Barrier};

use crate::processes::{Second, charge_at_once, limiter};
use crate::support::{PATIENT, T0, connect, fresh, ms, seconds};
use tollgate::{FailurePolicy, Limiter, ManualClock, Origin, Quota};
use tollgate_testkit::{FaultProxy, RedisServer, Rule, shared_memcached, shared_redis, wait_until};

/// Each algorithm alone, and all of them on one key.
const QUOTAS: [&str; 5] = [
    "100/60s token_bucket",
    "100/60s sliding_window",
    "100/60s fixed_window",
    "100/60s sliding_log",
    "100/60s, 100/60s sliding_window, 100/60s fixed_window, 100/60s sliding_log",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b11_s12_s72_two_processes_on_redis_admit_exactly_100_of_400() {
    several_processes_admit_exactly_100(shared_redis().await.url(), 2, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b11_s12_two_processes_on_memcached_admit_exactly_100_of_400() {
    several_processes_admit_exactly_100(shared_memcached().await.url(), 2, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b11_b84_four_processes_on_one_key_of_memcached_admit_exactly_the_limit() {
    several_processes_admit_exactly_100(shared_memcached().await.url(), 4, 100).await;
}

/// This process and others, each with so many charges at once, and none with an error; by themselves
/// and sharing trips.
async fn several_processes_admit_exactly_100(url: &str, processes: usize, charges: usize) {
    for coalesce in [false, true] {
        are_exact(url, processes, charges, coalesce).await;
    }
}

async fn are_exact(url: &str, processes: usize, charges: usize, coalesce: bool) {
    let here = limiter(url, coalesce).await;
    let mut others = Vec::new();
    for _ in 1..processes {
        others.push(Second::start(url, coalesce).await);
    }
    for quotas in QUOTAS {
        let name = fresh("b11");
        let limit = here
            .policy(&name, Quota::parse_list(quotas).unwrap())
            .unwrap();
        for other in &mut others {
            other.storm(&name, quotas, charges).await;
        }
        let ours = charge_at_once(&limit, charges).await;
        let mut theirs = 0;
        for other in &mut others {
            theirs += other.admitted().await;
        }
        assert_eq!(
            ours + theirs,
            100,
            "{quotas}: {ours} here and {theirs} there"
        );
    }
}

#[test]
fn b11_two_thread_pools_on_memory_admit_exactly_100_of_400() {
    let pool = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    };
    let (one, other) = (pool(), pool());
    for quotas in QUOTAS {
        let limiter = one.block_on(limiter("memory://", false));
        let limit = limiter
            .policy("b11", Quota::parse_list(quotas).unwrap())
            .unwrap();
        let start = Arc::new(Barrier::new(2));
        let admitted: usize = std::thread::scope(|scope| {
            [&one, &other]
                .map(|pool| {
                    let (limit, start) = (limit.clone(), Arc::clone(&start));
                    scope.spawn(move || {
                        start.wait();
                        pool.block_on(charge_at_once(&limit, 200))
                    })
                })
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(admitted, 100, "{quotas}");
    }
}

/// What the store shows of 10/60s after one charge whose answer was lost.
struct Lost {
    server: RedisServer,
    proxy: FaultProxy,
    limiter: Limiter,
}

impl Lost {
    async fn start() -> Self {
        let server = RedisServer::start().await;
        let proxy = FaultProxy::start(server.address()).await;
        let limiter = Limiter::builder(tollgate::connect(&proxy.url()).await.unwrap())
            .timeout(ms(300))
            .on_failure(FailurePolicy::Open)
            .clock(ManualClock::new(T0))
            .build();
        let lost = Self {
            server,
            proxy,
            limiter,
        };
        // The script is loaded, so that what follows is one EVALSHA.
        let warm = lost
            .limiter
            .policy("warm", ["10/60s".parse().unwrap()])
            .unwrap();
        assert!(warm.acquire("k").await.unwrap().origin().is_enforced());
        lost
    }

    /// How much of "k" the store has counted, asked past the proxy.
    async fn used(&self) -> u64 {
        let direct = limiter(&self.server.url(), false).await;
        let limit = direct.policy("lost", ["10/60s".parse().unwrap()]).unwrap();
        10 - limit.peek("k").await.unwrap().remaining().unwrap()
    }
}

#[tokio::test]
async fn b15_lost_reply_is_not_charged_twice() {
    for (what, rule) in [
        ("swallowed", Rule::command("EVALSHA").drop_reply()),
        (
            "cut after it was sent",
            Rule::command("EVALSHA").forward_then_cut(),
        ),
        ("late", Rule::command("EVALSHA").delay_reply(ms(600))),
        ("malformed", Rule::command("EVALSHA").reply("+what?\r\n")),
        (
            "no RESP at all",
            Rule::command("EVALSHA").reply("*1\r\n!\r\n"),
        ),
        (
            "an error that says nothing",
            Rule::command("EVALSHA").reply("-ERR odd\r\n"),
        ),
    ] {
        let lost = Lost::start().await;
        let limit = lost
            .limiter
            .policy("lost", ["10/60s".parse().unwrap()])
            .unwrap();
        let scripts = lost.proxy.commands_named("EVALSHA");
        lost.proxy.on(rule);
        let decision = limit.acquire("k").await.unwrap();
        assert_eq!(decision.origin(), Origin::FailOpen, "{what}: {decision:?}");
        assert!(decision.allowed(), "{what}");
        assert_eq!(lost.used().await, 1, "{what}");
        assert_eq!(lost.proxy.commands_named("EVALSHA"), scripts + 1, "{what}");
        assert_eq!(lost.proxy.commands_named("EVAL"), 0, "{what}");
        assert_eq!(lost.limiter.health().unenforced, 1, "{what}");
        // Traffic flows again, and is counted again.
        let counted = async || limit.acquire("k").await.unwrap().origin() == Origin::Shared;
        wait_until(what, seconds(10), counted).await;
    }
}

#[tokio::test]
async fn b15_only_a_reply_that_proves_that_nothing_ran_is_followed_up_once() {
    let lost = Lost::start().await;
    let limit = lost
        .limiter
        .policy("lost", ["10/60s".parse().unwrap()])
        .unwrap();
    let scripts = lost.proxy.commands_named("EVALSHA");
    lost.proxy
        .on(Rule::command("EVALSHA").answer("-NOSCRIPT No matching script.\r\n"));
    let decision = limit.acquire("k").await.unwrap();
    assert_eq!(decision.origin(), Origin::Shared, "{decision:?}");
    assert_eq!(lost.used().await, 1);
    assert!(lost.proxy.commands_named("EVALSHA") <= scripts + 2);

    // A server that says so for ever is not asked for ever.
    let scripts = lost.proxy.commands_named("EVALSHA");
    lost.proxy.on(Rule::command("EVALSHA")
        .always()
        .answer("-NOSCRIPT No matching script.\r\n"));
    lost.proxy.on(Rule::command("EVAL")
        .always()
        .answer("-NOSCRIPT No matching script.\r\n"));
    let decision = limit.acquire("k").await.unwrap();
    assert_eq!(decision.origin(), Origin::FailOpen, "{decision:?}");
    let more = lost.proxy.commands_named("EVALSHA") - scripts;
    // Twice, since the scripts may be flushed again between the load and the call.
    assert!(
        more <= 3 && lost.proxy.commands_named("EVAL") <= 1,
        "{more} more"
    );
    assert_eq!(lost.used().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b13_waiting_callers_of_one_redis_stay_within_the_quota() {
    // As the fault has it, ten times as fast and for a second: 8 callers that wait for cost 10.
    let backend = connect(shared_redis().await.url()).await;
    let limiter = Limiter::builder(backend).timeout(PATIENT).build();
    let limit = limiter
        .policy(&fresh("b13"), ["200/s burst=1200".parse().unwrap()])
        .unwrap();
    let caller = async |limit: tollgate::RateLimit| {
        let mut charges = Vec::new();
        let mut first = None;
        loop {
            let decision = limit.acquire_wait("k", 10, seconds(10)).await.unwrap();
            let at = decision.charged_at();
            if at.saturating_since(*first.get_or_insert(at)) > seconds(2) {
                return charges;
            }
            if decision.allowed() {
                charges.push((at, decision.granted()));
            }
        }
    };
    let tasks: Vec<_> = (0..8)
        .map(|_| tokio::spawn(caller(limit.clone())))
        .collect();
    let mut charges = Vec::new();
    for task in tasks {
        charges.extend(task.await.unwrap());
    }
    let start = charges.iter().map(|(at, _)| *at).min().unwrap();
    // In the first second: the burst and what comes back meanwhile.
    let in_time = charges
        .iter()
        .filter(|(at, _)| at.saturating_since(start) <= seconds(1));
    let granted: u64 = in_time.map(|(_, granted)| granted).sum();
    assert!(
        (1_390..=1_400).contains(&granted),
        "{granted} in the first second"
    );
}
