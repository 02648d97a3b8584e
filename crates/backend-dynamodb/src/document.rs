//! Documents: an item each, an item for what each claims, and one that lists them; changed together
//! in one transaction.

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, Delete, KeysAndAttributes, Put,
    ReturnValuesOnConditionCheckFailure as OnFailure, TransactWriteItem, Update,
};
use tollgate_core::{
    BackendError, Change, Changed, Collection, Document, DocumentStore, ErrorKind,
};

use crate::DynamoBackend;
use crate::contention::pause;
use crate::error::of_call;
use crate::record::{Attributes, PK};

/// How often a transaction is tried again because another one had hold of its items.
const CONFLICTS: u32 = 12;

/// The most items of one read.
const PAGE: usize = 100;

const BODY: &str = "body";
// `owner` is a word that expressions may not have.
const OWNER: &str = "claimed_by";
const IDS: &str = "ids";

/// A document is the item `{name}#document#{id}` with `body`, its claim `{name}#claim#{claim}` with
/// `claimed_by`, and `{name}#documents` has all ids. None of them expires.
impl DocumentStore for DynamoBackend {
    async fn list(&self, of: Collection<'_>) -> Result<Vec<Document>, BackendError> {
        self.limited(self.documents(of)).await
    }

    async fn change(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> Result<Changed, BackendError> {
        self.limited(self.change_document(of, change)).await
    }
}

impl DynamoBackend {
    async fn documents(&self, of: Collection<'_>) -> Result<Vec<Document>, BackendError> {
        let index = self.client.get(&index_key(of)).await?.unwrap_or_default();
        let mut ids = match index.get(IDS) {
            Some(AttributeValue::Ss(ids)) => ids.clone(),
            _ => Vec::new(),
        };
        ids.sort_unstable();
        let mut bodies = HashMap::new();
        for ids in ids.chunks(PAGE) {
            let keys = ids.iter().map(|id| document_key(of, id)).collect();
            self.read_bodies(keys, &mut bodies).await?;
        }
        let documents = ids.into_iter().filter_map(|id| {
            // One that was deleted meanwhile is not there.
            let body = bodies.remove(&document_key(of, &id))?;
            Some(Document { id, body })
        });
        Ok(documents.collect())
    }

    async fn read_bodies(
        &self,
        keys: Vec<String>,
        into: &mut HashMap<String, Vec<u8>>,
    ) -> Result<(), BackendError> {
        let key = |key: String| HashMap::from([(PK.to_owned(), AttributeValue::S(key))]);
        let mut left: Vec<Attributes> = keys.into_iter().map(key).collect();
        let mut tries = 0;
        while !left.is_empty() {
            let request = KeysAndAttributes::builder()
                .set_keys(Some(left))
                .consistent_read(true)
                .build()
                .map_err(|_| unmade())?;
            let call = self
                .client
                .sdk
                .batch_get_item()
                .request_items(&self.client.table, request);
            let answer = call.send().await;
            let answer = answer.map_err(|error| of_call(error, &self.client.table))?;
            let items = answer.responses.unwrap_or_default();
            for item in items.into_values().flatten() {
                if let (Some(AttributeValue::S(key)), Some(AttributeValue::S(body))) =
                    (item.get(PK), item.get(BODY))
                {
                    into.insert(key.clone(), body.clone().into_bytes());
                }
            }
            let unread = answer.unprocessed_keys.unwrap_or_default();
            left = unread.into_values().flat_map(|it| it.keys).collect();
            if !left.is_empty() {
                tries += 1;
                pause(tries).await;
            }
        }
        Ok(())
    }

