//! Records decisions. A refusal is on disk before its side gets it.

use serde_json::Value;

use crate::guard::{self, Decision, Finding, Outcome, Refusal, Verdict};
use crate::store::words::{Action, AuditVerdict, Severity};
use crate::store::{Event, Recorder, redact};
use crate::types::ServerId;

use super::connection::Connection;
use super::jsonrpc::Id;
use super::reply::{self, ErrorReply};

/// The subject of a decision, for the record.
#[derive(Clone, Debug)]
pub(super) enum RecordSubject {
    Call {
        tool: Box<str>,
        hash: Option<String>,
    },
    /// Another request, or an answer of the client.
    Request {
        method: Box<str>,
    },
    /// The result of a call or another request.
    Result {
        tool: Box<str>,
    },
}

impl RecordSubject {
    /// The tool or the method.
    pub fn name(&self) -> &str {
        match self {
            Self::Call { tool, .. } | Self::Result { tool } => tool,
            Self::Request { method } => method,
        }
    }
}

/// The answer about a call.
pub(super) struct AuditorAnswer {
    pub word: AuditVerdict,
    /// Who; None: all.
    pub by: Option<String>,
    /// Its effect alone.
    pub outcome: Outcome,
    pub after_ms: u64,
}

impl<R: Recorder> Connection<R> {
    /// Records a decision: verdict, answers and findings.
    ///
    /// # Errors
    /// The error for the sender, if it must not be forwarded.
    pub async fn record_decision(
        &self,
        id: &Id,
        judged: &RecordSubject,
        decision: &Decision,
        word: Option<AuditorAnswer>,
    ) -> Result<(), ErrorReply> {
        let mut events = Vec::new();
        let jsonrpc_id = id.to_value();
        if let RecordSubject::Call { tool, hash } = judged {
            let server = &self.options.server;
            events.push(intercepted(server, tool, &jsonrpc_id, hash.clone(), &decision.verdict));
        }
        if let Some(word) = word {
            events.push(Event::McpToolCallAudited {
                server_id: self.options.server.clone(),
                tool_name: judged.name().to_owned(),
                jsonrpc_id: jsonrpc_id.clone(),
                verdict: word.word,
                by: word.by,
                action: action(word.outcome),
                after_ms: word.after_ms,
            });
        }
        let found = decision
            .findings
            .iter()
            .map(|found| finding(&self.options.server, judged.name(), &jsonrpc_id, found));
        events.extend(found);
        if !decision.is_block() {
            events.into_iter().for_each(|event| self.record.record(event));
            return Ok(());
        }
        let last = events.pop();
        events.into_iter().for_each(|event| self.record.record(event));
        if let Some(last) = last {
            self.commit(last).await;
        }
        let server = &self.options.server;
        let Refusal { message, reason, rule } = match judged {
            RecordSubject::Result { tool } => Refusal::of_result(server, tool, decision),
            _ => Refusal::of_call(server, judged.name(), decision),
        };
        Err(ErrorReply { code: reply::REFUSED, message, reason, rule: Some(rule) })
    }

    /// Records findings without an answer, such as in a definition.
    pub fn record_findings(&self, name: &str, jsonrpc_id: &Value, decision: &Decision) {
        for found in &decision.findings {
            self.record.record(finding(&self.options.server, name, jsonrpc_id, found));
        }
    }
}

/// The record of a call that a model requests, as of one on the wire.
#[must_use]
pub fn of_model_call(server: &ServerId, tool: &str, jsonrpc_id: &Value, decision: &Decision) -> Vec<Event> {
    let verdict = intercepted(server, tool, jsonrpc_id, None, &decision.verdict);
    let found = decision.findings.iter().map(|found| finding(server, tool, jsonrpc_id, found));
    std::iter::once(verdict).chain(found).collect()
}

fn intercepted(
    server: &ServerId,
    tool: &str,
    jsonrpc_id: &Value,
    tool_hash: Option<String>,
    verdict: &Verdict,
) -> Event {
    Event::McpToolCallIntercepted {
        server_id: server.clone(),
        tool_name: tool.to_owned(),
        jsonrpc_id: jsonrpc_id.clone(),
        tool_hash,
        action: action(verdict.outcome),
        reason: verdict.reason.code().to_owned(),
        rule: verdict.rule.clone(),
    }
}

fn finding(server: &ServerId, name: &str, jsonrpc_id: &Value, found: &Finding) -> Event {
    let other = found.source.as_ref().filter(|source| source.server != *server);
    if let Some(category) = &found.category {
        return Event::McpContentDetected {
            server_id: server.clone(),
            tool_name: name.to_owned(),
            jsonrpc_id: jsonrpc_id.clone(),
            category: category.clone(),
            detector: found.detector.clone(),
            action: action(found.verdict.outcome),
            severity: severity(found.severity),
            reason: found.verdict.reason.code().to_owned(),
            rule: found.verdict.rule.clone(),
            pointer: redact::redact_text(&found.pointer),
            context: found.context.clone(),
            description: found.description.clone(),
            other_server: other.map(|other| other.server.clone()),
            other_tool: other.map(|other| other.tool.clone()).filter(|tool| !tool.is_empty()),
        };
    }
    let source = found.source.as_ref();
    Event::McpExfilDetected {
        server_id: server.clone(),
        tool_name: name.to_owned(),
        jsonrpc_id: jsonrpc_id.clone(),
        detector: found.detector.clone(),
        action: action(found.verdict.outcome),
        severity: severity(found.severity),
        reason: found.verdict.reason.code().to_owned(),
        rule: found.verdict.rule.clone(),
        source_server: source.map(|source| source.server.clone()),
        source_tool: source.map(|source| source.tool.clone()),
        destination: found.destination.clone(),
        context: found.context.clone(),
        pointer: redact::redact_text(&found.pointer),
        decoded: found.decoded.iter().map(|step| (*step).to_owned()).collect(),
        detail: found.what.clone(),
    }
}

#[must_use]
pub fn action(outcome: Outcome) -> Action {
    match outcome {
        Outcome::Allow => Action::Allow,
        Outcome::Alert => Action::Alert,
        Outcome::Rewrite => Action::Rewrite,
        Outcome::Ask => Action::Ask,
        Outcome::Block => Action::Block,
    }
}

/// How bad a finding is, as the record has it.
#[must_use]
pub fn severity(severity: guard::Severity) -> Severity {
    match severity {
        guard::Severity::Low => Severity::Low,
        guard::Severity::Medium => Severity::Medium,
        guard::Severity::High => Severity::High,
        guard::Severity::Critical => Severity::Critical,
    }
}
