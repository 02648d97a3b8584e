//! Who may use the admin surface.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use http::uri::Authority;
use http::{Method, Request, StatusCode};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::paths::FORWARD_AUTH;
use super::{Caller, Failed};

/// How somebody shows that he may.
#[derive(Clone)]
pub(crate) enum Access {
    /// Everybody may who reaches the listener.
    Open,
    /// By the token with this digest.
    Token([u8; 32]),
    /// Nobody may: there is no token.
    Closed,
}

impl Access {
    /// By these settings, for a listener at this address. Says once in the log what follows of
    /// them.
    pub(crate) fn new(token: Option<&str>, open: bool, listener: IpAddr) -> Self {
        match token {
            _ if open => {
                tracing::warn!(
                    "the admin surface is open to everybody who reaches it (admin.open): publish \
                     its port to nobody else"
                );
                Self::Open
            }
            Some(token) => Self::Token(Sha256::digest(token).into()),
            None if listener.to_canonical().is_loopback() => {
                tracing::warn!(
                    "the admin surface is open to everybody on this machine, and to whatever a \
                     local proxy lets in: set ADMIN_TOKEN"
                );
                Self::Open
            }
            None => {
                tracing::warn!("nobody can use rules, usage and checks: set ADMIN_TOKEN");
                Self::Closed
            }
        }
    }

    /// Whether this request may go on.
    pub(super) fn admits<B>(&self, request: &Request<B>, caller: Caller) -> Result<(), Failed> {
        if request.uri().path() == FORWARD_AUTH {
            // Proxies bring their clients' own credentials, so they are known by their addresses.
            // That it takes no other method everybody may know: it is the router's to say.
            let asks = matches!(*request.method(), Method::GET | Method::HEAD);
            return match caller.trusted || !asks {
                true => Ok(()),
                false => Err(Failed::new(
                    StatusCode::FORBIDDEN,
                    "Only trusted proxies may ask this; trusted_proxies lists them",
                )),
            };
        }
        let admitted = match self {
            Self::Open => true,
            Self::Token(digest) => bearer(request.headers())
                .is_some_and(|given| Sha256::digest(given).ct_eq(digest).into()),
            Self::Closed => false,
        };
        if !admitted {
            return Err(Failed::new(
                StatusCode::UNAUTHORIZED,
                "This needs the header Authorization: Bearer with the admin token",
            ));
        }
        if changes(request.method()) && is_foreign(request.headers()) {
            return Err(Failed::new(
                StatusCode::FORBIDDEN,
                "A page of another origin may change nothing here",
            ));
        }
        Ok(())
    }
}

/// Whether requests of this method may change something.
pub(super) fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The token, where there is one header and it has one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (first, None) = (values.next()?, values.next()) else {
        return None;
    };
    let (scheme, token) = first.as_bytes().split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then_some(token.trim_ascii())
}

/// Whether a browser says that a page of another origin sent it.
fn is_foreign(headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return false;
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let own = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.split_once("://"))
        .zip(host)
        .is_some_and(|((scheme, of), host)| same(scheme, of, host));
    !own || origins.next().is_some()
}

/// Whether they are the same place; the port of the scheme may be left out.
fn same(scheme: &str, origin: &str, host: &str) -> bool {
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let parse = |text: &str| {
        let authority: Authority = text.parse().ok()?;
        let port = authority.port_u16().unwrap_or(port);
        Some((authority.host().to_ascii_lowercase(), port))
    };
    let (origin, host) = (parse(origin), parse(host));
    origin.is_some() && origin == host
}

/// Without what could be tried against the token.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Token(_) => "Token(..)",
            Self::Closed => "Closed",
        })
    }
}
