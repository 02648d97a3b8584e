//! Rules: who is limited how, changed while the service runs.
//!
//! - `model`: a rule as it is written, sent and stored; `read` finds every fault of one;
//! - `live`: a rule that can be asked; `table` and `index`: which of them holds for a request.

mod decimal;
mod faults;
mod index;
mod live;
mod model;
mod pattern;
mod read;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use crate::identity::{IdentityType, UnknownIdentityType};
pub use decimal::Decimal;
pub use faults::{Fault, Faults};
pub use live::{
    Compiler, Counted, Facts, LiveRule, Normalise, NotCountable, Ruling, default_config,
};
pub use model::{
    Bucket, Config, Exempt, LimitFrom, ManagedBy, Match, Mode, Moment, Plan, Rule, Slots, Window,
};
pub use pattern::Pattern;
pub use read::DEFAULT_ID;
pub use table::Table;
