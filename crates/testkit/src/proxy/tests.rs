use super::*;
use crate::resp::{Reply, call, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Answers each command with its number, and tells the test which it executed.
async fn counting_server() -> (SocketAddr, mpsc::UnboundedReceiver<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (executed, log) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            while stream.read_buf(&mut bytes).await.unwrap_or(0) > 0 {
                while let Some((_, length)) = crate::resp::command(&bytes) {
                    bytes.drain(..length);
                    number += 1;
                    let _ = executed.send(number);
                    let reply = format!(":{number}\r\n");
                    let _ = stream.write_all(reply.as_bytes()).await;
                }
            }
        }
    });
    (address, log)
}

async fn ask(client: &mut TcpStream) -> Option<Reply> {
    within("a reply", Duration::from_secs(5), call(client, &["ASK"]))
        .await
        .ok()
}

async fn connect(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

#[tokio::test]
async fn it_passes_commands_on_and_counts_them() {
    let (server, _log) = counting_server().await;
    let proxy = FaultProxy::start(server).await;
    let mut client = connect(&proxy).await;
    for number in 1..=3 {
        assert_eq!(ask(&mut client).await, Some(Reply::Integer(number)));
    }
    assert_eq!((proxy.commands(), proxy.commands_named("ask")), (3, 3));
    assert_eq!((proxy.connections(), proxy.open_connections()), (1, 1));
    drop(client);
    wait_for_open(&proxy, 0).await;
}

async fn wait_for_open(proxy: &FaultProxy, open: u64) {
    let reached = async || proxy.open_connections() == open;
    crate::wait_until("connections", Duration::from_secs(5), reached).await;
}

#[tokio::test]
async fn a_command_that_is_cut_after_it_is_forwarded_is_executed() {
    let (server, mut log) = counting_server().await;
    let proxy = FaultProxy::start(server).await;
    proxy.on(Rule::command("ASK").skip(1).forward_then_cut());
    let mut client = connect(&proxy).await;
    assert_eq!(ask(&mut client).await, Some(Reply::Integer(1)));
    assert_eq!(ask(&mut client).await, None);
    assert_eq!((log.recv().await, log.recv().await), (Some(1), Some(2)));
    assert_eq!(
        ask(&mut connect(&proxy).await).await,
        Some(Reply::Integer(3))
    );
}

#[tokio::test]
async fn a_command_that_is_cut_is_not_executed() {
    let (server, _log) = counting_server().await;
    let proxy = FaultProxy::start(server).await;
    proxy.on(Rule::any().cut());
    assert_eq!(ask(&mut connect(&proxy).await).await, None);
    assert_eq!(
        ask(&mut connect(&proxy).await).await,
        Some(Reply::Integer(1))
    );
}

#[tokio::test]
async fn replies_are_replaced_dropped_and_made_up_in_order() {
    let (server, _log) = counting_server().await;
    let proxy = FaultProxy::start(server).await;
    proxy.on(Rule::command("REPLACED").reply("-OOM\r\n"));
    proxy.on(Rule::command("DROPPED").drop_reply());
    proxy.on(Rule::command("OWN").answer("+own\r\n"));
    let mut client = connect(&proxy).await;
    let commands = ["A", "REPLACED", "OWN", "DROPPED", "B"].map(|name| encode(&[name]));
    client.write_all(&commands.concat()).await.unwrap();
    let mut bytes = vec![0; 4 + 6 + 6 + 4];
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        ":1\r\n-OOM\r\n+own\r\n:4\r\n"
    );
}

#[tokio::test]
async fn held_replies_arrive_late_and_silent_connections_stay_dead() {
    let (server, mut log) = counting_server().await;
    let proxy = FaultProxy::start(server).await;
    let mut client = connect(&proxy).await;
    assert!(ask(&mut client).await.is_some());
    proxy.hold_replies();
    client.write_all(&encode(&["ASK"])).await.unwrap();
    assert_eq!((log.recv().await, log.recv().await), (Some(1), Some(2)));
    let mut bytes = [0; 4];
    let nothing = client.try_read(&mut bytes).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    proxy.restore().await;
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b":2\r\n");

    proxy.stay_silent();
    client.write_all(&encode(&["LOST"])).await.unwrap();
    proxy.wait_for("LOST", 1).await;
    proxy.restore().await;
    client.write_all(&encode(&["LOST"])).await.unwrap();
    proxy.wait_for("LOST", 2).await;
    drop(client);
    assert_eq!(
        ask(&mut connect(&proxy).await).await,
        Some(Reply::Integer(3))
    );
}

#[tokio::test]
async fn a_delay_keeps_the_order() {
    let (server, _log) = counting_server().await;
    let proxy = FaultProxy::start(server).await;
    proxy.on(Rule::command("SLOW").delay_reply(Duration::from_millis(30)));
    let mut client = connect(&proxy).await;
    let commands = ["SLOW", "FAST"].map(|name| encode(&[name]));
    let start = tokio::time::Instant::now();
    client.write_all(&commands.concat()).await.unwrap();
    let mut bytes = [0; 8];
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b":1\r\n:2\r\n");
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn it_refuses_kills_and_comes_back_on_the_same_port() {
    let (server, _log) = counting_server().await;
    let proxy = FaultProxy::start(server).await;
    let mut client = connect(&proxy).await;
    assert!(ask(&mut client).await.is_some());
    proxy.refuse().await;
    assert_eq!(ask(&mut client).await, None);
    proxy.restore().await;
    let mut client = connect(&proxy).await;
    assert!(ask(&mut client).await.is_some());
    proxy.kill_connections();
    assert_eq!(ask(&mut client).await, None);
    assert!(ask(&mut connect(&proxy).await).await.is_some());
}
