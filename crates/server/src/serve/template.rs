//! An answer to a refusal as it goes over the wire, and what is kept of it: the next one to the same
//! request mostly differs in its id, its date and the waits in its document, and so is copied.

use std::fmt;
use std::ops::Range;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use tollgate_http::{BodyStyle, Problem, RequestId};

use super::answer::FIELDS;
use super::known::Date;
use crate::engine::{Told, Verdict};

/// The longest answer that is kept, in bytes and without the waits of its document.
const LONGEST: usize = 2048;

/// The id of a request.
#[derive(Clone, Copy)]
pub(super) enum Id<'a> {
    /// Its client's.
    Given(&'a str),
    /// One of ours.
    Made([u8; RequestId::LENGTH]),
}

/// The answer to a refusal.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    pub(super) verdict: &'a Verdict,
    pub(super) style: BodyStyle,
    pub(super) path: &'a str,
    pub(super) id: Id<'a>,
    pub(super) date: &'a [u8; Date::LENGTH],
}

/// An answer without the waits of its document, and where in it stands what the next one to the same
/// request tells anew.
pub(super) struct Template {
    told: Told,
    text: Box<[u8]>,
    /// How much of it is the head.
    head: usize,
    date: usize,
    /// Of the document, in decimal.
    length: Range<usize>,
    /// In the head and in the document, where they tell it.
    ids: [Option<usize>; 2],
}

impl Id<'_> {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Given(id) => id,
            // Digits and letters always are text.
            Self::Made(id) => str::from_utf8(id).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Template {
    /// Writes the answer to a refusal of which the same is told. False: it does not fit, and nothing
    /// is written.
    fn write(&self, answer: &Answer<'_>, problem: &Problem, answers: &mut Vec<u8>) -> bool {
        let start = answers.len();
        answers.extend_from_slice(&self.text);
        *answers = problem.finish_json(std::mem::take(answers));
        let text = &mut answers[start..];
        let length = text.len() - self.head;
        if !put_decimal(&mut text[self.length.clone()], length) {
            answers.truncate(start);
            return false;
        }
        text[self.date..][..Date::LENGTH].copy_from_slice(answer.date);
        if let Id::Made(id) = &answer.id {
            for at in self.ids.into_iter().flatten() {
                text[at..][..RequestId::LENGTH].copy_from_slice(id);
            }
        }
        true
    }
}

/// Where the id stands in a document. In no text is there such a mark before another.
fn id_in(document: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"\"request_id\":\"";
    let at = document.windows(NAME.len()).position(|it| it == NAME)?;
    Some(at + NAME.len())
}

/// False: it has more digits than there is room for, or fewer.
fn put_decimal(room: &mut [u8], number: usize) -> bool {
    let mut left = number;
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    left == 0 && room.first() != Some(&b'0')
}

impl Answer<'_> {
    /// Writes it with the template of an answer to the same request, or makes one, if it is not too
    /// long for that. Returns its status.
    pub(super) fn write(
        &self,
        template: &mut Option<Template>,
        answers: &mut Vec<u8>,
    ) -> StatusCode {
        let (problem, told) = (self.verdict.problem(), self.verdict.told());
        let kept = template.as_ref().filter(|kept| Some(kept.told) == told);
        if !kept.is_some_and(|kept| kept.write(self, &problem, answers)) {
            *template = self.write_whole(&problem, told, answers);
        }
        problem.status()
    }

    fn write_whole(
        &self,
        problem: &Problem,
        told: Option<Told>,
        answers: &mut Vec<u8>,
    ) -> Option<Template> {
        let (status, id) = (problem.status(), self.id.as_str());
        let mut headers = HeaderMap::with_capacity(FIELDS);
        headers.insert(CONTENT_TYPE, self.style.content_type());
        self.verdict.write_headers(&mut headers);
        if let Ok(id) = HeaderValue::from_str(id) {
            headers.insert(RequestId::HEADER, id);
        }
        let document = problem.begin_json_of(self.path, id, self.style);
        let begun = document.len();
        let document = problem.finish_json(document);

        let start = answers.len();
        // Returns where the last of them stands.
        let mut put = |parts: &[&[u8]]| {
            parts.iter().for_each(|it| answers.extend_from_slice(it));
            let end = answers.len() - start;
            end - parts.last().map_or(0, |it| it.len())..end
        };
        let reason = status.canonical_reason().unwrap_or("<none>");
        put(&[b"HTTP/1.1 ", status.as_str().as_bytes(), b" "]);
        put(&[reason.as_bytes(), b"\r\n"]);
        let mut in_head = None;
        for (name, value) in &headers {
            let place = put(&[name.as_str().as_bytes(), b": ", value.as_bytes()]);
            if name == RequestId::HEADER {
                in_head = Some(place.start);
            }
            put(&[b"\r\n"]);
        }
        let length = HeaderValue::from(document.len());
        let length = put(&[b"content-length: ", length.as_bytes()]);
        let date = put(&[b"\r\ndate: ", self.date]).start;
        let head = put(&[b"\r\n\r\n"]).end;
        let in_document = id_in(&document).map(|at| head + at);
        let kept = start..start + head + begun;
        put(&[&document]);
        let told = told.filter(|_| kept.len() <= LONGEST)?;
        Some(Template {
            told,
            text: answers[kept].into(),
            head,
            date,
            length,
            ids: [in_head, in_document],
        })
    }
}

#[cfg(test)]
mod tests;
