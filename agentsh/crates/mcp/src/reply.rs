//! Messages that agentsh itself writes.

use crate::json::write_text;

pub const PARSE_ERROR: i32 = -32700;
pub const INVALID_REQUEST: i32 = -32600;
pub const INVALID_PARAMS: i32 = -32602;
pub const INTERNAL_ERROR: i32 = -32603;
/// Policy says no.
pub const REFUSED: i32 = -32001;
/// The server ended, or did not start.
pub const SERVER_ENDED: i32 = -32002;
/// The server's answer cannot be forwarded.
pub const BAD_ANSWER: i32 = -32003;
pub const TIMED_OUT: i32 = -32004;
/// Decisions cannot be recorded any more.
pub const STORE_FAILED: i32 = -32005;
pub const TOO_MANY_REQUESTS: i32 = -32006;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    pub code: i32,
    /// Without the prefix `agentsh: `.
    pub message: String,
    /// Stable code.
    pub reason: &'static str,
    /// The rule for people.
    pub rule: Option<String>,
}

/// For a server whose client has closed its input.
pub fn client_ended() -> ErrorReply {
    let message = "the client closed its input and cannot answer".to_owned();
    ErrorReply { code: BAD_ANSWER, message, reason: "client-ended", rule: None }
}

/// Appends a response; `id` is JSON text, None is `null`.
pub fn write_error(out: &mut Vec<u8>, id: Option<&str>, error: &ErrorReply) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.unwrap_or("null").as_bytes());
    out.extend_from_slice(format!(",\"error\":{{\"code\":{},\"message\":", error.code).as_bytes());
    write_text(&format!("agentsh: {}", error.message), out);
    out.extend_from_slice(b",\"data\":{\"reason\":");
    write_text(error.reason, out);
    if let Some(rule) = &error.rule {
        out.extend_from_slice(b",\"rule\":");
        write_text(rule, out);
    }
    out.extend_from_slice(b"}}}");
}

/// Appends `notifications/cancelled`; `id` is JSON text.
pub fn write_cancelled(out: &mut Vec<u8>, id: &str, reason: &str) {
    out.extend_from_slice(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":",
    );
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b",\"reason\":");
    write_text(&format!("agentsh: {reason}"), out);
    out.extend_from_slice(b"}}");
}
