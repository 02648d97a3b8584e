//! `/rules`.

#![expect(dead_code, reason = "these are read by a macro only")]

use super::Problem;
use crate::rules::{Fault, Rule};

/// A problem document that tells every fault of what was sent.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Invalid {
    #[serde(flatten)]
    problem: Problem,
    /// Every fault.
    errors: Vec<Fault>,
}

/// A rule that was replaced.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct RulePut {
    #[serde(flatten)]
    rule: Rule,
    /// Whether what was used still counts (`kept`), or everybody starts anew (`fresh`).
    #[schema(pattern = "^(kept|fresh)$")]
    counters: String,
}

/// All rules
///
/// In the order of their ids. With a limit in pages; `Link` names the next.
#[utoipa::path(get, path = "/rules", tag = "rules", operation_id = "list_rules",
    params(
        ("limit" = Option<u32>, Query, description = "How many at most", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "What the link to the next page says", pattern = "^[A-Za-z0-9_-]{1,64}$"),
    ),
    responses(
        (status = 200, description = "The rules", body = [Rule],
            headers(("Link" = Option<String>, description = "The next page"))),
        (status = 400, description = "A parameter is wrong", body = Invalid, content_type = "application/problem+json"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn list() {}

/// Create a rule
#[utoipa::path(post, path = "/rules", tag = "rules", operation_id = "create_rule",
    request_body(content = Rule, content_type = "application/json"),
    responses(
        (status = 201, description = "The rule", body = Rule,
            headers(("Location" = String, description = "Where it is"), ("ETag" = String, description = "For If-Match"))),
        (status = 400, description = "Every fault of the body", body = Invalid, content_type = "application/problem+json"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "A page of another origin asks", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "There is one of this id, or for the same requests", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn create() {}

/// One rule
#[utoipa::path(get, path = "/rules/{id}", tag = "rules", operation_id = "get_rule",
    params(("id" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "The rule", body = Rule, headers(("ETag" = String, description = "For If-Match"))),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none of this id", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn get() {}

/// Replace a rule
///
/// Numbers may change, the identity type and the algorithm may not.
#[utoipa::path(put, path = "/rules/{id}", tag = "rules", operation_id = "put_rule",
    params(
        ("id" = String, Path, description = "Its id"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the rule that is meant"),
    ),
    request_body(content = Rule, content_type = "application/json"),
    responses(
        (status = 200, description = "The rule, and what became of what was used", body = RulePut,
            headers(("ETag" = String, description = "For If-Match"))),
        (status = 400, description = "Every fault of the body", body = Invalid, content_type = "application/problem+json"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "A page of another origin asks", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none of this id", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "This cannot change, or the rule comes from a file", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It was changed meanwhile", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn put() {}

/// What PATCH may change.
#[derive(serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RulePatch {
    /// For people.
    #[schema(min_length = 1, max_length = 200)]
    name: Option<String>,
    /// The larger goes first.
    priority: Option<i32>,
    /// Whether it holds at all.
    enabled: Option<bool>,
}

/// Change name, priority or enabled
#[utoipa::path(patch, path = "/rules/{id}", tag = "rules", operation_id = "patch_rule",
    params(
        ("id" = String, Path, description = "Its id"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the rule that is meant"),
    ),
    request_body(content = RulePatch, content_type = "application/json"),
    responses(
        (status = 200, description = "The rule", body = Rule, headers(("ETag" = String, description = "For If-Match"))),
        (status = 400, description = "Every fault of the body", body = Invalid, content_type = "application/problem+json"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "A page of another origin asks", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none of this id", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The rule comes from a file", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It was changed meanwhile", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn patch() {}

/// Delete a rule
#[utoipa::path(delete, path = "/rules/{id}", tag = "rules", operation_id = "delete_rule",
    params(
        ("id" = String, Path, description = "Its id"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the rule that is meant"),
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "A page of another origin asks", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none of this id", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The rule comes from a file", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "It was changed meanwhile", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store does not answer", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn delete() {}
