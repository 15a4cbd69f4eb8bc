//! The questions that `agentsh mcp tools|servers|calls|events` ask.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::{QueryBuilder, Row, Sqlite};

use super::record::text_of;
use super::{Event, Reader, Record, StoreError};
use crate::types::SessionId;

mod calls;
mod servers;

pub use calls::Call;
pub use servers::Server;

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
}

/// Without what only makes sense for single events.
fn scope_of(filter: &EventFilter) -> EventFilter {
    EventFilter { kind: None, action: None, severity: None, ..filter.clone() }
}
