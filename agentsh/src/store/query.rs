//! The questions that `agentsh mcp tools|servers|calls|events` ask.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sqlx::{QueryBuilder, Row, Sqlite};

use super::record::text_of;
use super::{Event, Reader, Record, StoreError};
use crate::types::{RuleRef, SessionId};

/// Events about a server as such: few, however many calls there are.
const LIFECYCLE: &str = "'process_started', 'process_exited', 'mcp_server_env_filtered', \
    'mcp_server_binary_mismatch', 'mcp_server_binary_not_pinned', 'mcp_server_binary_pinned', 'mcp_server_crashed', \
    'mcp_server_refused', 'mcp_tool_seen'";

/// A verdict stands within this many events of its call in the same session.
const VERDICT_DISTANCE: i64 = 1024;

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
    /// Most results, the newest ones.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Server {
    pub server_id: String,
    /// Absolute path of the program that ran last.
    pub program: Option<String>,
    pub hash: Option<String>,
    pub calls: u64,
    /// Refused calls, and refusals to start the server.
    pub refused: u64,
    /// `started`, `exited`, `crashed`, `refused`, `mismatch`, `not-pinned`, `seen`.
    pub last_status: String,
    /// Of the newest event about the server as such; null when only calls are in scope.
    pub last_at: Option<String>,
}

/// A tool call and what was decided about it. A call without a verdict was under way when agentsh died.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub session: SessionId,
    pub time: String,
    pub server_id: String,
    pub tool_name: String,
    pub jsonrpc_id: Value,
    pub input: Option<Value>,
    pub action: Option<String>,
    pub reason: Option<String>,
    pub rule: Option<RuleRef>,
    pub tool_hash: Option<String>,
}

impl EventFilter {
    pub const DEFAULT_LIMIT: u64 = 100;

