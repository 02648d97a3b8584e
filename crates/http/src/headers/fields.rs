//! All fields of an answer as a map that is copied: a copy costs a third of what it costs to insert
//! them one by one.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, Entry, HeaderMap, HeaderName, HeaderValue};

use super::{RATELIMIT, RATELIMIT_POLICY, TRIPLE, X_RATELIMIT};
use crate::HeaderStyle;

/// What nearly every response has. A copy has no room but for what it holds, so these hold some.
static ROOM: [HeaderName; 2] = [CONTENT_TYPE, CONTENT_LENGTH];

/// In place of a value that is not there yet, or no more.
const NONE: HeaderValue = HeaderValue::from_static("");

/// The fields of a style, in their order, and after them [`ROOM`].
#[derive(Clone, Debug)]
pub(super) struct Fields {
    style: HeaderStyle,
    map: HeaderMap,
}

/// The values that are to be replaced.
#[derive(Default)]
pub(super) struct Values {
    pub(super) ratelimit: Option<HeaderValue>,
    pub(super) limit: Option<HeaderValue>,
    pub(super) remaining: Option<HeaderValue>,
    pub(super) reset: Option<HeaderValue>,
    pub(super) epoch: Option<HeaderValue>,
}

impl Fields {
    /// With what does not change.
    pub(super) fn new(style: HeaderStyle, policy: HeaderValue, limit: &HeaderValue) -> Self {
        let mut map = HeaderMap::new();
        if style.contains(HeaderStyle::IETF) {
            map.insert(RATELIMIT_POLICY, policy);
            map.insert(RATELIMIT, NONE);
        }
        for (family, names) in [
            (HeaderStyle::TRIPLE, TRIPLE),
            (HeaderStyle::X_RATELIMIT, X_RATELIMIT),
        ] {
            if style.contains(family) {
                map.extend(names.into_iter().zip([limit.clone(), NONE, NONE]));
            }
        }
        map.extend(ROOM.iter().cloned().map(|name| (name, NONE)));
        Self { style, map }
    }

    pub(super) fn len(&self) -> usize {
        self.map.len() - ROOM.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.map.iter().take(self.len())
    }

    pub(super) fn fill(&mut self, values: Values) {
        let mut places = self.map.values_mut();
        let mut next = |value: Option<HeaderValue>| {
            if let (Some(place), Some(value)) = (places.next(), value) {
                *place = value;
            }
        };
        if self.style.contains(HeaderStyle::IETF) {
            next(None);
            next(values.ratelimit);
        }
        for (family, reset) in [
            (HeaderStyle::TRIPLE, values.reset),
            (HeaderStyle::X_RATELIMIT, values.epoch),
        ] {
            if self.style.contains(family) {
                next(values.limit.clone());
                next(values.remaining.clone());
                next(reset);
            }
        }
    }

    /// Puts them in place of those of the same names.
    pub(super) fn put(fields: Cow<'_, Self>, headers: &mut HeaderMap) {
        let room = headers.capacity() - headers.keys_len();
        let few = headers.len() < fields.len() && headers.len() == headers.keys_len();
        if !few || room >= fields.len() {
            // All at once, or the map grows twice; and not more, or it grows where it need not.
            headers.reserve(fields.len());
            for (name, value) in fields.iter() {
                headers.insert(name, value.clone());
            }
            return;
        }
        let mut theirs = std::mem::replace(headers, fields.into_owned().map);
        let mut used = [false; 2];
        for (name, value) in &mut theirs {
            let value = std::mem::replace(value, NONE);
            let room = ROOM.iter().position(|it| it == name);
            match headers.entry(name) {
                Entry::Vacant(place) => {
                    place.insert(value);
                }
                Entry::Occupied(mut place) => {
                    // Else it is ours, which stays.
                    if let Some(room) = room {
                        place.insert(value);
                        used[room] = true;
                    }
                }
            }
        }
        for (name, used) in ROOM.iter().zip(used).rev() {
            if !used {
                headers.remove(name);
            }
        }
    }
}
