//! Several records in one call: the same as one after the other.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Batch, CasBackend, Cost, CounterBackend, ErrorKind, Key, Policy, Quota, Subject,
};
use tollgate_redis::key_slot;
use tollgate_testkit::{FaultProxy, MapStore, RedisCluster, RedisServer, Rng, Rule, shared_redis};

use super::{PATIENCE, T0, at, backend, key_of, policy};

const ONE: &[Cost] = &[Cost::ONE];

/// Buckets that are one moment in microseconds.
fn bucket(rng: &mut Rng) -> Quota {
    loop {
        let quota = rng.quota(Algorithm::TokenBucket);
        if quota.units_per_tick() == 1 && quota.tick_micros() == 1 {
            return quota;
        }
    }
}

#[tokio::test]
async fn it_answers_as_the_pure_steps_do() {
    let backend = backend(shared_redis().await.url()).await;
    let right = CasBackend::new(MapStore::default());
    for round in 0..60 {
        let mut rng = Rng::new(round);
        let policies: Vec<_> = (0..4)
            .map(|_| Policy::new(&super::name(), [bucket(&mut rng)]).unwrap())
            .collect();
        let keys: Vec<_> = ["a", "b", "c"].map(Key::from).into();
        let subjects: Vec<_> = policies
            .iter()
            .flat_map(|policy| keys.iter().map(move |key| Subject::new(policy, key)))
            .collect();
        let mut now = rng.moment();
        for _ in 0..12 {
            let mut calls = Vec::new();
            for subject in &subjects {
                if rng.one_in(3) {
                    continue;
                }
                let capacity = subject.policy.capacity();
                let costs: Vec<_> = (0..rng.between(1, 6))
                    .map(|_| Cost::new(rng.cost(capacity).min()).unwrap())
                    .collect();
                calls.push((subject.at(now), costs));
            }
            let batches: Vec<_> = calls
                .iter()
                .map(|(subject, costs)| Batch {
                    subject: *subject,
                    costs,
                })
                .collect();
            let answers = backend.acquire_many(&batches).await.unwrap();
            assert_eq!(answers.len(), batches.len());
            for (Batch { subject, costs }, got) in batches.iter().zip(answers) {
                let right = right.acquire_batch(*subject, costs).await.unwrap();
                assert_eq!(got.unwrap(), right, "round {round}: {subject:?} {costs:?}");
            }
            // Mostly on, now and then back by more than a minute.
            if rng.one_in(8) {
                now = tollgate_core::Timestamp::from_micros(now.as_micros() - 3_600_000_000);
            } else {
                now = now + rng.pause(now, Duration::from_secs(1));
            }
        }
    }
}

#[tokio::test]
async fn what_it_cannot_decide_in_company_it_leaves_alone() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let (plain, hash, text) = (policy("10/h"), policy("10/h"), policy("10/h"));
    let (window, range) = (policy("10/h sliding_window"), policy("10/h"));
    server.command(&["HSET", &key_of(&hash), "h", "x"]).await;
    server.command(&["SET", &key_of(&text), "b1,1,x"]).await;
    let key = Key::from("k");
    let many = [Cost::range(1, 5).unwrap()];
    let mut batches = Vec::new();
    for policy in [&hash, &plain, &text, &window] {
        batches.push(Batch {
            subject: Subject::new(policy, &key).at(T0),
            costs: ONE,
        });
    }
    batches.push(Batch {
        subject: Subject::new(&range, &key).at(T0),
        costs: &many,
    });
    let answers = backend.acquire_many(&batches).await.unwrap();
    let decided: Vec<_> = answers.iter().map(Option::is_some).collect();
    assert_eq!(decided, [false, true, false, false, false]);
    let text = server.command(&["GET", &key_of(&text)]).await;
    assert_eq!(text.text().as_deref(), Some("b1,1,x"));
    for batch in &batches {
        let left = if batch.subject.policy == &plain { 8 } else { 9 };
        let left = if batch.costs == many { 5 } else { left };
        let decision = backend.acquire_batch(batch.subject, batch.costs).await;
        assert_eq!(decision.unwrap()[0].remaining(), Some(left));
    }
}

