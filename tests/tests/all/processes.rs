//! A second process of ours, which shares a store with the test.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{PATIENT, T0, connect};
use tollgate::{Limiter, ManualClock, RateLimit};

/// The environment of the second process: where the store is.
const STORE: &str = "TOLLGATE_TESTS_STORE";
/// And whether its charges share trips to it.
const COALESCE: &str = "TOLLGATE_TESTS_COALESCE";

/// This test binary once more, running nothing but [`second_process`].
pub(crate) struct Second {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Second {
    pub(crate) async fn start(store: &str, coalesce: bool) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "processes::second_process",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(STORE, store)
            .env(COALESCE, coalesce.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut second = Self {
            _child: child,
            input,
            output,
        };
        assert_eq!(second.answer().await, "ready");
        second
    }

    /// Sends a storm of charges against a policy, and returns before it is answered.
    pub(crate) async fn storm(&mut self, policy: &str, quotas: &str, charges: usize) {
        let line = format!("{charges}|{policy}|{quotas}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
        self.input.flush().await.unwrap();
    }

    /// How many charges of the last storm were admitted.
    pub(crate) async fn admitted(&mut self) -> usize {
        self.answer().await.parse().unwrap()
    }

    /// The next line that is meant for us; the test runner prints others.
    async fn answer(&mut self) -> String {
        loop {
            let line = self
                .output
                .next_line()
                .await
                .unwrap()
                .expect("the second process lives");
            if let Some(answer) = line.split("second: ").nth(1) {
                return answer.to_owned();
            }
        }
    }
}

/// A limiter on a store, in virtual time at T0.
pub(crate) async fn limiter(url: &str, coalesce: bool) -> Limiter {
    Limiter::builder(connect(url).await)
        .timeout(PATIENT)
        .coalesce(coalesce)
        .clock(ManualClock::new(T0))
        .build()
}

/// So many charges at once; how many were admitted.
pub(crate) async fn charge_at_once(limit: &RateLimit, charges: usize) -> usize {
    let tasks: Vec<_> = (0..charges)
        .map(|_| {
            let limit = limit.clone();
            tokio::spawn(async move { limit.acquire("k").await.unwrap() })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        let decision = task.await.unwrap();
        assert!(decision.origin().is_enforced(), "{decision:?}");
        admitted += usize::from(decision.allowed());
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the second process of other tests, which start it"]
async fn second_process() {
    let url = std::env::var(STORE).expect("another test starts this one");
    let coalesce = std::env::var(COALESCE).is_ok_and(|coalesce| coalesce == "true");
    let limiter = limiter(&url, coalesce).await;
    println!("second: ready");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let mut parts = line.splitn(3, '|');
        let charges = parts.next().unwrap().parse().unwrap();
        let policy = parts.next().unwrap();
        let quotas = tollgate::Quota::parse_list(parts.next().unwrap()).unwrap();
        let limit = limiter.policy(policy, quotas).unwrap();
        println!("second: {}", charge_at_once(&limit, charges).await);
    }
}
