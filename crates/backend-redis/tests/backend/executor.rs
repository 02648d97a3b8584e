//! On the application's own client.

use tokio::sync::Mutex;
use tollgate_core::{BackendError, ErrorKind, SharedBackend};
use tollgate_redis::{RedisBackend, RedisExecutor, ScriptCall, error_kind};
use tollgate_testkit::{RedisClient, RedisServer, Reply};

use super::{T0, charge, facts, policy};

/// The application's client: one connection, one command at a time.
#[derive(Debug)]
struct Ours(Mutex<RedisClient>);

impl Ours {
    async fn call(&self, words: &[Vec<u8>]) -> Result<Vec<i64>, BackendError> {
        let reply = self.0.lock().await.call(words).await;
        match reply.map_err(|_| BackendError::new(ErrorKind::Unavailable, "lost"))? {
            Reply::Integer(number) => Ok(vec![number]),
            Reply::Array(items) => Ok(items.iter().filter_map(Reply::integer).collect()),
            Reply::Error(text) => Err(BackendError::new(error_kind(&text), text)),
            _ => Ok(Vec::new()),
        }
    }
}

impl RedisExecutor for Ours {
    async fn run(&self, call: ScriptCall<'_>) -> Result<Vec<i64>, BackendError> {
        let words = |command: &str, script: &str| {
            let mut words = vec![
                command.into(),
                script.into(),
                b"1".to_vec(),
                call.key.into(),
            ];
            words.extend(call.args.iter().map(<[u8]>::to_vec));
            words
        };
        match self.call(&words("EVALSHA", call.script.sha())).await {
            Err(error) if error.to_string().contains("NOSCRIPT") => {
                self.call(&words("EVAL", call.script.source())).await
            }
            answer => answer,
        }
    }
}

#[tokio::test]
async fn s3_an_applications_client_serves_without_another_connection() {
    let server = RedisServer::start().await;
    let client = server.client().await.unwrap();
    let backend = SharedBackend::new(RedisBackend::with_executor(Ours(Mutex::new(client))));
    for quota in [
        "3/h",
        "7/h",
        "3/h sliding_window",
        "3/h sliding_log",
        "3/h, 9/d fixed_window",
    ] {
        let policy = policy(quota);
        let capacity = policy.capacity();
        for remaining in (0..capacity).rev() {
            let decision = charge(&backend, &policy, Some(T0), 1).await.unwrap();
            assert_eq!(facts(&decision), (true, remaining, None), "{quota}");
        }
        assert!(
            !charge(&backend, &policy, Some(T0), 1)
                .await
                .unwrap()
                .allowed()
        );
    }
    let list = server.command(&["CLIENT", "LIST"]).await.text().unwrap();
    // The application's, and the one that asks.
    assert_eq!(
        list.lines().filter(|line| !line.is_empty()).count(),
        2,
        "{list}"
    );
}

#[tokio::test]
async fn s3_our_own_client_has_one_connection() {
    let server = RedisServer::start().await;
    let backend = super::backend(server.url()).await;
    let policies: Vec<_> = (0..50).map(|_| policy("10/h")).collect();
    for answer in super::lost::join_all(
        policies
            .iter()
            .map(|policy| charge(&backend, policy, None, 1)),
    )
    .await
    {
        assert!(answer.unwrap().allowed());
    }
    let list = server.command(&["CLIENT", "LIST"]).await.text().unwrap();
    assert_eq!(
        list.lines()
            .filter(|line| line.contains("name=tollgate"))
            .count(),
        1,
        "{list}"
    );
}
