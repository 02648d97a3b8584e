//! Traces: calls in virtual time with the right answer to each, one trace a line of JSON.
//!
//! They are the acceptance test of every backend (`tollgate-testkit` carries them), and
//! `tollgate replay` runs them against any store. Feature `trace`.
//!
//! ```
//! use tollgate_core::trace::Trace;
//!
//! let line = r#"{"name":"one","quota":{"algorithm":"fixed_window","limit":1,"period_us":1000},
//!     "steps":[{"at_us":5000,"op":"acquire","key":"a","cost":1,"expect":{"allowed":true,
//!     "granted":1,"remaining":0,"retry_after_us":null,"reset_after_us":1000}}]}"#;
//! let trace = Trace::parse(line)?;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! # use tollgate_core::{CasBackend, doc_store::MapStore};
//! let answers = trace.run(&CasBackend::new(MapStore::default())).await?;
//! assert!(trace.differences(&answers).is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
