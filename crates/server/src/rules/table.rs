//! All rules in force, and which of them holds for a request: by hashes and a tree of paths, so
//! that a thousand rules cost hardly more than one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::index::Index;
use super::live::{Compiler, Facts, LiveRule, NotCountable};
use super::pattern::{Kind, Pattern};
use super::{IdentityType, Rule};

/// All rules in force. It never changes: others are another table.
#[derive(Debug)]
pub struct Table {
    /// In the order in which they go before one another.
    ranked: Vec<Arc<LiveRule>>,
    /// All of them, those that are switched off included.
    by_id: BTreeMap<Box<str>, Arc<LiveRule>>,
    indices: HashMap<IdentityType, Index>,
    /// One for each identity type, in the order of [`IdentityType::ALL`].
    defaults: Vec<Arc<LiveRule>>,
}

impl Table {
    /// The table without any rule but the one that is built in.
    ///
    /// # Errors
    /// The store cannot count that.
    pub fn empty(compiler: &Compiler) -> Result<Self, NotCountable> {
        let defaults = IdentityType::ALL.map(|it| compiler.default_rule(it).map(LiveRule::share));
        Ok(Self {
            ranked: Vec::new(),
            by_id: BTreeMap::new(),
            indices: HashMap::new(),
            defaults: defaults.into_iter().collect::<Result<_, _>>()?,
        })
    }

    /// The table of these rules in place of this one. A rule that did not change is the same object
    /// in both, with all it knows. Those that cannot be counted are left out, and told of.
    #[must_use]
    pub fn with(
        &self,
        compiler: &Compiler,
        rules: Vec<Rule>,
    ) -> (Self, Vec<(String, NotCountable)>) {
        let mut failed = Vec::new();
        let mut by_id = BTreeMap::new();
        for rule in rules {
            let live = match self.by_id.get(rule.id.as_str()) {
                Some(known) if *known.rule() == rule => Arc::clone(known),
                _ => {
                    let id = rule.id.clone();
                    match compiler.live(rule) {
                        Ok(live) => live.share(),
                        Err(error) => {
                            failed.push((id, error));
                            continue;
                        }
                    }
                }
            };
            by_id.insert(live.id().into(), live);
        }
        let mut ranked: Vec<_> = by_id
            .values()
            .filter(|live| live.rule().enabled)
            .cloned()
            .collect();
        ranked.sort_by_cached_key(|live| rank(live.rule()));
        let mut indices: HashMap<IdentityType, Index> = HashMap::new();
        for (place, live) in ranked.iter().enumerate() {
            // There are never as many rules.
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            let index = indices.entry(live.rule().identity_type).or_default();
            index.add(compiler, live.rule(), place);
        }
        let table = Self {
            ranked,
            by_id,
            indices,
            defaults: self.defaults.clone(),
        };
        (table, failed)
    }

    /// The rule that holds for an identity: the first, in the order of the documentation, of those
    /// of its type that match the request; else the one that is built in.
    #[must_use]
    pub fn choose(&self, kind: IdentityType, value: &[u8], facts: &Facts<'_>) -> &Arc<LiveRule> {
        self.indices
            .get(&kind)
            .and_then(|index| index.first(&self.ranked, value, facts))
            .unwrap_or_else(|| self.default_rule(kind))
    }

    /// At how many rules, and places where rules may be, a choice looks.
    #[cfg(test)]
    pub(super) fn looked_at(&self, kind: IdentityType, value: &[u8], facts: &Facts<'_>) -> usize {
        let index = self.indices.get(&kind);
        index.map_or(0, |index| index.looked_at(&self.ranked, value, facts))
    }

    /// The rule that holds for this type where no other does.
    #[must_use]
    pub fn default_rule(&self, kind: IdentityType) -> &Arc<LiveRule> {
        &self.defaults[kind.index()]
    }

    /// A rule by its id, also one that is switched off.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<LiveRule>> {
        self.by_id.get(id)
    }

    /// All rules by their ids, those that are switched off included.
    pub fn all(&self) -> impl Iterator<Item = &Arc<LiveRule>> {
        self.by_id.values()
    }

    /// Those that are switched on, in the order in which they go before one another.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Arc<LiveRule>> {
        self.ranked.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// By what rules are ordered, the smaller first: priority; then who says more about the identity,
/// the header fields, the path and the method, in this order; then the id.
fn rank(rule: &Rule) -> impl Ord + use<> {
    let matching = rule.matching.as_ref();
    let path = matching
        .and_then(|it| it.path.as_deref())
        .and_then(|path| Pattern::parse(path).ok())
        .map(|pattern| match pattern.kind() {
            kind @ Kind::Exact => (kind, Reverse(0)),
            kind => (kind, Reverse(pattern.length())),
        });
    (
        Reverse(rule.priority),
        matching.is_none_or(|it| it.identity_values.is_empty()),
        matching.is_none_or(|it| it.headers.is_empty()),
        (path.is_none(), path),
        matching.is_none_or(|it| it.methods.is_empty()),
        rule.id.clone(),
    )
}
