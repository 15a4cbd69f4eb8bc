//! Updates of a batch besides its rows: its sessions, and the servers of its host.

use std::collections::BTreeMap;

use agentsh_database::{Connection, DbError, Value};
use agentsh_store::raw::{IndexedFields, Raw};
use serde_json::Value as Json;

use agentsh_fleet::keys;

/// Longest text that an index holds, in characters: PostgreSQL refuses rows of an index beyond 2.7 kB.
const MAX_INDEXED: usize = 200;

/// A session as it is here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub host: String,
    pub seq: u64,
    pub hash: [u8; 32],
    pub project: String,
    /// Begun with this batch.
    pub fresh: Option<NewSession>,
    pub last_at: String,
    pub ended: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NewSession {
    pub first_link: [u8; 32],
    pub first_at: String,
    pub first_event: i64,
    pub verb: String,
}

#[derive(Clone, Debug, Default)]
struct Counted {
    project: String,
    calls: i64,
    blocked: i64,
    refusals: i64,
    status: Option<&'static str>,
    at: String,
    session: String,
    program: Option<(String, String)>,
}

/// Servers of one host, by id of the row.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    changed: BTreeMap<(String, String), Counted>,
    /// Sessions that ended.
    ended: Vec<String>,
}

/// The text for an index and for PostgreSQL, which allows no NUL.
pub(crate) fn indexed(text: &str) -> String {
    text.chars().take(MAX_INDEXED).map(|one| if one == '\0' { '\u{fffd}' } else { one }).collect()
}

/// Without NUL, and of bounded length.
pub(crate) fn storable_text(text: &str) -> String {
    text.chars().take(1000).map(|one| if one == '\0' { '\u{fffd}' } else { one }).collect()
}

impl Session {
    /// Takes over what a row says of its session.
    pub fn add_row(&mut self, row: &Raw, facts: &IndexedFields, arrival: i64) {
        if let Some(fresh) = self.fresh.as_mut().filter(|fresh| fresh.first_event == 0) {
            fresh.first_event = arrival;
            row.time.clone_into(&mut fresh.first_at);
        }
        match facts.kind.as_str() {
            "session_started" => {
                let body: Json = serde_json::from_str(&row.body).unwrap_or_default();
                let text =
                    |name: &str| storable_text(body.get(name).and_then(Json::as_str).unwrap_or_default());
                let verb = text("verb");
                // Every demo creates its own project; readers see all of them as one.
                self.project = if verb == "demo" { "agentsh demo".to_owned() } else { text("project") };
                if let Some(fresh) = &mut self.fresh {
                    fresh.verb = verb;
                }
            }
            "session_ended" => self.ended = true,
            _ => {}
        }
        (self.seq, self.hash) = (row.seq, row.hash);
        row.time.clone_into(&mut self.last_at);
    }

    pub fn keep(&self, db: &mut dyn Connection, id: &str) -> Result<(), DbError> {
        let seq = Value::Int(i64::try_from(self.seq).unwrap_or(i64::MAX));
        let (hash, last_at) = (Value::text(agentsh_base::hex(&self.hash)), Value::text(&*self.last_at));
        let (project, ended) = (Value::text(&*self.project), Value::Int(self.ended.into()));
        match &self.fresh {
            Some(fresh) => db.change(
                "INSERT INTO sessions (id, host, seq, hash, first_link, first_event, first_at, last_at, verb, project, \
                 ended) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                &[
                    Value::text(id),
                    Value::text(&*self.host),
                    seq,
                    hash,
                    Value::text(agentsh_base::hex(&fresh.first_link)),
                    Value::Int(fresh.first_event),
                    Value::text(&*fresh.first_at),
                    last_at,
                    Value::text(&*fresh.verb),
                    project,
                    ended,
                ],
            ),
            None => db.change(
                "UPDATE sessions SET seq = $2, hash = $3, last_at = $4, project = $5, ended = $6 WHERE id = $1",
                &[Value::text(id), seq, hash, last_at, project, ended],
            ),
        }
        .map(|_| ())
    }
}

