//! The channel between an agent and its model, as text: which request is which ([`route`]), what the model wants to call
//! and what it says ([`Answer`], [`Stream`]), and whether it gives away its instructions ([`canary`]).
//!
//! A tool call is judged before the agent sees it; one that is refused becomes a text. Everything else keeps its bytes.
//! Pure: no clock, no input, no output, no runtime.

mod answer;
pub mod canary;
mod dialect;
mod engine;
pub mod hosted;
pub mod kept;
mod mark;
pub mod own;
pub mod request;
pub mod route;
pub mod sse;
mod turn;
mod usage;

pub use agentsh_base::json;
pub use answer::Answer;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

pub use engine::{EngineEvent, Judge, Ruling, Stream};
pub use mark::marked;
pub use route::{Later, Provider, Route, route};
pub use turn::{Conversation, Turns};
pub use usage::Usage;

/// JSON may be nested this deep: schemas of tools are.
pub const MAX_DEPTH: usize = 512;
/// Bytes of one event, and of everything that is held until a call is complete.
pub const MAX_HELD: usize = 16 << 20;

/// A call of a tool that a model asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// As the provider numbers it; the call on the wire that follows does not have it.
    pub id: String,
    /// The server's part of the name, where the provider keeps it apart.
    pub namespace: Option<String>,
    pub name: String,
    /// JSON as it came; empty where there are none.
    pub arguments: String,
    /// The provider calls it itself, and not the agent.
    pub at_provider: bool,
}

/// Why a question or an answer cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    #[error("not strict JSON: {0}")]
    Json(#[from] json::JsonError),
    #[error("not in the shape of its API: {0}")]
    Shape(&'static str),
    #[error("longer than {MAX_HELD} bytes without a complete tool call")]
    TooMuch,
}

/// Why a call cannot be judged, and is not run.
pub(crate) const NO_NAME: &str = "the call has no name";
pub(crate) const INCOMPLETE_ARGUMENTS: &str = "the arguments are no complete JSON";

/// What stands in the place of a refused call.
#[must_use]
pub fn refusal(name: &str, reason: &str) -> String {
    // No rule spoke about these: the model's answer ended too early, at its limit of tokens for instance.
    if [NO_NAME, INCOMPLETE_ARGUMENTS].contains(&reason) {
        return format!("[agentsh] the call of tool '{name}' came damaged and was not run: {reason}");
    }
    format!("[agentsh] Tool '{name}' blocked by policy: {reason}")
}
