//! Counts by server and tool, made by the database: for one session, and for all.

use rusqlite::Connection;

use super::super::reader::{records, select};
use super::super::sql::Query;
use super::super::{Reader, StoreError, Summary};
use crate::types::SessionId;
use crate::words::Action;

/// Events of a session next to its calls that are added up one by one, at most.
const MAX_OTHERS: i64 = 20_000;

/// Calls of one tool with one verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolTally {
    pub server_id: String,
    pub tool_name: String,
    /// None: no verdict is recorded.
    pub action: Option<String>,
    pub calls: u64,
}

/// The totals of one session.
#[derive(Clone, Debug)]
pub struct SessionTally {
    /// Everything but the calls: those are in `tools`.
    pub summary: Summary,
    pub tools: Vec<ToolTally>,
    /// Where copies came from and went to: source server, target server, verdict, how often.
    pub copies: Vec<(String, String, String, u64)>,
    pub events: u64,
}

/// A server of which something is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub server_id: String,
    pub tools: u64,
    pub calls: u64,
    pub blocked: u64,
}

impl Reader {
    /// The totals of one session: calls by the database, everything else one by one.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn tally(&mut self, session: SessionId) -> Result<SessionTally, StoreError> {
        self.ask(move |connection| {
            let mut summary = Summary::new(session);
            for record in other_records(connection, session)? {
                summary.add_record(&record);
            }
            let events = events(connection, session)?;
            summary.events = events;
            Ok(SessionTally {
                summary,
                tools: tools(connection, session)?,
                copies: copies(connection, session)?,
                events,
            })
        })
        .await
    }

    /// Servers by their ids, from `after` on, with the numbers that the index of the types has.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn known_servers(
        &mut self,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<Known>, StoreError> {
        self.ask(move |connection| {
            let mut known = Vec::new();
            let mut after = after.unwrap_or_default();
            // One index lookup for each server, however many events it has.
            while known.len() < limit as usize {
                let mut query = Query::new("SELECT min(server_id) FROM events WHERE server_id > ");
                query.bind(after.clone());
                let next: Vec<Option<String>> = rows(connection, query, |row| row.get(0))?;
                let Some(server_id) = next.into_iter().flatten().next() else { break };
                let count = |text: &str| {
                    let mut query = Query::new(text);
                    query.push(" AND server_id = ").bind(server_id.clone());
                    rows(connection, query, |row| row.get::<_, u64>(0)).map(|found| found.first().copied().unwrap_or(0))
                };
                known.push(Known {
                    tools: count("SELECT count(DISTINCT tool_name) FROM events WHERE type = 'mcp_tool_seen'")?,
                    calls: count("SELECT count(*) FROM events WHERE type = 'mcp_tool_called'")?,
                    blocked: count(
                        "SELECT count(*) FROM events WHERE type = 'mcp_tool_call_intercepted' AND action = 'block'",
                    )?,
                    server_id: server_id.clone(),
                });
                after = server_id;
            }
            Ok(known)
        })
        .await
    }
}

fn other_records(
    connection: &Connection,
    session: SessionId,
) -> Result<Vec<super::super::Record>, StoreError> {
    let mut query = select();
    query.push(" WHERE session = ").bind(session.to_string());
    query.push(" AND +type NOT IN ('mcp_tool_called', 'mcp_tool_call_intercepted', 'mcp_tool_seen') ORDER BY seq LIMIT ");
    query.bind(MAX_OTHERS);
    records(connection, query)
}

fn events(connection: &Connection, session: SessionId) -> Result<u64, StoreError> {
    let mut query = Query::new("SELECT coalesce(max(seq), 0) FROM events WHERE session = ");
    query.bind(session.to_string());
    Ok(rows(connection, query, |row| row.get(0))?.first().copied().unwrap_or(0))
}

fn tools(connection: &Connection, session: SessionId) -> Result<Vec<ToolTally>, StoreError> {
    let mut query = Query::new("SELECT server_id, tool_name, action, count(*) FROM events WHERE session = ");
    query.bind(session.to_string());
    query.push(
        " AND +type IN ('mcp_tool_call_intercepted') AND +server_id IS NOT NULL AND +tool_name IS NOT NULL",
    );
    query.push(" GROUP BY 1, 2, 3 ORDER BY 1, 2, 3");
    rows(connection, query, |row| {
        Ok(ToolTally {
            server_id: row.get(0)?,
            tool_name: row.get(1)?,
            action: row.get(2)?,
            calls: row.get(3)?,
        })
    })
}

fn copies(
    connection: &Connection,
    session: SessionId,
) -> Result<Vec<(String, String, String, u64)>, StoreError> {
    let mut query = Query::new(
        "SELECT body ->> '$.source_server', server_id, action, count(*) FROM events WHERE session = ",
    );
    query.bind(session.to_string());
    query.push(" AND +type = 'mcp_exfil_detected' AND body ->> '$.source_server' IS NOT NULL");
    query.push(" AND +server_id IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3");
    rows(connection, query, |row| {
        let action: Option<String> = row.get(2)?;
        let action = action.unwrap_or_else(|| Action::Alert.to_string());
        Ok((row.get(0)?, row.get(1)?, action, row.get(3)?))
    })
}

fn rows<T>(
    connection: &Connection,
    query: Query,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    query.rows(connection, read).map_err(|error| StoreError::sql("counting events", &error))
}
