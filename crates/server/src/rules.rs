//! Rules: who is limited how, changed while the service runs.
//!
//! - `model`: a rule as it is written, sent and stored; `read` finds every fault of one;
//! - `live`: a rule that can be asked; `table` and `index`: which of them holds for a request;
//! - `store`: where all processes find them; `sync`: the rules in force here, kept in step;
//! - `document`, `file`: rules from a file; `rest`: rules over HTTP.

pub mod cli;
mod decimal;
mod document;
mod faults;
mod file;
mod gauges;
mod index;
mod live;
mod model;
mod pattern;
mod read;
pub mod rest;
mod store;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use crate::identity::{IdentityType, UnknownIdentityType};
pub use decimal::Decimal;
pub use document::{FileFaults, parse as parse_file, write as write_file};
pub use faults::{Fault, Faults};
pub(crate) use faults::{Fields, flag, json, text};
pub(crate) use file::check as check_file;
pub use live::{Compiler, Counted, Facts, LiveRule, Normalise, NotCountable, Ruling};
pub use model::{
    Bucket, Config, Exempt, LimitFrom, ManagedBy, Match, Mode, Moment, Plan, Rule, Slots, Window,
};
pub use pattern::Pattern;
pub use read::DEFAULT_ID;
pub(crate) use store::PREFIX;
pub use store::{Entry, RuleStore, Stored};
pub use sync::{Keeping, RuleSettings, Rules, RulesError};
pub use table::Table;