    pub(super) fn limit_i64(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX)
    }

    /// Appends ` AND …` for everything that is set.
    pub(super) fn push_to(&self, query: &mut QueryBuilder<'_, Sqlite>) {
        let texts = [
            ("session", self.session.map(|session| session.to_string())),
            ("server_id", self.server.clone()),
            ("tool_name", self.tool.clone()),
            ("type", self.kind.clone()),
            ("action", self.action.clone()),
            ("severity", self.severity.clone()),
        ];
        for (column, value) in texts {
            if let Some(value) = value {
                query.push(format!(" AND {column} = ")).push_bind(value);
            }
        }
        if let Some(since) = self.since {
            query.push(" AND time >= ").push_bind(text_of(since));
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
        let scope = scope_of(filter);
        let mut query = QueryBuilder::new(
            "SELECT server_id, tool_name, min(time), max(time), \
             max(CASE WHEN type = 'mcp_tool_seen' THEN id END), max(CASE WHEN type = 'mcp_tool_changed' THEN id END) \
             FROM events WHERE type IN ('mcp_tool_seen', 'mcp_tool_changed') \
             AND server_id IS NOT NULL AND tool_name IS NOT NULL",
        );
        scope.push_to(&mut query);
        query.push(" GROUP BY server_id, tool_name ORDER BY server_id, tool_name LIMIT ");
        query.push_bind(filter.limit_i64());
        let sql = |error: sqlx::Error| StoreError::sql("reading tools", &error);
        let rows = query.build().fetch_all(&mut self.connection).await.map_err(sql)?;
        let calls = self.counts(&scope).await?;
        let mut tools = Vec::with_capacity(rows.len());
        for row in rows {
            let (server_id, tool_name): (String, String) =
                (row.try_get(0).map_err(sql)?, row.try_get(1).map_err(sql)?);
            let (seen, changed): (Option<i64>, Option<i64>) =
                (row.try_get(4).map_err(sql)?, row.try_get(5).map_err(sql)?);
            let (mut tool_hash, mut description) = (None, None);
            if let Some(Event::McpToolSeen { tool_hash: hash, description: text, .. }) =
                self.event(seen).await?
            {
                (tool_hash, description) = (Some(hash), text);
            }
            if changed > seen
                && let Some(Event::McpToolChanged { new_hash, .. }) = self.event(changed).await?
            {
                tool_hash = Some(new_hash);
            }
            let key = (server_id, tool_name);
            let (calls, blocked) = calls.get(&key).copied().unwrap_or_default();
            tools.push(Tool {
                server_id: key.0,
                tool_name: key.1,
                tool_hash,
                description,
                status: if changed > seen { "changed" } else { "seen" }.to_owned(),
                first_seen: row.try_get(2).map_err(sql)?,
                last_seen: row.try_get(3).map_err(sql)?,
                calls,
                blocked,
            });
        }
        Ok(tools)
    }

    /// Every server that an event names. `tool`, `kind`, `action` and `severity` of the filter do not count.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn servers(&mut self, filter: &EventFilter) -> Result<Vec<Server>, StoreError> {
        let scope = EventFilter { tool: None, ..scope_of(filter) };
        let mut query = QueryBuilder::new("SELECT ");
        query.push(Record::COLUMNS);
        query.push(
            " FROM events WHERE id IN (SELECT max(id) FROM events WHERE server_id IS NOT NULL AND type IN (",
        );
        query.push(LIFECYCLE).push(")");
        scope.push_to(&mut query);
        query.push(" GROUP BY server_id, type) ORDER BY id");
        let newest = self.records(query).await?;
        let mut servers: BTreeMap<String, Server> = BTreeMap::new();
        for record in newest {
            let Some(server_id) = record.body.get("server_id").and_then(Value::as_str) else { continue };
            let server = servers.entry(server_id.to_owned()).or_insert_with(|| Server::new(server_id));
            server.take_over(&record);
        }
        for ((server_id, _), (calls, blocked)) in self.counts(&scope).await? {
            let server = servers.entry(server_id).or_insert_with_key(|server_id| Server::new(server_id));
            server.calls += calls;
            server.refused += blocked;
        }
        for (server_id, count) in self.refusals_to_start(&scope).await? {
            if let Some(server) = servers.get_mut(&server_id) {
                server.refused += count;
            }
        }
        Ok(servers.into_values().take(usize::try_from(filter.limit).unwrap_or(usize::MAX)).collect())
    }

    /// The newest calls, oldest first. With `action`, only calls with that verdict.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn calls(&mut self, filter: &EventFilter) -> Result<Vec<Call>, StoreError> {
        let wanted = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let mut calls = Vec::new();
        let mut paired = BTreeSet::new();
        let mut before = i64::MAX;
        while calls.len() < wanted {
            let mut query = QueryBuilder::new("SELECT ");
            // Only a verdict has an action, so a filter for it leaves the other type out by itself. The `+` keeps
            // SQLite from collecting and sorting every call there is.
            query.push(Record::COLUMNS).push(" FROM events WHERE +type IN (");
            query.push("'mcp_tool_called', 'mcp_tool_call_intercepted') AND id < ").push_bind(before);
            EventFilter { kind: None, ..filter.clone() }.push_to(&mut query);
            query.push(" ORDER BY id DESC LIMIT 256");
            let page = self.records(query).await?;
            let Some(last) = page.last() else { break };
            before = last.id;
            for record in page {
                if calls.len() == wanted {
                    break;
                }
                match &record.event {
                    Some(Event::McpToolCallIntercepted { .. }) => {
                        let called = self.call_of(&record).await?;
                        paired.extend(called.as_ref().map(|called| called.id));
                        calls.extend(Call::of(called.as_ref(), Some(&record)));
                    }
                    Some(Event::McpToolCalled { .. }) if !paired.remove(&record.id) => {
                        calls.extend(Call::of(Some(&record), None));
                    }
                    _ => {}
                }
            }
        }
        calls.reverse();
        Ok(calls)
    }

    /// The call that a verdict is about: the nearest one before it with the same server, tool and id.
    async fn call_of(&mut self, verdict: &Record) -> Result<Option<Record>, StoreError> {
        let seq = i64::try_from(verdict.seq).unwrap_or(i64::MAX);
        let mut query = QueryBuilder::new("SELECT ");
        query
            .push(Record::COLUMNS)
            .push(" FROM events WHERE session = ")
            .push_bind(verdict.session.to_string());
        query
            .push(" AND seq < ")
            .push_bind(seq)
            .push(" AND seq >= ")
            .push_bind(seq.saturating_sub(VERDICT_DISTANCE));
        // The `+` keeps SQLite on the index of the chain, where the answer is next door.
        query.push(" AND +type = 'mcp_tool_called' AND (+server_id, +tool_name, body -> '$.jsonrpc_id') = ");
        query.push("(SELECT server_id, tool_name, body -> '$.jsonrpc_id' FROM events WHERE id = ");
        query.push_bind(verdict.id).push(") ORDER BY seq DESC LIMIT 1");
        Ok(self.records(query).await?.pop())
    }

    async fn event(&mut self, id: Option<i64>) -> Result<Option<Event>, StoreError> {
        let Some(id) = id else { return Ok(None) };
        let mut query = QueryBuilder::new("SELECT ");
        query.push(Record::COLUMNS).push(" FROM events WHERE id = ").push_bind(id);
        Ok(self.records(query).await?.pop().and_then(|record| record.event))
    }

    /// Calls and refused calls by server and tool.
    async fn counts(
        &mut self,
        scope: &EventFilter,
    ) -> Result<BTreeMap<(String, String), (u64, u64)>, StoreError> {
        let mut query = QueryBuilder::new(
            "SELECT server_id, tool_name, sum(type = 'mcp_tool_called'), \
             sum(type = 'mcp_tool_call_intercepted' AND action IS 'block') \
             FROM events WHERE type IN ('mcp_tool_called', 'mcp_tool_call_intercepted') \
             AND server_id IS NOT NULL AND tool_name IS NOT NULL",
        );
        scope.push_to(&mut query);
        query.push(" GROUP BY server_id, tool_name");
        let sql = |error: sqlx::Error| StoreError::sql("counting calls", &error);
        let rows = query.build().fetch_all(&mut self.connection).await.map_err(sql)?;
        let mut counts = BTreeMap::new();
        for row in rows {
            let key = (row.try_get(0).map_err(sql)?, row.try_get(1).map_err(sql)?);
            let (calls, blocked): (i64, i64) = (row.try_get(2).map_err(sql)?, row.try_get(3).map_err(sql)?);
            counts.insert(key, (calls.unsigned_abs(), blocked.unsigned_abs()));
        }
        Ok(counts)
    }

    async fn refusals_to_start(&mut self, scope: &EventFilter) -> Result<Vec<(String, u64)>, StoreError> {
        let mut query = QueryBuilder::new(
            "SELECT server_id, count(*) FROM events WHERE type = 'mcp_server_refused' AND server_id IS NOT NULL",
        );
        scope.push_to(&mut query);
        query.push(" GROUP BY server_id");
        let sql = |error: sqlx::Error| StoreError::sql("counting refusals", &error);
        let rows = query.build().fetch_all(&mut self.connection).await.map_err(sql)?;
        let count = |row: &sqlx::sqlite::SqliteRow| row.try_get::<i64, _>(1).map(i64::unsigned_abs);
        rows.iter().map(|row| Ok((row.try_get(0).map_err(sql)?, count(row).map_err(sql)?))).collect()
    }
}

