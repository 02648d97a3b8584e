//! How rules differ from those of a file, and why they could not become them.

use std::collections::HashMap;

use serde_json::Value;

use super::ById;
use crate::rules::document::written;
use crate::rules::{ManagedBy, Rule};

/// Whether a rule comes from the rule file of the service, which alone can change it.
pub(super) fn is_of_file(rule: &Rule) -> bool {
    rule.managed_by == Some(ManagedBy::File)
}

/// Whatever the service would refuse, so that it is known before the first change.
pub(super) fn obstacles(found: &ById, wanted: &ById) -> Vec<String> {
    let of_file = found.values().filter(|rule| is_of_file(rule));
    let claims: HashMap<String, &str> =
        of_file.map(|rule| (rule.uniqueness(), &*rule.id)).collect();
    let mut obstacles = Vec::new();
    for (id, rule) in wanted {
        match found.get(id) {
            Some(before) if written(before) == written(rule) => {}
            Some(before) if is_of_file(before) => obstacles.push(format!(
                "{id}: the rule comes from the rule file of the service; change it there, or leave \
                 it out here"
            )),
            Some(before) if rule.unlike(before).is_some() => {
                let what = rule.unlike(before).unwrap_or_default();
                obstacles.push(format!(
                    "{id}: {what} cannot be changed; give the rule another id"
                ));
            }
            _ => {
                if let Some(owner) = claims.get(&rule.uniqueness()) {
                    obstacles.push(format!(
                        "{id}: rule {owner} of the rule file of the service has the same identity \
                         type, algorithm and match; there can be one of each"
                    ));
                }
            }
        }
    }
    obstacles
}

/// One rule that differs.
pub(super) enum Difference<'a> {
    Extra(&'a str),
    Other(&'a str),
    Missing(&'a str),
}

impl Difference<'_> {
    pub(super) fn lines(&self, found: &ById, wanted: &ById) -> Vec<String> {
        match self {
            Self::Extra(id) => vec![format!("- {id}")],
            Self::Missing(id) => vec![format!("+ {id}")],
            Self::Other(id) => {
                let (is, will_be) = (written(&found[*id]), written(&wanted[*id]));
                let mut names: Vec<_> = [&is, &will_be]
                    .iter()
                    .filter_map(|it| it.as_object())
                    .flat_map(|map| map.keys())
                    .collect();
                names.sort_unstable();
                names.dedup();
                names
                    .into_iter()
                    .filter(|name| is.get(name) != will_be.get(name))
                    .map(|name| {
                        let shown =
                            |it: &Value| it.get(name).map_or("none".into(), Value::to_string);
                        format!("~ {id}: {name}: {} -> {}", shown(&is), shown(&will_be))
                    })
                    .collect()
            }
        }
    }
}

/// What differs; what makes room goes first.
pub(super) fn differences<'a>(found: &'a ById, wanted: &'a ById) -> Vec<Difference<'a>> {
    let extra = found
        .iter()
        .filter(|(id, rule)| !wanted.contains_key(*id) && !is_of_file(rule))
        .map(|(id, _)| Difference::Extra(id));
    let other = wanted
        .iter()
        .filter(|(id, rule)| {
            found
                .get(*id)
                .is_some_and(|it| written(it) != written(rule))
        })
        .map(|(id, _)| Difference::Other(id));
    let missing = wanted
        .keys()
        .filter(|id| !found.contains_key(*id))
        .map(|id| Difference::Missing(id));
    extra.chain(other).chain(missing).collect()
}
