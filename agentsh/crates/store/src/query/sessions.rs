//! What `agentsh sessions` lists.

use rusqlite::Connection;
use serde::Serialize;

use super::super::reader::{records, select};
use super::super::record::text_of;
use super::super::sql::Query;
use super::super::{Event, Reader, Record, StoreError};
use super::{BLOCKED, CALLS};
use crate::types::SessionId;

/// One session, from its first and last event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedSession {
    pub session: SessionId,
    pub started_at: String,
    /// The time of the last event.
    pub last_at: String,
    /// `run`, `mcp run`, `proxy`, `demo`; null where the beginning is not on record.
    pub verb: Option<String>,
    /// The command.
    pub agent: Vec<String>,
    pub project: Option<String>,
    /// `ended`; `open` for a session that runs or was killed.
    pub state: &'static str,
    pub exit_code: Option<u8>,
    pub duration_ms: Option<u64>,
    pub events: u64,
    pub calls: u64,
    /// Refused calls and servers.
    pub refused: u64,
    /// Hosts that were refused, each once: a program asks for one name again and again.
    pub hosts_refused: u64,
}

/// Aggregates over the rows of a group: refused servers and hosts, as in the summary after a run.
const REFUSED: &str = "sum(CASE WHEN type = 'mcp_server_refused' THEN 1 ELSE 0 END), \
    count(DISTINCT CASE WHEN type IN ('net_connect_blocked', 'dns_blocked') AND json_valid(body) THEN \
    coalesce(json_extract(body, '$.name'), json_extract(body, '$.address'), 'unknown') END)";

impl Reader {
    /// The newest `limit` sessions, the one that started last first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn sessions(&mut self, limit: u64) -> Result<Vec<RecordedSession>, StoreError> {
        self.ask(move |connection| sessions(connection, limit)).await
    }
}

/// A session by its first and its last event: what a list can show without counting.
#[derive(Clone, Debug)]
pub struct ListedSession {
    /// The first event: the next page begins at its id.
    pub first: Record,
    pub last: Record,
}

impl Reader {
    /// Like [`Reader::sessions`], before the session whose first event is `before`, without counts.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn list_sessions(
        &mut self,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<ListedSession>, StoreError> {
        self.ask(move |connection| {
            let mut first = select();
            first.push(" WHERE seq = 1 AND id < ").bind(before.unwrap_or(i64::MAX));
            first.push(" ORDER BY id DESC LIMIT ").bind(i64::from(limit));
            let listed = records(connection, first)?.into_iter().map(|first| {
                let last = newest_of(connection, &first)?.unwrap_or_else(|| first.clone());
                Ok(ListedSession { first, last })
            });
            listed.collect()
        })
        .await
    }
}

fn newest_of(connection: &Connection, first: &Record) -> Result<Option<Record>, StoreError> {
    let mut last = select();
    last.push(" WHERE session = ").bind(first.session.to_string()).push(" ORDER BY seq DESC LIMIT 1");
    Ok(records(connection, last)?.pop())
}

fn sessions(connection: &Connection, limit: u64) -> Result<Vec<RecordedSession>, StoreError> {
    let mut first = select();
    // Every session has one event with this place, and the last one in the journal began last.
    first.push(" WHERE seq = 1 ORDER BY id DESC LIMIT ").bind(i64::try_from(limit).unwrap_or(i64::MAX));
    records(connection, first)?.iter().map(|first| session(connection, first)).collect()
}

fn session(connection: &Connection, first: &Record) -> Result<RecordedSession, StoreError> {
    let id = first.session.to_string();
    let last = newest_of(connection, first)?;
    let mut counts = Query::new("SELECT count(*), ");
    counts.push(CALLS).push(", ").push(BLOCKED).push(", ").push(REFUSED);
    counts.push(" FROM events WHERE session = ").bind(id);
    let counts = counts
        .rows(connection, |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]))
        .map_err(|error| StoreError::sql("counting events", &error))?;
    let [events, calls, blocked, servers, hosts] = counts.first().copied().unwrap_or_default();
    let (verb, agent, project) = match &first.event {
        Some(Event::SessionStarted { verb, agent, project, .. }) => {
            (Some(verb.clone()), agent.clone(), Some(project.clone()))
        }
        _ => (None, Vec::new(), None),
    };
    let (exit_code, duration_ms) = match last.as_ref().and_then(|last| last.event.as_ref()) {
        Some(Event::SessionEnded { exit_code, duration_ms, .. }) => (Some(*exit_code), Some(*duration_ms)),
        _ => (None, None),
    };
    Ok(RecordedSession {
        session: first.session,
        started_at: text_of(first.time),
        last_at: text_of(last.as_ref().unwrap_or(first).time),
        verb,
        agent,
        project,
        state: if exit_code.is_some() { "ended" } else { "open" },
        exit_code,
        duration_ms,
        events,
        calls,
        refused: blocked + servers,
        hosts_refused: hosts,
    })
}