impl Servers {
    pub fn add_row(&mut self, row: &Raw, facts: &IndexedFields, project: &str) {
        if facts.kind == "session_ended" {
            self.ended.push(row.session.clone());
        }
        let Some(server) = &facts.server_id else { return };
        let status = match facts.kind.as_str() {
            "process_started" => Some("started"),
            "process_exited" => Some("exited"),
            "mcp_server_crashed" => Some("crashed"),
            "mcp_server_refused" => Some("refused"),
            "mcp_server_binary_mismatch" => Some("mismatch"),
            "mcp_server_binary_not_pinned" => Some("not-pinned"),
            "mcp_tool_called" | "mcp_tool_call_intercepted" | "mcp_tool_seen" => None,
            _ => return,
        };
        let counted = self.changed.entry((server.clone(), project.to_owned())).or_default();
        project.clone_into(&mut counted.project);
        match facts.kind.as_str() {
            "mcp_tool_called" => counted.calls += 1,
            "mcp_tool_call_intercepted" if facts.action.as_deref() == Some("block") => counted.blocked += 1,
            "mcp_server_refused" => counted.refusals += 1,
            _ => {}
        }
        if status.is_none() && facts.kind != "mcp_tool_seen" {
            return;
        }
        row.time.clone_into(&mut counted.at);
        row.session.clone_into(&mut counted.session);
        counted.status = status.or(counted.status);
        if facts.kind == "process_started" {
            let body: Json = serde_json::from_str(&row.body).unwrap_or_default();
            let text = |name: &str| storable_text(body.get(name).and_then(Json::as_str).unwrap_or_default());
            counted.program = Some((text("program"), text("hash")));
        }
    }

    pub fn keep(&self, db: &mut dyn Connection, host: &str) -> Result<(), DbError> {
        // An empty text says nothing new.
        const KEEP: &str = "INSERT INTO servers (host, id, server_id, project, calls, blocked, refusals, last_status, \
            last_at, last_session, program, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
            ON CONFLICT (host, id) DO UPDATE SET calls = servers.calls + excluded.calls, \
            blocked = servers.blocked + excluded.blocked, refusals = servers.refusals + excluded.refusals, \
            last_status = CASE excluded.last_status WHEN '' THEN servers.last_status ELSE excluded.last_status END, \
            last_at = CASE excluded.last_at WHEN '' THEN servers.last_at ELSE excluded.last_at END, \
            last_session = CASE excluded.last_session WHEN '' THEN servers.last_session ELSE excluded.last_session END, \
            program = CASE excluded.program WHEN '' THEN servers.program ELSE excluded.program END, \
            hash = CASE excluded.hash WHEN '' THEN servers.hash ELSE excluded.hash END";
        for ((server, project), counted) in &self.changed {
            let id = keys::digest(format!("{}\n{project}", server.replace('\n', "\u{fffd}")).as_bytes());
            let (program, hash) = counted.program.clone().unwrap_or_default();
            let values = [
                Value::text(host),
                Value::text(id),
                Value::text(indexed(server)),
                Value::text(project.as_str()),
                Value::Int(counted.calls),
                Value::Int(counted.blocked),
                Value::Int(counted.refusals),
                Value::text(counted.status.unwrap_or_default()),
                Value::text(&*counted.at),
                Value::text(&*counted.session),
                Value::text(program),
                Value::text(hash),
            ];
            db.change(KEEP, &values)?;
        }
        for session in &self.ended {
            db.change(
                "UPDATE servers SET last_status = 'ended' WHERE host = $1 AND last_session = $2 AND last_status = 'started'",
                &[Value::text(host), Value::text(session.as_str())],
            )?;
        }
        Ok(())
    }
}
