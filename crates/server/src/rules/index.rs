//! Which rules of one identity type may hold for a request.
//!
//! A search goes from the identity to the path, the method and the header fields, and keeps the
//! rule that goes before all others it has found. Each step knows the first rule below it, so what
//! cannot win is not looked at.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderName, Method};

use super::Rule;
use super::live::{Compiler, Facts, LiveRule};
use super::pattern::{Part, Pattern, split};
use super::value::Values;

/// A place in the order of rules.
type Rank = u32;

const NONE: Rank = Rank::MAX;

/// The rules of one identity type.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_value: Values<Paths>,
    others: Paths,
}

/// Those of one identity, or of all others.
#[derive(Debug)]
struct Paths {
    first: Rank,
    everywhere: Methods,
    root: Node,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            first: NONE,
            everywhere: Methods::default(),
            root: Node::default(),
        }
    }
}

/// Those of paths with the same beginning.
#[derive(Debug)]
struct Node {
    first: Rank,
    /// That end here.
    here: Methods,
    /// Whatever follows.
    below: Methods,
    texts: HashMap<Box<str>, Self>,
    any: Option<Box<Self>>,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            first: NONE,
            here: Methods::default(),
            below: Methods::default(),
            texts: HashMap::new(),
            any: None,
        }
    }
}

/// Those of a path.
#[derive(Debug)]
struct Methods {
    first: Rank,
    by_method: HashMap<Method, Headers>,
    others: Headers,
}

impl Default for Methods {
    fn default() -> Self {
        Self {
            first: NONE,
            by_method: HashMap::new(),
            others: Headers::default(),
        }
    }
}

/// Those of a path and a method.
#[derive(Debug, Default)]
struct Headers {
    /// In order.
    plain: Vec<Rank>,
    /// By one of the fields that they ask for; each list in order.
    by_field: HashMap<HeaderName, HashMap<Box<[u8]>, Vec<Rank>>>,
}

impl Index {
    /// Adds the rule at a place in the order; places only grow.
    pub(super) fn add(&mut self, compiler: &Compiler, rule: &Rule, rank: Rank) {
        let values = rule.matching.iter().flat_map(|it| &it.identity_values);
        let mut named = false;
        for value in values {
            named = true;
            let paths = self.by_value.entry(compiler, rule.identity_type, value);
            paths.add(rule, rank);
        }
        if !named {
            self.others.add(rule, rank);
        }
    }

    /// The first rule that holds.
    pub(super) fn first<'a>(
        &self,
        ranked: &'a [Arc<LiveRule>],
        value: &[u8],
        facts: &Facts<'_>,
    ) -> Option<&'a Arc<LiveRule>> {
        ranked.get(self.search(ranked, value, facts).best as usize)
    }

    fn search<'a>(
        &self,
        ranked: &'a [Arc<LiveRule>],
        value: &[u8],
        facts: &'a Facts<'_>,
    ) -> Search<'a> {
        let mut search = Search {
            ranked,
            facts,
            best: NONE,
            #[cfg(test)]
            looked_at: 0,
        };
        for paths in self.by_value.find(value) {
            search.paths(paths);
        }
        search.paths(&self.others);
        search
    }

    /// At how many rules, and places where rules may be, the search for the first looks.
    #[cfg(test)]
    pub(super) fn looked_at(
        &self,
        ranked: &[Arc<LiveRule>],
        value: &[u8],
        facts: &Facts<'_>,
    ) -> usize {
        self.search(ranked, value, facts).looked_at
    }
}

impl Paths {
    fn add(&mut self, rule: &Rule, rank: Rank) {
        self.first = self.first.min(rank);
        let path = rule.matching.as_ref().and_then(|it| it.path.as_deref());
        match path.map(Pattern::parse) {
            Some(Ok(pattern)) => self.root.add(&pattern, 0, rule, rank),
            _ => self.everywhere.add(rule, rank),
        }
    }
}

