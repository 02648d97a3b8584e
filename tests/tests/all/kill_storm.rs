//! Never more holders than slots, whatever is killed: processes of holders, and the store.
//!
//! Who counts is not Tollgate: each holder says to a witness, over a connection of its own, that it
//! is in, and before it lets go or when it has lost its slot that it is out. The system closes the
//! connections of a process that is killed.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tollgate::{Concurrency, Connect, FailurePolicy, Limiter};
use tollgate_testkit::{RedisServer, wait_until};

use crate::support::{PATIENT, seconds};

const PROCESSES: usize = 8;
const TASKS: usize = 25;
const SLOTS: u32 = 6;
const TTL: Duration = Duration::from_secs(3);

/// The environment of a process of holders.
const STORE: &str = "TOLLGATE_STORM_STORE";
const WITNESS: &str = "TOLLGATE_STORM_WITNESS";
const POLICY: &str = "TOLLGATE_STORM_POLICY";

/// What the witness has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    inside: u32,
    most: u32,
    entered: u64,
    /// Holders whose process died.
    died: u64,
}

#[derive(Clone)]
struct Witness {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

impl Witness {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let witness = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let seen = Arc::clone(&witness.seen);
        tokio::spawn(async move {
            while let Ok((holder, _)) = listener.accept().await {
                tokio::spawn(listen(holder, Arc::clone(&seen)));
            }
        });
        witness
    }

    fn seen(&self) -> Seen {
        *self.seen.lock().unwrap()
    }
}

/// Each byte is answered once it is counted, so that who lets go after that is out for all to see.
async fn listen(mut holder: TcpStream, seen: Arc<Mutex<Seen>>) {
    let mut inside = false;
    while let Ok(said) = holder.read_u8().await {
        {
            let mut seen = seen.lock().unwrap();
            assert_eq!(inside, said == b'-', "a holder comes and goes by turns");
            inside = said == b'+';
            if inside {
                seen.inside += 1;
                seen.entered += 1;
                seen.most = seen.most.max(seen.inside);
            } else {
                seen.inside -= 1;
            }
        }
        if holder.write_u8(said).await.is_err() {
            break;
        }
    }
    if inside {
        let mut seen = seen.lock().unwrap();
        seen.inside -= 1;
        seen.died += 1;
    }
}

async fn limiter(url: &str, policy: FailurePolicy) -> Limiter {
    let connect = Connect::new(url).timeout(PATIENT);
    Limiter::builder(connect.connect().await.unwrap())
        .timeout(Duration::from_millis(500))
        .on_failure(policy)
        .build()
}

fn slots(limiter: &Limiter) -> Concurrency {
    let slots = limiter.concurrency("storm", SLOTS);
    slots.ttl(TTL).wait(seconds(5)).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the storms, which start it"]
async fn holders() {
    let variable = |name| std::env::var(name).expect("a storm starts this");
    let policy = variable(POLICY).parse().unwrap();
    let limiter = limiter(&variable(STORE), policy).await;
    let witness: SocketAddr = variable(WITNESS).parse().unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let seed = (std::process::id() as u64) << 8 | task as u64;
            tokio::spawn(hold(slots(&limiter), witness, Random(seed)))
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Takes a slot, holds it, lets go, for ever.
async fn hold(slots: Concurrency, witness: SocketAddr, mut random: Random) {
    let mut witness = TcpStream::connect(witness).await.unwrap();
    witness.set_nodelay(true).unwrap();
    loop {
        let permit = match slots.acquire("all").await {
            Ok(permit) => permit,
            Err(none) => {
                tokio::time::sleep(none.retry_after().min(seconds(1)) / 4).await;
                continue;
            }
        };
        say(&mut witness, b'+').await;
        // Some need a renewal or two.
        let long = random.below(100) == 0;
        let hold = if long { 4_000 } else { 1 + random.below(30) };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(hold)) => {}
            () = permit.lost() => {}
        }
        say(&mut witness, b'-').await;
        if random.below(2) == 0 {
            drop(permit);
        } else {
            let _ = permit.release().await;
        }
    }
}

async fn say(witness: &mut TcpStream, word: u8) {
    witness.write_u8(word).await.unwrap();
    assert_eq!(witness.read_u8().await.unwrap(), word);
}

/// Numbers without a pattern that matters.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

struct Storm {
    witness: Witness,
    store: String,
    policy: FailurePolicy,
    processes: Vec<Child>,
    random: Random,
}

