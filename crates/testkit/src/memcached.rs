//! Just enough of memcached's protocol for tests: whole frames, and a client of one connection.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// The name of the first whole command in `bytes`, in capitals, and its length with its data.
pub(crate) fn command(bytes: &[u8]) -> Option<(String, usize)> {
    let (line, end) = line(bytes)?;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let data = match words.first().copied().unwrap_or_default() {
        "ms" => words.get(2),
        "set" | "add" | "replace" | "append" | "prepend" | "cas" => words.get(4),
        _ => None,
    };
    let name = words.first().copied().unwrap_or_default().to_uppercase();
    whole(bytes, end, data).map(|length| (name, length))
}

/// The length of the first whole reply to a meta command in `bytes`, with its data.
pub(crate) fn reply(bytes: &[u8]) -> Option<usize> {
    let (line, end) = line(bytes)?;
    let mut words = line.split_ascii_whitespace();
    let data = (words.next() == Some("VA")).then(|| words.next()).flatten();
    whole(bytes, end, data.as_ref())
}

/// An answer with `{opaque}` replaced by the command's own.
pub(crate) fn answer(command: &[u8], answer: Vec<u8>) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(&answer) else {
        return answer;
    };
    let line = line(command).map(|(line, _)| line).unwrap_or_default();
    let mut words = line.split_ascii_whitespace().skip(2);
    let opaque = words.find(|word| word.starts_with('O'));
    text.replace("{opaque}", opaque.unwrap_or_default()).into()
}

fn line(bytes: &[u8]) -> Option<(String, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((String::from_utf8_lossy(&bytes[..end]).into(), end + 2))
}

/// The length of a frame whose line ends at `end`, and whose data are as long as `data` says; `None`
/// if they have not come yet. What is no number has none.
fn whole(bytes: &[u8], end: usize, data: Option<&&str>) -> Option<usize> {
    let length = match data.and_then(|data| data.parse::<usize>().ok()) {
        Some(data) => end + data + 2,
        None => end,
    };
    (bytes.len() >= length).then_some(length)
}

/// A connection to a memcached under test, for looking at what a backend did.
#[derive(Debug)]
pub struct MemcachedClient(BufReader<TcpStream>);

impl MemcachedClient {
    /// Connects.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a meta command (`mg key v c`, or `ms key 2` with its data after a `\r\n`); what the
    /// server answers, with a `\n` between the line and the data.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn call(&mut self, command: &str) -> io::Result<String> {
        self.send(command).await?;
        let mut answer = self.line().await?;
        if let Some(rest) = answer.strip_prefix("VA ") {
            let length = rest.split(' ').next().and_then(|n| n.parse::<usize>().ok());
            let length = length.ok_or_else(|| io::Error::other(answer.clone()))?;
            let mut data = vec![0; length + 2];
            self.0.read_exact(&mut data).await?;
            answer.push('\n');
            answer.push_str(&String::from_utf8_lossy(&data[..length]));
        }
        Ok(answer)
    }

    /// Sends a command that answers with lines up to `END`; those lines.
    ///
    /// # Errors
    /// When the connection breaks, or it answers otherwise.
    pub async fn lines(&mut self, command: &str) -> io::Result<Vec<String>> {
        self.send(command).await?;
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            match &*line {
                "END" => return Ok(lines),
                "ERROR" | "BUSY" => return Err(io::Error::other(line)),
                _ if line.contains("_ERROR") => return Err(io::Error::other(line)),
                _ => lines.push(line),
            }
        }
    }

    /// What `stats` says.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn stats(&mut self) -> io::Result<HashMap<String, String>> {
        let lines = self.lines("stats").await?;
        let pairs = lines.iter().filter_map(|line| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.into(), value.into()))
        });
        Ok(pairs.collect())
    }

    async fn send(&mut self, command: &str) -> io::Result<()> {
        self.0.write_all(format!("{command}\r\n").as_bytes()).await
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart() {
        let set = b"ms key 2 T60 c\r\nhi\r\nmg key v\r\n";
        assert_eq!(command(set), Some(("MS".into(), 20)));
        assert_eq!(command(&set[..19]), None);
        assert_eq!(command(&set[20..]), Some(("MG".into(), 10)));
        assert_eq!(command(b"mn\r\n"), Some(("MN".into(), 4)));
        assert_eq!(command(b"mn\r"), None);
        let value = b"VA 4 c1\r\n\r\n\r\n\r\nEN\r\n";
        assert_eq!(reply(value), Some(15));
        assert_eq!(reply(&value[..14]), None);
        assert_eq!(reply(&value[15..]), Some(4));
        let replaced = answer(b"ms Ok 2 T60 O7 c\r\nOi\r\n", b"NS {opaque}\r\n".into());
        assert_eq!(replaced, b"NS O7\r\n");
    }
}
