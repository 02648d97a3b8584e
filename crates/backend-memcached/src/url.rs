//! Where the servers are, from a URL.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use tollgate_core::{BackendError, ErrorKind};

/// The port of memcached, which a URL and the ring leave out.
pub(crate) const DEFAULT_PORT: u16 = 11_211;

/// What the options of a URL are called, for messages.
const OPTIONS: &str = "pool, connect_timeout, memory, item_limit";

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What a URL says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// In the order of the URL, which makes no difference.
    pub(crate) servers: Vec<Address>,
    pub(crate) pool: Option<u64>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) memory: Option<u64>,
    pub(crate) item_limit: Option<u64>,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, BackendError> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad("it has no scheme: write memcached://host:11211"))?;
        match scheme.to_ascii_lowercase().as_str() {
            "memcached" => {}
            "memcacheds" | "memcached+tls" => {
                return Err(bad(
                    "the client speaks plain TCP only: use memcached://, and where the network is not \
                     trusted put a TLS proxy on the same machine between them",
                ));
            }
            _ => return Err(bad("its scheme is not memcached")),
        }
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        if hosts.contains('@') {
            return Err(bad(
                "it holds a login, and memcached has none over this protocol: take out all up to the @",
            ));
        }
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains('/') {
            return Err(bad(
                "it has a path, and memcached has no databases: take it out",
            ));
        }
        let mut target = Self {
            servers: hosts.split(',').map(address).collect::<Result<_, _>>()?,
            ..Self::default()
        };
        let mut sorted: Vec<_> = target.servers.iter().collect();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(bad(&format!("it names {} twice: once is enough", twice[0])));
        }
        for option in query.split('&').filter(|option| !option.is_empty()) {
            target.option(option)?;
        }
        Ok(target)
    }

    fn option(&mut self, option: &str) -> Result<(), BackendError> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "pool" => {
                let pool = number(name, value, "16, for 16 connections to each server")?;
                once(name, &mut self.pool, pool)?;
            }
            "connect_timeout" => once(name, &mut self.connect_timeout, duration(name, value)?)?,
            "memory" => once(
                name,
                &mut self.memory,
                number(name, value, "33554432, in bytes")?,
            )?,
            "item_limit" => {
                let limit = number(name, value, "1000000, in bytes")?;
                once(name, &mut self.item_limit, limit)?;
            }
            "tls" | "ssl" if matches!(value, "false" | "0" | "no") => {}
            "tls" | "ssl" => {
                return Err(bad(&format!(
                    "{name} cannot be had, the client speaks plain TCP only: take the option out, and where \
                     the network is not trusted put a TLS proxy on the same machine between them"
                )));
            }
            // Without its name, which may be a secret that got into the wrong place.
            _ => return Err(bad(&format!("it has an option that is none of {OPTIONS}"))),
        }
        Ok(())
    }
}

fn address(text: &str) -> Result<Address, BackendError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6
                .split_once(']')
                .ok_or_else(|| bad("an IPv6 address lacks its ]: write [::1]:11211"))?;
            // It may have a zone.
            let address = host.split('%').next().unwrap_or_default();
            if address.parse::<Ipv6Addr>().is_err() {
                return Err(bad(
                    "what is in brackets must be an IPv6 address: write [::1]:11211",
                ));
            }
            let port = match port.strip_prefix(':') {
                None if !port.is_empty() => {
                    return Err(bad(
                        "after the ] of an IPv6 address comes a colon, or nothing: write [::1]:11211",
                    ));
                }
                port => port,
            };
            (host, port)
        }
        None if text.matches(':').count() > 1 => {
            return Err(bad("an IPv6 address is in brackets: write [::1]:11211"));
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(bad(
            "it names no host: write memcached://host:11211, several with commas between them",
        ));
    }
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'%');
    if !host.bytes().all(good) {
        return Err(bad(
            "a host has letters, digits, -, _ and . only: write memcached://host:11211",
        ));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => text.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            bad(&format!(
                "the port of {host} is {text:?}, which is no number from 1 to 65535: write {host}:11211"
            ))
        })?,
    };
    let host = host.to_ascii_lowercase();
    Ok(Address { host, port })
}

