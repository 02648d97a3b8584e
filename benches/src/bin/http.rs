//! What the layer adds to a hello-world of axum: no layer, one that does nothing, ours with all
//! headers and with fewer, and `tower_governor` with its headers (two fields); each on a thread of its
//! own, over loopback.
//!
//! `--connections 32 --millis 400 --rounds 15 --calls 20000 --only all`. Requests a second are those
//! of the wall clock, and the processor time is that of the server's thread for one request, which a
//! busy machine disturbs less. Behind them the same as ratios to no layer, to the one that does
//! nothing and to `tower_governor`, each in the middle of all rounds. A round asks everybody, and
//! each one begins with another.
#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tollgate_benches::http::{apps, call, current_thread};
use tollgate_benches::{list, median, number};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A server on a thread of its own, which says how much processor time it has used.
struct Server {
    name: &'static str,
    address: SocketAddr,
    ask: mpsc::UnboundedSender<oneshot::Sender<Duration>>,
}

impl Server {
    fn start(name: &'static str, app: Router) -> Self {
        let (ask, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<Duration>>();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            current_thread().block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
                let listener = listener.expect("loopback has a port");
                tell.send(listener.local_addr()).expect("main waits");
                let service = app.into_make_service_with_connect_info::<SocketAddr>();
                tokio::spawn(async move { axum::serve(listener, service).await });
                while let Some(answer) = asked.recv().await {
                    let time = clock_gettime(ClockId::ThreadCPUTime);
                    let used = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
                    answer.send(used).expect("main waits");
                }
            });
        });
        let address = told.recv().expect("it starts").expect("it is bound");
        Self { name, address, ask }
    }

    async fn used(&self) -> Duration {
        let (answer, used) = oneshot::channel();
        self.ask.send(answer).expect("it runs");
        used.await.expect("it answers")
    }

    /// Requests a second, and the processor time of one, in microseconds.
    async fn measure(&self, connections: u64, millis: u64) -> (f64, f64) {
        let (start, used) = (Instant::now(), self.used().await);
        let end = start + Duration::from_millis(millis);
        let tasks: Vec<_> = (0..connections)
            .map(|_| tokio::spawn(keep_asking(self.address, end)))
            .collect();
        let mut requests = 0;
        for task in tasks {
            requests += task.await.expect("no request fails");
        }
        let used = self.used().await - used;
        let requests = requests as f64;
        (
            requests / start.elapsed().as_secs_f64(),
            used.as_secs_f64() * 1e6 / requests,
        )
    }
}

/// One request after the other over one connection.
async fn keep_asking(address: SocketAddr, end: Instant) -> u64 {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.set_nodelay(true).expect("a socket has the option");
    let mut answer = vec![0; 4096];
    let mut requests = 0;
    while Instant::now() < end {
        stream.write_all(REQUEST).await.expect("it reads");
        let mut length = 0;
        while !answer[..length].ends_with(b"Hello, World!") {
            let read = stream
                .read(&mut answer[length..])
                .await
                .expect("it answers");
            assert!(
                read > 0,
                "closed: {:?}",
                String::from_utf8_lossy(&answer[..length])
            );
            length += read;
        }
        requests += 1;
    }
    requests
}

/// Nanoseconds of one call without any network: what remains of the difference.
fn nanos_of(app: &mut Router, calls: u64) -> f64 {
    let start = clock_gettime(ClockId::ThreadCPUTime);
    for _ in 0..calls {
        drop(black_box(call(app)));
    }
    let end = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = (end.tv_sec - start.tv_sec) * 1_000_000_000 + end.tv_nsec - start.tv_nsec;
    nanos as f64 / calls as f64
}

fn main() {
    let only = list("only", "all");
    let apps: Vec<_> = apps()
        .into_iter()
        .filter(|(name, _)| only == ["all"] || only.iter().any(|it| name.contains(it.as_str())))
        .collect();
    let rounds = number("rounds", 15);
    let calls = number("calls", 20_000);
    println!("{:<30}{:>10}", "without a network", "ns CPU");
    for (name, app) in &apps {
        // As a server has it.
        let mut app = app.clone().with_state(());
        let nanos = (0..rounds).map(|_| nanos_of(&mut app, calls)).collect();
        println!("{name:<30}{:>10.0}", median(nanos));
    }
    if number("network", 1) == 0 {
        return;
    }
    let servers: Vec<_> = apps
        .into_iter()
        .map(|(name, app)| Server::start(name, app))
        .collect();
    let (connections, millis) = (number("connections", 32), number("millis", 400));
    let mut rows = vec![Vec::new(); servers.len()];
    current_thread().block_on(async {
        for round in 0..=rounds as usize {
            for turn in 0..servers.len() {
                let turn = (round + turn) % servers.len();
                let measured = servers[turn].measure(connections, millis).await;
                // The first round warms up.
                if round > 0 {
                    rows[turn].push(measured);
                }
            }
        }
    });
    let bases: Vec<_> = ["no layer", "a layer that does nothing", "tower_governor"]
        .into_iter()
        .filter_map(|base| {
            let place = servers.iter().position(|it| it.name.contains(base))?;
            Some((base, &rows[place]))
        })
        .collect();
    print!("{:<30}{:>12}{:>8}", "", "requests/s", "us CPU");
    for (base, _) in &bases {
        print!("{:>34}", format!("/s, CPU to {base}"));
    }
    println!();
    for (server, row) in servers.iter().zip(&rows) {
        let rate = median(row.iter().map(|it| it.0).collect());
        let cpu = median(row.iter().map(|it| it.1).collect());
        print!("{:<30}{rate:>12.0}{cpu:>8.2}", server.name);
        for (_, base) in &bases {
            let both = || row.iter().zip(base.iter());
            let rate = median(both().map(|(it, base)| it.0 / base.0).collect());
            let cpu = median(both().map(|(it, base)| it.1 / base.1).collect());
            print!("{:>34}", format!("{rate:.3} {cpu:.3}"));
        }
        println!();
    }
}
