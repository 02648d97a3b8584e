//! Documents: a hash of them, a hash of what they claim, and a channel that tells of changes.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use redis::aio::PubSub;
use redis::{ProtocolVersion, RedisConnectionInfo, Value};
use tollgate_core::{
    BackendError, Change, Changed, Collection, Document, DocumentFeed, DocumentStore, ErrorKind,
};

use crate::client::Client;
use crate::error::{Failure, reply_error};
use crate::stream::open;
use crate::{Args, ScriptCall, script};

/// So long nothing may be heard before it is asked whether anybody is still there.
const SILENCE: Duration = Duration::from_secs(10);
/// How long the answer to that may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// `{name}:index` has the documents by their ids, `{name}:{claims}` the ids by what they claim, and
/// `{name}:changes` is the channel. In a cluster the name is a hash tag, so that both hashes are on
/// one node. A change is one `EVALSHA`. Listening takes a connection of its own.
#[derive(Debug)]
pub(crate) struct Documents(Client);

/// What the hashes and the channel of a collection are called.
struct Names {
    index: String,
    claims: [String; 1],
    channel: String,
}

impl Documents {
    pub(crate) const fn new(client: Client) -> Self {
        Self(client)
    }

    fn names(&self, of: Collection<'_>) -> Names {
        let name = if self.0.is_cluster() {
            format!("{{{}}}", of.name)
        } else {
            of.name.to_owned()
        };
        Names {
            index: format!("{name}:index"),
            claims: [format!("{name}:{}", of.claims)],
            channel: format!("{name}:changes"),
        }
    }
}

impl DocumentStore for Documents {
    async fn list(&self, of: Collection<'_>) -> Result<Vec<Document>, BackendError> {
        let names = self.names(of);
        let mut commands = redis::pipe();
        commands.cmd("HGETALL").arg(&names.index);
        let reply = self.0.ask(&names.index, &commands).await?;
        let mut documents = documents(reply)?;
        documents.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(documents)
    }

    async fn change(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> Result<Changed, BackendError> {
        use crate::RedisExecutor as _;
        let names = self.names(of);
        let args = arguments(&names.channel, change)?;
        let call = ScriptCall {
            script: &script::DOCUMENT,
            key: &names.index,
            others: &names.claims,
            args: &args,
        };
        let reply = self.0.run(call).await?;
        match reply[..] {
            [0] => Ok(Changed::Yes),
            [1] => Ok(Changed::Missing),
            [2] => Ok(Changed::Exists),
            [3] => Ok(Changed::Claimed { by: None }),
            [4] => Ok(Changed::Stale),
            _ => Err(malformed(format!(
                "the script of documents replied {reply:?}"
            ))),
        }
    }

    fn watch(&self, of: Collection<'_>) -> Option<Box<dyn DocumentFeed>> {
        Some(Box::new(Feed {
            client: self.0.clone(),
            channel: self.names(of).channel,
            listening: None,
        }))
    }
}

fn arguments(channel: &str, change: Change<'_>) -> Result<Args, BackendError> {
    let text = |body| {
        std::str::from_utf8(body)
            .map_err(|_| BackendError::new(ErrorKind::Config, "a document is no UTF-8"))
    };
    let mut args = Args::with_capacity(7);
    let mut all = |words: &[&str]| words.iter().for_each(|word| args.push(word));
    match change {
        Change::Create { id, claim, body } => all(&["create", channel, id, claim, text(body)?]),
        Change::Replace {
            id,
            before,
            claim_before,
            claim,
            body,
        } => {
            let (body, before) = (text(body)?, text(before)?);
            all(&["replace", channel, id, claim, body, before, claim_before]);
        }
        Change::Delete { id, before, claim } => {
            all(&["delete", channel, id, claim, "", text(before)?]);
        }
    }
    Ok(args)
}

/// `HGETALL` answers a list of fields and values, or in RESP3 a map.
fn documents(reply: Value) -> Result<Vec<Document>, BackendError> {
    let pairs: Vec<(Value, Value)> = match reply {
        Value::Map(pairs) => pairs,
        Value::Array(list) => {
            let mut list = list.into_iter();
            std::iter::from_fn(|| Some((list.next()?, list.next()?))).collect()
        }
        Value::ServerError(error) => return Err(reply_error(&error)),
        _ => return Err(malformed("HGETALL answered no list")),
    };
    let pairs = pairs.into_iter().map(|pair| match pair {
        (Value::BulkString(id), Value::BulkString(body)) => Ok(Document {
            id: String::from_utf8_lossy(&id).into_owned(),
            body,
        }),
        _ => Err(malformed("HGETALL answered something else than texts")),
    });
    pairs.collect()
}

fn malformed(what: impl Into<std::borrow::Cow<'static, str>>) -> BackendError {
    BackendError::new(ErrorKind::Malformed, what)
}

/// Somebody who listens on the channel.
struct Feed {
    client: Client,
    channel: String,
    listening: Option<PubSub>,
}

#[async_trait]
impl DocumentFeed for Feed {
    async fn changed(&mut self) -> Result<(), BackendError> {
        let Some(listening) = &mut self.listening else {
            self.listening = Some(self.client.listen(&self.channel).await?);
            return Ok(());
        };
        loop {
            let next = async { listening.on_message().next().await.is_some() };
            match tokio::time::timeout(SILENCE, next).await {
                Ok(true) => {
                    // Of many that have come already, one look is as good as many.
                    while let Some(Some(_)) = listening.on_message().next().now_or_never() {}
                    return Ok(());
                }
                Ok(false) => break,
                // A connection may be dead without a word.
                Err(_) => {
                    let ping = listening.ping::<Value>();
                    if !matches!(tokio::time::timeout(PATIENCE, ping).await, Ok(Ok(_))) {
                        break;
                    }
                }
            }
        }
        self.listening = None;
        let text = format!("the connection that hears of {} broke", self.channel);
        Err(BackendError::new(ErrorKind::Unavailable, text))
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed")
            .field("channel", &self.channel)
            .field("listening", &self.listening.is_some())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A connection of its own that listens on a channel.
    async fn listen(&self, channel: &str) -> Result<PubSub, BackendError> {
        let settings = self.settings();
        let listen = async {
            let address = self.any_master().await?;
            let stream = open(&address, settings.encryption.as_ref()).await?;
            let target = &settings.target;
            let mut info = RedisConnectionInfo::default()
                .set_skip_set_lib_name()
                .set_db(target.db.into());
            if target.resp3 {
                info = info.set_protocol(ProtocolVersion::RESP3);
            }
            if let Some(user) = &target.login.user {
                info = info.set_username(user);
            }
            if let Some(password) = &target.login.password {
                info = info.set_password(password);
            }
            let failed = |error| match BackendError::from(Failure::broken(&address, error)) {
                error if error.kind() == ErrorKind::Unavailable => BackendError::new(
                    ErrorKind::Unavailable,
                    format!("nobody can listen on {channel}: {error}"),
                ),
                error => error,
            };
            let mut listening = PubSub::new(&info, stream).await.map_err(failed)?;
            listening.subscribe(channel).await.map_err(failed)?;
            Ok(listening)
        };
        tokio::time::timeout(settings.connect_timeout, listen)
            .await
            .unwrap_or_else(|_| {
                Err(BackendError::new(
                    ErrorKind::Timeout,
                    "nobody let us listen in time",
                ))
            })
    }
}