    async fn change_document(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> Result<Changed, BackendError> {
        let mut conflicts = 0;
        loop {
            let call = self
                .client
                .sdk
                .transact_write_items()
                .set_transact_items(Some(self.writes(of, change)?));
            let error = match call.send().await {
                Ok(_) => return Ok(Changed::Yes),
                Err(error) => error,
            };
            let Some(TransactWriteItemsError::TransactionCanceledException(canceled)) =
                error.as_service_error()
            else {
                return Err(of_call(error, &self.client.table));
            };
            let reasons = canceled.cancellation_reasons();
            if let Some(changed) = why_not(change, reasons) {
                return Ok(changed);
            }
            let code = |it: &CancellationReason| it.code.clone().unwrap_or_default();
            let conflict = reasons.iter().any(|it| code(it) == "TransactionConflict");
            if !conflict || conflicts == CONFLICTS {
                return Err(of_call(error, &self.client.table));
            }
            conflicts += 1;
            pause(conflicts).await;
        }
    }

    /// The document first, and what it claims second.
    fn writes(
        &self,
        of: Collection<'_>,
        change: Change<'_>,
    ) -> Result<Vec<TransactWriteItem>, BackendError> {
        let mut writes = Vec::new();
        match change {
            Change::Create { id, claim, body } => {
                let document = self.put(document_key(of, id), BODY, text(body)?);
                writes.push(self.unless_there(document)?);
                writes.push(self.claimed_item(of, claim, id)?);
                writes.push(self.list_ids(of, "ADD ids :ids", id)?);
            }
            Change::Replace {
                id,
                before,
                claim_before,
                claim,
                body,
            } => {
                let document = self
                    .put(document_key(of, id), BODY, text(body)?)
                    .condition_expression("body = :before")
                    .expression_attribute_values(":before", AttributeValue::S(text(before)?))
                    .return_values_on_condition_check_failure(OnFailure::AllOld);
                writes.push(put(document)?);
                if claim != claim_before {
                    writes.push(self.claimed_item(of, claim, id)?);
                    writes.push(self.delete(
                        claim_key(of, claim_before),
                        "claimed_by = :is",
                        id,
                    )?);
                }
            }
            Change::Delete { id, before, claim } => {
                let before = text(before)?;
                writes.push(self.delete(document_key(of, id), "body = :is", &before)?);
                writes.push(self.delete(claim_key(of, claim), "claimed_by = :is", id)?);
                writes.push(self.list_ids(of, "DELETE ids :ids", id)?);
            }
        }
        Ok(writes)
    }

    fn put(
        &self,
        key: String,
        attribute: &str,
        value: String,
    ) -> aws_sdk_dynamodb::types::builders::PutBuilder {
        Put::builder()
            .table_name(&self.client.table)
            .item(PK, AttributeValue::S(key))
            .item(attribute, AttributeValue::S(value))
    }

    fn unless_there(
        &self,
        item: aws_sdk_dynamodb::types::builders::PutBuilder,
    ) -> Result<TransactWriteItem, BackendError> {
        put(item.condition_expression("attribute_not_exists(pk)"))
    }

    fn claimed_item(
        &self,
        of: Collection<'_>,
        claim: &str,
        id: &str,
    ) -> Result<TransactWriteItem, BackendError> {
        let item = self
            .put(claim_key(of, claim), OWNER, id.into())
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        self.unless_there(item)
    }

    fn delete(
        &self,
        key: String,
        condition: &str,
        is: &str,
    ) -> Result<TransactWriteItem, BackendError> {
        let item = Delete::builder()
            .table_name(&self.client.table)
            .key(PK, AttributeValue::S(key))
            .condition_expression(condition)
            .expression_attribute_values(":is", AttributeValue::S(is.into()))
            .return_values_on_condition_check_failure(OnFailure::AllOld)
            .build()
            .map_err(|_| unmade())?;
        Ok(TransactWriteItem::builder().delete(item).build())
    }

    fn list_ids(
        &self,
        of: Collection<'_>,
        update: &str,
        id: &str,
    ) -> Result<TransactWriteItem, BackendError> {
        let item = Update::builder()
            .table_name(&self.client.table)
            .key(PK, AttributeValue::S(index_key(of)))
            .update_expression(update)
            .expression_attribute_values(":ids", AttributeValue::Ss(vec![id.into()]))
            .build()
            .map_err(|_| unmade())?;
        Ok(TransactWriteItem::builder().update(item).build())
    }
}

fn put(
    item: aws_sdk_dynamodb::types::builders::PutBuilder,
) -> Result<TransactWriteItem, BackendError> {
    let item = item.build().map_err(|_| unmade())?;
    Ok(TransactWriteItem::builder().put(item).build())
}

/// What the first condition that does not hold means.
fn why_not(change: Change<'_>, reasons: &[CancellationReason]) -> Option<Changed> {
    let failed = |it: &CancellationReason| it.code() == Some("ConditionalCheckFailed");
    let at = reasons.iter().position(failed)?;
    let item = reasons[at].item();
    Some(match (change, at) {
        (Change::Create { .. }, 0) => Changed::Exists,
        (_, 0) if item.is_none_or(HashMap::is_empty) => Changed::Missing,
        (Change::Delete { .. }, _) | (_, 0) => Changed::Stale,
        _ => Changed::Claimed {
            by: match item.and_then(|it| it.get(OWNER)) {
                Some(AttributeValue::S(owner)) => Some(owner.clone()),
                _ => None,
            },
        },
    })
}

fn document_key(of: Collection<'_>, id: &str) -> String {
    format!("{}#document#{id}", of.name)
}

fn claim_key(of: Collection<'_>, claim: &str) -> String {
    format!("{}#{}#{claim}", of.name, of.claims)
}

fn index_key(of: Collection<'_>) -> String {
    format!("{}#documents", of.name)
}

fn text(body: &[u8]) -> Result<String, BackendError> {
    String::from_utf8(body.into())
        .map_err(|_| BackendError::new(ErrorKind::Config, "a document is no UTF-8"))
}

fn unmade() -> BackendError {
    BackendError::new(ErrorKind::Other, "a request could not be made")
}
