//! What `agentsh mcp servers` lists.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use serde::Serialize;
use serde_json::Value;

use super::super::reader::{records, select};
use super::super::record::text_of;
use super::super::sql::Query;
use super::super::{Event, Reader, Record, StoreError};
use super::{BLOCKED, CALLS, EventFilter, scope_of};
use crate::types::SessionId;

/// Events about a server as such: few, however many calls there are.
const LIFECYCLE: &str = "'process_started', 'process_exited', 'mcp_server_env_filtered', \
    'mcp_server_binary_mismatch', 'mcp_server_binary_not_pinned', 'mcp_server_binary_pinned', 'mcp_server_crashed', \
    'mcp_server_refused', 'mcp_tool_seen'";

/// The project of a row's session. Every demo creates its own project; readers see all of them as one.
const PROJECT: &str = "(SELECT CASE first.verb WHEN 'demo' THEN 'agentsh demo' ELSE first.project END \
    FROM events AS first WHERE first.session = events.session AND first.seq = 1)";

/// One server of one project: the same id may mean something else in another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Server {
    pub server_id: String,
    /// Absolute path of the program that ran last.
    pub program: Option<String>,
    pub hash: Option<String>,
    pub calls: u64,
    /// Refused calls, and refusals to start the server.
    pub refused: u64,
    /// Messages of the server that were not forwarded: invalid lines, answers without a request.
    pub dropped: u64,
    /// `started`, `exited`, `crashed`, `refused`, `mismatch`, `not-pinned`, `seen`; `ended` with its session, and `gone`
    /// where neither an end is recorded nor the process there.
    pub last_status: String,
    /// The time of the newest event about the server itself; null if only calls are in scope.
    pub last_at: Option<String>,
    /// Directory of the sessions; `agentsh demo` for what the demo did.
    pub project: Option<String>,
    /// The newest session in which something happened to the server as such.
    pub last_session: Option<SessionId>,
    /// The process that was started last, while nothing newer is recorded.
    #[serde(skip)]
    running: Option<u32>,
}

type Key = (String, Option<String>);

impl Reader {
    /// Every server that an event names, by id and project. `tool`, `kind`, `action` and `severity` of the filter do not
    /// count.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn servers(&mut self, filter: &EventFilter) -> Result<Vec<Server>, StoreError> {
        let filter = filter.clone();
        self.ask(move |connection| servers(connection, &filter)).await
    }
}

fn servers(connection: &Connection, filter: &EventFilter) -> Result<Vec<Server>, StoreError> {
    let scope = EventFilter { tool: None, ..scope_of(filter) };
    let mut servers: BTreeMap<Key, Server> = BTreeMap::new();
    for (project, record) in newest_of_each_type(connection, &scope)? {
        let Some(server_id) = record.body.get("server_id").and_then(Value::as_str) else { continue };
        let key = (server_id.to_owned(), project);
        servers.entry(key).or_insert_with_key(Server::new).take_over(&record);
    }
    for server in servers.values_mut() {
        let (Some(pid), Some(session)) = (server.running, server.last_session) else { continue };
        if has_ended(connection, session)? {
            "ended".clone_into(&mut server.last_status);
        } else if !Path::new("/proc").join(pid.to_string()).exists() {
            "gone".clone_into(&mut server.last_status);
        }
    }
    for (key, [calls, blocked, refusals, dropped]) in totals(connection, &scope)? {
        let server = servers.entry(key).or_insert_with_key(Server::new);
        server.calls += calls;
        server.refused += blocked + refusals;
        server.dropped += dropped;
    }
    Ok(servers.into_values().take(usize::try_from(filter.limit).unwrap_or(usize::MAX)).collect())
}

/// Oldest first.
fn newest_of_each_type(
    connection: &Connection,
    scope: &EventFilter,
) -> Result<Vec<(Option<String>, Record)>, StoreError> {
    let mut query = Query::new("SELECT ");
    query.push(Record::COLUMNS).push(", ").push(PROJECT).push(" AS in_project FROM events WHERE id IN ");
    query.push("(SELECT max(id) FROM events WHERE server_id IS NOT NULL AND type IN (").push(LIFECYCLE);
    query.push(")");
    scope.push_to(&mut query);
    query.push(" GROUP BY server_id, type, ").push(PROJECT).push(") ORDER BY id");
    query
        .rows(connection, |row| Ok((row.get("in_project")?, Record::from_row(row)?)))
        .map_err(|error| StoreError::sql("reading servers", &error))
}

fn has_ended(connection: &Connection, session: SessionId) -> Result<bool, StoreError> {
    let mut query = select();
    query.push(" WHERE session = ").bind(session.to_string()).push(" ORDER BY seq DESC LIMIT 1");
    let last = records(connection, query)?.pop();
    Ok(last.is_some_and(|record| matches!(record.event, Some(Event::SessionEnded { .. }))))
}

/// Calls, refused calls, refusals to start and messages that were dropped, by server and project.
fn totals(connection: &Connection, scope: &EventFilter) -> Result<Vec<(Key, [u64; 4])>, StoreError> {
    // By session first: a project is looked up once for each, not once for each call.
    let mut query = Query::new("SELECT server_id, ");
    query
        .push(PROJECT)
        .push(", sum(calls), sum(blocked), sum(refusals), sum(dropped) FROM (SELECT server_id, session, ");
    query.push(CALLS).push(" AS calls, ").push(BLOCKED).push(" AS blocked, ");
    query.push("sum(CASE WHEN type = 'mcp_server_refused' THEN 1 ELSE 0 END) AS refusals, ");
    query.push(
        "sum(CASE WHEN type = 'mcp_message_rejected' AND body ->> '$.from' = 'server' THEN 1 ELSE 0 END) ",
    );
    query.push("AS dropped FROM events WHERE type IN ('mcp_tool_called', 'mcp_tool_call_intercepted', ");
    query.push("'mcp_server_refused', 'mcp_message_rejected') ");
    query.push("AND server_id IS NOT NULL");
    scope.push_to(&mut query);
    query.push(" GROUP BY server_id, session) AS events GROUP BY 1, 2");
    query
        .rows(connection, |row| {
            Ok(((row.get(0)?, row.get(1)?), [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?]))
        })
        .map_err(|error| StoreError::sql("counting calls", &error))
}

impl Server {
    fn new((server_id, project): &Key) -> Self {
        Self {
            server_id: server_id.clone(),
            last_status: "seen".to_owned(),
            project: project.clone(),
            ..Self::default()
        }
    }

    /// Records come oldest first, the newest of each type.
    fn take_over(&mut self, record: &Record) {
        self.last_at = Some(text_of(record.time));
        self.last_session = Some(record.session);
        let status = match &record.event {
            Some(Event::ProcessStarted { program, hash, pid, .. }) => {
                (self.program, self.hash) = (Some(program.clone()), Some(hash.clone()));
                self.running = Some(*pid);
                "started"
            }
            Some(Event::ProcessExited { .. }) => "exited",
            Some(Event::McpServerCrashed { .. }) => "crashed",
            Some(Event::McpServerRefused { .. }) => "refused",
            Some(Event::McpServerBinaryMismatch { .. }) => "mismatch",
            Some(Event::McpServerBinaryNotPinned { .. }) => "not-pinned",
            _ => return,
        };
        if status != "started" {
            self.running = None;
        }
        status.clone_into(&mut self.last_status);
    }
}
