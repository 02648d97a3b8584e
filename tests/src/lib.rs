//! Integration tests of Tollgate, one binary a concern, in `tests/`. Here are the examples of the
//! project's own pages, which are compiled and run like any other.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/algorithms.md")]
pub struct Algorithms;

#[cfg(doctest)]
#[doc = include_str!("../../crates/limiter/README.md")]
pub struct LibraryReadme;
