//! Finds the tool of a `tools/call`.

use std::borrow::Cow;

use crate::json::{Json, folds_to, has_lone_surrogate, unescape};
use crate::store::{Event, Recorder};

use super::connection::{Connection, Side};
use super::jsonrpc::Id;
use super::record::RecordSubject;
use super::reply::{self, ErrorReply};

/// Longest name of a tool, in bytes.
pub(super) const MAX_TOOL_NAME: usize = 1024;

impl<R: Recorder> Connection<R> {
    /// Finds the tool of a call, and records the call.
    ///
    /// # Errors
    /// The error for the client if the tool is ambiguous.
    pub(super) async fn identify_call(
        &mut self,
        bytes: usize,
        id: &Id,
        params: Option<&Json<'_>>,
    ) -> Result<RecordSubject, ErrorReply> {
        let tool = match tool_name(params) {
            Ok(tool) => tool,
            Err(detail) => return Err(self.unidentified(bytes, detail).await),
        };
        let arguments = params.and_then(|params| params.member("arguments"));
        self.record.record(Event::McpToolCalled {
            server_id: self.options.server.clone(),
            tool_name: tool.to_string(),
            jsonrpc_id: id.to_value(),
            input: (self.options.redact.0)(arguments.unwrap_or(&Json::Null)),
        });
        Ok(RecordSubject::Call { hash: self.tools.get(&*tool).cloned(), tool: tool.into() })
    }

    async fn unidentified(&self, bytes: usize, detail: &'static str) -> ErrorReply {
        self.commit(Event::McpMessageRejected {
            server_id: self.options.server.clone(),
            from: Side::Client.sender(),
            reason: "invalid-params".to_owned(),
            detail: detail.to_owned(),
            bytes: bytes as u64,
        })
        .await;
        ErrorReply {
            code: reply::INVALID_PARAMS,
            message: format!("the call was not forwarded: {detail}"),
            reason: "invalid-params",
            rule: None,
        }
    }
}

/// The tool that every parser would call.
pub(super) fn tool_name<'a>(params: Option<&Json<'a>>) -> Result<Cow<'a, str>, &'static str> {
    let members =
        params.and_then(Json::as_object).ok_or("`tools/call` needs `params` with the `name` of a tool")?;
    if members.iter().any(|(raw, _)| looks_like_name(raw)) {
        return Err("a member of `params` differs from `name` or `arguments` only in upper and lower case");
    }
    match params.and_then(|params| params.member("name")) {
        Some(Json::String(raw)) if raw.len() > MAX_TOOL_NAME => {
            Err("a tool's name must have at most 1024 bytes")
        }
        Some(Json::String(raw)) if has_lone_surrogate(raw) => Err("the tool's name is not Unicode text"),
        Some(Json::String(raw)) => Ok(unescape(raw)),
        _ => Err("`params.name` must be a string"),
    }
}

/// A member that case-insensitive parsers take for `name`.
pub(super) fn looks_like_name(raw: &str) -> bool {
    let name = unescape(raw);
    ["name", "arguments"].iter().any(|reserved| name != *reserved && folds_to(&name, reserved))
}
