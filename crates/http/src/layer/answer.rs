//! What is answered instead of the service.

use std::sync::Arc;

use http::{Response, StatusCode, request};

use super::decide::{Charges, joined, worst};
use super::grpc;
use super::prepared::{Entry, Prepared};
use super::{OnRefused, Refused};
use crate::{Limited, Problem, ResponseBody};

/// What becomes of a request that was refused.
pub(super) enum Refusal<B> {
    Answer(Box<Response<ResponseBody<B>>>),
    /// The callback lets it go on.
    Continue(Limited),
}

impl Prepared {
    /// The answer to a refusal, or that the request goes on.
    pub(super) fn refused<B>(
        &self,
        entry: &Entry,
        charges: &Charges,
        request: &mut request::Parts,
        nested: bool,
    ) -> Refusal<B> {
        let all = joined(charges);
        let decision = all.decision();
        // The one that speaks, for the body.
        let speaks = match charges {
            Charges::One(charge) => charge,
            Charges::Many(charges) => worst(charges).unwrap_or(&charges[0]),
        };
        let limited = Limited::new(Arc::clone(speaks));
        let answer = match self.on_refused(request, &limited) {
            Refused::Continue => return Refusal::Continue(all),
            Refused::Respond(response) => Some(response),
            Refused::Answer => None,
        };
        let mut response = match answer {
            Some(response) => response.map(ResponseBody::own),
            #[cfg(feature = "ws")]
            None if self.settings.ws_close && crate::ws::is_handshake(request) => {
                crate::ws::closed(request, &limited)
            }
            None => {
                let problem =
                    Problem::refusal(limited.policy(), limited.decision(), self.settings.problem)
                        .violating(charges.iter().map(|it| (it.policy(), it.decision())));
                let status = if problem.status() == StatusCode::SERVICE_UNAVAILABLE {
                    grpc::UNAVAILABLE
                } else {
                    self.settings.grpc_status
                };
                let retry = decision.retry_after();
                self.settings.telling.told(problem, status, retry, request)
            }
        };
        let fields = self.headers(entry, charges);
        self.write(&fields, decision, true, nested, &mut response);
        Refusal::Answer(Box::new(response))
    }

    fn on_refused(&self, request: &request::Parts, limited: &Limited) -> Refused {
        let ask = |decide: &OnRefused| decide(request, limited);
        self.settings
            .on_refused
            .as_ref()
            .map_or(Refused::Answer, ask)
    }
}
