//! One connection: commands one way, replies the other, in order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{Action, Mode, Protocol, Shared};

/// What becomes of the next reply.
enum Pending {
    /// The server's, with a delay.
    Forward(Duration),
    Drop,
    Replace(Vec<u8>),
    /// The server does not know of the command.
    Own(Vec<u8>),
}

struct Connection {
    shared: Arc<Shared>,
    protocol: Protocol,
    client: TcpStream,
    server: Option<TcpStream>,
    commands: Vec<u8>,
    replies: Vec<u8>,
    pending: VecDeque<Pending>,
    /// Replies that are due, and when.
    due: VecDeque<(Instant, Vec<u8>)>,
    /// Commands were lost: nothing passes any more.
    dead: bool,
}

enum Next {
    Go,
    Close,
}

pub(super) async fn serve(client: TcpStream, protocol: Protocol, shared: Arc<Shared>) {
    let (era, upstream, mode) = shared.change(|state| {
        state.connections += 1;
        state.open += 1;
        (state.era, state.upstream, state.mode)
    });
    let mut changed = shared.changed.subscribe();
    let server = if mode == Mode::Silent {
        None
    } else {
        TcpStream::connect(upstream).await.ok()
    };
    // A server that is down refuses the client as well.
    if server.is_some() || mode == Mode::Silent {
        let _ = client.set_nodelay(true);
        let mut connection = Connection {
            shared: Arc::clone(&shared),
            protocol,
            client,
            dead: server.is_none(),
            server,
            commands: Vec::new(),
            replies: Vec::new(),
            pending: VecDeque::new(),
            due: VecDeque::new(),
        };
        let until_killed = async {
            while shared.state().era == era {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            _ = connection.run() => {}
            () = until_killed => {}
        }
    }
    shared.change(|state| state.open -= 1);
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        let mut changed = self.shared.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let (mode, delay) = {
                let state = self.shared.state();
                (state.mode, state.delay)
            };
            if mode == Mode::Silent {
                self.dead = true;
            }
            let next_due = match self.due.front() {
                Some((at, _)) if mode != Mode::Hold && !self.dead => Some(*at),
                _ => None,
            };
            let due = async {
                match next_due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let reply = async {
                match &mut self.server {
                    Some(server) => server.read_buf(&mut self.replies).await,
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                // Order: what is due first, so that a busy client delays nothing.
                biased;
                () = due => {
                    if let Some((_, bytes)) = self.due.pop_front() {
                        self.client.write_all(&bytes).await?;
                    }
                    Next::Go
                }
                read = reply => {
                    if read? == 0 { Next::Close } else { self.take_replies(delay); Next::Go }
                }
                read = self.client.read_buf(&mut self.commands) => {
                    if read? == 0 { Next::Close } else { self.take_commands().await? }
                }
                changed = changed.changed() => {
                    if changed.is_err() { Next::Close } else { Next::Go }
                }
            };
            if matches!(next, Next::Close) {
                return Ok(());
            }
        }
    }

    async fn take_commands(&mut self) -> io::Result<Next> {
        while let Some((name, length)) = self.protocol.command(&self.commands) {
            let bytes: Vec<u8> = self.commands.drain(..length).collect();
            let action = self.shared.command(&name);
            if self.dead {
                continue;
            }
            let pending = match action {
                Action::Cut => return Ok(Next::Close),
                Action::ForwardThenCut => {
                    self.last_words(&bytes).await?;
                    return Ok(Next::Close);
                }
                Action::Answer(answer) => {
                    let answer = self.protocol.answer(&bytes, answer);
                    self.pending.push_back(Pending::Own(answer));
                    self.take_replies(Duration::ZERO);
                    continue;
                }
                Action::Forward => Pending::Forward(Duration::ZERO),
                Action::DelayReply(by) => Pending::Forward(by),
                Action::DropReply => Pending::Drop,
                Action::Reply(reply) => Pending::Replace(self.protocol.answer(&bytes, reply)),
            };
            self.pending.push_back(pending);
            if let Some(server) = &mut self.server {
                server.write_all(&bytes).await?;
            }
        }
        Ok(Next::Go)
    }

    /// Sends a command and waits until the server has read it and closed, so that it is executed
    /// whatever happens to the client.
    async fn last_words(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(mut server) = self.server.take() {
            server.write_all(bytes).await?;
            server.shutdown().await?;
            let mut rest = Vec::new();
            server.read_to_end(&mut rest).await?;
        }
        Ok(())
    }

    fn take_replies(&mut self, delay: Duration) {
        let now = Instant::now();
        // No reply overtakes an earlier one.
        let mut at = self.due.back().map_or(now, |(at, _)| (*at).max(now));
        loop {
            if let Some(Pending::Own(_)) = self.pending.front() {
                if let Some(Pending::Own(bytes)) = self.pending.pop_front() {
                    self.due.push_back((at, bytes));
                }
                continue;
            }
            let Some((length, pushed)) = self.protocol.reply(&self.replies) else {
                return;
            };
            let bytes: Vec<u8> = self.replies.drain(..length).collect();
            if pushed {
                self.due.push_back((at, bytes));
                continue;
            }
            match self.pending.pop_front() {
                Some(Pending::Drop) => {}
                Some(Pending::Replace(bytes)) => self.due.push_back((at.max(now + delay), bytes)),
                Some(Pending::Forward(by)) => {
                    at = at.max(now + delay.max(by));
                    self.due.push_back((at, bytes));
                }
                Some(Pending::Own(_)) | None => self.due.push_back((at, bytes)),
            }
        }
    }
}
