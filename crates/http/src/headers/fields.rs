//! All fields of an answer as a map that is copied: a copy costs a third of what it costs to insert
//! them one by one.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, Entry, HeaderMap, HeaderName, HeaderValue};

use super::ready::Changed;
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
    /// One for each field that says it: to copy a value that is new takes as long as to write it.
    pub(super) remaining: [Option<HeaderValue>; 2],
    pub(super) reset: Option<HeaderValue>,
    pub(super) epoch: Option<HeaderValue>,
}

impl Values {
    /// One after the other in the order of the fields of a style.
    #[inline]
    fn each(self, style: HeaderStyle, mut next: impl FnMut(Option<HeaderValue>)) {
        let [in_triple, in_x_ratelimit] = self.remaining;
        if style.contains(HeaderStyle::IETF) {
            next(None);
            next(self.ratelimit);
        }
        if style.contains(HeaderStyle::TRIPLE) {
            next(self.limit.clone());
            next(in_triple);
            next(self.reset);
        }
        if style.contains(HeaderStyle::X_RATELIMIT) {
            next(self.limit);
            next(in_x_ratelimit);
            next(self.epoch);
        }
    }
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
        values.each(self.style, |value| {
            if let (Some(place), Some(value)) = (places.next(), value) {
                *place = value;
            }
        });
    }

    /// Takes these values away, which are not to be copied.
    pub(super) fn clear(&mut self, gone: Changed) {
        let none = |value| gone.has(value).then_some(NONE);
        self.fill(Values {
            ratelimit: none(Changed::RATELIMIT),
            limit: None,
            remaining: [(); 2].map(|()| none(Changed::REMAINING)),
            reset: none(Changed::RESET),
            epoch: none(Changed::EPOCH),
        });
    }

    /// Puts them in place of those of the same names, with these values instead of those that are
    /// kept.
    pub(super) fn put(&self, values: Option<Values>, headers: &mut HeaderMap) {
        let room = headers.capacity() - headers.keys_len();
        let few = headers.len() < self.len() && headers.len() == headers.keys_len();
        if !few || room >= self.len() {
            // All at once, or the map grows twice; and not more, or it grows where it need not.
            headers.reserve(self.len());
            let mut fields = self.iter();
            values.unwrap_or_default().each(self.style, |value| {
                if let Some((name, kept)) = fields.next() {
                    headers.insert(name, value.unwrap_or_else(|| kept.clone()));
                }
            });
            return;
        }
        let mut ours = self.clone();
        if let Some(values) = values {
            ours.fill(values);
        }
        let mut theirs = std::mem::replace(headers, ours.map);
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
