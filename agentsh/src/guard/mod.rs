//! The decision engine: pure. No input or output, no clock, no runtime; time comes in as a parameter.

pub mod destination;
pub mod interface;
pub mod rate;
pub mod server_policy;
pub mod text;
pub mod tool_policy;
pub mod verdict;

mod engine;

pub use engine::Guard;
pub use verdict::{Outcome, Reason, Verdict};
