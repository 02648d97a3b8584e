//! DynamoDB as a store of counters for Tollgate: one conditional write a decision, exact whoever
//! else writes.
//!
//! [`DynamoBackend`] is a [`CounterBackend`](tollgate_core::CounterBackend) and a
//! [`LeaseBackend`](tollgate_core::LeaseBackend) on one table, which [`create_table`] makes and
//! [`describe_table`] shows.
//!
//! | URL | what it is |
//! |---|---|
//! | `dynamodb://table` | the table in the region of the environment or profile |
//! | `dynamodb://table?region=eu-west-1` | in this region |
//! | `dynamodb://table?endpoint=http://127.0.0.1:8000` | on a local stand-in, with any credentials |
//!
//! Credentials are found where every AWS tool finds them: the environment
//! (`AWS_ACCESS_KEY_ID`, ..), a profile, a web identity token (EKS), the container's role (ECS, EKS
//! pods), the machine's role (EC2). They are loaded beside the calls, never within a call's timeout
//! alone. Profiles that log in by IAM Identity Center need the feature `sso`; or bring the
//! application's own client, see [`sdk`].

mod backend;
mod branch;
mod client;
mod config;
mod contention;
mod credentials;
mod document;
mod error;
mod lease;
mod memory;
mod record;
pub mod sdk;
mod standing;
mod table;
mod update;
mod url;

pub use backend::{DynamoBackend, MAX_LOG};
pub use config::Builder;
pub use error::error_kind;
pub use table::{Capacity, TableInfo, create_table, describe_table};
