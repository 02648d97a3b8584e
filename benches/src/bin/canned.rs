//! The floor of a gateway's refusals: a socket that answers whatever comes with the bytes of a file,
//! without a look at it. One thread, of tokio, as in the gateway; nothing less can be done there.
//!
//! `canned ADDRESS FILE`. All requests of a connection must be as long as its first: so many bytes,
//! so many answers, and what comes in one read is answered by one write.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() {
    let mut given = std::env::args().skip(1);
    let address: SocketAddr = given
        .next()
        .and_then(|it| it.parse().ok())
        .expect("an address");
    let answer = std::fs::read(given.next().expect("a file")).expect("it can be read");
    let answer: &'static [u8] = answer.leak();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let listener = TcpListener::bind(address).await.expect("a free port");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            tokio::spawn(serve(stream, answer));
        }
    });
}

/// Until the client has had enough.
async fn serve(mut stream: TcpStream, answer: &[u8]) -> Option<()> {
    let mut room = [0; 8192];
    let (mut length, mut owed) = (0, 0);
    let mut answers = Vec::new();
    loop {
        let read = stream.read(&mut room).await.ok().filter(|read| *read > 0)?;
        if length == 0 {
            let ends = |at: &[u8]| at == b"\r\n\r\n";
            length = room[..read].windows(4).position(ends)? + 4;
        }
        owed += read;
        let whole = owed / length;
        owed %= length;
        if whole == 1 {
            stream.write_all(answer).await.ok()?;
        } else {
            answers.clear();
            (0..whole).for_each(|_| answers.extend_from_slice(answer));
            stream.write_all(&answers).await.ok()?;
        }
    }
}
