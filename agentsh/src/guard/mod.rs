//! The decision engine: pure. No input or output, no clock, no runtime; time comes in as a parameter.

pub mod verdict;

pub use verdict::{Outcome, Reason, Verdict};
