//! Records page by page, newest first, from a position.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::reader::{records, select};
use super::super::{Reader, Record, StoreError};
use super::calls::call_of;
use crate::types::SessionId;

/// Selects records and a part of them. None and empty select all.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub session: Option<SessionId>,
    pub server: Option<String>,
    /// Only these types.
    pub kinds: &'static [&'static str],
    /// None of these types.
    pub without: &'static [&'static str],
    pub action: Option<&'static str>,
    /// Only refusals, of every type. Only within one session: elsewhere there is no index for this.
    pub refused: bool,
    /// Only records with a smaller id.
    pub before: Option<i64>,
    /// Only records before this position in the session.
    pub before_seq: Option<i64>,
    /// Only records after this position in the session, the oldest first.
    pub after_seq: Option<i64>,
    /// Maximum number of records.
    pub limit: u32,
}

/// Types of refusals that carry no action.
pub const REFUSALS: [&str; 6] = [
    "mcp_server_refused",
    "mcp_message_rejected",
    "model_answer_withheld",
    "file_refused",
    "call_refused",
    "ssh_key_refused",
];

impl Reader {
    /// The records of a page, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn page(&mut self, page: &Page) -> Result<Vec<Record>, StoreError> {
        let mut query = select();
        query.push(" WHERE TRUE");
        // One index is used: that of the session, else that of the types. A `+` disables the others.
        if let Some(session) = page.session {
            query.push(" AND session = ").bind(session.to_string());
        }
        let column = if page.session.is_some() { "+type" } else { "type" };
        for (column, kinds) in [(column, page.kinds), ("+type NOT", page.without)] {
            if !kinds.is_empty() {
                query.push(" AND ").one_of(column, kinds.iter().copied());
            }
        }
        if page.refused {
            query.push(" AND (+action = 'block' OR ").one_of("+type", REFUSALS.into_iter()).push(
                " OR (+type = 'guard_changed' AND json_valid(body) AND \
                 json_extract(body, '$.what') = 'refused'))",
            );
        }
        if let Some(server) = &page.server {
            query.push(if page.session.is_some() { " AND +server_id = " } else { " AND server_id = " });
            query.bind(server.clone());
        }
        if let Some(action) = page.action {
            query.push(if page.session.is_some() { " AND +action = " } else { " AND action = " });
            query.bind(action.to_owned());
        }
        if let Some(before) = page.before {
            query.push(" AND id < ").bind(before);
        }
        if let Some(before) = page.before_seq {
            query.push(" AND seq < ").bind(before);
        }
        if let Some(after) = page.after_seq {
            query.push(" AND seq > ").bind(after);
        }
        // In a session the places run as the ids do, and they are what its index is in order of.
        let order = if page.session.is_some() { "seq" } else { "id" };
        let way = if page.after_seq.is_some() { "ASC" } else { "DESC" };
        query.push(&format!(" ORDER BY {order} {way} LIMIT ")).bind(i64::from(page.limit));
        let mut found = self.ask(move |connection| records(connection, query)).await?;
        if page.after_seq.is_some() {
            found.reverse();
        }
        Ok(found)
    }

    /// The inputs of the calls of these verdicts, by the id of the verdict's record.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn inputs(&mut self, verdicts: Vec<Record>) -> Result<BTreeMap<i64, Value>, StoreError> {
        self.ask(move |connection| {
            let mut inputs = BTreeMap::new();
            for verdict in &verdicts {
                if let Some(call) = call_of(connection, verdict)? {
                    inputs.extend(call.body.get("input").cloned().map(|input| (verdict.id, input)));
                }
            }
            Ok(inputs)
        })
        .await
    }

    /// The id of the newest record; 0 where there is none. Cheap enough to be asked again and again.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn newest(&mut self) -> Result<i64, StoreError> {
        self.ask(|connection| {
            let newest =
                connection.query_row("SELECT coalesce(max(id), 0) FROM events", [], |row| row.get(0));
            newest.map_err(|error| StoreError::sql("looking for the newest event", &error))
        })
        .await
    }
}
