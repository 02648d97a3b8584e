//! Several sources, the most specific first.

use std::sync::Arc;

use http::request::Parts;

use super::{Identified, Identifying, Identity, IdentitySource};

/// What a credential that is there and not valid does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalid {
    /// The request is refused (401). It is never taken for somebody else's.
    #[default]
    Refuse,
    /// The next source is asked, as if the credential were not there. Then a client whose token
    /// has expired counts by address.
    Skip,
}

/// What happens when no source answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnNobody {
    /// The request is refused (401).
    #[default]
    Refuse,
    /// All such requests share one budget. Anybody who sends nothing can spend it.
    Share,
}

/// Sources in order. The first that answers wins, so the most specific goes first; where none
/// does, the request is refused unless [`OnNobody::Share`] was chosen.
///
/// ```
/// use http::Request;
/// use tollgate_http::{Identified, Identities, IdentitySource, Ip, PeerAddr, Subject};
///
/// let identities = Identities::new().then(Subject::source()).then(Ip::default());
/// let mut request = Request::new(());
/// request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 51_000).into()));
/// let (mut parts, ()) = request.into_parts();
/// let source = |parts: &_| match identities.identify_now(parts) {
///     Some(Identified::As(identity)) => identity.source().to_owned(),
///     other => panic!("{other:?}"),
/// };
/// assert_eq!(source(&parts), "ip");
/// parts.extensions.insert(Subject::new("alice"));
/// assert_eq!(source(&parts), "subject");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Identities {
    sources: Vec<Arc<dyn IdentitySource>>,
    on_invalid: OnInvalid,
    on_nobody: OnNobody,
}

impl Identities {
    /// No source yet: everybody is refused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Then this one is asked.
    #[must_use]
    pub fn then(mut self, source: impl IdentitySource) -> Self {
        self.sources.push(Arc::new(source));
        self
    }

    /// What a credential that is not valid does.
    #[must_use]
    pub const fn on_invalid(mut self, on_invalid: OnInvalid) -> Self {
        self.on_invalid = on_invalid;
        self
    }

    /// What happens when no source answers.
    #[must_use]
    pub const fn on_nobody(mut self, on_nobody: OnNobody) -> Self {
        self.on_nobody = on_nobody;
        self
    }

    /// Whether this answer stands. Else the next source is asked.
    const fn stands(&self, answer: &Identified) -> bool {
        match answer {
            Identified::Unknown => false,
            Identified::Invalid(_) => matches!(self.on_invalid, OnInvalid::Refuse),
            Identified::As(_) | Identified::Misconfigured(_) => true,
        }
    }

    fn nobody(&self) -> Identified {
        match self.on_nobody {
            OnNobody::Refuse => Identified::Unknown,
            OnNobody::Share => Identified::As(Identity::new("shared", "")),
        }
    }
}

impl IdentitySource for Identities {
    fn identify_now(&self, request: &Parts) -> Option<Identified> {
        for source in &self.sources {
            let answer = source.identify_now(request)?;
            if self.stands(&answer) {
                return Some(answer);
            }
        }
        Some(self.nobody())
    }

    fn identify<'a>(&'a self, request: &'a Parts) -> Identifying<'a> {
        Box::pin(async move {
            for source in &self.sources {
                let answer = match source.identify_now(request) {
                    Some(answer) => answer,
                    None => source.identify(request).await,
                };
                if self.stands(&answer) {
                    return answer;
                }
            }
            self.nobody()
        })
    }
}
