//! What is asked once a response is there, and once it is sent: what becomes of the charge.

use std::sync::Arc;

use http::response;

use super::sent::Sent;
use super::settle::Settle;

type Answered = Arc<dyn Fn(&response::Parts) -> Settle + Send + Sync>;
type WhenSent = Arc<dyn Fn(&Sent) -> Settle + Send + Sync>;

/// Those of a rule, or of a layer. The first that says something decides.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    answered: Vec<Answered>,
    sent: Vec<WhenSent>,
    /// Whether an error of the service, which is no response, is given back.
    refund_failures: bool,
}

impl Hooks {
    pub(crate) fn when(
        &mut self,
        settle: impl Fn(&response::Parts) -> Settle + Send + Sync + 'static,
    ) {
        self.answered.push(Arc::new(settle));
    }

    pub(crate) fn when_sent(&mut self, settle: impl Fn(&Sent) -> Settle + Send + Sync + 'static) {
        self.sent.push(Arc::new(settle));
    }

    pub(crate) fn refund_when(
        &mut self,
        refund: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) {
        self.when(move |response| match refund(response) {
            true => Settle::Refund,
            false => Settle::Keep,
        });
    }

    pub(crate) fn refund_server_errors(&mut self) {
        self.refund_failures = true;
        self.refund_when(|response| response.status.is_server_error());
    }

    /// And those, after these.
    pub(crate) fn extend(&mut self, others: Self) {
        self.answered.extend(others.answered);
        self.sent.extend(others.sent);
        self.refund_failures |= others.refund_failures;
    }

    /// Whether the head of a response has to be looked at.
    pub(super) fn hear(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Whether the body has to be watched.
    pub(super) fn watch(&self) -> bool {
        !self.sent.is_empty()
    }

    pub(super) const fn refund_failures(&self) -> bool {
        self.refund_failures
    }

    /// What they say of a response.
    pub(super) fn answered(&self, response: &response::Parts) -> Settle {
        first(self.answered.iter().map(|hook| hook(response)))
    }

    /// What they say of one that is sent.
    pub(super) fn sent(&self, sent: &Sent) -> Settle {
        first(self.sent.iter().map(|hook| hook(sent)))
    }
}

fn first(mut said: impl Iterator<Item = Settle>) -> Settle {
    said.find(|settle| *settle != Settle::Keep)
        .unwrap_or_default()
}
