//! One decision: who asks, by which rule, and may they. The gateway, `/v1/check` and
//! `/v1/forward-auth` ask here, and `/usage` looks.

mod blocks;
mod path;
mod slots;
#[cfg(test)]
mod tests;
mod told;
mod verdict;

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use tollgate::{Clock, Decision, Error, Key, Permit, RateLimit, SystemClock, Timestamp};
use tollgate_http::{Limit as _, Problem};

use crate::identity::{Digester, Identity, Resolver};
use crate::rules::{Counted, Facts, LiveRule, Mode, Ruling, Table};
pub(crate) use blocks::Blocks;
pub(crate) use path::normalised;
use slots::Slot;
pub(crate) use told::Told;
pub(crate) use verdict::{Outcome, Verdict};

/// Decides for every request.
#[derive(Debug)]
pub(crate) struct Engine {
    resolver: Arc<Resolver>,
    digester: Digester,
    rules: Arc<ArcSwap<Table>>,
    blocks: Blocks,
}

/// What is asked, once it is known for whom.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// Who it counts for.
    pub(crate) identity: &'a Identity,
    /// The request's method.
    pub(crate) method: &'a Method,
    /// Its path as it came, without the query.
    pub(crate) path: &'a str,
    /// Its header fields.
    pub(crate) headers: &'a HeaderMap,
    /// Its client's address, where that is known.
    pub(crate) client: Option<IpAddr>,
    /// How many requests it stands for: 1, but for checks.
    pub(crate) times: u64,
    /// What becomes of the answer.
    pub(crate) intent: Intent,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The request is served here: it is charged, and takes a slot where its rule has some.
    Serve,
    /// Somebody else serves it: it is charged, and slots are only looked at.
    Charge,
    /// Nothing is charged.
    Look,
}

impl Engine {
    /// With these sources of identities, and these rules.
    pub(crate) fn new(
        resolver: Arc<Resolver>,
        digester: Digester,
        rules: Arc<ArcSwap<Table>>,
        blocks: Blocks,
    ) -> Self {
        Self {
            resolver,
            digester,
            rules,
            blocks,
        }
    }

    /// How identities are found and written.
    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// The rules in force.
    pub(crate) fn table(&self) -> Guard<Arc<Table>> {
        self.rules.load()
    }

