//! Traces: the session, with its processes, calls, connections and requests to the model. Names follow the semantic
//! conventions for MCP and generative AI where these have one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::parts::{Attributes, nanoseconds, root_id, span_id, trace_id};
use crate::entry::Entry;
use agentsh_base::types::SessionId;

const INTERNAL: u32 = 1;
const CLIENT: u32 = 3;
const ERROR: u32 = 2;

/// Calls and questions without an end so far. The oldest is dropped when there are too many.
const MAX_OPEN: usize = 1024;

struct OpenSpan {
    at: Timestamp,
    seq: u64,
}

/// Spans that have begun and not ended.
#[derive(Default)]
pub struct Spans {
    session: SessionId,
    started: Option<Timestamp>,
    root: Attributes,
    /// By server; the agent is the empty name.
    processes: BTreeMap<String, (OpenSpan, Attributes)>,
    /// By server and id of the request.
    calls: BTreeMap<(String, String), OpenSpan>,
    /// By their id.
    questions: BTreeMap<String, OpenSpan>,
}

/// One span that has ended.
struct Span<'a> {
    id: String,
    parent: String,
    name: String,
    kind: u32,
    from: Timestamp,
    to: Timestamp,
    attributes: Attributes,
    /// Stable code of what went wrong.
    error: Option<&'a str>,
}

