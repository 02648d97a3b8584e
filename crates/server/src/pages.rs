//! What the admin surface has besides rules and usage: metrics, the OpenAPI document, and the
//! pages that show it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::metrics::{self, Metrics};
use crate::openapi;

/// The routes.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>(metrics: Arc<Metrics>) -> Router<S> {
    let measured = move || {
        let text = metrics.text();
        async move { page(metrics::CONTENT_TYPE, text.into()) }
    };
    Router::new()
        .route("/metrics", get(measured))
        .route(
            "/openapi.json",
            get(|| async { page("application/json", openapi::document()) }),
        )
        .route("/docs", get(shown))
        .route("/redoc", get(shown))
}

fn page(kind: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(feature = "ui")]
async fn shown(uri: http::Uri) -> Result<Response, crate::admin::Failed> {
    use crate::ui;
    use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY};

    let Some(part) = ui::part(uri.path(), uri.query()) else {
        let status = http::StatusCode::NOT_FOUND;
        return Err(crate::admin::Failed::new(status, "There is nothing here"));
    };
    let mut response = page(part.kind, Bytes::from_static(part.bytes));
    let headers = response.headers_mut();
    let policy = HeaderValue::from_static(ui::POLICY);
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    if part.gzip {
        let gzip = HeaderValue::from_static("gzip");
        headers.insert(CONTENT_ENCODING, gzip);
        let day = HeaderValue::from_static("private, max-age=86400");
        headers.insert(CACHE_CONTROL, day);
    }
    Ok(response)
}

#[cfg(not(feature = "ui"))]
async fn shown() -> crate::admin::Failed {
    let detail = "This build has no pages: build it with the feature ui. /openapi.json is here";
    crate::admin::Failed::new(http::StatusCode::NOT_FOUND, detail)
}
