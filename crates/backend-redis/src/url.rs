//! Where a store is and how to log in, from a URL.

use std::fmt;
use std::path::PathBuf;

use tollgate_core::{BackendError, ErrorKind};

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How the servers hang together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Single(Address),
    Cluster(Vec<Address>),
    Sentinel {
        sentinels: Vec<Address>,
        master: String,
    },
}

/// A name and a password; `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.password.is_some() {
            "Login(***)"
        } else {
            "Login(none)"
        })
    }
}

/// Certificates, by the paths of their files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) insecure: bool,
}

/// What a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) topology: Topology,
    pub(crate) login: Login,
    pub(crate) sentinel_login: Login,
    pub(crate) db: u32,
    pub(crate) resp3: bool,
    pub(crate) tls: Option<TlsFiles>,
    scheme: String,
}

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;

impl Target {
    /// Reads a URL. No error repeats it, since it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, BackendError> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad("it has no scheme"))?;
        let scheme = scheme.to_ascii_lowercase();
        let (base, shape) = scheme.split_once('+').unwrap_or((&scheme, ""));
        let encrypted = match base {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(bad("the scheme is none of redis, rediss, valkey, valkeys")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may hold an @ that nobody escaped; a host never does.
        let (login, rest) = rest
            .rsplit_once('@')
            .map_or(("", rest), |(login, rest)| (login, rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut target = Self {
            topology: Topology::Cluster(Vec::new()),
            login: parse_login(login)?,
            sentinel_login: Login::default(),
            db: 0,
            resp3: false,
            tls: encrypted.then(TlsFiles::default),
            scheme: scheme.clone(),
        };
        // The path of a unix socket is one word.
        let words = if shape == "unix" { "" } else { path };
        let mut segments = words.split('/').filter(|segment| !segment.is_empty());
        let mut db = None;
        target.topology = match shape {
            "" => {
                db = segments.next();
                let [address] = &addresses(hosts, REDIS_PORT)?[..] else {
                    return Err(bad(
                        "it names several hosts; use redis+cluster:// or redis+sentinel://",
                    ));
                };
                Topology::Single(address.clone())
            }
            "unix" if encrypted => return Err(bad("a unix socket is never encrypted")),
            "unix" => {
                if !hosts.is_empty() || path.is_empty() {
                    return Err(bad(
                        "a unix socket is an absolute path: redis+unix:///run/redis.sock",
                    ));
                }
                Topology::Single(Address::Unix(format!("/{}", decode(path)?).into()))
            }
            "cluster" => Topology::Cluster(addresses(hosts, REDIS_PORT)?),
            "sentinel" => {
                let master = segments.next().ok_or_else(|| {
                    bad("it does not name the master: redis+sentinel://host/mymaster")
                })?;
                db = segments.next();
                Topology::Sentinel {
                    sentinels: addresses(hosts, SENTINEL_PORT)?,
                    master: decode(master)?,
                }
            }
            _ => return Err(bad("what follows the + is none of unix, cluster, sentinel")),
        };
        if segments.next().is_some() {
            return Err(bad("its path has too many parts"));
        }
        if let Some(db) = db {
            target.db = number(db, "the database")?;
        }
        target.options(query)?;
        if target.db != 0 && matches!(target.topology, Topology::Cluster(_)) {
            return Err(bad("a cluster has only database 0"));
        }
        Ok(target)
    }

    fn options(&mut self, query: &str) -> Result<(), BackendError> {
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decode(value)?;
            let sentinel = matches!(self.topology, Topology::Sentinel { .. });
            match (name, &mut self.tls) {
                ("protocol", _) => {
                    self.resp3 = match &*value {
                        "resp2" | "2" => false,
                        "resp3" | "3" => true,
                        _ => return Err(bad("protocol is neither resp2 nor resp3")),
                    }
                }
                ("db", _) => self.db = number(&value, "db")?,
                ("sentinel_user", _) if sentinel => self.sentinel_login.user = Some(value),
                ("sentinel_password", _) if sentinel => {
                    self.sentinel_login.password = Some(value);
                }
                ("ca", Some(tls)) => tls.ca = Some(value.into()),
                ("cert", Some(tls)) => tls.cert = Some(value.into()),
                ("key", Some(tls)) => tls.key = Some(value.into()),
                ("insecure", Some(tls)) => tls.insecure = matches!(&*value, "" | "true" | "1"),
                ("ca" | "cert" | "key" | "insecure", None) => {
                    return Err(bad(
                        "certificates need an encrypted scheme, such as rediss://",
                    ));
                }
                _ => {
                    return Err(bad(
                        "it has an option that is none of protocol, db, ca, cert, key, insecure, sentinel_user, sentinel_password",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The URL without a password, a user or options.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if self.login.password.is_some() {
            f.write_str("***@")?;
        }
        let list = |addresses: &[Address]| {
            let texts: Vec<_> = addresses.iter().map(Address::to_string).collect();
            texts.join(",")
        };
        match &self.topology {
            Topology::Single(address) => write!(f, "{address}")?,
            Topology::Cluster(nodes) => f.write_str(&list(nodes))?,
            Topology::Sentinel { sentinels, master } => write!(f, "{}/{master}", list(sentinels))?,
        }
        if self.db != 0 {
            write!(f, "/{}", self.db)?;
        }
        Ok(())
    }
}

fn parse_login(login: &str) -> Result<Login, BackendError> {
    if login.is_empty() {
        return Ok(Login::default());
    }
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let login = Login {
        user: some(decode(user)?),
        password: some(decode(password)?),
    };
    if login.password.is_none() {
        return Err(bad(
            "it names a user without a password: use redis://user:password@host",
        ));
    }
    Ok(login)
}

fn addresses(hosts: &str, default_port: u16) -> Result<Vec<Address>, BackendError> {
    hosts
        .split(',')
        .map(|host| {
            let (name, port) = match host.strip_prefix('[') {
                Some(v6) => {
                    let (name, port) = v6
                        .split_once(']')
                        .ok_or_else(|| bad("an IPv6 address lacks its ]"))?;
                    (name, port.strip_prefix(':'))
                }
                None => match host.rsplit_once(':') {
                    Some((name, port)) => (name, Some(port)),
                    None => (host, None),
                },
            };
            if name.is_empty() {
                return Err(bad("it names no host"));
            }
            let port = port.map_or(Ok(default_port), |port| number(port, "a port"))?;
            Ok(Address::Tcp(decode(name)?, port))
        })
        .collect()
}

fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, BackendError> {
    text.parse()
        .map_err(|_| bad(&format!("{what} is no number that fits")))
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, BackendError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
            match (digit(), digit()) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err(bad("a % is not followed by two hexadecimal digits")),
            }
        } else {
            byte
        });
    }
    String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8 once decoded"))
}

fn bad(why: &str) -> BackendError {
    BackendError::new(
        ErrorKind::Config,
        format!("the Redis URL cannot be used: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Target {
        Target::parse(url).unwrap()
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.into(), port)
    }

    #[test]
    fn every_shape_is_read() {
        let single = parse("redis://127.0.0.1:6380/3?protocol=resp3");
        assert_eq!(single.topology, Topology::Single(tcp("127.0.0.1", 6380)));
        assert_eq!((single.db, single.resp3, &single.tls), (3, true, &None));
        assert_eq!(
            parse("valkey://[::1]").topology,
            Topology::Single(tcp("::1", 6379))
        );
        assert_eq!(
            parse("valkey+cluster://a,b:1").topology,
            Topology::Cluster(vec![tcp("a", 6379), tcp("b", 1)])
        );
        let sentinel = parse("redis+sentinel://a,b:5/main/2?sentinel_password=p");
        assert_eq!(
            sentinel.topology,
            Topology::Sentinel {
                sentinels: vec![tcp("a", 26_379), tcp("b", 5)],
                master: "main".into()
            }
        );
        assert_eq!(sentinel.db, 2);
        assert_eq!(
            parse("redis+unix:///run/redis.sock?db=4").topology,
            Topology::Single(Address::Unix("/run/redis.sock".into()))
        );
        assert!(
            parse("rediss://h?insecure=true&ca=/x")
                .tls
                .unwrap()
                .insecure
        );
        let login = parse("redis://svc:p%40ss:word@h").login;
        assert_eq!(
            (login.user.as_deref(), login.password.as_deref()),
            (Some("svc"), Some("p@ss:word"))
        );
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for url in [
            "redis",
            "http://h",
            "redis://",
            "redis://h:port",
            "redis://a,b",
            "redis://h/x",
            "redis://h/0/1",
            "redis+unix://sock",
            "rediss+unix:///s",
            "redis+cluster://h?db=1",
            "redis+sentinel://h",
            "redis+moon://h",
            "redis://h?protocol=4",
            "redis://h?ca=/x",
            "redis://h?unknown=1",
            "redis://user@h",
            "redis://%zz:p@h",
            "redis://[::1",
            "redis://h?db=-1",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        }
    }

    #[test]
    fn b71_no_password_is_printed() {
        for url in [
            "redis://svc:s3cr3t@127.0.0.1:1/0",
            "redis://:s3cr3t@127.0.0.1:1/0",
            "redis+sentinel://:s3cr3t@h/m?sentinel_password=s3cr3t",
            "redis+unix://svc:s3cr3t@/run/redis.sock",
        ] {
            let target = parse(url);
            assert!(!format!("{target} {target:?}").contains("s3cr3t"), "{url}");
        }
        for url in [
            "redis://svc:s3cr3t@h:x",
            "s3cr3t",
            "redis://svc:s3cr3t@h?s3cr3t=1",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{url}");
        }
        assert_eq!(
            parse("redis://svc:s3cr3t@h:1/2").to_string(),
            "redis://***@h:1/2"
        );
    }
}