fn once<T>(name: &str, option: &mut Option<T>, value: T) -> Result<(), BackendError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(bad(&format!("it has {name} twice: once is enough"))),
    }
}

fn number(name: &str, value: &str, example: &str) -> Result<u64, BackendError> {
    value.parse().map_err(|_| {
        bad(&format!(
            "{name} is {value:?}, which is no whole number: write {name}={example}"
        ))
    })
}

fn duration(name: &str, value: &str) -> Result<Duration, BackendError> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: Option<u64> = digits.parse().ok();
    match (count, &value[digits.len()..]) {
        (Some(count), "ms") => Ok(Duration::from_millis(count)),
        (Some(count), "s") => Ok(Duration::from_secs(count)),
        _ => Err(bad(&format!(
            "{name} is {value:?}, which is no time: write {name}=500ms or {name}=1s"
        ))),
    }
}

fn bad(why: &str) -> BackendError {
    BackendError::new(
        ErrorKind::Config,
        format!("the memcached URL cannot be used: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Target {
        Target::parse(url).unwrap()
    }

    fn names(target: &Target) -> Vec<String> {
        target.servers.iter().map(Address::to_string).collect()
    }

    #[test]
    fn every_shape_is_read() {
        assert_eq!(names(&parse("memcached://h")), ["h:11211"]);
        assert_eq!(names(&parse("memcached://H:1/")), ["h:1"]);
        let several = parse("memcached://a_b-c.d:1,[::1]:2,[fe80::2%eth0],10.0.0.3");
        let right = [
            "a_b-c.d:1",
            "[::1]:2",
            "[fe80::2%eth0]:11211",
            "10.0.0.3:11211",
        ];
        assert_eq!(names(&several), right);
        assert_eq!(several.servers[1].host, "::1");
        let options = "pool=4&connect_timeout=250ms&memory=0&item_limit=500&tls=false";
        let target = parse(&format!("memcached://h?{options}"));
        assert_eq!(target.pool, Some(4));
        assert_eq!(target.connect_timeout, Some(Duration::from_millis(250)));
        assert_eq!((target.memory, target.item_limit), (Some(0), Some(500)));
        let seconds = parse("memcached://h?connect_timeout=2s");
        assert_eq!(seconds.connect_timeout, Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_cannot_be_used_says_what_and_how_it_would_be_right() {
        for (url, part) in [
            ("memcached", "memcached://host:11211"),
            ("http://h", "scheme is not memcached"),
            ("memcacheds://h", "plain TCP only"),
            ("memcached+tls://h", "plain TCP only"),
            ("memcached://h?tls=true", "tls cannot be had"),
            ("memcached://", "names no host"),
            ("memcached://a,,b", "names no host"),
            ("memcached://h:port", "the port of h is \"port\""),
            ("memcached://h:0", "write h:11211"),
            ("memcached://h:70000", "from 1 to 65535"),
            ("memcached://[::1", "lacks its ]"),
            ("memcached://[::1]:x", "the port of ::1 is \"x\""),
            ("memcached://[::1]11211", "comes a colon"),
            ("memcached://[h]:1", "must be an IPv6 address"),
            ("memcached://a b", "letters, digits"),
            ("memcached://a\nb:1", "letters, digits"),
            ("memcached://h\u{e9}", "letters, digits"),
            ("memcached://h?pool=1&pool=2", "has pool twice"),
            ("memcached://::1", "in brackets"),
            ("memcached://h/1", "no databases"),
            ("memcached://a:1,A:1", "names a:1 twice"),
            ("memcached://a,a:11211", "names a:11211 twice"),
            ("memcached://h?pool=many", "pool is \"many\""),
            ("memcached://h?connect_timeout=5", "connect_timeout=500ms"),
            ("memcached://h?memory=1MB", "memory is \"1MB\""),
            ("memcached://h?weight=2", "none of pool, connect_timeout"),
        ] {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn b71_no_password_is_printed() {
        for url in [
            "memcached://svc:s3cr3t@h:x",
            "s3cr3t",
            "memcached://h?s3cr3t=1",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{url}");
        }
    }
}
