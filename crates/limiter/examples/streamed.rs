//! Answers that take long to send: `cargo run -p tollgate --features axum --example streamed`.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::{Stream, StreamExt, stream};
use tokio::time::{Instant, interval};
use tollgate::Limiter;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A word every 100 ms, as a language model has them.
fn words() -> impl Stream<Item = Result<&'static str, std::io::Error>> {
    let words = ["each ", "word ", "keeps ", "its ", "slot\n"];
    let ticks = stream::unfold(interval(Duration::from_millis(100)), |mut ticks| async {
        let tick: Instant = ticks.tick().await;
        Some((tick, ticks))
    });
    stream::iter(words).zip(ticks).map(|(word, _)| Ok(word))
}

/// Two answers at a time, over all processes. The third waits up to a second, and is told 503. A slot
/// is free again when the last word has been sent, or the client has gone.
pub(crate) fn app(limiter: &Limiter) -> Result<Router, Error> {
    let complete = get(async || Body::from_stream(words()));
    let slots = limiter.in_flight(2).wait(Duration::from_secs(1)).layer()?;
    Ok(Router::new().route("/complete", complete).layer(slots))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let limiter = Limiter::builder(tollgate::connect("memory://").await?).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app(&limiter)?).await?)
}
