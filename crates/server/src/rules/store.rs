//! Rules in the store: documents that claim the identity type, algorithm and match they are for.

use sha2::{Digest, Sha256};
use tollgate::{
    BackendError, Change, Changed, Collection, Document, DocumentFeed, DocumentStore, ErrorKind,
    SharedBackend, SharedDocuments,
};

use super::model::hex;
use super::{Faults, Rule, read};

/// The prefix of keys where none is set; its rules have none.
pub(crate) const PREFIX: &str = "rate-limit";

/// Rules in the store.
#[derive(Clone, Debug)]
pub struct RuleStore {
    documents: Option<SharedDocuments>,
    name: Box<str>,
}

/// A rule as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The rule.
    pub rule: Rule,
    body: Vec<u8>,
}

/// All that is stored.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// The rules by their ids.
    pub rules: Vec<Entry>,
    /// What is stored as a rule and is none.
    pub unreadable: Vec<(String, Faults)>,
}

impl Entry {
    fn of(document: Document) -> Result<Self, (String, Faults)> {
        let Document { id, body } = document;
        let value = serde_json::from_slice(&body).map_err(|error| {
            let faults = Faults::one("", None, format!("is no JSON: {error}"));
            (id.clone(), faults)
        })?;
        match read::stored(&value) {
            Ok(rule) if rule.id == id => Ok(Self { rule, body }),
            Ok(_) => Err((
                id,
                Faults::one("id", None, "is another one than it is stored by"),
            )),
            Err(faults) => Err((id, faults)),
        }
    }

    /// As it would be stored.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self {
            body: rule.to_json(),
            rule,
        }
    }

    /// What changes with every change of the rule: an entity tag.
    #[must_use]
    pub fn tag(&self) -> String {
        format!("\"{}\"", hex(&Sha256::digest(&self.body)[..12]))
    }
}

impl Stored {
    /// A rule by its id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Entry> {
        let found = self
            .rules
            .binary_search_by(|entry| entry.rule.id.as_str().cmp(id));
        found.ok().map(|at| &self.rules[at])
    }
}

impl RuleStore {
    /// In the store that counts, if it can keep them. `prefix` is that of its keys: the rules of
    /// services with different ones are different.
    #[must_use]
    pub fn of(backend: &SharedBackend, prefix: &str) -> Self {
        Self {
            documents: backend.documents(),
            name: match prefix {
                PREFIX => "rules".into(),
                prefix => format!("{prefix}:rules").into(),
            },
        }
    }

    /// Whether there is a place for rules.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.documents.is_some()
    }

    fn collection(&self) -> Collection<'_> {
        Collection {
            name: &self.name,
            claims: "by-identity-algo",
        }
    }

    fn documents(&self) -> Result<&SharedDocuments, BackendError> {
        self.documents.as_ref().ok_or_else(|| {
            BackendError::new(ErrorKind::Unsupported, "this store cannot keep rules")
        })
    }

    /// All rules, by their ids.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn list(&self) -> Result<Stored, BackendError> {
        let documents = self.documents()?.list(self.collection()).await?;
        let mut stored = Stored::default();
        for document in documents {
            match Entry::of(document) {
                Ok(entry) => stored.rules.push(entry),
                Err(unreadable) => stored.unreadable.push(unreadable),
            }
        }
        stored.rules.sort_by(|a, b| a.rule.id.cmp(&b.rule.id));
        Ok(stored)
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// When the store does not answer; the rule may be there then.
    pub async fn create(&self, rule: Rule) -> Result<(Changed, Entry), BackendError> {
        let entry = Entry::new(rule);
        let change = Change::Create {
            id: &entry.rule.id,
            claim: &entry.rule.uniqueness(),
            body: &entry.body,
        };
        let changed = self.documents()?.change(self.collection(), change).await?;
        Ok((changed, entry))
    }

    /// Puts a rule in the place of one of the same id.
    ///
    /// # Errors
    /// When the store does not answer; it may have been done then.
    pub async fn replace(
        &self,
        before: &Entry,
        rule: Rule,
    ) -> Result<(Changed, Entry), BackendError> {
        let entry = Entry::new(rule);
        let change = Change::Replace {
            id: &before.rule.id,
            before: &before.body,
            claim_before: &before.rule.uniqueness(),
            claim: &entry.rule.uniqueness(),
            body: &entry.body,
        };
        let changed = self.documents()?.change(self.collection(), change).await?;
        Ok((changed, entry))
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// When the store does not answer; it may be gone then.
    pub async fn delete(&self, entry: &Entry) -> Result<Changed, BackendError> {
        let change = Change::Delete {
            id: &entry.rule.id,
            before: &entry.body,
            claim: &entry.rule.uniqueness(),
        };
        self.documents()?.change(self.collection(), change).await
    }

    /// Hears of changes, if the store tells.
    #[must_use]
    pub fn watch(&self) -> Option<Box<dyn DocumentFeed>> {
        self.documents.as_ref()?.watch(self.collection())
    }
}
