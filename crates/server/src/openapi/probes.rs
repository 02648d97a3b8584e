//! Probes, metrics and documentation.

#![expect(dead_code, reason = "these are read by a macro only")]

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::Problem;

/// Whether the process runs; the second member is called after the store, such as `redis`.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok` or `degraded`.
    #[schema(example = "ok")]
    status: String,
    /// `ok` or `down`.
    #[serde(flatten)]
    store: BTreeMap<String, String>,
}

/// Whether requests should be sent here.
#[derive(Serialize, ToSchema)]
pub(super) struct Readiness {
    /// `ok` or `degraded`.
    status: String,
    /// What was looked at, by name.
    checks: BTreeMap<String, serde_json::Value>,
}

/// Whether the process runs
#[utoipa::path(get, path = "/health", tag = "service", operation_id = "health", security(()),
    responses(
        (status = 200, description = "It runs, and how the store is", body = Health),
    ))]
pub(super) fn health() {}

/// Whether requests should be sent here
#[utoipa::path(get, path = "/ready", tag = "service", operation_id = "ready", security(()),
    responses(
        (status = 200, description = "They should", body = Readiness),
        (status = 503, description = "It is stopping", body = Readiness),
    ))]
pub(super) fn ready() {}

/// Metrics, as Prometheus reads them
#[utoipa::path(get, path = "/metrics", tag = "service", operation_id = "metrics",
    responses(
        (status = 200, description = "Empty where metrics are off", body = String, content_type = "text/plain"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn metrics() {}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "service", operation_id = "openapi",
    responses(
        (status = 200, description = "OpenAPI", body = serde_json::Value),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn openapi() {}

/// This document for people, by Swagger UI
#[utoipa::path(get, path = "/docs", tag = "service", operation_id = "docs",
    responses(
        (status = 200, description = "A page", body = String, content_type = "text/html"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "This build has no pages", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn docs() {}

/// The same by Redoc
#[utoipa::path(get, path = "/redoc", tag = "service", operation_id = "redoc",
    responses(
        (status = 200, description = "A page", body = String, content_type = "text/html"),
        (status = 401, description = "No token", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "This build has no pages", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) fn redoc() {}
