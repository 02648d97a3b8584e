//! Which upstream a request goes to: by its host, and by its path.

use super::upstream::Target;

/// Upstreams by host and path, those that say more first.
#[derive(Debug)]
pub(super) struct Routes {
    routes: Vec<Route>,
    /// For what none of them is about.
    default: Option<usize>,
    targets: Vec<Target>,
}

#[derive(Debug)]
struct Route {
    host: Option<Box<str>>,
    path: Option<Pattern>,
    target: usize,
}

/// A path, or all under it.
#[derive(Debug)]
struct Pattern {
    path: Box<str>,
    below: bool,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let below = text.strip_suffix("/*");
        Self {
            path: below.unwrap_or(text).into(),
            below: below.is_some(),
        }
    }

    fn matches(&self, path: &str) -> bool {
        match path.strip_prefix(&*self.path) {
            Some("") => true,
            Some(rest) => self.below && rest.starts_with('/'),
            None => false,
        }
    }
}

impl Routes {
    /// `routes` are a host (in lower case), a path or one that ends with `/*`, and where these go.
    pub(super) fn new(
        routes: impl IntoIterator<Item = (Option<String>, Option<String>, Target)>,
        default: Option<Target>,
    ) -> Self {
        let mut targets: Vec<_> = default.into_iter().collect();
        let default = (!targets.is_empty()).then_some(0);
        let mut routes: Vec<_> = routes
            .into_iter()
            .map(|(host, path, target)| {
                targets.push(target);
                Route {
                    host: host.map(Into::into),
                    path: path.as_deref().map(Pattern::new),
                    target: targets.len() - 1,
                }
            })
            .collect();
        sort(&mut routes);
        Self {
            routes,
            default,
            targets,
        }
    }

    /// All of them, in the order of their numbers.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Where a request goes, by number. `None`: nowhere.
    pub(super) fn choose(&self, host: Option<&[u8]>, path: &str) -> Option<usize> {
        let found = self.routes.iter().find(|route| {
            let host_matches = route.host.as_ref().is_none_or(|wanted| {
                host.is_some_and(|host| without_port(host).eq_ignore_ascii_case(wanted.as_bytes()))
            });
            host_matches && route.path.as_ref().is_none_or(|it| it.matches(path))
        });
        found.map(|route| route.target).or(self.default)
    }
}

/// The first that matches is the one: with a host before those without, exact paths before those
/// that end with a star, longer ones first.
fn sort(routes: &mut [Route]) {
    routes.sort_by_key(|route| {
        let path = route.path.as_ref();
        std::cmp::Reverse((
            route.host.is_some(),
            path.is_some_and(|path| !path.below),
            path.map(|path| path.path.len()),
        ))
    });
}

/// The host alone; an address of IPv6 keeps its brackets.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|b| *b == b':') {
        Some(colon) if !host[colon..].contains(&b']') => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_that_says_most_is_the_one() {
        let route = |host: Option<&str>, path: Option<&str>| Route {
            host: host.map(Into::into),
            path: path.map(Pattern::new),
            target: 0,
        };
        let mut routes = vec![
            route(None, Some("/a/*")),
            route(None, Some("/a/b/*")),
            route(None, Some("/a/b")),
            route(Some("shop.example"), None),
            route(Some("shop.example"), Some("/a/*")),
        ];
        for (number, route) in routes.iter_mut().enumerate() {
            route.target = number + 1;
        }
        sort(&mut routes);
        let routes = Routes {
            routes,
            default: Some(0),
            targets: Vec::new(),
        };
        let choose = |host: Option<&str>, path: &str| {
            let number = routes.choose(host.map(str::as_bytes), path);
            number.unwrap()
        };
        let other = Some("other.example");
        assert_eq!(choose(other, "/"), 0);
        assert_eq!(choose(other, "/ab"), 0, "no part of a name");
        assert_eq!(choose(other, "/a"), 1);
        assert_eq!(choose(None, "/a/x"), 1);
        assert_eq!(choose(other, "/a/b"), 3, "exactly");
        assert_eq!(choose(other, "/a/b/c"), 2);
        assert_eq!(choose(Some("Shop.Example:8000"), "/"), 4);
        assert_eq!(choose(Some("shop.example"), "/a/b"), 5, "hosts go first");
        assert_eq!(choose(Some("[::1]:80"), "/"), 0);
        assert_eq!(without_port(b"[::1]"), b"[::1]");
        assert_eq!(without_port(b"[::1]:80"), b"[::1]");
    }
}
