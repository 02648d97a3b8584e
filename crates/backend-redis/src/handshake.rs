//! What is said on a new connection: who we are, and what the server is.

use redis::{Pipeline, Value};
use tollgate_core::{BackendError, ErrorKind};

use crate::connection::Connection;
use crate::error::reply_error;
use crate::url::Login;

/// The oldest version whose scripts can do what ours do.
const OLDEST: (u32, u32) = (6, 2);

/// How to log in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Greeting<'a> {
    pub(crate) login: &'a Login,
    pub(crate) db: u32,
    pub(crate) resp3: bool,
}

/// What the server told about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    /// Of `INFO`, as it was answered: empty if it may not be asked.
    info: String,
}

/// Logs in, and checks what the server is. The caller bounds how long it takes.
pub(crate) async fn greet(
    connection: &Connection,
    greeting: Greeting<'_>,
) -> Result<Server, BackendError> {
    let mut commands = redis::pipe();
    log_in(&mut commands, greeting);
    let asked = commands.len();
    for section in ["server", "memory", "replication"] {
        commands.cmd("INFO").arg(section);
    }
    // For whoever reads CLIENT LIST. It may be forbidden.
    commands.cmd("CLIENT").arg("SETNAME").arg("tollgate");
    let replies = connection.pipeline(&commands).await?;
    let mut server = Server::default();
    for (i, reply) in replies.into_iter().enumerate() {
        match reply {
            Value::ServerError(error) => {
                let error = reply_error(&error);
                let refused = matches!(error.kind(), ErrorKind::Auth) && i >= asked;
                // Without a login everything is refused, not only what is asked afterwards.
                let no_login = refused && error.to_string().contains("NOAUTH");
                if i < asked || no_login || error.kind() == ErrorKind::NotReady {
                    return Err(error);
                }
            }
            Value::BulkString(text) => server.info.push_str(&String::from_utf8_lossy(&text)),
            Value::VerbatimString { text, .. } => server.info.push_str(&text),
            _ => {}
        }
        server.info.push('\n');
    }
    server.check_version()?;
    Ok(server)
}

fn log_in(commands: &mut Pipeline, greeting: Greeting<'_>) {
    let Greeting { login, db, resp3 } = greeting;
    if resp3 {
        commands.cmd("HELLO").arg("3");
        if let Some(password) = &login.password {
            let user = login.user.as_deref().unwrap_or("default");
            commands.arg("AUTH").arg(user).arg(password);
        }
    } else if let Some(password) = &login.password {
        commands.cmd("AUTH");
        if let Some(user) = &login.user {
            commands.arg(user);
        }
        commands.arg(password);
    }
    if db != 0 {
        commands.cmd("SELECT").arg(db);
    }
}

impl Server {
    fn field(&self, name: &str) -> Option<&str> {
        self.info.lines().find_map(|line| {
            let (field, value) = line.trim().split_once(':')?;
            (field == name).then_some(value)
        })
    }

    /// Valkey calls itself Redis 7.2.4 as well, so one field tells enough of either.
    fn check_version(&self) -> Result<(), BackendError> {
        let Some(version) = self.field("redis_version") else {
            return Ok(());
        };
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
        let found = (numbers.next().flatten(), numbers.next().flatten());
        match found {
            (Some(major), Some(minor)) if (major, minor) < OLDEST => Err(BackendError::new(
                ErrorKind::Unsupported,
                format!("the server is Redis {version}; 6.2 or later, or Valkey, is needed"),
            )),
            _ => Ok(()),
        }
    }

    /// Whether it says that it takes no writes.
    pub(crate) fn is_replica(&self) -> bool {
        self.field("role").is_some_and(|role| role != "master")
    }

    /// What an operator should know.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let bounded = self.field("maxmemory").is_some_and(|bytes| bytes != "0");
        match self.field("maxmemory_policy") {
            Some(policy) if policy.starts_with("allkeys-") && bounded => vec![format!(
                "maxmemory-policy is {policy}: when the server is full it drops counters, which \
                 gives whoever had used up a quota a fresh one; use noeviction",
            )],
            Some(_) => Vec::new(),
            None => vec![
                "could not tell the server's version and maxmemory-policy (INFO is forbidden): \
                 make sure that it evicts no keys"
                    .into(),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(info: &str) -> Server {
        Server { info: info.into() }
    }

    #[test]
    fn b22_a_version_before_6_2_is_refused() {
        for (version, supported) in [
            ("4.0.14", false),
            ("6.0.9", false),
            ("6.2.0", true),
            ("7.2.4", true),
            ("10.0.1", true),
        ] {
            let checked =
                server(&format!("# Server\r\nredis_version:{version}\r\n")).check_version();
            assert_eq!(checked.is_ok(), supported, "{version}");
            if let Err(error) = checked {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
            }
        }
    }

    #[test]
    fn b61_only_a_policy_that_drops_any_key_is_warned_of() {
        let warnings = |maxmemory: u64, policy: &str| {
            server(&format!(
                "maxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\n"
            ))
            .warnings()
        };
        assert_eq!(warnings(1, "noeviction"), Vec::<String>::new());
        assert_eq!(warnings(1, "volatile-ttl"), Vec::<String>::new());
        assert_eq!(warnings(0, "allkeys-lru"), Vec::<String>::new());
        assert!(warnings(1, "allkeys-lru")[0].contains("allkeys-lru"));
        assert!(server("").warnings()[0].contains("could not tell"));
    }
}