impl Server {
    fn new(server_id: &str) -> Self {
        Self {
            server_id: server_id.to_owned(),
            program: None,
            hash: None,
            calls: 0,
            refused: 0,
            last_status: "seen".to_owned(),
            last_at: None,
        }
    }

    /// Records come oldest first, the newest of each type.
    fn take_over(&mut self, record: &Record) {
        self.last_at = Some(text_of(record.time));
        let status = match &record.event {
            Some(Event::ProcessStarted { program, hash, .. }) => {
                (self.program, self.hash) = (Some(program.clone()), Some(hash.clone()));
                "started"
            }
            Some(Event::ProcessExited { .. }) => "exited",
            Some(Event::McpServerCrashed { .. }) => "crashed",
            Some(Event::McpServerRefused { .. }) => "refused",
            Some(Event::McpServerBinaryMismatch { .. }) => "mismatch",
            Some(Event::McpServerBinaryNotPinned { .. }) => "not-pinned",
            _ => return,
        };
        status.clone_into(&mut self.last_status);
    }
}

impl Call {
    fn of(called: Option<&Record>, verdict: Option<&Record>) -> Option<Self> {
        let first = called.or(verdict)?;
        let text = |record: Option<&Record>, field: &str| {
            record.and_then(|record| record.body.get(field)).and_then(Value::as_str).map(str::to_owned)
        };
        Some(Self {
            session: first.session,
            time: text_of(first.time),
            server_id: text(Some(first), "server_id")?,
            tool_name: text(Some(first), "tool_name")?,
            jsonrpc_id: first.body.get("jsonrpc_id").cloned().unwrap_or_default(),
            input: called.and_then(|record| record.body.get("input").cloned()),
            action: text(verdict, "action"),
            reason: text(verdict, "reason"),
            rule: match verdict.and_then(|record| record.event.as_ref()) {
                Some(Event::McpToolCallIntercepted { rule, .. }) => Some(rule.clone()),
                _ => None,
            },
            tool_hash: text(verdict, "tool_hash"),
        })
    }
}

/// Without what only makes sense for single events.
fn scope_of(filter: &EventFilter) -> EventFilter {
    EventFilter { kind: None, action: None, severity: None, ..filter.clone() }
}
