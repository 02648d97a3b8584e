//! Just enough of the Redis protocol for tests: whole frames, and a client of one connection.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A reply of the server, RESP2 or RESP3.
///
/// ```
/// use tollgate_testkit::Reply;
///
/// let (reply, length) = Reply::parse(b"*2\r\n:7\r\n$-1\r\n+OK\r\n").unwrap();
/// assert_eq!(reply, Reply::Array(vec![Reply::Integer(7), Reply::Nil]));
/// assert_eq!(length, 13);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`, and whatever else is one line of text.
    Text(String),
    /// `-ERR ..`.
    Error(String),
    /// `:7`.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// Arrays, sets, and maps as keys and values in turn.
    Array(Vec<Self>),
    /// Not asked for: RESP3 pushes. No command's reply.
    Push(Vec<Self>),
}

impl Reply {
    /// The first whole reply in `bytes` and its length; `None` if it is not complete yet.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let (kind, line) = (*bytes.first()?, bytes.get(1..end)?);
        let line = String::from_utf8_lossy(line).into_owned();
        let after = end + 2;
        let number = || line.parse::<i64>().ok();
        match kind {
            b'-' => Some((Self::Error(line), after)),
            b':' => Some((Self::Integer(number()?), after)),
            b'_' => Some((Self::Nil, after)),
            b'$' | b'!' | b'=' => {
                let Ok(length) = usize::try_from(number()?) else {
                    return Some((Self::Nil, after));
                };
                let body = bytes.get(after..after + length)?;
                bytes.get(after + length..after + length + 2)?;
                let reply = if kind == b'!' {
                    Self::Error(String::from_utf8_lossy(body).into_owned())
                } else {
                    Self::Bulk(body.to_vec())
                };
                Some((reply, after + length + 2))
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let Ok(count) = usize::try_from(number()?) else {
                    return Some((Self::Nil, after));
                };
                let count = if matches!(kind, b'%' | b'|') {
                    2 * count
                } else {
                    count
                };
                let (mut items, mut at) = (Vec::new(), after);
                for _ in 0..count {
                    let (item, length) = Self::parse(bytes.get(at..)?)?;
                    items.push(item);
                    at += length;
                }
                match kind {
                    // Attributes come before the reply that they describe.
                    b'|' => Self::parse(bytes.get(at..)?).map(|(reply, n)| (reply, at + n)),
                    b'>' => Some((Self::Push(items), at)),
                    _ => Some((Self::Array(items), at)),
                }
            }
            _ => Some((Self::Text(line), after)),
        }
    }

    /// The text of a status, a string or a number; `None` for anything else.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Self::Integer(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// A number, also one that is sent as text.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        self.text()?.parse().ok()
    }
}

/// The first whole command in `bytes`: its name in capitals, and its length. `None` if it is not
/// complete yet.
pub(crate) fn command(bytes: &[u8]) -> Option<(String, usize)> {
    let (name, length) = if bytes.first() == Some(&b'*') {
        let (Reply::Array(words), length) = Reply::parse(bytes)? else {
            return Some((String::new(), bytes.len()));
        };
        (words.first().and_then(Reply::text), length)
    } else {
        // Inline: a line of words.
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        (line.split(' ').next().map(str::to_owned), end + 2)
    };
    Some((name.unwrap_or_default().to_ascii_uppercase(), length))
}

/// A command as clients send it.
#[must_use]
pub(crate) fn encode<A: AsRef<[u8]>>(words: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Sends one command and waits for its reply.
pub(crate) async fn call<S, A>(stream: &mut S, words: &[A]) -> io::Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    A: AsRef<[u8]> + Sync,
{
    stream.write_all(&encode(words)).await?;
    let mut bytes = Vec::new();
    loop {
        while let Some((reply, length)) = Reply::parse(&bytes) {
            bytes.drain(..length);
            if !matches!(reply, Reply::Push(_)) {
                return Ok(reply);
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_of_a_frame_is_incomplete() {
        for frame in [
            &b"+OK\r\n"[..],
            b"-ERR no\r\n",
            b"$5\r\nab\r\nc\r\n",
            b"*3\r\n:1\r\n*1\r\n$0\r\n\r\n_\r\n",
            b"%1\r\n+k\r\n:2\r\n",
            b">2\r\n+invalidate\r\n*0\r\n",
            b"|1\r\n+ttl\r\n:2\r\n:5\r\n",
            b"#t\r\n",
        ] {
            for cut in 0..frame.len() {
                assert_eq!(Reply::parse(&frame[..cut]), None, "{frame:?} cut at {cut}");
            }
            assert_eq!(Reply::parse(frame).unwrap().1, frame.len(), "{frame:?}");
        }
    }

    #[test]
    fn commands_are_told_apart() {
        let bytes = [encode(&["evalsha", "a\r\nb"]), b"PING now\r\n".to_vec()].concat();
        let (first, length) = command(&bytes).unwrap();
        assert_eq!(first, "EVALSHA");
        assert_eq!(command(&bytes[length..]), Some(("PING".into(), 10)));
        assert_eq!(command(&bytes[length..length + 5]), None);
    }
}
