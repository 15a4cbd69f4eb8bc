//! The calls of verdicts, which are separate events.

use std::collections::BTreeMap;

use agentsh_database::{Connection, DbError, Value};
use serde_json::Value as Json;

use crate::fleet::reads::event;
use crate::fleet::tally::indexed;
use agentsh_fleet::wire::{Row, Rows};

/// Events between a call and what was decided about it, at most.
const MAX_VERDICT_DISTANCE: u64 = 1024;
const CALLS_IN_STATEMENT: usize = 50;

/// The common key of a call and its verdict: session, server and id of the request.
type Key = (String, String, String);

/// Next to each verdict the call that it is about: the nearest one before it with the same server and id.
pub(crate) fn add_calls(db: &mut dyn Connection, rows: &mut Rows) -> Result<(), DbError> {
    let mut here: BTreeMap<Key, Vec<u64>> = BTreeMap::new();
    let mut verdicts = Vec::new();
    for row in &rows.rows {
        let body: Json = serde_json::from_str(&row.body).unwrap_or_default();
        let Some(key) = key(row, &body) else { continue };
        if body.get("type").and_then(Json::as_str) == Some("mcp_tool_called") {
            here.entry(key).or_default().push(row.seq);
        } else {
            verdicts.push((key, row.seq));
        }
    }
    // The one of a verdict of this page may be on it.
    verdicts.retain(|(key, seq)| {
        let near = |call: &u64| call < seq && seq - call <= MAX_VERDICT_DISTANCE;
        !here.get(key).is_some_and(|calls| calls.iter().any(near))
    });
    for some in verdicts.chunks(CALLS_IN_STATEMENT) {
        let ids = call_ids(db, some)?;
        if ids.is_empty() {
            continue;
        }
        let marks: Vec<String> = (1..=ids.len()).map(|number| format!("${number}")).collect();
        let text = format!(
            "SELECT id, host, session, seq, time, hash, body FROM events WHERE id IN ({})",
            marks.join(", ")
        );
        let found = db.rows(&text, &ids)?;
        rows.rows.extend(found.iter().filter_map(|row| event(row)).map(|(_, row)| row));
    }
    let mut known = std::collections::BTreeSet::new();
    rows.rows.retain(|row| known.insert(row.at.clone()));
    Ok(())
}

/// None: the event is not about a call.
fn key(row: &Row, body: &Json) -> Option<Key> {
    let server = body.get("server_id")?.as_str()?;
    let request = body.get("jsonrpc_id")?.to_string();
    Some((row.session.clone(), indexed(server), indexed(&request)))
}

/// The ids of the calls.
fn call_ids(db: &mut dyn Connection, verdicts: &[(Key, u64)]) -> Result<Vec<Value>, DbError> {
    let mut values = Vec::new();
    let mut lines = Vec::new();
    for ((session, server, request), seq) in verdicts {
        let at = values.len();
        lines.push(format!(
            "(CAST(${} AS TEXT), CAST(${} AS TEXT), CAST(${} AS TEXT), CAST(${} AS BIGINT), CAST(${} AS BIGINT))",
            at + 1,
            at + 2,
            at + 3,
            at + 4,
            at + 5
        ));
        let number = |seq: u64| Value::Int(i64::try_from(seq).unwrap_or(i64::MAX));
        values.extend([
            Value::text(session.as_str()),
            Value::text(server.as_str()),
            Value::text(request.as_str()),
        ]);
        values.extend([number(*seq), number(seq.saturating_sub(MAX_VERDICT_DISTANCE))]);
    }
    let text = format!(
        "SELECT (SELECT e.id FROM events e WHERE e.session = v.column1 AND e.seq < v.column4 AND e.seq >= v.column5 \
         AND e.type = 'mcp_tool_called' AND e.server_id = v.column2 AND e.call = v.column3 ORDER BY e.seq DESC LIMIT 1) \
         FROM (VALUES {}) AS v",
        lines.join(", ")
    );
    let found = db.rows(&text, &values)?;
    let mut ids: Vec<i64> =
        found.iter().filter_map(|row| Some(row.first()?.as_int())).filter(|id| *id != 0).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids.into_iter().map(Value::Int).collect())
}
