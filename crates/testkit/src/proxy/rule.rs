//! What is to happen to which commands.

use std::time::Duration;

/// A fault for certain commands: by name or any, after some that pass, for one or more of them.
///
/// ```
/// use tollgate_testkit::Rule;
///
/// // The second and third EVALSHA from now on are executed, but their connection breaks.
/// let rule = Rule::command("EVALSHA").skip(1).times(2).forward_then_cut();
/// # let _ = rule;
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    name: Option<String>,
    skip: u64,
    times: u64,
    action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Forward,
    Cut,
    ForwardThenCut,
    DropReply,
    DelayReply(Duration),
    Reply(Vec<u8>),
    Answer(Vec<u8>),
}

impl Rule {
    /// For the next command of this name; capitals or not.
    #[must_use]
    pub fn command(name: &str) -> Self {
        Self {
            name: Some(name.to_ascii_uppercase()),
            ..Self::any()
        }
    }

    /// For the next command, whatever its name.
    #[must_use]
    pub const fn any() -> Self {
        Self {
            name: None,
            skip: 0,
            times: 1,
            action: Action::Forward,
        }
    }

    /// Lets so many pass first.
    #[must_use]
    pub const fn skip(mut self, commands: u64) -> Self {
        self.skip = commands;
        self
    }

    /// Acts on so many instead of on one.
    #[must_use]
    pub const fn times(mut self, commands: u64) -> Self {
        self.times = commands;
        self
    }

    /// Acts on all that come.
    #[must_use]
    pub const fn always(self) -> Self {
        self.times(u64::MAX)
    }

    /// Closes the connection instead of forwarding: the server never sees the command.
    #[must_use]
    pub fn cut(self) -> Self {
        self.act(Action::Cut)
    }

    /// Forwards, and closes the client's connection at once: the command is executed, its reply and
    /// those to earlier commands are lost.
    #[must_use]
    pub fn forward_then_cut(self) -> Self {
        self.act(Action::ForwardThenCut)
    }

    /// Forwards, and swallows this one reply. Later replies pass, so to a client that goes on using
    /// the connection they look like the replies to earlier commands; a network cannot do that, a
    /// broken proxy can.
    #[must_use]
    pub fn drop_reply(self) -> Self {
        self.act(Action::DropReply)
    }

    /// Forwards, and holds this reply and all later ones on the connection back for so long.
    #[must_use]
    pub fn delay_reply(self, by: Duration) -> Self {
        self.act(Action::DelayReply(by))
    }

    /// Forwards, and gives these bytes in place of the server's reply.
    #[must_use]
    pub fn reply(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.act(Action::Reply(bytes.into()))
    }

    /// Gives these bytes as the reply; the server never sees the command.
    #[must_use]
    pub fn answer(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.act(Action::Answer(bytes.into()))
    }

    fn act(mut self, action: Action) -> Self {
        self.action = action;
        self
    }

    /// What it does to this command, if anything.
    pub(crate) fn meet(&mut self, name: &str) -> Option<Action> {
        if self.times == 0 || self.name.as_deref().is_some_and(|wanted| wanted != name) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.action.clone())
    }
}
