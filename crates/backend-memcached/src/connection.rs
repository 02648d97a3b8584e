//! One connection to one server.

use std::io;
use std::time::Duration;

use memcache::exp::{AsyncMetaConnection, MetaCommand, MetaResponse};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::url::Address;

/// A connection that is between exchanges, or in one.
pub(crate) struct Connection {
    wire: AsyncMetaConnection,
    /// The same socket again, to see whether the other side closed it: the client keeps its own to
    /// itself.
    probe: std::net::TcpStream,
    /// The moment of the pool at which it was there.
    pub(crate) made: u64,
    /// The moment of the pool at which it was last seen to work.
    worked: u64,
    /// The time then.
    worked_at: Instant,
}

/// Nothing becomes of a connection in so short a time that a look is worth its system call.
const FRESH: Duration = Duration::from_millis(1);

impl Connection {
    /// Connects. The name is looked up each time, so a server that moves is found again.
    pub(crate) async fn open(
        address: &Address,
    ) -> io::Result<(AsyncMetaConnection, std::net::TcpStream)> {
        let stream = TcpStream::connect((&*address.host, address.port)).await?;
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        let probe = stream.try_clone()?;
        let wire = AsyncMetaConnection::from_stream(TcpStream::from_std(stream)?);
        Ok((wire, probe))
    }

    pub(crate) fn new(
        (wire, probe): (AsyncMetaConnection, std::net::TcpStream),
        made: u64,
    ) -> Self {
        Self {
            wire,
            probe,
            made,
            worked: made,
            worked_at: Instant::now(),
        }
    }

    /// It was seen to work at this moment.
    pub(crate) fn works(&mut self, moment: u64) {
        self.worked = moment;
        self.worked_at = Instant::now();
    }

    pub(crate) const fn worked(&self) -> u64 {
        self.worked
    }

    /// Whether nothing came while nobody asked: neither an end nor bytes that are nobody's answer.
    pub(crate) fn is_quiet(&self) -> bool {
        if self.worked_at.elapsed() < FRESH {
            return true;
        }
        let peeked = self.probe.peek(&mut [0]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    pub(crate) async fn execute(
        &mut self,
        command: &MetaCommand,
    ) -> memcache::exp::Result<MetaResponse> {
        self.wire.execute(command).await
    }
}
