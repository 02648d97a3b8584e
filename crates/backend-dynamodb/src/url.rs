//! Where a table is, from a URL.

use tollgate_core::{BackendError, ErrorKind};

/// `dynamodb://table[?region=..][&endpoint=..]`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) table: String,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, BackendError> {
        let (_, rest) = url
            .split_once("://")
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("dynamodb"))
            .ok_or_else(|| wrong("the URL must be dynamodb://table?region=..&endpoint=.."))?;
        let (table, options) = rest.split_once('?').unwrap_or((rest, ""));
        // Whatever stands before an @ may be a secret, so it is not repeated.
        if table.contains('@') {
            return Err(wrong(
                "credentials have no place in the URL: they come from the environment, a profile or the role",
            ));
        }
        let table = table.strip_suffix('/').unwrap_or(table);
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if !(3..=255).contains(&table.len()) || !table.bytes().all(good) {
            return Err(wrong(
                "the name of the table must be 3 to 255 letters, digits, `_`, `-` or `.`",
            ));
        }
        let mut target = Self {
            table: table.into(),
            region: None,
            endpoint: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decode(value).filter(|value| !value.is_empty());
            match (name, value) {
                ("region", _) if target.region.is_some() => return Err(twice(name)),
                ("endpoint", _) if target.endpoint.is_some() => return Err(twice(name)),
                ("region", Some(region)) => target.region = Some(region),
                ("endpoint", Some(endpoint)) => target.endpoint = Some(checked(endpoint)?),
                ("region" | "endpoint", None) => {
                    return Err(wrong(format!(
                        "the option `{name}` of the URL has no value"
                    )));
                }
                _ => {
                    return Err(wrong(
                        "the URL has an option that is not known; there are region and endpoint",
                    ));
                }
            }
        }
        Ok(target)
    }

    /// Whether the endpoint is a stand-in for DynamoDB, which takes any credentials: one without
    /// TLS that is not Amazon's.
    pub(crate) fn is_local(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| {
            let host = endpoint.strip_prefix("http://").unwrap_or_default();
            let host = host.split(['/', ':']).next().unwrap_or_default();
            !host.is_empty() && !host.ends_with(".amazonaws.com")
        })
    }
}

fn checked(endpoint: String) -> Result<String, BackendError> {
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| endpoint.strip_prefix(scheme));
    let good = rest.is_some_and(|rest| {
        let place = rest.split('/').next().unwrap_or_default();
        // The colons of an IPv6 address are in brackets.
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (place, None),
        };
        let good_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        !host.is_empty()
            && port.is_none_or(good_port)
            && rest
                .bytes()
                .all(|b| b.is_ascii_graphic() && !b"@?#".contains(&b))
    });
    if !good {
        return Err(wrong(
            "the endpoint must be http:// or https:// and a host, with a port from 1 to 65535 if it has one, and without credentials or a query",
        ));
    }
    Ok(endpoint)
}

fn twice(name: &str) -> BackendError {
    wrong(format!(
        "the URL has the option `{name}` twice: once is enough"
    ))
}

fn wrong(context: impl Into<std::borrow::Cow<'static, str>>) -> BackendError {
    BackendError::new(ErrorKind::Config, context)
}

/// Percent-decoding; `None` for what is no text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            (high * 16 + low) as u8
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_url_are_found() {
        let target = |table: &str, region: Option<&str>, endpoint: Option<&str>| Target {
            table: table.into(),
            region: region.map(Into::into),
            endpoint: endpoint.map(Into::into),
        };
        for (url, right) in [
            ("dynamodb://limits", target("limits", None, None)),
            (
                "dynamodb://limits/?region=eu-west-1",
                target("limits", Some("eu-west-1"), None),
            ),
            (
                "DynamoDB://a.b-c_d?endpoint=http://127.0.0.1:8000&region=x",
                target("a.b-c_d", Some("x"), Some("http://127.0.0.1:8000")),
            ),
            (
                "dynamodb://limits?endpoint=http://[::1]:8000/",
                target("limits", None, Some("http://[::1]:8000/")),
            ),
            (
                "dynamodb://limits?endpoint=https://[::1]",
                target("limits", None, Some("https://[::1]")),
            ),
            (
                "dynamodb://limits?endpoint=http%3A%2F%2Flocalhost%3A8000",
                target("limits", None, Some("http://localhost:8000")),
            ),
        ] {
            assert_eq!(Target::parse(url).unwrap(), right, "{url}");
        }
    }

    #[test]
    fn a_wrong_url_is_told_without_its_secrets() {
        for url in [
            "dynamodb:limits",
            "redis://limits",
            "dynamodb://",
            "dynamodb://ab",
            "dynamodb://user:secret@limits",
            "dynamodb://limits?secret",
            "dynamodb://limits?secret=secret",
            "dynamodb://limits?region=",
            "dynamodb://limits?region=%zz",
            "dynamodb://limits?endpoint=localhost:8000",
            "dynamodb://limits?endpoint=http://user:secret@localhost:8000",
            "dynamodb://limits?endpoint=http://:8000",
            "dynamodb://limits?endpoint=http:///x",
            "dynamodb://limits?endpoint=http://localhost:70000",
            "dynamodb://limits?endpoint=http://localhost:0",
            "dynamodb://limits?endpoint=http://localhost:8000?x",
            "dynamodb://limits?endpoint=http://localhost:8000%23x",
            "dynamodb://limits?region=secret&region=b",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn only_a_stand_in_takes_any_credentials() {
        let local = |endpoint: &str| {
            Target::parse(&format!("dynamodb://limits?endpoint={endpoint}"))
                .unwrap()
                .is_local()
        };
        assert!(local("http://127.0.0.1:8000") && local("http://dynamodb:8000/"));
        assert!(!local("http://dynamodb.eu-west-1.amazonaws.com"));
        assert!(!local("https://localhost:8000"));
        assert!(!Target::parse("dynamodb://limits").unwrap().is_local());
    }
}
