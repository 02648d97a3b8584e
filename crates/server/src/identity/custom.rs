//! Where an identity of one's own is found.

use std::str::FromStr;

use http::header::{COOKIE, HeaderMap, HeaderName};

/// What the setting `identity.custom` names: `header:X-Tenant`, `cookie:session`, `query:key`, or
/// `jwt:/org/id`, a claim of the verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Custom {
    /// A header of this name.
    Header(HeaderName),
    /// A cookie of this name.
    Cookie(String),
    /// A parameter of the query, by its name after decoding.
    Query(String),
    /// A JSON pointer into the claims of the token.
    Claim(String),
}

impl FromStr for Custom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FIX: &str = "write header:NAME, cookie:NAME, query:NAME or jwt:/pointer/to/claim";
        let (place, name) = text.split_once(':').ok_or(FIX)?;
        match place {
            "header" => HeaderName::from_bytes(name.as_bytes())
                .map(Self::Header)
                .map_err(|_| format!("{name:?} is no name of a header; {FIX}")),
            "cookie" | "query" | "jwt" if name.is_empty() => {
                Err(format!("the name is empty; {FIX}"))
            }
            "cookie" => Ok(Self::Cookie(name.into())),
            "query" => Ok(Self::Query(name.into())),
            "jwt" => Ok(Self::Claim(name.into())),
            _ => Err(FIX.into()),
        }
    }
}

/// The value of a cookie: the first of several, as in most servers. It may stand in quotes.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let lines = headers.get_all(COOKIE).iter();
    let mut pairs = lines.flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    let value = pairs.find_map(|pair| {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|b| *b == b'=')?;
        (&pair[..equals] == name.as_bytes()).then_some(&pair[equals + 1..])
    })?;
    let bare = value
        .strip_prefix(b"\"")
        .and_then(|it| it.strip_suffix(b"\""));
    Some(bare.unwrap_or(value))
}

/// The value of a parameter, decoded. Two of the same name are an error: which one the service
/// itself would read is anybody's guess.
pub(super) fn parameter(query: &str, name: &str) -> Result<Option<Vec<u8>>, ()> {
    let mut found = None;
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decoded(key) == name.as_bytes() {
            if found.is_some() {
                return Err(());
            }
            found = Some(decoded(value));
        }
    }
    Ok(found)
}

/// Percent signs and plus signs undone, as forms write them.
fn decoded(text: &str) -> Vec<u8> {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text).collect()
}
