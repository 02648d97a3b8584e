//! What proves a Tollgate backend: a conformance suite for any of them, yours included, and the
//! servers and faults to test it against.
//!
//! - [`conformance!`] gives one named test for each rule that a backend must keep: the traces with
//!   the right answer to every step, laws under random calls, races, odd keys, expiry.
//! - [`MapStore`] is a store to test wrappers on, [`Rng`] a generator that can be run again.

pub mod conformance;
mod map_store;
mod rng;

pub use map_store::MapStore;
pub use rng::Rng;
