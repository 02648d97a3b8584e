//! The OpenAPI document of the admin surface, `/v1` and the probes. Types are those that are
//! served; what each path answers is told in `openapi/`, beside nothing that runs.

mod keys;
mod probes;
mod rules;
mod usage;
mod v1;

use std::sync::OnceLock;

use bytes::Bytes;
use serde::Serialize;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi, ToSchema};

/// The document, as JSON.
pub(crate) fn document() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let made = DOCUMENT.get_or_init(|| {
        let text = serde_json::to_vec(&Api::openapi());
        text.expect("the document is of texts and numbers").into()
    });
    made.clone()
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tollgate",
        description = "Rate limits of a service: rules, usage, and decisions for services in any language."
    ),
    servers((url = "/")),
    security(("admin" = [])),
    modifiers(&Token),
    paths(
        rules::list, rules::create, rules::get, rules::put, rules::patch, rules::delete,
        usage::show, usage::reset, usage::refund, usage::block, usage::unblock,
        keys::list, keys::create, keys::get, keys::change, keys::delete,
        v1::check, v1::forward_auth,
        probes::health, probes::ready, probes::metrics, probes::openapi, probes::docs, probes::redoc,
    ),
    components(schemas(Problem)),
    tags(
        (name = "rules", description = "Who is limited how"),
        (name = "keys", description = "API keys that are kept in the store"),
        (name = "usage", description = "What somebody has used"),
        (name = "decisions", description = "For services that enforce limits themselves, and for proxies"),
        (name = "service", description = "How the service is"),
    )
)]
struct Api;

struct Token;

impl Modify for Token {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("ADMIN_TOKEN; not asked for where the surface is open"))
            .build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("admin", SecurityScheme::Http(scheme));
    }
}

/// A problem document (RFC 9457).
#[derive(Serialize, ToSchema)]
struct Problem {
    /// `about:blank`.
    r#type: String,
    /// The words of the status.
    title: String,
    status: u16,
    /// What is wrong, and what to do.
    detail: String,
    /// The path of the request.
    instance: String,
    /// The id under which the request was logged.
    request_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_says_what_it_is_and_how_it_refuses() {
        let document: serde_json::Value = serde_json::from_slice(&document()).unwrap();
        let mut operations = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                operations += 1;
                let at = format!("{method} {path}");
                assert!(operation["operationId"].is_string(), "{at}");
                assert!(operation["summary"].is_string(), "{at}");
                let open = matches!(&**path, "/health" | "/ready" | "/v1/forward-auth");
                let responses = operation["responses"].as_object().unwrap();
                assert!(open || responses.contains_key("401"), "{at}");
                for (status, response) in responses.iter().filter(|(it, _)| it.as_str() >= "400") {
                    let problem = &response["content"]["application/problem+json"];
                    let ready = path == "/ready" || status == "304";
                    assert!(problem.is_object() || ready, "{at} {status}");
                }
            }
        }
        assert!(operations > 15, "{operations}");
    }
}
