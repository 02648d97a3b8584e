//! The layer that limits how many requests run at the same time.

mod answers;
mod bodies;
mod failure;
mod grpc;
mod handlers;
mod routes;
mod sockets;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tollgate::Concurrency;
use tollgate::http::ConcurrencyLayer;
use tollgate_testkit::wait_until;

use crate::support::{Answer, Client, Server, Store};

const PATIENCE: Duration = Duration::from_secs(10);

/// Work that ends when the test lets it.
#[derive(Clone, Debug)]
struct Gate(Arc<Semaphore>);

impl Gate {
    fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    fn open(&self, times: usize) {
        self.0.add_permits(times);
    }
}

async fn work(State(gate): State<Gate>) -> &'static str {
    gate.0.acquire().await.unwrap().forget();
    "done"
}

/// A service whose requests to `/work` take as long as the gate says.
async fn serve(layer: ConcurrencyLayer) -> (Server, Gate) {
    let gate = Gate::new();
    let app = Router::new()
        .route("/work", get(work))
        .layer(layer)
        .with_state(gate.clone());
    (Server::start(app).await, gate)
}

/// A limit of so many slots.
fn limit(store: &Store, slots: u32) -> Concurrency {
    store.limiter.concurrency("ocr", slots).build().unwrap()
}

/// A request that is under way.
fn begin(client: Client, path: &'static str) -> JoinHandle<Answer> {
    tokio::spawn(async move { client.get(path).await })
}

/// Returns when so many of the layer's slots are held.
async fn in_use(limit: &Concurrency, expected: u32) {
    let there = async || limit.in_use(ConcurrencyLayer::KEY).await.unwrap() == expected;
    wait_until(&format!("{expected} in use"), PATIENCE, there).await;
}
