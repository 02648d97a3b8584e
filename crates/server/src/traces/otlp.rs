//! Spans, and who makes them.

use std::path::Path;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use tollgate_http::RequestId;

use super::collector::Collector;
use crate::config::{self, TraceParent};
use crate::{Outcome, admin, log, metrics};

/// The fields that say which span caused a request.
static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// How long the end of the program waits for the last spans to be sent.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// Who makes spans, if anybody does. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Traces(Option<Tracing>);

#[derive(Clone, Debug)]
struct Tracing {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
    parent: TraceParent,
}

/// The span of a request, among its extensions.
#[derive(Clone)]
struct Span(Context);

impl Traces {
    /// Begins to send, if there is a collector, which may be away. `ca` is a file of authorities
    /// that its certificate may be from, besides the system's.
    ///
    /// # Errors
    /// Certificates that cannot be read, and variables `OTEL_*` that cannot be used.
    pub(crate) fn start(settings: Option<&config::Traces>, ca: Option<&Path>) -> Outcome<Self> {
        let Some(settings) = settings else {
            return Ok(Self(None));
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(&settings.endpoint, ca)?)
            .with_endpoint(format!("{}/v1/traces", settings.endpoint))
            .build()
            .map_err(|error| format!("traces: {error}"))?;
        let resource = Resource::builder()
            .with_service_name(settings.service_name.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let ratio = Sampler::TraceIdRatioBased(settings.sample_ratio);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .with_sampler(Sampler::ParentBased(Box::new(ratio)))
            .build();
        Ok(Self(Some(Tracing {
            tracer: provider.tracer("tollgate"),
            provider,
            parent: settings.parent,
        })))
    }

    /// Whether there is a span of each request.
    pub(crate) const fn are_sent(&self) -> bool {
        self.0.is_some()
    }

    /// A request has come; `trusted` is asked whether what it says of its trace counts.
    pub(crate) fn begin(
        &self,
        parts: &mut Parts,
        id: &RequestId,
        scheme: &'static str,
        trusted: impl FnOnce() -> bool,
    ) {
        let Some(tracing) = &self.0 else {
            return;
        };
        let continued = match tracing.parent {
            TraceParent::Trusted => trusted(),
            TraceParent::All => true,
            TraceParent::None => false,
        };
        let mut parent = Context::new();
        if continued {
            use opentelemetry::propagation::TextMapPropagator as _;
            let headers = HeaderExtractor(&parts.headers);
            parent = TraceContextPropagator::new().extract_with_context(&parent, &headers);
        }
        let name = known(&parts.method);
        let span = tracing
            .tracer
            .span_builder(name.unwrap_or("HTTP"))
            .with_kind(SpanKind::Server);
        let mut span = span.start_with_context(&tracing.tracer, &parent);
        if span.is_recording() {
            let path = admin::shown(parts.uri.path());
            span.set_attributes([
                KeyValue::new("http.request.method", name.unwrap_or("_OTHER")),
                KeyValue::new("url.scheme", scheme),
                KeyValue::new("url.path", log::beginning(&path).to_owned()),
                KeyValue::new("tollgate.request_id", id.as_str().to_owned()),
            ]);
        }
        parts.extensions.insert(Span(parent.with_span(span)));
    }

    /// Its answer begins.
    pub(crate) fn end(&self, parts: &Parts, status: StatusCode, outcome: metrics::Outcome) {
        let Some(Span(context)) = parts.extensions.get() else {
            return;
        };
        let span = context.span();
        if span.is_recording() {
            let code = i64::from(status.as_u16());
            span.set_attribute(KeyValue::new("http.response.status_code", code));
            span.set_attribute(KeyValue::new("tollgate.outcome", outcome.as_str()));
            if status.is_server_error() {
                span.set_attribute(KeyValue::new("error.type", status.as_str().to_owned()));
                span.set_status(Status::error(""));
            }
        }
        span.end();
    }

    /// Sends what has not been sent, for a moment.
    pub(crate) fn finish(self) {
        if let Some(tracing) = self.0
            && let Err(error) = tracing.provider.shutdown_with_timeout(LAST_SPANS)
        {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// By which rule the request was decided, and by whom.
pub(crate) fn decided(parts: &Parts, rule: &str, origin: &'static str) {
    if let Some(Span(context)) = parts.extensions.get() {
        let span = context.span();
        if span.is_recording() {
            span.set_attribute(KeyValue::new("tollgate.rule", rule.to_owned()));
            span.set_attribute(KeyValue::new("tollgate.origin", origin));
        }
    }
}

/// Writes what tells the upstream that the request's span caused what it is asked. Whether there is
/// a span: then it takes the place of what the client has told, which [`is_context`].
pub(crate) fn pass_on(parts: &Parts, mut write: impl FnMut(&HeaderName, &HeaderValue)) -> bool {
    let Some(Span(context)) = parts.extensions.get() else {
        return false;
    };
    let span = context.span();
    let span = span.span_context();
    write(&TRACEPARENT, &traceparent(span));
    if let Ok(state) = HeaderValue::from_str(&span.trace_state().header())
        && !state.is_empty()
    {
        write(&TRACESTATE, &state);
    }
    true
}

/// Whether a field says which span caused a request.
pub(crate) fn is_context(name: &HeaderName) -> bool {
    *name == TRACEPARENT || *name == TRACESTATE
}

fn traceparent(span: &SpanContext) -> HeaderValue {
    let (trace, id) = (span.trace_id(), span.span_id());
    let text = format!("00-{trace}-{id}-{:02x}", span.trace_flags().to_u8());
    HeaderValue::from_str(&text).expect("these are hex digits")
}

/// A method by its name, of those that the conventions know.
fn known(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE",
    ];
    KNOWN.into_iter().find(|name| *name == method.as_str())
}
