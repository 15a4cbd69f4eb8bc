//! The decision engine: pure. No input or output, no clock, no runtime; time comes in as a parameter.

pub(crate) mod ascii;
pub mod content;
pub mod destination;
pub mod flow;
pub mod interface;
pub mod rate;
pub mod secrets;
pub mod server_policy;
pub mod taint;
pub mod text;
pub(crate) mod threads;
pub mod tool_policy;
pub mod verdict;

mod engine;

pub use content::{ContentGuard, Exfiltration, NotConfigured, Rewrite};
pub use engine::Guard;
pub use verdict::{Outcome, Reason, Verdict};
