//! A store with known times, for tests.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use jiff::{Timestamp, ToSpan};
use serde_json::json;
use tempfile::TempDir;

use super::words::{Action, ExitCause, LayerState, Sender, ToolStatus};
use super::writer::{Pending, Writer};
use super::{Event, text_limits};
use crate::types::{RuleRef, ServerId, SessionId};

pub const START: &str = "2026-01-02T03:04:05.000006Z";

pub fn session(number: u128) -> SessionId {
    SessionId(uuid::Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0000 + number))
}

pub fn server(name: &str) -> ServerId {
    ServerId(name.to_owned())
}

/// Writes `events` one second apart from [`START`] on.
pub async fn write(state_dir: &std::path::Path, session: SessionId, events: Vec<Event>) {
    let bodies = events.iter().map(|event| text_limits::encode(event).unwrap()).collect();
    write_bodies(state_dir, session, bodies).await;
}

/// Like [`write`], also for events that no version of agentsh makes.
pub async fn write_bodies(state_dir: &std::path::Path, session: SessionId, bodies: Vec<String>) {
    let mut writer = Writer::open(state_dir, session).unwrap();
    let start: Timestamp = START.parse().unwrap();
    let batch = bodies.into_iter().zip(0_i64..).map(|(body, second)| Pending {
        time: start + second.seconds(),
        ends: body.contains("session_ended"),
        body,
    });
    writer.append(&batch.collect::<Vec<_>>(), true).unwrap();
    writer.close().unwrap();
}

/// Runs `statement` on a journal whose triggers are gone.
pub async fn tamper(state_dir: &std::path::Path, statement: &'static str) {
    let connection = super::database::open_writer(state_dir).unwrap();
    let unlock = "DROP TRIGGER events_no_update; DROP TRIGGER events_no_delete;";
    connection.execute_batch(unlock).unwrap();
    connection.execute_batch(statement).unwrap();
}

/// A directory with one whole session in it.
pub async fn one_session() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), session(1), events()).await;
    dir
}

pub fn called(tool: &str, id: u64) -> Event {
    Event::McpToolCalled {
        server_id: server("fs"),
        tool_name: tool.to_owned(),
        jsonrpc_id: json!(id),
        input: json!({"path": "/project/a.txt"}),
    }
}

pub fn verdict(tool: &str, id: u64, action: Action) -> Event {
    let (reason, rule) = match action {
        Action::Block => ("tool-denied", "sandbox.mcp.denied_tools[0]"),
        _ => ("tool-allowed", "sandbox.mcp.allowed_tools[0]"),
    };
    Event::McpToolCallIntercepted {
        server_id: server("fs"),
        tool_name: tool.to_owned(),
        jsonrpc_id: json!(id),
        tool_hash: Some("sha256:11".to_owned()),
        action,
        reason: reason.to_owned(),
        rule: RuleRef { id: rule.to_owned(), file: "policy.yaml".to_owned(), line: 12 },
    }
}

/// A session in which something of every kind happens.
pub fn events() -> Vec<Event> {
    let fs = || server("fs");
    vec![
        Event::SessionStarted {
            version: "0.1.0".to_owned(),
            verb: "run".to_owned(),
            agent: vec!["claude".to_owned(), "-p".to_owned()],
            project: "/project".to_owned(),
            policy: "built-in:claude".to_owned(),
            kernel: "6.12.0".to_owned(),
            uid: 1000,
            network_programs: None,
            policy_layers: Vec::new(),
            head: None,
        },
        Event::Enforcement {
            server_id: Some(fs()),
            layer: "cgroup".to_owned(),
            asked: "memory 1 GiB".to_owned(),
            got: "rlimit".to_owned(),
            state: LayerState::Degraded,
            why: "no memory controller".to_owned(),
        },
        Event::Enforcement {
            server_id: Some(fs()),
            layer: "landlock".to_owned(),
            asked: "abi 6".to_owned(),
            got: "abi 6".to_owned(),
            state: LayerState::Enforced,
            why: String::new(),
        },
        Event::McpServerEnvFiltered {
            server_id: Some(fs()),
            stripped_vars: vec!["AWS_SECRET_ACCESS_KEY".to_owned()],
            passed_count: 3,
        },
        Event::McpServerBinaryPinned {
            server_id: fs(),
            binary_path: "/usr/bin/node".to_owned(),
            hash: "sha256:22".to_owned(),
            files: 3,
        },
        Event::ProcessStarted {
            server_id: Some(fs()),
            program: "/usr/bin/node".to_owned(),
            args: vec!["server.js".to_owned()],
            hash: "sha256:22".to_owned(),
            pid: 7,
        },
        Event::McpToolSeen {
            server_id: fs(),
            server_type: crate::words::ServerType::Stdio,
            tool_name: "read".to_owned(),
            tool_hash: "sha256:11".to_owned(),
            description: Some("Reads\u{1b}[31m a file".to_owned()),
            status: ToolStatus::New,
        },
        called("read", 1),
        verdict("read", 1, Action::Allow),
        called("delete", 2),
        verdict("delete", 2, Action::Block),
        Event::McpMessageRejected {
            server_id: fs(),
            from: Sender::Server,
            reason: "invalid-utf8".to_owned(),
            detail: "byte 3".to_owned(),
            bytes: 10,
        },
        Event::McpRequestTimedOut {
            server_id: fs(),
            method: "tools/call".to_owned(),
            jsonrpc_id: json!("x"),
            after_ms: 1000,
        },
        Event::McpServerCrashed { server_id: fs(), exit_code: 139, pending_calls: 2, restart_in_ms: 100 },
        Event::McpServerBinaryMismatch {
            server_id: server("git"),
            binary_path: "/usr/bin/git-server".to_owned(),
            expected_hash: "sha256:33".to_owned(),
            actual_hash: "sha256:44".to_owned(),
            action: Action::Block,
            changed: vec!["index.js".to_owned()],
        },
        Event::McpServerRefused {
            server_id: server("git"),
            reason: "binary-mismatch".to_owned(),
            detail: "index.js changed".to_owned(),
            rule: RuleRef::default_rule("sandbox.mcp.version_pinning"),
        },
        Event::McpToolChanged {
            server_id: fs(),
            tool_name: "read".to_owned(),
            previous_hash: "sha256:11".to_owned(),
            new_hash: "sha256:55".to_owned(),
            description: Some("Reads\u{1b}[31m a file".to_owned()),
        },
        Event::McpToolsListChanged { server_id: fs() },
        called("read", 3),
        Event::ProcessExited { server_id: Some(fs()), exit_code: 0, cause: ExitCause::Exited },
        Event::SessionEnded { exit_code: 0, duration_ms: 20_000, head: None, left: Vec::new() },
    ]
}
