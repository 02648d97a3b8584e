//! The backend against real servers, and against servers and networks that misbehave.

mod conformance;