impl Storm {
    async fn begin(store: &str, policy: FailurePolicy) -> Self {
        let mut storm = Self {
            witness: Witness::start().await,
            store: store.into(),
            policy,
            processes: Vec::new(),
            random: Random(std::process::id().into()),
        };
        for _ in 0..PROCESSES {
            storm.start_one();
        }
        let busy = async || storm.witness.seen().most >= SLOTS;
        wait_until("all slots taken", PATIENT, busy).await;
        storm
    }

    fn start_one(&mut self) {
        let holders = ["kill_storm::holders", "--exact", "--ignored"];
        let child = Command::new(std::env::current_exe().unwrap())
            .args(holders)
            .env(STORE, &self.store)
            .env(WITNESS, self.witness.address.to_string())
            .env(POLICY, self.policy.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        self.processes.push(child);
    }

    /// Kills one after the other at random, each time with another in its place.
    async fn rage(&mut self, until: Instant) -> usize {
        let mut kills = 0;
        while Instant::now() < until {
            let pause = 300 + self.random.below(1_200);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let victim = self.random.below(PROCESSES as u64) as usize;
            self.processes.swap_remove(victim).kill().await.unwrap();
            kills += 1;
            self.start_one();
        }
        kills
    }

    async fn kill_all(&mut self) {
        for process in &mut self.processes {
            process.start_kill().unwrap();
        }
        for mut process in self.processes.drain(..) {
            process.wait().await.unwrap();
        }
        let gone = async || self.witness.seen().inside == 0;
        wait_until("nobody inside", PATIENT, gone).await;
    }
}

/// All of it takes a minute, and runs where everything does.
fn span() -> Duration {
    match std::env::var("TOLLGATE_TEST_ALL") {
        Ok(all) if all == "1" => seconds(60),
        _ => seconds(14),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s102_s113_never_more_holders_than_slots_while_processes_and_the_store_are_killed() {
    let mut redis = RedisServer::builder()
        .set("appendonly", "yes")
        .set("appendfsync", "always")
        .start()
        .await;
    let mut storm = Storm::begin(&redis.url(), FailurePolicy::Closed).await;
    let (began, span) = (Instant::now(), span());
    let mut kills = storm.rage(began + span / 2).await;
    let before = storm.witness.seen();
    redis.restart().await;
    kills += storm.rage(began + span).await;
    let seen = storm.witness.seen();
    // What is held by those who die now is free within its time to live, and not much later.
    let killed = Instant::now();
    storm.kill_all().await;
    let limiter = limiter(&redis.url(), FailurePolicy::Closed).await;
    let slots = slots(&limiter);
    let mut permits = Vec::new();
    for _ in 0..SLOTS {
        permits.push(slots.acquire_within("all", TTL + seconds(3)).await.unwrap());
    }
    let free = killed.elapsed();
    println!("{kills} kills in {span:?}, {before:?} at the restart, {seen:?}; free after {free:?}");
    assert_eq!(seen.most, SLOTS, "{seen:?}");
    assert!(slots.acquire_within("all", Duration::ZERO).await.is_err());
    assert!(free <= TTL + seconds(1), "{free:?}");
    let turns = span.as_secs();
    assert!(kills as u64 >= turns / 2, "only {kills} kills");
    assert!(seen.died > 0, "nobody was killed inside");
    assert!(before.entered >= turns, "{before:?}");
    assert!(
        seen.entered - before.entered >= turns,
        "it went on: {seen:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s111_under_fail_open_each_process_has_at_most_the_limit() {
    let mut redis = RedisServer::builder()
        .set("appendonly", "yes")
        .set("appendfsync", "always")
        .start()
        .await;
    let mut storm = Storm::begin(&redis.url(), FailurePolicy::Open).await;
    assert_eq!(storm.witness.seen().most, SLOTS, "while the store is there");
    // Frozen, killed, and back.
    redis.pause();
    storm.rage(Instant::now() + seconds(2)).await;
    redis.kill();
    storm.rage(Instant::now() + seconds(3)).await;
    redis.restart().await;
    storm.rage(Instant::now() + seconds(3)).await;
    let seen = storm.witness.seen();
    storm.kill_all().await;
    println!("{seen:?}");
    let bound = SLOTS * PROCESSES as u32;
    assert!(seen.most <= bound, "more than {bound}: {seen:?}");
    assert!(
        seen.most > SLOTS,
        "each process counts for itself: {seen:?}"
    );
}
