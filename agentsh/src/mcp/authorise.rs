//! `tools/call`: which tool is it, may it be called, and what goes on record.

use std::borrow::Cow;

use crate::guard::{Exfiltration, Outcome, Verdict};
use crate::json::{Json, folds_to, has_lone_surrogate, unescape};
use crate::store::{Event, Recorder};

use super::connection::{Connection, Side};
use super::jsonrpc::Id;
use super::reply::{self, ErrorReply};

/// Longest name of a tool, in bytes.
pub(super) const MAX_TOOL_NAME: usize = 1024;

/// A call that nothing refused so far.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// What was found and not refused, as a clause.
    pub finding: Option<String>,
    /// The verdict on it, where somebody else has a word too: not on record yet.
    pub verdict: Option<Event>,
}

/// The verdict on a call as somebody else turned it round.
pub(super) fn overruled(mut event: Event, verdict: &Verdict) -> Event {
    if let Event::McpToolCallIntercepted { action, reason, rule, .. } = &mut event {
        verdict.outcome.as_str().clone_into(action);
        verdict.reason.code().clone_into(reason);
        rule.clone_from(&verdict.rule);
    }
    event
}

impl<R: Recorder> Connection<R> {
    /// Judges a call and records it. A refusal is on disk before this returns.
    ///
    /// # Errors
    /// The answer to the client when the call must not be forwarded.
    pub(super) async fn authorise_call(
        &mut self,
        bytes: usize,
        id: &Id,
        params: Option<&Json<'_>>,
    ) -> Result<Passed, ErrorReply> {
        let tool = match tool_name(params) {
            Ok(tool) => tool,
            Err(detail) => return Err(self.unidentified(bytes, detail).await),
        };
        let content = params.and_then(|params| params.member("arguments"));
        self.record.record(Event::McpToolCalled {
            server_id: self.options.server.clone(),
            tool_name: tool.to_string(),
            jsonrpc_id: id.to_value(),
            input: (self.options.redact)(content.unwrap_or(&Json::Null)),
        });
        let hash = self.tools.get(&*tool).cloned();
        let now = self.now();
        let verdict = self.guard.borrow_mut().judge_call(
            &self.options.server,
            &tool,
            hash.as_deref(),
            hash.is_some(),
            now,
        );
        let intercepted = |verdict: &Verdict| Event::McpToolCallIntercepted {
            server_id: self.options.server.clone(),
            tool_name: tool.to_string(),
            jsonrpc_id: id.to_value(),
            tool_hash: hash.clone(),
            action: verdict.outcome.as_str().to_owned(),
            reason: verdict.reason.code().to_owned(),
            rule: verdict.rule.clone(),
        };
        if verdict.is_block() {
            self.commit(intercepted(&verdict)).await;
            return Err(self.refusal(&tool, &verdict));
        }
        let found = self.find(&tool, content);
        // The last word on a call is what stands on record for it.
        let last = found.as_ref().map(|found| &found.verdict).filter(|last| last.outcome != Outcome::Allow);
        let last = last.unwrap_or(&verdict);
        let event = intercepted(last);
        let verdict = if last.is_block() || self.options.audit.is_none() {
            self.record.record(event);
            None
        } else {
            Some(event)
        };
        let finding = self.settle_any(id, &tool, found).await?;
        Ok(Passed { finding, verdict })
    }

    fn find(&self, tool: &str, arguments: Option<&Json<'_>>) -> Option<Exfiltration> {
        self.options.content.borrow_mut().judge_arguments(&self.options.server, tool, arguments, self.now())
    }

    /// What the arguments would carry out, if anything. `tool` is the method where no tool is called.
    ///
    /// # Errors
    /// The answer to the client when it must not be forwarded.
    pub async fn judge_content(
        &self,
        id: &Id,
        tool: &str,
        arguments: Option<&Json<'_>>,
    ) -> Result<Option<String>, ErrorReply> {
        self.settle_any(id, tool, self.find(tool, arguments)).await
    }

