//! Answers to requests that are known, without a server that understands them. What is answered is
//! byte for byte what it would be with one.

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderMap, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{Method, Version};
use tokio::time::Instant;
use tollgate_http::{BodyStyle, RequestId};

use super::{Gateway, unenforced};
use crate::engine::{Intent, Question, Verdict};
use crate::metrics::Outcome;
use crate::serve::answer::FIELDS;
use crate::serve::known::{Date, Known, Offered, Worked};
use crate::serve::peer::Peer;
use crate::serve::worker::Shared;

/// What becomes of a request that is known.
pub(in crate::serve) enum AtOnce {
    /// This is its whole answer, and has been counted.
    Refused(Vec<u8>),
    /// It is let through, and was charged.
    Decided(Box<Verdict>),
    /// To decide on it takes waiting; nothing was charged.
    Later,
    /// It may be somebody else's by now.
    Unknown,
}

impl Gateway {
    /// Decides on a request that is known, if that takes no waiting.
    pub(in crate::serve) fn at_once(&self, known: &Known, date: &mut Date) -> AtOnce {
        let engine = &self.service.engine;
        if !engine.resolver().is_as_of(&known.as_of) {
            return AtOnce::Unknown;
        }
        if self.is_draining() {
            return AtOnce::Later;
        }
        let start = Instant::now();
        let question = Question {
            identity: &known.identity,
            method: &known.method,
            path: &known.path,
            headers: &known.headers,
            client: Some(known.client),
            times: 1,
            intent: Intent::Serve,
        };
        let Some(verdict) = engine.answer_now(&question, &known.key) else {
            return AtOnce::Later;
        };
        if verdict.allowed() {
            return AtOnce::Decided(Box::new(verdict));
        }
        let id = RequestId::of(&known.headers);
        let problem = verdict.problem();
        let status = problem.status();
        let body = problem.to_json_of(&known.path, id.as_str(), known.style);
        let mut headers = HeaderMap::with_capacity(FIELDS);
        headers.insert(CONTENT_TYPE, known.style.content_type());
        verdict.write_headers(&mut headers);
        unenforced(&verdict, &id);
        self.requests
            .end(&known.method, Outcome::of(status), start.elapsed());
        id.write(&mut headers);
        if self.is_logging() {
            super::log(&known.method, &known.path, status, start, false, &id);
        }
        AtOnce::Refused(written(status, &headers, date.text(verdict.now()), &body))
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

/// An answer as it goes over the wire.
fn written(status: http::StatusCode, headers: &HeaderMap, date: &str, body: &[u8]) -> Vec<u8> {
    const ROOM: usize = 512;
    let mut text = Vec::with_capacity(ROOM + body.len());
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|it| text.extend_from_slice(it));
    let reason = status.canonical_reason().unwrap_or("<none>");
    let status = status.as_str();
    put(&[
        b"HTTP/1.1 ",
        status.as_bytes(),
        b" ",
        reason.as_bytes(),
        b"\r\n",
    ]);
    for (name, value) in headers {
        put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    let length = http::HeaderValue::from(body.len());
    put(&[
        b"content-length: ",
        length.as_bytes(),
        b"\r\ndate: ",
        date.as_bytes(),
        b"\r\n\r\n",
        body,
    ]);
    text
}
