//! The text of one conditional `UpdateItem`.

use std::collections::HashMap;
use std::fmt::Display;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::record::{EXPIRES_AT, Held, PK, REVISION, n_value};

/// What to write, and under which conditions: all of them, or nothing is written.
///
/// None of the names is a reserved word of DynamoDB's.
#[derive(Debug, Default)]
pub(crate) struct Update {
    sets: Vec<String>,
    removes: Vec<String>,
    conditions: Vec<String>,
    pub(crate) values: HashMap<String, AttributeValue>,
    pub(crate) names: HashMap<String, String>,
}

impl Update {
    /// A name for a value, to be used in an expression.
    pub(crate) fn value(&mut self, value: AttributeValue) -> String {
        let name = format!(":v{}", self.values.len());
        self.values.insert(name.clone(), value);
        name
    }

    pub(crate) fn number(&mut self, number: impl ToString) -> String {
        self.value(n_value(number))
    }

    pub(crate) fn set(&mut self, attribute: impl Display, expression: impl Display) {
        self.sets.push(format!("{attribute} = {expression}"));
    }

    pub(crate) fn remove(&mut self, attribute: impl Into<String>) {
        self.removes.push(attribute.into());
    }

    pub(crate) fn when(&mut self, condition: impl Into<String>) {
        self.conditions.push(condition.into());
    }

    pub(crate) fn when_equal(&mut self, attribute: &str, value: AttributeValue) {
        let value = self.value(value);
        self.when(format!("{attribute} = {value}"));
    }

    /// Replaces what is held, all of it, if it still is what is there.
    pub(crate) fn exact(held: &Held, next: &Held, expires_at: u64) -> Self {
        let mut update = Self::default();
        update.when_held(held);
        let next = next.attributes.iter().flatten();
        for stale in held.attributes.iter().flat_map(HashMap::keys) {
            if !next.clone().any(|(attribute, _)| attribute == stale) {
                update.remove(stale);
            }
        }
        for (attribute, value) in next {
            let value = update.value(value.clone());
            update.set(attribute, value);
        }
        update.expire(expires_at);
        update
    }

    /// Only moves the revision on, from whatever it is.
    pub(crate) fn claim() -> Self {
        let mut update = Self::default();
        update.when(format!("attribute_exists({REVISION})"));
        let one = update.number(1);
        update.set(REVISION, format!("{REVISION} + {one}"));
        update
    }

    /// The attributes decide, but for `expires_at`; or the revision alone, which changes with them.
    fn when_held(&mut self, held: &Held) {
        match &held.attributes {
            None => self.when(format!("attribute_not_exists({PK})")),
            Some(attributes) if held.revision().is_some() => {
                self.when_equal(REVISION, attributes[REVISION].clone());
            }
            Some(attributes) => {
                // Nothing of ours in it, yet there is an item.
                if attributes.is_empty() {
                    self.when(format!("attribute_exists({PK})"));
                }
                if !attributes.contains_key(crate::record::SHAPE) {
                    self.when(format!("attribute_not_exists({})", crate::record::SHAPE));
                }
                for (attribute, value) in attributes {
                    self.when_equal(attribute, value.clone());
                }
            }
        }
    }

    pub(crate) fn expire(&mut self, seconds: u64) {
        let seconds = self.number(seconds);
        self.set(EXPIRES_AT, seconds);
    }

    pub(crate) fn expression(&self) -> String {
        let mut text = String::new();
        for (word, parts) in [("SET ", &self.sets), ("REMOVE ", &self.removes)] {
            if !parts.is_empty() {
                if !text.is_empty() {
                    text.push(' ');
                }
                text.push_str(word);
                text.push_str(&parts.join(", "));
            }
        }
        text
    }

    pub(crate) fn condition(&self) -> String {
        self.conditions.join(" AND ")
    }
}
