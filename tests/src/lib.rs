//! Tests of Tollgate as a whole, over the facade and against real servers: `tests/all`.
//!
//! One binary, one module a concern. A fault of `docs/faults.md` or a line of `docs/contracts.md`
//! is in the name of the test that shows it (`b15_..`, `s27_..`); `tests/all/coverage.rs` checks
//! that none is lost. The program is not tested here: its own crate does that, where cargo says
//! where the binary is.

/// The examples of the project's own pages, which are compiled and run like any other.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// See [`Readme`].
#[cfg(doctest)]
#[doc = include_str!("../../docs/algorithms.md")]
pub struct Algorithms;

/// See [`Readme`].
#[cfg(doctest)]
#[doc = include_str!("../../crates/limiter/README.md")]
pub struct LibraryReadme;

/// See [`Readme`].
#[cfg(doctest)]
#[doc = include_str!("../../docs/library.md")]
pub struct Library;

/// See [`Readme`].
#[cfg(doctest)]
#[doc = include_str!("../../docs/backends.md")]
pub struct Backends;
