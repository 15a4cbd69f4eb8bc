//! The queries of `agentsh mcp tools|servers|calls|events`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::Connection;
use serde::Serialize;

use super::reader::{records, select};
use super::record::text_of;
use super::sql::Query;
use super::{Event, Reader, StoreError};
use crate::types::SessionId;

mod availability;
mod calls;
mod pages;
mod servers;
mod sessions;
mod tally;

pub use availability::Availability;
pub use calls::Call;
pub use pages::{Page, REFUSALS};
pub use servers::Server;
pub use sessions::{ListedSession, RecordedSession};
pub use tally::{Known, SessionTally, ToolTally};

/// Everything that is set must match; names match exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct EventFilter {
    pub session: Option<SessionId>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub kind: Option<String>,
    pub action: Option<String>,
    pub severity: Option<String>,
    pub since: Option<Timestamp>,
    /// Maximum number of results; the newest are kept.
    pub limit: u64,
}

/// A tool that a server offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tool {
    pub server_id: String,
    pub tool_name: String,
    pub tool_hash: Option<String>,
    pub description: Option<String>,
    /// `seen`, or `changed` when the newest word about it is that its definition changed.
    pub status: String,
    pub first_seen: String,
    pub last_seen: String,
    pub calls: u64,
    pub blocked: u64,
}

/// Words for how severe a finding is, the mildest first.
pub const SEVERITIES: [&str; 4] = ["low", "medium", "high", "critical"];

/// A severity and those above it. An unknown word has none above it.
pub fn severities_from(least: &str) -> impl Iterator<Item = &str> {
    let at = SEVERITIES.iter().position(|word| *word == least).map_or(SEVERITIES.len(), |at| at + 1);
    std::iter::once(least).chain(SEVERITIES.iter().skip(at).copied())
}

impl EventFilter {
    pub const DEFAULT_LIMIT: u64 = 100;

    pub(super) fn limit_i64(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX)
    }

    /// Appends ` AND …` for everything that is set.
    pub(super) fn push_to(&self, query: &mut Query) {
        let texts = [
            ("session", self.session.map(|session| session.to_string())),
            ("server_id", self.server.clone()),
            ("tool_name", self.tool.clone()),
            ("type", self.kind.clone()),
            ("action", self.action.clone()),
        ];
        for (column, value) in texts {
            if let Some(value) = value {
                query.push(" AND ").push(column).push(" = ").bind(value);
            }
        }
        if let Some(least) = &self.severity {
            query.push(" AND ").one_of("severity", severities_from(least));
        }
        if let Some(since) = self.since {
            query.push(" AND time >= ").bind(text_of(since));
        }
    }
}

impl Default for EventFilter {
    fn default() -> Self {
        Self {
            session: None,
            server: None,
            tool: None,
            kind: None,
            action: None,
            severity: None,
            since: None,
            limit: Self::DEFAULT_LIMIT,
        }
    }
}

impl Reader {
    /// Every tool that was seen, by server and name. `kind`, `action` and `severity` of the filter do not count.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn tools(&mut self, filter: &EventFilter) -> Result<Vec<Tool>, StoreError> {
        let filter = filter.clone();
        self.ask(move |connection| tools(connection, &filter)).await
    }
}

/// Server and tool.
type Key = (String, String);

fn tools(connection: &Connection, filter: &EventFilter) -> Result<Vec<Tool>, StoreError> {
    let scope = scope_of(filter);
    let mut query = Query::new(
        "SELECT server_id, tool_name, min(time), max(time), \
         max(CASE WHEN type = 'mcp_tool_seen' THEN id END), max(CASE WHEN type = 'mcp_tool_changed' THEN id END) \
         FROM events WHERE type IN ('mcp_tool_seen', 'mcp_tool_changed') \
         AND server_id IS NOT NULL AND tool_name IS NOT NULL",
    );
    scope.push_to(&mut query);
    query
        .push(" GROUP BY server_id, tool_name ORDER BY server_id, tool_name LIMIT ")
        .bind(filter.limit_i64());
    let rows = query
        .rows(connection, |row| {
            let key: Key = (row.get(0)?, row.get(1)?);
            let times: (String, String) = (row.get(2)?, row.get(3)?);
            let newest: (Option<i64>, Option<i64>) = (row.get(4)?, row.get(5)?);
            Ok((key, times, newest))
        })
        .map_err(|error| StoreError::sql("reading tools", &error))?;
    let calls = counts(connection, &scope)?;
    let mut tools = Vec::with_capacity(rows.len());
    for (key, (first_seen, last_seen), (seen, changed)) in rows {
        let (mut tool_hash, mut description) = (None, None);
        if let Some(Event::McpToolSeen { tool_hash: hash, description: text, .. }) = event(connection, seen)?
        {
            (tool_hash, description) = (Some(hash), text);
        }
        if changed > seen
            && let Some(Event::McpToolChanged { new_hash, description: text, .. }) =
                event(connection, changed)?
        {
            (tool_hash, description) = (Some(new_hash), text);
        }
        let (calls, blocked) = calls.get(&key).copied().unwrap_or_default();
        tools.push(Tool {
            server_id: key.0,
            tool_name: key.1,
            tool_hash,
            description,
            status: if changed > seen { "changed" } else { "seen" }.to_owned(),
            first_seen,
            last_seen,
            calls,
            blocked,
        });
    }
    Ok(tools)
}

fn event(connection: &Connection, id: Option<i64>) -> Result<Option<Event>, StoreError> {
    let Some(id) = id else { return Ok(None) };
    let mut query = select();
    query.push(" WHERE id = ").bind(id);
    Ok(records(connection, query)?.pop().and_then(|record| record.event))
}

/// Calls and refused calls by server and tool.
fn counts(connection: &Connection, scope: &EventFilter) -> Result<BTreeMap<Key, (u64, u64)>, StoreError> {
    let mut query = Query::new("SELECT server_id, tool_name, ");
    query.push(CALLS).push(", ").push(BLOCKED).push(
        " FROM events WHERE type IN ('mcp_tool_called', 'mcp_tool_call_intercepted') \
         AND server_id IS NOT NULL AND tool_name IS NOT NULL",
    );
    scope.push_to(&mut query);
    query.push(" GROUP BY server_id, tool_name");
    let rows = query.rows(connection, |row| Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?))));
    Ok(rows.map_err(|error| StoreError::sql("counting calls", &error))?.into_iter().collect())
}

/// Aggregates over the rows of a group: calls, and refused calls.
const CALLS: &str = "sum(CASE WHEN type = 'mcp_tool_called' THEN 1 ELSE 0 END)";
const BLOCKED: &str =
    "sum(CASE WHEN type = 'mcp_tool_call_intercepted' AND action = 'block' THEN 1 ELSE 0 END)";

/// Without what only makes sense for single events.
fn scope_of(filter: &EventFilter) -> EventFilter {
    EventFilter { kind: None, action: None, severity: None, ..filter.clone() }
}
