//! One connection to a server under test, for looking at what a backend did.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::Reply;
use crate::resp::call;

/// A connection that sends one command at a time.
#[derive(Debug)]
pub struct RedisClient(TcpStream);

impl RedisClient {
    /// Connects, and gives the password if there is one.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses the password.
    pub async fn connect(address: SocketAddr, password: Option<&str>) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut client = Self(stream);
        if let Some(password) = password {
            match client.call(&["AUTH", password]).await? {
                Reply::Error(error) => return Err(io::Error::other(error)),
                _ => return Ok(client),
            }
        }
        Ok(client)
    }

    /// Sends a command and waits for its reply, which may be an error.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn call<A: AsRef<[u8]> + Sync>(&mut self, words: &[A]) -> io::Result<Reply> {
        call(&mut self.0, words).await
    }
}