#[tokio::test]
async fn each_record_has_its_expiry_and_gets_a_lost_one_back() {
    let server = RedisServer::start().await;
    let backend = backend(server.url()).await;
    let policies = [policy("2/h"), policy("10/h")];
    let key = Key::from("k");
    let batches = policies.each_ref().map(|policy| Batch {
        subject: Subject::new(policy, &key),
        costs: &[Cost::ONE; 3],
    });
    for _ in 0..2 {
        backend.acquire_many(&batches).await.unwrap();
        for policy in &policies {
            let ttl = server.command(&["PTTL", &key_of(policy)]).await;
            let ttl = ttl.integer().unwrap();
            assert!((1..=3_600_001).contains(&ttl), "{ttl}");
            server.command(&["PERSIST", &key_of(policy)]).await;
        }
    }
    // The first is refused by now, and still repaired.
    let answers = backend.acquire_many(&batches).await.unwrap();
    assert!(!answers[0].as_ref().unwrap()[0].allowed());
    let ttl = server.command(&["PTTL", &key_of(&policies[0])]).await;
    assert!(ttl.integer().unwrap() > 0);
}

#[tokio::test]
async fn it_is_one_command_and_an_error_is_that_of_all() {
    let server = RedisServer::start().await;
    let proxy = FaultProxy::start(server.address()).await;
    let backend = backend(proxy.url()).await;
    let policies: Vec<_> = (0..40).map(|_| policy("10/h")).collect();
    let key = Key::from("k");
    let batches: Vec<_> = policies
        .iter()
        .map(|policy| Batch {
            subject: Subject::new(policy, &key),
            costs: ONE,
        })
        .collect();
    backend.acquire_many(&batches).await.unwrap();
    let before = proxy.commands_named("EVALSHA");
    backend.acquire_many(&batches).await.unwrap();
    assert_eq!(proxy.commands_named("EVALSHA") - before, 1);

    proxy.on(Rule::command("EVALSHA").answer("-OOM command not allowed\r\n"));
    let error = backend.acquire_many(&batches).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(!error.may_have_charged());
    for batch in &batches {
        let peeked = backend.peek(batch.subject, Cost::ONE).await.unwrap();
        assert_eq!(peeked.remaining(), Some(8));
    }
}

#[tokio::test]
async fn in_a_cluster_those_of_one_slot_are_one_call_even_while_it_moves() {
    let cluster = RedisCluster::start().await;
    let masters = cluster.masters();
    let url = format!("redis+cluster://{}", masters[0].address());
    let backend = backend(url).await;
    let policy = policy("10/h");
    // As many keys as it takes until three share a slot.
    let mut by_slot: HashMap<u64, Vec<Key<'static>>> = HashMap::new();
    let keys = (0..)
        .find_map(|n| {
            let key = Key::from(&format!("k{n}")).into_owned();
            let group = backend.merge_group(Subject::new(&policy, &key)).unwrap();
            let name = tollgate_core::storage_key("tollgate", &policy, &key);
            assert_eq!(group, u64::from(key_slot(&name)));
            let same = by_slot.entry(group).or_default();
            same.push(key);
            (same.len() == 3).then(|| same.clone())
        })
        .unwrap();
    let subject = |i: usize| Subject::new(&policy, &keys[i]);
    assert_eq!(backend.merge_group(subject(0).at(at(0))), None);
    let batches = [0, 1, 2].map(|i| Batch {
        subject: subject(i),
        costs: ONE,
    });
    for answer in backend.acquire_many(&batches).await.unwrap() {
        assert_eq!(answer.unwrap()[0].remaining(), Some(9));
    }

    // One of the keys has moved and the others have not.
    let name = |i: usize| tollgate_core::storage_key("tollgate", &policy, &keys[i]);
    let slot = key_slot(&name(0)).to_string();
    let mut from = 0;
    for (i, node) in masters.iter().enumerate() {
        if node.command(&["EXISTS", &name(0)]).await.integer() == Some(1) {
            from = i;
        }
    }
    let (old, new) = (&masters[from], &masters[(from + 1) % 3]);
    let id = async |node: &RedisServer| {
        let id = node.command(&["CLUSTER", "MYID"]).await;
        id.text().unwrap()
    };
    let (old_id, new_id) = (id(old).await, id(new).await);
    new.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old_id])
        .await;
    old.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &new_id])
        .await;
    let port = new.address().port().to_string();
    old.command(&["MIGRATE", "127.0.0.1", &port, &name(1), "0", "5000"])
        .await;
    let began = tokio::time::Instant::now();
    let answers = backend.acquire_many(&batches).await.unwrap();
    assert!(answers.iter().all(Option::is_none), "each by itself");
    assert!(began.elapsed() < PATIENCE);
    for batch in batches {
        let decision = backend.acquire(batch.subject, Cost::ONE).await.unwrap();
        assert_eq!(decision.remaining(), Some(8));
    }
}
