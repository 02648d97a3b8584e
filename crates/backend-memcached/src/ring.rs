//! Which server has which key.
//!
//! The ring is libmemcached's weighted ketama with equal weights, and that of twemproxy and of
//! spymemcached's `LIBMEMCACHED` format: 40 MD5 digests of `host:port-0` to `host:port-39` for each
//! server (`host-0` where the port is 11211), each of which gives four points. A key belongs to the
//! first point that is not before its own MD5, and over the end to the first of all. So the order in
//! which servers are listed makes no difference, and a server more or less moves few keys.

use crate::url::{Address, DEFAULT_PORT};

const DIGESTS: usize = 40;

/// Points and the servers that they belong to, in order.
#[derive(Debug)]
pub(crate) struct Ring(Vec<(u32, usize)>);

impl Ring {
    /// The ring of these servers. One server needs none.
    pub(crate) fn new(servers: &[Address]) -> Self {
        if servers.len() < 2 {
            return Self(Vec::new());
        }
        let mut points: Vec<(u32, &Address, usize)> = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            for number in 0..DIGESTS {
                let text = match server.port {
                    DEFAULT_PORT => format!("{}-{number}", server.host),
                    port => format!("{}:{port}-{number}", server.host),
                };
                let digest = md5::compute(text).0;
                points.extend((0..4).map(|part| (point(&digest, part), server, index)));
            }
        }
        // Two servers at one point, if it ever happens, are in the same order for everybody.
        points.sort();
        Self(
            points
                .into_iter()
                .map(|(at, _, index)| (at, index))
                .collect(),
        )
    }

    /// The number of the server that has a key.
    pub(crate) fn server(&self, key: &str) -> usize {
        let Some((_, first)) = self.0.first() else {
            return 0;
        };
        let key = point(&md5::compute(key).0, 0);
        let next = self.0.partition_point(|(at, _)| *at < key);
        self.0.get(next).map_or(*first, |(_, index)| *index)
    }
}

fn point(digest: &[u8; 16], part: usize) -> u32 {
    let bytes = &digest[part * 4..part * 4 + 4];
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests;