impl Spans {
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self { session, ..Self::default() }
    }

    /// The spans that this event ends.
    pub fn add_entry(&mut self, entry: &Entry) -> Vec<Value> {
        match entry.kind.as_str() {
            "session_started" => {
                self.started = Some(entry.time);
                self.root = Attributes::default()
                    .text("agentsh.verb", entry.text_field("verb"))
                    .text("agentsh.policy", entry.text_field("policy"))
                    .text("agentsh.project", entry.text_field("project"));
                Vec::new()
            }
            "session_ended" => self.end(entry),
            "process_started" => {
                let attributes = Attributes::default()
                    .text("agentsh.server", entry.text_field("server_id"))
                    .text("process.executable.path", entry.text_field("program"))
                    .number("process.pid", entry.number("pid"));
                let begun = OpenSpan { at: entry.time, seq: entry.seq };
                let before = self.processes.insert(server(entry), (begun, attributes));
                // The last one ended without a word.
                before.into_iter().map(|process| self.process(process, entry.time, None, None)).collect()
            }
            "process_exited" => {
                let Some(process) = self.processes.remove(&server(entry)) else { return Vec::new() };
                let code = entry.number("exit_code");
                let failed = code != Some(0);
                let cause = entry.text_field("cause").filter(|_| failed);
                vec![self.process(process, entry.time, code, cause)]
            }
            "mcp_tool_called" => {
                let begun = OpenSpan { at: entry.time, seq: entry.seq };
                keep(&mut self.calls, (server(entry), request(entry)), begun);
                Vec::new()
            }
            "mcp_tool_call_intercepted" => vec![self.call(entry)],
            "mcp_tool_call_audited" => vec![self.audit(entry)],
            "approval_requested" => {
                if let Some(question) = entry.text_field("approval") {
                    keep(
                        &mut self.questions,
                        question.to_owned(),
                        OpenSpan { at: entry.time, seq: entry.seq },
                    );
                }
                Vec::new()
            }
            "approval_decided" => self.answer(entry).into_iter().collect(),
            "mcp_network_connection" if entry.text_field("state") != Some("open") => {
                vec![self.connection(entry)]
            }
            "net_connect_blocked" => vec![self.connection(entry)],
            "model_called" => vec![self.model(entry)],
            _ => Vec::new(),
        }
    }

    /// Everything ends with the session.
    fn end(&mut self, entry: &Entry) -> Vec<Value> {
        let processes = std::mem::take(&mut self.processes);
        let mut ended: Vec<Value> =
            processes.into_values().map(|process| self.process(process, entry.time, None, None)).collect();
        let code = entry.number("exit_code");
        let attributes = std::mem::take(&mut self.root);
        let span = Span {
            id: root_id(self.session),
            parent: String::new(),
            name: "agentsh session".to_owned(),
            kind: INTERNAL,
            from: self.started.unwrap_or_else(|| start_time(entry, "duration_ms")),
            to: entry.time,
            attributes: attributes.number("process.exit.code", code),
            error: None,
        };
        ended.push(self.span_json(span));
        ended
    }

    fn process(
        &self,
        (begun, attributes): (OpenSpan, Attributes),
        to: Timestamp,
        code: Option<u64>,
        error: Option<&str>,
    ) -> Value {
        self.span_json(Span {
            id: span_id(self.session, begun.seq),
            parent: root_id(self.session),
            name: "process".to_owned(),
            kind: INTERNAL,
            from: begun.at,
            to,
            attributes: attributes.number("process.exit.code", code),
            error,
        })
    }

    /// The span from the call until its verdict. Nothing after that is recorded as an event.
    fn call(&mut self, entry: &Entry) -> Value {
        let begun = self.calls.remove(&(server(entry), request(entry)));
        let (from, seq) = begun.map_or((entry.time, entry.seq), |begun| (begun.at, begun.seq));
        let tool = entry.text_field("tool_name").unwrap_or_default();
        let refused = entry.text_field("action") == Some("block");
        self.span_json(Span {
            id: span_id(self.session, seq),
            parent: self.parent(entry),
            name: format!("tools/call {tool}"),
            kind: CLIENT,
            from,
            to: entry.time,
            attributes: Attributes::default()
                .text("mcp.method.name", Some("tools/call"))
                .text("gen_ai.operation.name", Some("execute_tool"))
                .text("gen_ai.tool.name", Some(tool))
                .text("jsonrpc.request.id", Some(&request(entry)))
                .text("agentsh.server", entry.text_field("server_id"))
                .text("agentsh.action", entry.text_field("action"))
                .text("agentsh.reason", entry.text_field("reason"))
                .text("agentsh.rule", entry.rule().as_deref()),
            error: refused.then(|| entry.text_field("reason").unwrap_or("refused")),
        })
    }

    fn audit(&self, entry: &Entry) -> Value {
        let call = self.calls.get(&(server(entry), request(entry)));
        let parent = call.map_or_else(|| root_id(self.session), |call| span_id(self.session, call.seq));
        self.span_json(Span {
            id: span_id(self.session, entry.seq),
            parent,
            name: "audit".to_owned(),
            kind: CLIENT,
            from: start_time(entry, "after_ms"),
            to: entry.time,
            attributes: Attributes::default()
                .text("gen_ai.tool.name", entry.text_field("tool_name"))
                .text("agentsh.server", entry.text_field("server_id"))
                .text("agentsh.verdict", entry.text_field("verdict"))
                .text("agentsh.action", entry.text_field("action")),
            error: None,
        })
    }

    fn answer(&mut self, entry: &Entry) -> Option<Value> {
        let begun = self.questions.remove(entry.text_field("approval")?)?;
        Some(
            self.span_json(Span {
                id: span_id(self.session, begun.seq),
                parent: self.parent(entry),
                name: "approval".to_owned(),
                kind: INTERNAL,
                from: begun.at,
                to: entry.time,
                attributes: Attributes::default()
                    .text("gen_ai.tool.name", entry.text_field("name"))
                    .text("agentsh.server", entry.text_field("server_id"))
                    .text("agentsh.approval", entry.text_field("word")),
                error: None,
            }),
        )
    }

    fn connection(&self, entry: &Entry) -> Value {
        let refused = entry.kind == "net_connect_blocked";
        let failed = entry.text_field("state") == Some("failed");
        let address = entry.text_field("name").or_else(|| entry.text_field("address"));
        self.span_json(Span {
            id: span_id(self.session, entry.seq),
            parent: self.parent(entry),
            name: "connect".to_owned(),
            kind: CLIENT,
            from: start_time(entry, "duration_ms"),
            to: entry.time,
            attributes: Attributes::default()
                .text("server.address", address)
                .number("server.port", entry.number("port"))
                .text("network.peer.address", entry.text_field("address"))
                .text("agentsh.protocol", entry.text_field("protocol"))
                .text("agentsh.server", entry.text_field("server_id"))
                .text("agentsh.action", entry.text_field("action"))
                .text("agentsh.rule", entry.rule().as_deref())
                .number("process.pid", entry.number("pid"))
                .text("process.executable.name", entry.text_field("comm"))
                .number("agentsh.bytes_sent", entry.number("bytes_sent"))
                .number("agentsh.bytes_received", entry.number("bytes_received")),
            error: match (refused, failed) {
                (true, _) => Some(entry.text_field("reason").unwrap_or("refused")),
                (_, true) => Some("failed"),
                _ => None,
            },
        })
    }

    fn model(&self, entry: &Entry) -> Value {
        let model = entry.text_field("model").unwrap_or_default();
        let status = entry.number("status");
        let code = status.filter(|status| *status >= 400).map(|status| status.to_string());
        self.span_json(Span {
            id: span_id(self.session, entry.seq),
            parent: self.parent(entry),
            name: format!("chat {model}").trim_end().to_owned(),
            kind: CLIENT,
            from: start_time(entry, "total_ms"),
            to: entry.time,
            attributes: Attributes::default()
                .text("gen_ai.operation.name", Some("chat"))
                .text("gen_ai.provider.name", provider(entry))
                .text("gen_ai.request.model", entry.text_field("model"))
                .number("gen_ai.usage.input_tokens", entry.number("input_tokens"))
                .number("gen_ai.usage.output_tokens", entry.number("output_tokens"))
                .number("http.response.status_code", status)
                .number("agentsh.time_to_head_ms", entry.number("head_ms"))
                .number("agentsh.cost_micro_usd", entry.number("cost_micro_usd")),
            error: code.as_deref(),
        })
    }

    /// The process that it comes from or goes to, else the session.
    fn parent(&self, entry: &Entry) -> String {
        let process = self.processes.get(&server(entry));
        process.map_or_else(|| root_id(self.session), |(begun, _)| span_id(self.session, begun.seq))
    }

    fn span_json(&self, span: Span<'_>) -> Value {
        let session = self.session.to_string();
        let attributes = span.attributes.text("session.id", Some(&session)).text("error.type", span.error);
        let mut written = json!({
            "traceId": trace_id(self.session),
            "spanId": span.id,
            "name": span.name,
            "kind": span.kind,
            "startTimeUnixNano": nanoseconds(span.from.min(span.to)),
            "endTimeUnixNano": nanoseconds(span.to),
            "attributes": Value::from(attributes),
        });
        if !span.parent.is_empty() {
            written["parentSpanId"] = span.parent.into();
        }
        if let Some(error) = span.error {
            written["status"] = json!({ "code": ERROR, "message": error });
        }
        written
    }
}

/// The name that the semantic conventions have for the provider.
#[must_use]
pub fn provider(entry: &Entry) -> Option<&str> {
    match entry.text_field("provider")? {
        "openai-chat" | "openai-responses" => Some("openai"),
        "google" => Some("gcp.gen_ai"),
        other => Some(other),
    }
}

fn server(entry: &Entry) -> String {
    entry.text_field("server_id").unwrap_or_default().to_owned()
}

fn request(entry: &Entry) -> String {
    match entry.field("jsonrpc_id") {
        Some(Value::String(text)) => text.chars().take(128).collect(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// The event's time minus a duration field.
fn start_time(entry: &Entry, field: &str) -> Timestamp {
    let lasted = Duration::from_millis(entry.number(field).unwrap_or(0));
    entry.time.checked_sub(lasted).unwrap_or(entry.time)
}

fn keep<K: Ord + Clone>(open: &mut BTreeMap<K, OpenSpan>, key: K, begun: OpenSpan) {
    if open.len() >= MAX_OPEN {
        let oldest = open.iter().min_by_key(|(_, begun)| begun.seq).map(|(key, _)| key.clone());
        oldest.and_then(|key| open.remove(&key));
    }
    open.insert(key, begun);
}