    /// Who is blocked.
    pub(crate) const fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// What an identity is counted under.
    pub(crate) fn key(&self, identity: &Identity) -> Key<'static> {
        self.digester.key(identity)
    }

    /// May this request pass? It came from a client at this address, and is served here.
    ///
    /// # Errors
    /// The problem to answer when it is not known whom it counts for: 401, or 500 where the service
    /// lacks what it would verify with.
    ///
    /// # Cancellation
    /// A call that is dropped has charged, or it has not; it holds no slot.
    pub(crate) fn decide<'a>(
        &'a self,
        request: &'a Parts,
        client: IpAddr,
    ) -> impl Future<Output = Result<Verdict, Problem>> + Send + 'a {
        self.decide_as(request, client, Intent::Serve)
    }

    /// The same with another intent.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub(crate) async fn decide_as(
        &self,
        request: &Parts,
        client: IpAddr,
        intent: Intent,
    ) -> Result<Verdict, Problem> {
        let identity = self.resolver.resolve(request, client).await?;
        let question = Question {
            identity: &identity,
            method: &request.method,
            path: request.uri.path(),
            headers: &request.headers,
            client: Some(client),
            times: 1,
            intent,
        };
        let mut verdict = self.answer(&question).await?;
        self.identify(&mut verdict, &question);
        Ok(verdict)
    }

    /// The answer to a question.
    ///
    /// # Errors
    /// 500 where no decision could be made at all; a store that does not answer is no such case.
    pub(crate) async fn answer(&self, question: &Question<'_>) -> Result<Verdict, Problem> {
        let key = self.key(question.identity);
        let now = SystemClock.now();
        let path = path::normalised(question.path);
        let facts = facts(question, &path, now);
        let rule = self.rule(question, &facts);
        let counted = match self.uncounted(&rule, question, &facts, &key) {
            ControlFlow::Break(verdict) => return Ok(verdict),
            ControlFlow::Continue(counted) => counted,
        };
        let cost = rule.rule().cost.saturating_mul(question.times);
        let (outcome, permit) = self
            .count(&rule, counted, &key, cost, question.intent)
            .await?;
        let (headers, number) = (counted.headers.clone(), counted.number);
        let mut verdict = Verdict::new(rule, outcome, now);
        verdict.set_counted(headers, number);
        verdict.set_permit(permit);
        Ok(verdict)
    }

    /// The answer to a question about a request that is served here, if it takes no waiting; the
    /// key is that of its identity, and the path is as rules see it. `None`: nothing was charged.
    pub(crate) fn answer_now(
        &self,
        question: &Question<'_>,
        key: &Key<'static>,
        path: &str,
    ) -> Option<Verdict> {
        let now = SystemClock.now();
        let facts = facts(question, path, now);
        let rule = self.rule(question, &facts);
        let counted = match self.uncounted(&rule, question, &facts, key) {
            ControlFlow::Break(mut verdict) => {
                self.identify(&mut verdict, question);
                return Some(verdict);
            }
            ControlFlow::Continue(counted) => counted,
        };
        let (Some(limit), None) = (&counted.limit, &counted.slots) else {
            return None;
        };
        // What fails is asked again, and told of there.
        let decision = limit.charge_now(key, rule.rule().cost)?.ok()?;
        let (headers, number) = (counted.headers.clone(), counted.number);
        let mut verdict = Verdict::new(rule, Outcome::Decided(decision), now);
        verdict.set_counted(headers, number);
        self.identify(&mut verdict, question);
        Some(verdict)
    }

    /// An admitted request is forwarded with whom it counts for.
    fn identify(&self, verdict: &mut Verdict, question: &Question<'_>) {
        if verdict.allowed() {
            verdict.set_identity(self.resolver.forwarded(question.identity));
        }
    }

    fn rule(&self, question: &Question<'_>, facts: &Facts<'_>) -> Arc<LiveRule> {
        let (kind, value) = (question.identity.kind(), question.identity.value());
        Arc::clone(self.table().choose(kind, value, facts))
    }

    /// What is to be counted, or the answer where nothing is.
    fn uncounted<'a>(
        &self,
        rule: &'a Arc<LiveRule>,
        question: &Question<'_>,
        facts: &Facts<'_>,
        key: &Key<'static>,
    ) -> ControlFlow<Verdict, &'a Counted> {
        let verdict = |outcome| Verdict::new(Arc::clone(rule), outcome, facts.now);
        let identity = question.identity;
        if let Some(until) = self.blocks.until(identity.kind(), key, facts.now) {
            return ControlFlow::Break(verdict(Outcome::BlockedUntil(until)));
        }
        match rule.ruling(identity.value(), facts) {
            Ruling::Free => ControlFlow::Break(verdict(Outcome::Free)),
            Ruling::Blocked => ControlFlow::Break(verdict(Outcome::Blocked)),
            Ruling::Counted(counted) => ControlFlow::Continue(counted),
        }
    }

    async fn count(
        &self,
        rule: &LiveRule,
        counted: &Counted,
        key: &Key<'static>,
        cost: u64,
        intent: Intent,
    ) -> Result<(Outcome, Option<Permit>), Problem> {
        let mut decision = None;
        if let Some(limit) = &counted.limit {
            let made = match charge(limit, key, cost, intent).await {
                Ok(made) => made,
                Err(error) => {
                    tracing::error!(rule = rule.id(), %error, "no decision");
                    return Err(Problem::new(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "No decision could be made",
                    ));
                }
            };
            if !made.allowed() {
                return Ok((Outcome::Decided(made), None));
            }
            decision = Some(made);
        }
        let Some(slots) = &counted.slots else {
            return Ok((decision.map_or(Outcome::Free, Outcome::Decided), None));
        };
        let waits = rule.rule().mode == Mode::Enforce;
        // In boxes: what requests without slots have room for stays small.
        let (slot, permit) = match intent {
            Intent::Serve => Box::pin(slots::take(slots, key, waits)).await,
            Intent::Charge | Intent::Look => (Box::pin(slots::look(slots, key)).await, None),
        };
        if let (Slot::Full { .. } | Slot::Unavailable { .. }, Some(made), Some(limit)) =
            (&slot, &decision, &counted.limit)
            && intent != Intent::Look
            && waits
        {
            // Nothing was served, so nothing was used. A refund that is lost was a charge.
            if let Err(error) = Box::pin(limit.refund(key, made)).await {
                tracing::debug!(rule = rule.id(), %error, "a charge for nothing stays");
            }
        }
        Ok((Outcome::Slot(slot, decision), permit))
    }
}

/// What rules look at.
fn facts<'a>(question: &'a Question<'_>, path: &'a str, now: Timestamp) -> Facts<'a> {
    Facts {
        method: question.method,
        path,
        headers: question.headers,
        client: question.client,
        plan: question.identity.plan(),
        now,
    }
}

/// A cost that can never fit is refused like any other, not an error: the client learns that
/// waiting does not help.
async fn charge(
    limit: &RateLimit,
    key: &Key<'static>,
    cost: u64,
    intent: Intent,
) -> Result<Decision, Error> {
    if intent == Intent::Look || cost > limit.policy().capacity() {
        return limit.peek(key).cost(cost).await;
    }
    limit.acquire(key).cost(cost).await
}
