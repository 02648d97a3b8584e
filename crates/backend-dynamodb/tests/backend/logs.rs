//! Several processes on one busy sliding log, whose writes defeat each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate_core::{Cost, CounterBackend, Key, Policy, Subject};
use tollgate_dynamodb::DynamoBackend;
use tollgate_testkit::{DynamoProxy, LocalDynamo, Mischief};

use super::{T0, backend, policy, table};

/// A process so far from the store.
struct Process {
    proxy: DynamoProxy,
    backend: Arc<DynamoBackend>,
}

impl Process {
    async fn start(server: &LocalDynamo, away: Duration) -> Self {
        let proxy = DynamoProxy::start(server.address()).await;
        let backend = Arc::new(backend(&proxy.endpoint()).await);
        proxy.always(Mischief::Delay(away));
        Self { proxy, backend }
    }

    /// Eight callers who charge until they are told to stop, or so often each; how often in all.
    fn charge(
        &self,
        policy: &Policy,
        each: u64,
        stop: &Arc<AtomicBool>,
    ) -> impl Future<Output = u64> + use<> {
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let backend = Arc::clone(&self.backend);
                let (policy, stop) = (policy.clone(), Arc::clone(stop));
                tokio::spawn(async move {
                    let key = Key::from("k");
                    let subject = Subject::new(&policy, &key).at(T0);
                    let mut charged = 0;
                    while charged < each && !stop.load(Ordering::Relaxed) {
                        let charge = backend.acquire(subject, Cost::ONE).await;
                        let decision = charge.unwrap_or_else(|e| panic!("after {charged}: {e}"));
                        assert!(decision.allowed());
                        charged += 1;
                    }
                    charged
                })
            })
            .collect();
        async move {
            let mut charged = 0;
            for caller in callers {
                charged += caller.await.unwrap();
            }
            charged
        }
    }
}

async fn share(away: &[u64]) {
    let server = LocalDynamo::start().await;
    table(&server.endpoint()).await;
    let policy = policy("20000/h sliding_log");
    let mut processes = Vec::new();
    for millis in away {
        processes.push(Process::start(&server, Duration::from_millis(*millis)).await);
    }
    // The first is the one that may be left behind; the others go on until it is done.
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = processes[1..]
        .iter()
        .map(|process| process.charge(&policy, u64::MAX, &stop))
        .collect();
    let first = processes[0].charge(&policy, 12, &stop).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = first;
    for other in others {
        all += other.await;
    }
    let requests = processes[0].proxy.all_calls();
    println!("{away:?} ms away: {first} of {all}, {requests} requests of the first");
    assert_eq!(first, 12 * 8);
    let key = Key::from("k");
    let subject = Subject::new(&policy, &key).at(T0);
    let peeked = processes[0].backend.peek(subject, Cost::ONE).await.unwrap();
    assert_eq!(peeked.remaining(), Some(20_000 - all), "none is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_a_busy_log() {
    share(&[3, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_further_away_is_not_kept_out_of_a_busy_log() {
    share(&[9, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_share_a_busy_log() {
    share(&[3, 3, 3, 3]).await;
}
