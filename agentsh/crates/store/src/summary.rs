//! Summary of one session, added up event by event. Pure: the same for a running session and a recorded one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::record::{Record, text_of};
use super::words::{
    Action, ConnectionState, ForgotReason, GuardChange, LayerState, ReplacedReason, Sender, Severity,
};
use super::{Event, escape};
use crate::types::{RuleRef, ServerId, SessionId};

mod rows;

use rows::MAX_ENTRIES;
pub use rows::{
    AdvisoryRow, Answers, Bundle, Connections, Crashes, Entries, FlowRow, Forgotten, Layer, Mismatch,
    Process, Refusal, RefusedConnection, RefusedInside, Rejected, RemovedVariables, Timeouts, ToolCalls,
    Unclassified, Undelivered, Withheld,
};

/// Longest text taken over from an event, in characters.
const MAX_TEXT: usize = 300;

/// For a rule about a name: the refusal came before the program could say which port it wants.
pub const PORTS_UNKNOWN: &str = " (for ports 443 and 80; add `:PORT` for another port)";

/// Maximum number of different details of one kind of rejected messages.
const MAX_DETAILS: usize = 5;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub session: SessionId,
    pub started_at: Option<String>,
    /// Time of the last event.
    pub last_at: Option<String>,
    /// `ended`, or `open` for a session that runs or was killed.
    pub state: &'static str,
    pub exit_code: Option<u8>,
    pub duration_ms: Option<u64>,
    pub verb: Option<String>,
    pub version: Option<String>,
    pub agent: Vec<String>,
    pub project: Option<String>,
    pub policy: Option<String>,
    pub kernel: Option<String>,
    pub uid: Option<u32>,
    pub events: u64,
    /// Events of types that this version does not know.
    pub unknown_events: u64,
    pub processes: Entries<(Option<ServerId>, String), Process>,
    pub tools: Entries<(ServerId, String), ToolCalls>,
    pub refused: Entries<(ServerId, String, String, String), Refusal>,
    /// Layers that are not in force as asked.
    pub not_enforced: Entries<(Option<ServerId>, String), Layer>,
    pub rejected_messages: Entries<(ServerId, Sender, String), Rejected>,
    pub mismatches: Entries<ServerId, Mismatch>,
    pub crashes: Entries<ServerId, Crashes>,
    pub timeouts: Entries<(ServerId, String), Timeouts>,
    pub undelivered: Entries<ServerId, Undelivered>,
    pub env_stripped: Entries<Option<ServerId>, RemovedVariables>,
    pub connections: Entries<(Option<ServerId>, String, u16), Connections>,
    pub refused_connections: Entries<(Option<ServerId>, String, u16, String), RefusedConnection>,
    pub refused_files: Entries<(Option<ServerId>, String, String), RefusedInside>,
    pub refused_calls: Entries<(Option<ServerId>, String, String), RefusedInside>,
    /// Guarded files whose change was refused, with the message.
    #[serde(skip)]
    pub kept_files: BTreeMap<String, String>,
    pub advisories: Entries<(ServerId, String, String), AdvisoryRow>,
    pub unclassified: Entries<(ServerId, Action), Unclassified>,
    /// Findings in arguments.
    pub flows: Entries<(Option<ServerId>, ServerId, Option<String>), FlowRow>,
    /// Numbers of findings in servers' messages by severity, the worst first.
    pub detections: BTreeMap<std::cmp::Reverse<Severity>, u64>,
    /// Results of which copies may not be found, by server.
    pub forgotten: Entries<(Option<ServerId>, ForgotReason), Forgotten>,
    /// The use of models, as the channel counted it.
    pub models: Entries<String, Answers>,
    pub withheld: Entries<String, Withheld>,
    /// Signed policies of an organisation.
    pub bundles: Entries<String, Bundle>,
    /// Entries that found no room in the lists above.
    pub not_listed: u64,
    /// The id of the last message that was refused: it may have several findings.
    #[serde(skip)]
    last_refused: Option<(ServerId, Value)>,
}

