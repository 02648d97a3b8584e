//! Traces of requests for OpenTelemetry: a span for each, sent to a collector by OTLP.
//!
//! The span of a request travels in its extensions, so that whoever has the request can say more of
//! it. It tells the method, the path as the log shows it, the rule, the status and the outcome; it
//! holds no identity, no query and no header. Without the feature `otlp`, or without a collector,
//! there is none.

#[cfg(feature = "otlp")]
mod collector;
#[cfg_attr(feature = "otlp", path = "traces/otlp.rs")]
#[cfg_attr(not(feature = "otlp"), path = "traces/off.rs")]
mod span;

pub(crate) use span::{Traces, decided, is_context, pass_on};

/// Whether this program can send traces.
pub(crate) const ARE_THERE: bool = cfg!(feature = "otlp");
