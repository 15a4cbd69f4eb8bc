//! The connection between an agent and its model, as text: the API of a request ([`route`]), tool calls and texts of an
//! answer ([`Answer`], [`Stream`]), leaks of instructions ([`canary`]).
//!
//! A tool call is judged before the agent sees it, and replaced by a text if it is refused. Everything else keeps its
//! bytes. Pure.

pub mod agent_tool_results;
mod answer;
mod arguments;
pub mod batch_results;
pub mod canary;
mod dialect;
mod engine;
pub mod hosted;
pub mod request;
pub mod route;
pub mod sse;
mod system_prompt;
mod turn;
mod usage;

pub use agentsh_base::json;
pub use answer::Answer;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

pub use engine::{EngineEvent, Judge, Ruling, Stream};
pub use route::{Provider, Route, StoredData, route};
pub use system_prompt::append_sentence;
pub use turn::{Conversation, Turns};
pub use usage::Usage;

/// Nesting limit of JSON: tool schemas are deep.
pub const MAX_DEPTH: usize = 512;
/// Limit of one event, and of everything held for an incomplete call, in bytes.
pub const MAX_HELD: usize = 16 << 20;

/// A tool call of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The provider's id; the following MCP call does not have it.
    pub id: String,
    /// The server's part of the name, if separate.
    pub namespace: Option<String>,
    pub name: String,
    /// JSON as received; empty if none.
    pub arguments: String,
    /// The provider runs it, not the agent.
    pub at_provider: bool,
}

/// Why a question or answer cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    #[error("not strict JSON: {0}")]
    Json(#[from] json::JsonError),
    #[error("not in the shape of its API: {0}")]
    Shape(&'static str),
    #[error("longer than {MAX_HELD} bytes without a complete tool call")]
    TooMuch,
    #[error(
        "ambiguous: calls in two choices that the request did not ask for (`n`), which some clients join"
    )]
    Choices,
}

/// Why a call cannot be judged, so it is not run.
pub(crate) const NO_NAME: &str = "the call has no name";
pub(crate) const INCOMPLETE_ARGUMENTS: &str = "the arguments are no complete JSON";
pub(crate) const TOKEN_LIMIT: &str = "the answer was cut at its token limit";

/// The text that replaces a refused call.
#[must_use]
pub fn refusal(name: &str, reason: &str) -> String {
    // No rule refused these.
    if [NO_NAME, INCOMPLETE_ARGUMENTS, TOKEN_LIMIT].contains(&reason) {
        return format!("[agentsh] the call of tool '{name}' came damaged and was not run: {reason}");
    }
    format!("[agentsh] Tool '{name}' blocked by policy: {reason}")
}