impl Node {
    fn add(&mut self, pattern: &Pattern, depth: usize, rule: &Rule, rank: Rank) {
        self.first = self.first.min(rank);
        let next = match pattern.parts.get(depth) {
            None if pattern.open => return self.below.add(rule, rank),
            None => return self.here.add(rule, rank),
            Some(Part::Any) => self.any.get_or_insert_default(),
            Some(Part::Text(text)) => self.texts.entry(text.clone()).or_default(),
        };
        next.add(pattern, depth + 1, rule, rank);
    }
}

impl Methods {
    fn add(&mut self, rule: &Rule, rank: Rank) {
        self.first = self.first.min(rank);
        let mut named = false;
        for name in rule.matching.iter().flat_map(|it| &it.methods) {
            if let Ok(method) = Method::from_bytes(name.as_bytes()) {
                named = true;
                self.by_method.entry(method).or_default().add(rule, rank);
            }
        }
        if !named {
            self.others.add(rule, rank);
        }
    }
}

impl Headers {
    fn add(&mut self, rule: &Rule, rank: Rank) {
        let field = rule
            .matching
            .as_ref()
            .and_then(|it| it.headers.first_key_value());
        let list = match field {
            Some((name, value)) => match HeaderName::from_bytes(name.as_bytes()) {
                Ok(name) => self
                    .by_field
                    .entry(name)
                    .or_default()
                    .entry(value.as_bytes().into())
                    .or_default(),
                Err(_) => &mut self.plain,
            },
            None => &mut self.plain,
        };
        list.push(rank);
    }
}

struct Search<'a> {
    ranked: &'a [Arc<LiveRule>],
    facts: &'a Facts<'a>,
    best: Rank,
    #[cfg(test)]
    looked_at: usize,
}

impl Search<'_> {
    fn paths(&mut self, paths: &Paths) {
        if paths.first >= self.best {
            return;
        }
        self.methods(&paths.everywhere);
        // `*` is the target of OPTIONS for the whole server, and below no path.
        if let Some(rest) = self.facts.path.strip_prefix('/') {
            self.node(&paths.root, Some(rest));
        }
    }

    /// `rest` follows the slash behind this node; `None`: the path ends with it.
    fn node(&mut self, node: &Node, rest: Option<&str>) {
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
        if node.first >= self.best {
            return;
        }
        let Some(rest) = rest else {
            return self.methods(&node.here);
        };
        let (part, after) = split(rest);
        if let Some(next) = node.texts.get(part) {
            self.node(next, after);
        }
        if let Some(next) = &node.any
            && !part.is_empty()
        {
            self.node(next, after);
        }
        self.methods(&node.below);
    }

    fn methods(&mut self, methods: &Methods) {
        if methods.first >= self.best {
            return;
        }
        if !methods.by_method.is_empty() {
            let method = self.facts.method;
            if let Some(headers) = methods.by_method.get(method) {
                self.headers(headers);
            }
            // Whoever may not GET may not HEAD.
            if method == Method::HEAD
                && let Some(headers) = methods.by_method.get(&Method::GET)
            {
                self.headers(headers);
            }
        }
        self.headers(&methods.others);
    }

    fn headers(&mut self, headers: &Headers) {
        self.list(&headers.plain);
        let (asked, sent) = (&headers.by_field, self.facts.headers);
        if asked.len() <= sent.keys_len() {
            for (name, values) in asked {
                for value in sent.get_all(name) {
                    if let Some(list) = values.get(value.as_bytes()) {
                        self.list(list);
                    }
                }
            }
        } else {
            for (name, value) in sent {
                if let Some(list) = asked.get(name).and_then(|it| it.get(value.as_bytes())) {
                    self.list(list);
                }
            }
        }
    }

    fn list(&mut self, list: &[Rank]) {
        for rank in list {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            if *rank >= self.best {
                return;
            }
            let holds = |live: &Arc<LiveRule>| live.holds(self.facts);
            if self.ranked.get(*rank as usize).is_some_and(holds) {
                self.best = *rank;
                return;
            }
        }
    }
}
