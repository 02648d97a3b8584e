//! Documents in the memory of this process.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use tollgate_core::{BackendError, Change, Changed, Collection, Document, DocumentStore};

use crate::MemoryBackend;

/// All collections.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<HashMap<String, One>>);

/// One collection.
#[derive(Debug, Default)]
struct One {
    bodies: BTreeMap<String, Vec<u8>>,
    /// Ids by what they claim.
    claims: HashMap<String, String>,
}

impl DocumentStore for MemoryBackend {
    async fn list(&self, of: Collection<'_>) -> Result<Vec<Document>, BackendError> {
        let all = self.documents.0.lock();
        let one = all.get(of.name).into_iter();
        let documents = one.flat_map(|one| &one.bodies).map(|(id, body)| Document {
            id: id.clone(),
            body: body.clone(),
        });
        Ok(documents.collect())
    }

    async fn change(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> Result<Changed, BackendError> {
        let mut all = self.documents.0.lock();
        let one = all.entry(of.name.into()).or_default();
        Ok(one.change(change))
    }
}

impl One {
    fn change(&mut self, change: Change<'_>) -> Changed {
        match change {
            Change::Create { id, claim, body } => {
                if self.bodies.contains_key(id) {
                    return Changed::Exists;
                }
                self.put(id, claim, body)
            }
            Change::Replace {
                id,
                before,
                claim_before,
                claim,
                body,
            } => {
                if let Some(no) = self.differs(id, before) {
                    return no;
                }
                let changed = self.put(id, claim, body);
                if changed == Changed::Yes && claim != claim_before {
                    self.claims.remove(claim_before);
                }
                changed
            }
            Change::Delete { id, before, claim } => {
                if let Some(no) = self.differs(id, before) {
                    return no;
                }
                self.bodies.remove(id);
                self.claims.remove(claim);
                Changed::Yes
            }
        }
    }

    fn differs(&self, id: &str, before: &[u8]) -> Option<Changed> {
        match self.bodies.get(id) {
            None => Some(Changed::Missing),
            Some(body) if body != before => Some(Changed::Stale),
            Some(_) => None,
        }
    }

    fn put(&mut self, id: &str, claim: &str, body: &[u8]) -> Changed {
        match self.claims.get(claim) {
            Some(owner) if owner != id => Changed::Claimed {
                by: Some(owner.clone()),
            },
            _ => {
                self.claims.insert(claim.into(), id.into());
                self.bodies.insert(id.into(), body.into());
                Changed::Yes
            }
        }
    }
}
