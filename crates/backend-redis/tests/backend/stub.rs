//! A server that answers what the test says, for versions that no machine has any more.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tollgate_testkit::Reply;

/// Answers `INFO` with this text, `EVALSHA` with this reply, and everything else with `+OK`.
pub(crate) async fn start(info: &'static str, evalsha: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                    while let Some((command, length)) = Reply::parse(&bytes) {
                        bytes.drain(..length);
                        let Reply::Array(words) = command else { return };
                        let reply = match words[0].text().as_deref() {
                            Some("INFO") => format!("${}\r\n{info}\r\n", info.len()),
                            Some("EVALSHA") => evalsha.into(),
                            _ => "+OK\r\n".into(),
                        };
                        if stream.write_all(reply.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}
