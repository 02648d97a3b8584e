//! How refusals and failures are told in the body: a setting, and what the client asks for.

use http::HeaderValue;
use http::header::{ACCEPT, HeaderMap};
use serde::Deserialize;

/// How refusals and failures are told in the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyStyle {
    /// A problem document, `application/problem+json`; plain to a client whose `Accept` names
    /// `application/json` and not `application/problem+json`.
    #[default]
    Problem,
    /// `application/json` with the detail and the numbers only.
    Plain,
}

impl BodyStyle {
    /// The style for a request with these headers.
    ///
    /// ```
    /// use http::{HeaderMap, HeaderValue, header::ACCEPT};
    /// use tollgate_http::BodyStyle;
    ///
    /// let mut headers = HeaderMap::new();
    /// assert_eq!(BodyStyle::Problem.negotiated(&headers), BodyStyle::Problem);
    /// headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    /// assert_eq!(BodyStyle::Problem.negotiated(&headers), BodyStyle::Plain);
    /// ```
    #[must_use]
    pub fn negotiated(self, headers: &HeaderMap) -> Self {
        let plain = self == Self::Plain
            || (accepts(headers, "application/json")
                && !accepts(headers, "application/problem+json"));
        if plain { Self::Plain } else { Self::Problem }
    }

    /// Its `Content-Type`.
    #[must_use]
    pub const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Problem => "application/problem+json",
            Self::Plain => "application/json",
        })
    }
}

/// Whether `Accept` names exactly this type, and not to exclude it. Wild cards name nothing.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| {
            let mut parts = range.split(';').map(str::trim);
            parts
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case(media_type))
                && !parts.any(is_zero_weight)
        })
}

/// `q=0`, in any of its spellings.
fn is_zero_weight(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    name.trim().eq_ignore_ascii_case("q") && value.trim().parse() == Ok(0.0_f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b55_only_a_client_that_names_plain_json_gets_it() {
        let style = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            BodyStyle::Problem.negotiated(&headers)
        };
        for problem in [
            "*/*",
            "text/html",
            "application/*",
            "application/problem+json",
            "application/json, application/problem+json",
            "application/json;q=0, */*",
            "application/json ; Q=0.000",
        ] {
            assert_eq!(style(problem), BodyStyle::Problem, "{problem}");
        }
        for plain in [
            "application/json",
            "text/html, Application/JSON;q=0.5",
            "application/json; charset=utf-8",
        ] {
            assert_eq!(style(plain), BodyStyle::Plain, "{plain}");
        }
        assert_eq!(
            BodyStyle::Plain.negotiated(&HeaderMap::new()),
            BodyStyle::Plain
        );
    }
}