impl Summary {
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self { session, state: "open", ..Self::default() }
    }

    /// Records of other sessions are passed over.
    pub(crate) fn add_record(&mut self, record: &Record) {
        if record.session != self.session {
            return;
        }
        match &record.event {
            Some(event) => self.add(record.time, event),
            None => {
                self.note(record.time);
                self.unknown_events += 1;
            }
        }
    }

    /// Adds one event, at constant cost.
    pub fn add(&mut self, time: Timestamp, event: &Event) {
        self.note(time);
        self.add_lifecycle(event);
        self.add_message(event);
        self.add_connection(event);
        self.add_signal(event);
        self.add_refused_inside(event);
    }

    fn note(&mut self, time: Timestamp) {
        self.events += 1;
        self.last_at = Some(text_of(time));
        if self.started_at.is_none() {
            self.started_at.clone_from(&self.last_at);
        }
    }

    fn add_lifecycle(&mut self, event: &Event) {
        let lost = &mut self.not_listed;
        match event {
            Event::SessionStarted { version, verb, agent, project, policy, kernel, uid, .. } => {
                self.version = Some(clip(version));
                self.verb = Some(clip(verb));
                self.agent = agent.iter().take(64).map(|part| clip(part)).collect();
                self.project = Some(clip(project));
                self.policy = Some(clip(policy));
                self.kernel = Some(clip(kernel));
                self.uid = Some(*uid);
            }
            Event::SessionEnded { exit_code, duration_ms, .. } => {
                self.state = "ended";
                self.exit_code = Some(*exit_code);
                self.duration_ms = Some(*duration_ms);
            }
            Event::Enforcement { server_id, layer, asked, got, state, why }
                if *state != LayerState::Enforced =>
            {
                let key = (server_id.clone(), clip(layer));
                self.not_enforced.put(key, lost, || Layer {
                    server_id: server_id.clone(),
                    layer: clip(layer),
                    asked: clip(asked),
                    got: clip(got),
                    state: *state,
                    why: clip(why),
                });
            }
            Event::ProcessStarted { server_id, program, hash, .. } => {
                let process = self.processes.put((server_id.clone(), clip(program)), lost, || Process {
                    server_id: server_id.clone(),
                    program: clip(program),
                    hash: clip(hash),
                    ..Process::default()
                });
                if let Some(process) = process {
                    process.starts += 1;
                    process.hash = clip(hash);
                }
            }
            Event::ProcessExited { server_id, exit_code, cause } => {
                // The event does not say which program: a server has one at a time.
                for process in self.processes.values_mut().filter(|process| process.server_id == *server_id) {
                    process.last_exit_code = Some(*exit_code);
                    process.last_cause = Some(*cause);
                }
            }
            Event::McpServerEnvFiltered { server_id, stripped_vars, .. } if !stripped_vars.is_empty() => {
                let entry = self.env_stripped.put(server_id.clone(), lost, || RemovedVariables {
                    server_id: server_id.clone(),
                    names: BTreeSet::new(),
                });
                if let Some(entry) = entry {
                    let room = MAX_ENTRIES.saturating_sub(entry.names.len());
                    entry.names.extend(stripped_vars.iter().take(room).map(|name| clip(name)));
                }
            }
            Event::McpServerBinaryMismatch {
                server_id,
                binary_path,
                expected_hash,
                actual_hash,
                action,
                changed,
            } => {
                self.mismatches.put(server_id.clone(), lost, || Mismatch {
                    server_id: server_id.clone(),
                    binary_path: clip(binary_path),
                    expected_hash: clip(expected_hash),
                    actual_hash: clip(actual_hash),
                    action: *action,
                    changed: changed.iter().take(20).map(|path| clip(path)).collect(),
                });
            }
            Event::McpServerCrashed { server_id, exit_code, pending_calls, .. } => {
                let entry = self.crashes.put(server_id.clone(), lost, || Crashes {
                    server_id: server_id.clone(),
                    ..Crashes::default()
                });
                if let Some(entry) = entry {
                    entry.count += 1;
                    entry.last_exit_code = *exit_code;
                    entry.pending_calls += pending_calls;
                }
            }
            _ => {}
        }
    }

    fn add_message(&mut self, event: &Event) {
        let lost = &mut self.not_listed;
        match event {
            Event::McpToolCallIntercepted {
                server_id, tool_name, jsonrpc_id, action, reason, rule, ..
            } => {
                let entry = self.tools.put((server_id.clone(), clip(tool_name)), lost, || ToolCalls {
                    server_id: server_id.clone(),
                    tool_name: clip(tool_name),
                    ..ToolCalls::default()
                });
                if let Some(entry) = entry {
                    match action {
                        Action::Allow | Action::Rewrite => entry.allowed += 1,
                        Action::Alert => entry.alerted += 1,
                        Action::Ask | Action::Block => entry.blocked += 1,
                    }
                }
                if matches!(action, Action::Ask | Action::Block) {
                    self.last_refused = Some((server_id.clone(), jsonrpc_id.clone()));
                    self.add_refusal("call", server_id, Some(tool_name), reason, None, rule);
                }
            }
            Event::McpServerRefused { server_id, reason, detail, rule } => {
                self.add_refusal("server", server_id, None, reason, Some(detail), rule);
            }
            Event::McpMessageRejected { server_id, from, reason, detail, .. } => {
                let key = (server_id.clone(), *from, clip(reason));
                let entry = self.rejected_messages.put(key, lost, || Rejected {
                    server_id: server_id.clone(),
                    from: *from,
                    reason: clip(reason),
                    detail: String::new(),
                    count: 0,
                    details: BTreeMap::new(),
                });
                if let Some(entry) = entry {
                    entry.count += 1;
                    entry.detail = clip(detail);
                    if entry.details.len() < MAX_DETAILS || entry.details.contains_key(&entry.detail) {
                        *entry.details.entry(entry.detail.clone()).or_default() += 1;
                    }
                }
            }
            Event::McpContentDetected {
                server_id,
                tool_name,
                jsonrpc_id,
                category,
                action,
                severity,
                reason,
                rule,
                ..
            } if category != "removed" => {
                *self.detections.entry(std::cmp::Reverse(*severity)).or_default() += 1;
                let message = Some((server_id.clone(), jsonrpc_id.clone()));
                if *action == Action::Block && !jsonrpc_id.is_null() && self.last_refused != message {
                    self.last_refused = message;
                    self.add_refusal("message", server_id, Some(tool_name), reason, None, rule);
                }
            }
            Event::McpResultsForgotten { server_id, reason, results, detail } => {
                let key = (server_id.clone(), *reason);
                let entry = self.forgotten.put(key, lost, || Forgotten {
                    server_id: server_id.clone(),
                    reason: *reason,
                    results: 0,
                    detail: String::new(),
                });
                if let Some(entry) = entry {
                    entry.results += results;
                    entry.detail = clip(detail);
                }
            }
            Event::McpExfilDetected {
                server_id,
                source_server,
                destination,
                action,
                detector,
                detail,
                ..
            } => {
                // A finding in a call to a server names that server as its destination.
                let host = destination.as_deref().filter(|_| source_server.is_none()).map(clip);
                let key = (source_server.clone(), server_id.clone(), host.clone());
                let entry = self.flows.put(key, lost, || FlowRow {
                    from: source_server.clone(),
                    to: server_id.clone(),
                    host,
                    ..FlowRow::default()
                });
                if let Some(entry) = entry {
                    entry.detail = clip(detail);
                    match detector.as_str() {
                        _ if source_server.is_none() => {}
                        "label-flow" | "closed-pair" => entry.without_copy += 1,
                        _ => entry.copies += 1,
                    }
                    match action {
                        Action::Ask | Action::Block => entry.refused += 1,
                        _ => entry.passed += 1,
                    }
                }
            }
            Event::McpServerUnavailable { server_id, tool_name: Some(tool_name), detail, .. } => {
                if let Some(calls) = self.tools.find(&(server_id.clone(), clip(tool_name))) {
                    calls.undelivered += 1;
                }
                let entry = self.undelivered.put(server_id.clone(), lost, || Undelivered {
                    server_id: server_id.clone(),
                    ..Undelivered::default()
                });
                if let Some(entry) = entry {
                    entry.calls += 1;
                    entry.detail = clip(detail);
                }
            }
            Event::McpRequestTimedOut { server_id, method, .. } => {
                let entry = self.timeouts.put((server_id.clone(), clip(method)), lost, || Timeouts {
                    server_id: server_id.clone(),
                    method: clip(method),
                    count: 0,
                });
                if let Some(entry) = entry {
                    entry.count += 1;
                }
            }
            _ => {}
        }
    }

    /// Adds a signal from outside.
    fn add_signal(&mut self, event: &Event) {
        let lost = &mut self.not_listed;
        match event {
            Event::McpAdvisory { server_id, kind, id, subject, severity, summary, fixed, action, rule } => {
                self.advisories.put((server_id.clone(), clip(id), clip(subject)), lost, || AdvisoryRow {
                    server_id: server_id.clone(),
                    kind: *kind,
                    id: clip(id),
                    subject: clip(subject),
                    severity: *severity,
                    summary: clip(summary),
                    fixed: fixed.as_deref().map(clip),
                    action: *action,
                    rule: rule.clone(),
                });
            }
            Event::McpClassifierUnavailable { server_id, detail, action, .. } => {
                let entry = self.unclassified.put((server_id.clone(), *action), lost, || Unclassified {
                    server_id: server_id.clone(),
                    action: *action,
                    detail: String::new(),
                    count: 0,
                });
                if let Some(entry) = entry {
                    entry.count += 1;
                    entry.detail = clip(detail);
                }
            }
            Event::ModelCalled { model, input_tokens, output_tokens, cost_micro_usd, .. } => {
                let entry = self
                    .models
                    .put(clip(model), lost, || Answers { model: clip(model), ..Answers::default() });
                if let Some(entry) = entry {
                    let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
                    add(&mut entry.count, 1);
                    add(&mut entry.input_tokens, *input_tokens);
                    add(&mut entry.output_tokens, *output_tokens);
                    add(&mut entry.cost_micro_usd, cost_micro_usd.unwrap_or_default());
                    add(&mut entry.unpriced, u64::from(cost_micro_usd.is_none()));
                }
            }
            Event::ModelAnswerWithheld { reason, .. } => self.add_withheld(reason),
            Event::OutputMessageReplaced { reason_code: ReplacedReason::SystemPromptLeak, .. } => {
                self.add_withheld("the answer repeated the system prompt, and was replaced");
            }
            Event::PolicyBundle { name, version, state, detail } => {
                self.bundles.put(clip(name), lost, || Bundle {
                    name: clip(name),
                    version: *version,
                    state: *state,
                    detail: clip(detail),
                });
            }
            _ => {}
        }
    }

    fn add_withheld(&mut self, reason: &str) {
        let new = || Withheld { reason: clip(reason), count: 0 };
        if let Some(entry) = self.withheld.put(clip(reason), &mut self.not_listed, new) {
            entry.count += 1;
        }
    }

    /// Adds what the kernel refused to programs.
    fn add_refused_inside(&mut self, event: &Event) {
        let lost = &mut self.not_listed;
        match event {
            Event::FileRefused { server_id, path, access, rule, change } => {
                let key = (server_id.clone(), clip(path), clip(access));
                self.refused_files.put(key, lost, || RefusedInside {
                    server_id: server_id.clone(),
                    subject: clip(path),
                    access: clip(access),
                    detail: String::new(),
                    rule: rule.clone(),
                    change: change.as_deref().map(clip),
                });
            }
            Event::GuardChanged { path, what: GuardChange::Refused, detail, .. }
                if self.kept_files.len() < MAX_ENTRIES =>
            {
                self.kept_files.insert(clip(path), clip(detail));
            }
            Event::CallRefused { server_id, program, what, detail, rule } => {
                let key = (server_id.clone(), clip(program), clip(what));
                self.refused_calls.put(key, lost, || RefusedInside {
                    server_id: server_id.clone(),
                    subject: clip(program),
                    access: clip(what),
                    detail: clip(detail),
                    rule: rule.clone(),
                    change: None,
                });
            }
            _ => {}
        }
    }

    fn add_connection(&mut self, event: &Event) {
        let lost = &mut self.not_listed;
        match event {
            Event::McpNetworkConnection {
                server_id,
                name,
                address,
                port,
                protocol,
                state,
                detail,
                rule,
                bytes_sent,
                bytes_received,
                ..
            } => {
                let host = clip(name.as_ref().or(address.as_ref()).map_or("unknown", String::as_str));
                let entry =
                    self.connections.put((server_id.clone(), host.clone(), *port), lost, || Connections {
                        server_id: server_id.clone(),
                        host,
                        port: *port,
                        protocol: clip(protocol),
                        rule: rule.clone(),
                        closed: 0,
                        failed: 0,
                        detail: String::new(),
                        bytes_sent: 0,
                        bytes_received: 0,
                    });
                let Some(entry) = entry else { return };
                match state {
                    ConnectionState::Closed => {
                        entry.closed += 1;
                        entry.bytes_sent += bytes_sent;
                        entry.bytes_received += bytes_received;
                    }
                    ConnectionState::Failed => {
                        entry.failed += 1;
                        entry.detail = clip(detail);
                    }
                    ConnectionState::Open => {}
                }
            }
            Event::NetConnectBlocked {
                server_id,
                name,
                address,
                port,
                reason,
                detail,
                rule,
                change,
                count,
                ..
            } => {
                let host = name.as_ref().or(address.as_ref()).map_or("unknown", String::as_str);
                self.add_refused_connection(RefusedConnection {
                    server_id: server_id.clone(),
                    host: clip(host),
                    port: *port,
                    reason: clip(reason),
                    detail: clip(detail),
                    rule: rule.clone(),
                    change: change.as_deref().map(clip),
                    count: *count,
                });
            }
            Event::DnsBlocked { server_id, name, reason, rule, change, count, .. } => {
                self.add_refused_connection(RefusedConnection {
                    server_id: server_id.clone(),
                    host: clip(name),
                    port: 0,
                    reason: clip(reason),
                    detail: String::new(),
                    rule: rule.clone(),
                    change: change.as_deref().map(clip),
                    count: *count,
                });
            }
            _ => {}
        }
    }

    fn add_refused_connection(&mut self, new: RefusedConnection) {
        let key = (new.server_id.clone(), new.host.clone(), new.port, new.reason.clone());
        let (count, new) = (new.count, RefusedConnection { count: 0, ..new });
        if let Some(entry) = self.refused_connections.put(key, &mut self.not_listed, || new) {
            entry.count = entry.count.saturating_add(count);
        }
    }

    fn add_refusal(
        &mut self,
        what: &'static str,
        server_id: &ServerId,
        tool_name: Option<&str>,
        reason: &str,
        detail: Option<&str>,
        rule: &RuleRef,
    ) {
        let key =
            (server_id.clone(), tool_name.map(clip).unwrap_or_default(), clip(reason), rule.to_string());
        let entry = self.refused.put(key, &mut self.not_listed, || Refusal {
            what,
            server_id: server_id.clone(),
            tool_name: tool_name.map(clip),
            reason: clip(reason),
            detail: detail.map(clip),
            rule: rule.clone(),
            count: 0,
        });
        if let Some(entry) = entry {
            entry.count += 1;
        }
    }
}

fn clip(text: &str) -> String {
    escape::shorten(text, MAX_TEXT).into_owned()
}
