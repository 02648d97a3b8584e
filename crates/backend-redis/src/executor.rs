//! The seam between the counting and a client: somebody who runs a script.

use std::fmt;
use std::future::Future;

use tollgate_core::BackendError;

/// One of the scripts that count.
#[derive(Debug)]
pub struct Script {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    pub(crate) sha: String,
    /// Its place among all of them.
    pub(crate) index: usize,
}

impl Script {
    /// What it is called in logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its text, for `EVAL` and `SCRIPT LOAD`.
    #[must_use]
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// The SHA-1 of its text in hexadecimal, for `EVALSHA`.
    #[must_use]
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

/// One call of a script on its keys.
#[derive(Clone, Copy, Debug)]
pub struct ScriptCall<'a> {
    /// Which script.
    pub script: &'static Script,
    /// `KEYS[1]`. Printable ASCII without spaces.
    pub key: &'a str,
    /// The other keys it touches. None, unless the executor [merges](RedisExecutor::merging).
    pub others: &'a [String],
    /// `ARGV`.
    pub args: &'a Args,
}

/// The arguments of a call: short words and numbers, in one buffer.
#[derive(Clone, Default)]
pub struct Args {
    text: Vec<u8>,
    ends: Vec<u32>,
}

impl Args {
    pub(crate) fn with_capacity(args: usize) -> Self {
        Self {
            text: Vec::with_capacity(args * 12),
            ends: Vec::with_capacity(args),
        }
    }

    pub(crate) fn push(&mut self, word: &str) {
        self.text.extend_from_slice(word.as_bytes());
        // A call has at most a few thousand short arguments.
        self.ends.push(self.text.len() as u32);
    }

    pub(crate) fn push_number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Each, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        self.ends.iter().map(move |end| {
            let arg = &self.text[from..*end as usize];
            from = *end as usize;
            arg
        })
    }
}

impl fmt::Debug for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(String::from_utf8_lossy))
            .finish()
    }
}

/// Which calls on different keys may be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Merging {
    /// None: each call has one key.
    Never,
    /// All: the server is no cluster.
    Always,
    /// Those on keys in the same [slot](crate::key_slot).
    WithinSlot,
}

/// A client of Redis or Valkey that runs scripts: the application's own, so that Tollgate opens no
/// second connection to the same server.
///
/// # Behavior
/// - Runs `EVALSHA sha 1 key args..` once. If the reply is `NOSCRIPT`, loads the source and runs it
///   again; in a cluster it also follows `MOVED` and `ASK`. Those replies prove that nothing was
///   charged.
/// - **Never runs it again for any other reason.** A call whose answer was lost may have been
///   charged: it fails with [`ErrorKind::Timeout`](tollgate_core::ErrorKind::Timeout) or
///   [`ErrorKind::Unavailable`](tollgate_core::ErrorKind::Unavailable). Switch off the retries of
///   your client for these calls.
/// - Answers the integer that the script replied, or the integers of its array.
/// - Errors carry the kind that [`error_kind`](crate::error_kind) finds in an error reply.
///
/// ```
/// use tollgate_core::{BackendError, ErrorKind};
/// use tollgate_redis::{RedisExecutor, ScriptCall, error_kind};
///
/// # mod app {
/// #     pub enum Failure { Reply(String), Lost }
/// #     #[derive(Debug)] pub struct Client;
/// #     impl Client {
/// #         pub async fn evalsha(&self, _: &str, _: &str, _: Vec<Vec<u8>>) -> Result<Vec<i64>, Failure> {
/// #             Err(Failure::Reply("LOADING Redis is loading the dataset in memory".into()))
/// #         }
/// #         pub async fn load(&self, _: &str) -> Result<(), Failure> { Ok(()) }
/// #     }
/// # }
/// #[derive(Debug)]
/// struct Ours(app::Client);
///
/// impl Ours {
///     async fn once(&self, call: ScriptCall<'_>) -> Result<Vec<i64>, app::Failure> {
///         let args = call.args.iter().map(<[u8]>::to_vec).collect();
///         self.0.evalsha(call.script.sha(), call.key, args).await
///     }
/// }
///
/// impl RedisExecutor for Ours {
///     async fn run(&self, call: ScriptCall<'_>) -> Result<Vec<i64>, BackendError> {
///         let mut answer = self.once(call).await;
///         if matches!(&answer, Err(app::Failure::Reply(text)) if text.starts_with("NOSCRIPT")) {
///             let _ = self.0.load(call.script.source()).await;
///             answer = self.once(call).await;
///         }
///         answer.map_err(|failure| match failure {
///             app::Failure::Reply(text) => BackendError::new(error_kind(&text), text),
///             app::Failure::Lost => BackendError::new(ErrorKind::Unavailable, "connection lost"),
///         })
///     }
/// }
///
/// let backend = tollgate_redis::RedisBackend::with_executor(Ours(app::Client));
/// assert_eq!(backend.to_string(), "redis (the application's client)");
/// ```
pub trait RedisExecutor: fmt::Debug + Send + Sync + 'static {
    /// Which calls may be merged into one on several keys ([`ScriptCall::others`]), to save the
    /// server work when many callers come at the same time. None, by default.
    fn merging(&self) -> Merging {
        Merging::Never
    }

    /// Our own client, which can keep documents too. No other client is one.
    #[doc(hidden)]
    fn own_client(&self) -> Option<&crate::Client> {
        None
    }

    /// Runs a script and answers its integers.
    fn run(
        &self,
        call: ScriptCall<'_>,
    ) -> impl Future<Output = Result<Vec<i64>, BackendError>> + Send;
}
