//! Consumers of a queue that share a pool of GPUs: `cargo run -p tollgate --example gpu_pool`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tollgate::{Concurrency, Limiter};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Stands for a queue outside of the process.
pub(crate) type Queue = Arc<Mutex<mpsc::Receiver<u32>>>;

/// 4 GPUs, for all processes together. Those of a process that dies are free after 30 s.
pub(crate) fn pool(limiter: &Limiter) -> Result<Concurrency, Error> {
    let gpus = limiter.concurrency("gpus", 4);
    let gpus = gpus
        .wait(Duration::from_secs(60))
        .ttl(Duration::from_secs(30));
    Ok(gpus.build()?)
}

/// Takes jobs from the queue until there are none, and runs each when there is a GPU for it.
pub(crate) async fn consume<F>(gpus: Concurrency, queue: Queue, render: impl Fn(u32) -> F)
where
    F: Future<Output = ()>,
{
    // The queue is not locked while the job runs.
    while let Some(job) = { queue.lock().await.recv().await } {
        while let Err(error) = gpus.run("all", render(job)).await {
            // No GPU was free for a minute, or it was lost on the way: the job begins anew.
            eprintln!("job {job}: {error}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // redis://.. to share the pool with other processes.
    let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    let gpus = pool(&limiter)?;
    let (jobs, queue) = mpsc::channel(100);
    let queue = Arc::new(Mutex::new(queue));
    let mut consumers = JoinSet::new();
    for _ in 0..8 {
        consumers.spawn(consume(gpus.clone(), Arc::clone(&queue), async |job| {
            println!("job {job} has a GPU");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }));
    }
    for job in 0..40 {
        jobs.send(job).await?;
    }
    drop(jobs);
    consumers.join_all().await;
    limiter.drain().await;
    Ok(())
}