    async fn settle_any(
        &self,
        id: &Id,
        tool: &str,
        found: Option<Exfiltration>,
    ) -> Result<Option<String>, ErrorReply> {
        let Some(found) = found else { return Ok(None) };
        let what = found.what.clone();
        self.settle(id, tool, found).await.map(|()| Some(what))
    }

    /// What an answer to a request of the server would carry out.
    ///
    /// # Errors
    /// The answer to the server when the client's must not be forwarded.
    pub async fn judge_answer(&self, id: &Id, method: &str, result: &Json<'_>) -> Result<(), ErrorReply> {
        let server = &self.options.server;
        let found = self.options.content.borrow_mut().judge_answer(server, method, result, self.now());
        let Some(found) = found else { return Ok(()) };
        self.settle(id, method, found).await.map_err(|error| {
            // A server is not told what another one said.
            ErrorReply { message: "the client's answer was not forwarded".to_owned(), rule: None, ..error }
        })
    }

    /// Records what was found.
    ///
    /// # Errors
    /// The answer to the client when the call must not be forwarded.
    pub async fn settle(&self, id: &Id, tool: &str, found: Exfiltration) -> Result<(), ErrorReply> {
        let server = &self.options.server;
        let Exfiltration { verdict, detector, severity, source, destination, context, .. } = found;
        let (source_server, source_tool) = source.map(|source| (source.server, source.tool)).unzip();
        let event = Event::McpExfilDetected {
            server_id: server.clone(),
            tool_name: tool.to_owned(),
            jsonrpc_id: id.to_value(),
            detector,
            action: verdict.outcome.as_str().to_owned(),
            severity,
            reason: verdict.reason.code().to_owned(),
            rule: verdict.rule.clone(),
            source_server,
            source_tool,
            destination,
            context,
            pointer: found.pointer,
            decoded: found.decoded.into_iter().map(str::to_owned).collect(),
        };
        if verdict.is_block() {
            self.commit(event).await;
            let mut refusal = self.refusal(tool, &verdict);
            refusal.message = format!(
                "{} of server '{server}' refused by {}: {}; {}",
                if tool.contains('/') { format!("`{tool}`") } else { format!("tool '{tool}'") },
                verdict.rule,
                found.what,
                verdict.remedy()
            );
            return Err(refusal);
        }
        self.record.record(event);
        Ok(())
    }

    fn refusal(&self, tool: &str, verdict: &Verdict) -> ErrorReply {
        ErrorReply {
            code: reply::REFUSED,
            message: format!(
                "tool '{tool}' of server '{}' refused by {}; {}",
                self.options.server,
                verdict.rule,
                verdict.remedy()
            ),
            reason: verdict.reason.code(),
            rule: Some(verdict.rule.to_string()),
        }
    }

    async fn unidentified(&self, bytes: usize, detail: &'static str) -> ErrorReply {
        self.commit(Event::McpMessageRejected {
            server_id: self.options.server.clone(),
            from: Side::Client.as_str().to_owned(),
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

/// The one tool that every parser would call.
fn tool_name<'a>(params: Option<&Json<'a>>) -> Result<Cow<'a, str>, &'static str> {
    let members =
        params.and_then(Json::as_object).ok_or("`tools/call` needs `params` with the `name` of a tool")?;
    if members.iter().any(|(raw, _)| looks_like_name(raw)) {
        return Err("a member of `params` differs from `name` or `arguments` only in upper and lower case");
    }
    match params.and_then(|params| params.member("name")) {
        Some(Json::String(raw)) if raw.len() > MAX_TOOL_NAME => Err("a tool's name has at most 1024 bytes"),
        Some(Json::String(raw)) if has_lone_surrogate(raw) => Err("the tool's name is not Unicode text"),
        Some(Json::String(raw)) => Ok(unescape(raw)),
        _ => Err("`params.name` must be a string"),
    }
}

/// A name that is not `name`, but that a parser which ignores case would take for it.
pub(super) fn looks_like_name(raw: &str) -> bool {
    let name = unescape(raw);
    ["name", "arguments"].iter().any(|reserved| name != *reserved && folds_to(&name, reserved))
}
