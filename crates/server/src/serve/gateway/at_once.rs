//! Answers to requests that are known, without a server that understands them. What is answered is
//! byte for byte what it would be with one.

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Version};
use tokio::time::Instant;
use tollgate_http::{BodyStyle, RequestId};

use super::{Gateway, unenforced};
use crate::engine::{Intent, Question, Verdict};
use crate::metrics::Outcome;
use crate::serve::known::{Found, Known, Offered, Worked};
use crate::serve::peer::Peer;
use crate::serve::template::{Answer, Id};
use crate::serve::worker::Shared;

/// What becomes of a request that is known.
pub(in crate::serve) enum AtOnce {
    /// Its answer is written, and has been counted, at this moment.
    Refused(Instant),
    /// It is let through, and was charged.
    Decided(Box<Verdict>),
    /// To decide on it takes waiting; nothing was charged.
    Later,
    /// It may be somebody else's by now.
    Unknown,
}

impl Gateway {
    /// Decides on a request that is known, and came at this moment, if that takes no waiting.
    pub(in crate::serve) fn at_once(&self, found: Found<'_>, start: Instant) -> AtOnce {
        let Found {
            known,
            date,
            answers,
        } = found;
        let engine = &self.service.engine;
        if !engine.resolver().is_as_of(&known.as_of) {
            return AtOnce::Unknown;
        }
        if self.is_draining() {
            return AtOnce::Later;
        }
        let question = Question {
            identity: &known.identity,
            method: &known.method,
            path: &known.path,
            headers: &known.headers,
            client: Some(known.client),
            times: 1,
            intent: Intent::Serve,
        };
        let Some(verdict) = engine.answer_now(&question, &known.key, known.normalised()) else {
            return AtOnce::Later;
        };
        if verdict.allowed() {
            return AtOnce::Decided(Box::new(verdict));
        }
        let id = match &known.id {
            Some(given) => Id::Given(given),
            None => Id::Made(RequestId::made(verdict.now())),
        };
        let answer = Answer {
            verdict: &verdict,
            style: known.style,
            path: &known.path,
            id,
            date: date.text(verdict.now()),
        };
        let status = answer.write(&mut known.template, answers);
        unenforced(&verdict, &id);
        let end = Instant::now();
        let took = end.saturating_duration_since(start);
        self.requests.end(&known.method, Outcome::of(status), took);
        if self.is_logging() {
            super::log(&known.method, &known.path, status, took, false, id.as_str());
        }
        AtOnce::Refused(end)
    }

    /// Gets to know a request that was refused, if all that comes of it will be the same again.
    pub(super) async fn learn(
        &self,
        request: &Parts,
        peer: &Peer,
        offered: &Offered,
        style: BodyStyle,
        shared: &Shared,
    ) {
        if self.cors.is_some() || self.traces.are_sent() || peer.may_send() || !is_plain(request) {
            return;
        }
        let (client, _) = self.client(peer.address(), &request.headers);
        let engine = &self.service.engine;
        let Some(as_of) = engine.resolver().as_of() else {
            return;
        };
        let Ok(identity) = engine.resolver().resolve(request, client).await else {
            return;
        };
        let worked = Worked {
            client,
            key: engine.key(&identity),
            identity,
            style,
            as_of,
        };
        let mut memo = shared.memo.lock();
        if let Some(head) = memo.offered(offered)
            && let Some(known) = Known::new(head, peer.address(), request, worked)
        {
            memo.learn(known);
        }
    }
}

/// Whether the connection goes on after a request like any other, and its answer has a body.
fn is_plain(request: &Parts) -> bool {
    let headers = &request.headers;
    let mut connection = headers.get_all(CONNECTION).iter();
    request.version == Version::HTTP_11
        && !matches!(request.method, Method::HEAD | Method::CONNECT)
        && connection.all(|it| it.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
        && [CONTENT_LENGTH, TRANSFER_ENCODING, EXPECT, TE, UPGRADE]
            .iter()
            .all(|it| !headers.contains_key(it))
}
