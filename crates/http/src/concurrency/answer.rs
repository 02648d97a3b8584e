//! Whose slot a request takes, and what is answered when there is none.

use http::header::{CACHE_CONTROL, HeaderValue, RETRY_AFTER};
use http::{Response, request};
use tollgate_core::{Key, NoSlot};

use super::{ConcurrencyLayer, Settings};
use crate::layer::{Denied, Route, counted_as, grpc, identified, route};
use crate::seconds::no_slot_seconds;
use crate::{Identity, Problem, ResponseBody, Slot};

/// Why a request does not go on.
pub(super) enum Stopped {
    NoSlot(NoSlot),
    Denied(Denied),
}

impl Settings {
    /// Whether the request needs a slot.
    pub(super) fn limits(&self, request: &request::Parts) -> bool {
        !self.exempt.is(request)
            && (self.unmatched || !matches!(route(request.into()), Route::None))
    }

    /// Takes a slot for the request.
    pub(super) async fn take(&self, request: &request::Parts) -> Result<Slot, Stopped> {
        let identity = match &self.source {
            None => None,
            Some(source) => {
                let answer = match source.identify_now(request) {
                    Some(answer) => answer,
                    None => source.identify(request).await,
                };
                Some(identified(answer).map_err(Stopped::Denied)?)
            }
        };
        let key = self.key(request, identity);
        self.slots.take(&key).await.map_err(|no_slot| {
            let mut no_slot = no_slot;
            if let NoSlot::Full { per_client, .. } = &mut no_slot {
                *per_client |= self.source.is_some();
            }
            Stopped::NoSlot(no_slot)
        })
    }

    /// What shares slots.
    fn key(&self, request: &request::Parts, identity: Option<Identity>) -> Key<'static> {
        match route(request.into()) {
            Route::Template(template) if self.by_route => {
                let method = counted_as(&request.method).as_str();
                let route = [method.as_bytes(), b" ", template.as_bytes()].concat();
                match identity {
                    None => Key::from_parts([&b"route"[..], &route]),
                    Some(of) => Key::from_parts([&b"route"[..], &route, of.key().as_bytes()]),
                }
            }
            _ => identity.map_or(Key::from(ConcurrencyLayer::KEY), Identity::into_key),
        }
    }

    /// The answer to a request that does not go on.
    pub(super) fn answer<B>(
        &self,
        stopped: Stopped,
        request: &mut request::Parts,
    ) -> Response<ResponseBody<B>> {
        let no_slot = match stopped {
            Stopped::Denied(denied) => return self.telling.denied(denied, request),
            Stopped::NoSlot(no_slot) => no_slot,
        };
        let full = matches!(no_slot, NoSlot::Full { .. });
        let mut response = self.refused(&no_slot, full, request);
        let headers = response.headers_mut();
        let seconds = no_slot_seconds(&no_slot);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn refused<B>(
        &self,
        no_slot: &NoSlot,
        full: bool,
        request: &mut request::Parts,
    ) -> Response<ResponseBody<B>> {
        #[cfg(feature = "ws")]
        if self.ws_close && crate::ws::is_handshake(request) {
            return crate::ws::closed_without_slot(request, no_slot);
        }
        let name = match self.by_route {
            true => "default",
            false => self.slots.name(),
        };
        let problem = Problem::no_slot(name, no_slot, self.problem);
        let status = match full {
            true => self.grpc_status,
            false => grpc::UNAVAILABLE,
        };
        let retry = Some(no_slot.retry_after());
        self.telling.told(problem, status, retry, request)
    }
}
