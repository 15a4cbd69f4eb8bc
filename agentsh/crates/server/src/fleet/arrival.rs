//! Receives a batch: verifies its chain and stores the valid part, in one transaction that locks the host's row.

use std::collections::BTreeMap;

use agentsh_database::{Connection, DbError, Value};
use agentsh_store::raw::{FIRST_LINK, IndexedFields, Raw};
use jiff::Timestamp;
use serde_json::Value as Json;

use crate::fleet::event_ids::Places;
use crate::fleet::refusal::Refusal;
use crate::fleet::tally::{NewSession, Servers, Session, indexed, storable_text};
use agentsh_fleet::batch::Batch;
use agentsh_fleet::keys;
use agentsh_fleet::wire::Position;

const ROWS_IN_STATEMENT: usize = 32;
const COLUMNS: usize = 13;

/// The outcome of a batch.
#[derive(Clone, Debug)]
pub(crate) struct StoredBatch {
    pub position: Position,
    /// Numbers of newly stored events by type.
    pub kinds: BTreeMap<String, u64>,
}

/// Why rows do not fit to what is here.
#[derive(Clone, Debug)]
pub(crate) struct ChainMismatch {
    pub kind: &'static str,
    pub session: String,
    pub detail: String,
    /// The finding, so that the same one is reported once.
    pub found: String,
}

struct HostRow {
    last_id: i64,
    last_hash: [u8; 32],
    state: String,
    /// The place of its newest event.
    last_event: i64,
}

/// Takes the rows of a batch that are not here yet, as far as they fit. One that does not is put on record, and its host
/// is refused from then on.
pub(crate) fn take(
    db: &mut dyn Connection,
    places: &Places,
    host: &str,
    batch: &Batch,
) -> Result<StoredBatch, Refusal> {
    in_transaction(db, |db| store_batch(db, places, host, batch))
}

/// If the work returns a refusal, the transaction is committed too, because it may have recorded something.
pub(crate) fn in_transaction<T>(
    db: &mut dyn Connection,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    db.begin()?;
    let result = work(db);
    if let Err(Refusal::Unavailable(_)) = &result {
        db.rollback();
        return result;
    }
    if let Err(error) = db.commit() {
        db.rollback();
        return Err(error.into());
    }
    result
}

fn store_batch(
    db: &mut dyn Connection,
    places: &Places,
    host: &str,
    batch: &Batch,
) -> Result<StoredBatch, Refusal> {
    let known = hold(db, host)?;
    let here = Position { id: known.last_id, hash: position_text(known.last_id, &known.last_hash) };
    if known.state != "active" {
        return Err(stopped_host(&known.state));
    }
    let after = batch.after;
    if let Some(misfit) = misfit_of_place(db, &known, batch)? {
        return Err(put_on_record(db, places, host, misfit)?);
    }
    if after.id > known.last_id {
        return Err(Refusal::Gap(here));
    }
    let (mut hash, mut last_event) = (known.last_hash, known.last_event);
    places.watch(host, last_event, Timestamp::now());
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    let mut servers = Servers::default();
    let mut kept: Vec<(i64, &Raw, IndexedFields)> = Vec::new();
    let mut misfit = None;
    for row in batch.rows.iter().filter(|row| row.id > known.last_id) {
        match is_next_row(db, host, row, &hash, &mut sessions)? {
            Ok(facts) => {
                let arrival = places.next_id_after(last_event, Timestamp::now())?;
                last_event = arrival;
                if let Some(session) = sessions.get_mut(&row.session) {
                    session.add_row(row, &facts, arrival);
                    servers.add_row(row, &facts, &session.project);
                }
                hash = row.hash;
                kept.push((arrival, row, facts));
            }
            Err(found) => {
                misfit = Some(found);
                break;
            }
        }
    }
    insert(db, host, &kept)?;
    for (id, session) in sessions.iter().filter(|(_, session)| !session.last_at.is_empty()) {
        session.keep(db, id)?;
    }
    servers.keep(db, host)?;
    let last_id = known.last_id + i64::try_from(kept.len()).unwrap_or_default();
    if !kept.is_empty() {
        db.change(
            "UPDATE hosts SET last_id = $2, last_hash = $3, last_event = $4 WHERE id = $1",
            &[
                Value::text(host),
                Value::Int(last_id),
                Value::text(agentsh_base::hex(&hash)),
                Value::Int(last_event),
            ],
        )?;
    }
    if let Some(misfit) = misfit {
        return Err(put_on_record(db, places, host, misfit)?);
    }
    let mut kinds = BTreeMap::new();
    for (_, _, facts) in &kept {
        *kinds.entry(facts.kind.clone()).or_default() += 1;
    }
    Ok(StoredBatch { position: Position { id: last_id, hash: position_text(last_id, &hash) }, kinds })
}

fn position_text(id: i64, hash: &[u8; 32]) -> String {
    if id == 0 { String::new() } else { agentsh_base::hex(hash) }
}

pub(crate) fn stopped_host(state: &str) -> Refusal {
    match state {
        "revoked" => Refusal::Unknown("this host was revoked"),
        _ => Refusal::Rewritten(
            "this host is blocked: its journal no longer matches what it sent; `agentsh fleet hosts` says why, and \
             `agentsh fleet accept HOST` accepts it again"
                .to_owned(),
        ),
    }
}

/// From here to the end of the transaction no other batch of this host is taken.
fn hold(db: &mut dyn Connection, host: &str) -> Result<HostRow, Refusal> {
    let now = Value::text(Timestamp::now().to_string());
    db.change("UPDATE hosts SET seen_at = $2 WHERE id = $1", &[Value::text(host), now])?;
    let text = "SELECT last_id, last_hash, state, last_event FROM hosts WHERE id = $1";
    let rows = db.rows(text, &[Value::text(host)])?;
    let Some([last_id, last_hash, state, last_event]) = rows.first().map(Vec::as_slice) else {
        return Err(Refusal::Unknown("no such host"));
    };
    let mut last_event = last_event.as_int();
    if last_event == 0 && last_id.as_int() > 0 {
        // Tables that were made before it was kept.
        let text = "SELECT coalesce(max(id), 0) FROM events WHERE host = $1";
        let rows = db.rows(text, &[Value::text(host)])?;
        last_event = rows.first().and_then(|row| row.first()).map(Value::as_int).unwrap_or_default();
    }
    Ok(HostRow {
        last_id: last_id.as_int(),
        last_hash: keys::hash(last_hash.as_text()).unwrap_or(FIRST_LINK),
        state: state.as_text().to_owned(),
        last_event,
    })
}

/// The host must continue after the newest row that is stored here.
fn misfit_of_place(
    db: &mut dyn Connection,
    known: &HostRow,
    batch: &Batch,
) -> Result<Option<ChainMismatch>, DbError> {
    let after = batch.after;
    let shown =
        |hash: Option<[u8; 32]>| hash.map_or_else(|| "none".to_owned(), |hash| agentsh_base::hex(&hash));
    let found = if after.id == known.last_id {
        after.hash
    } else {
        match batch.rows.iter().find(|row| row.id == known.last_id) {
            Some(row) => Some(row.hash),
            None => return Ok(None),
        }
    };
    if known.last_id == 0 || found == Some(known.last_hash) {
        return Ok(None);
    }
    let kind = if found.is_none() { "missing" } else { "rewritten" };
    let detail = match found {
        None => {
            format!(
                "event {} of its journal is missing: the journal was truncated or replaced",
                known.last_id
            )
        }
        Some(_) => format!("event {} of its journal differs from the one it sent", known.last_id),
    };
    // The session of that event. The server may have deleted it.
    let rows = db.rows("SELECT session FROM events WHERE id = $1", &[Value::Int(known.last_event)])?;
    let session = rows.first().and_then(|row| row.first()).map(|id| id.as_text().to_owned());
    let session = session.unwrap_or_default();
    Ok(Some(ChainMismatch { kind, session, detail, found: shown(found) }))
}

/// Whether a row is the next one of its session; a session that is not known yet is looked up, or begun.
fn is_next_row(
    db: &mut dyn Connection,
    host: &str,
    row: &Raw,
    before: &[u8; 32],
    sessions: &mut BTreeMap<String, Session>,
) -> Result<Result<IndexedFields, ChainMismatch>, DbError> {
    let misfit = |kind, detail: String| {
        Ok(Err(ChainMismatch {
            kind,
            session: row.session.clone(),
            detail,
            found: agentsh_base::hex(&row.hash),
        }))
    };
    if !sessions.contains_key(&row.session) {
        let session = session(db, &row.session)?.unwrap_or_else(|| new_session(host, before));
        sessions.insert(row.session.clone(), session);
    }
    let Some(session) = sessions.get(&row.session) else { return misfit("missing", String::new()) };
    if session.host != host {
        return misfit("foreign", "the session belongs to another host".to_owned());
    }
    if row.seq != session.seq + 1 {
        let detail = format!("event {} arrived directly after event {} of its session", row.seq, session.seq);
        return misfit(if row.seq > session.seq { "missing" } else { "rewritten" }, detail);
    }
    if row.hash_behind(&session.hash) != row.hash {
        return misfit("edited", format!("event {} does not match the hash chain before it", row.seq));
    }
    match row.indexed_fields() {
        Some(facts) => Ok(Ok(facts)),
        None => misfit("edited", format!("event {} is not valid", row.seq)),
    }
}

/// The first row of a session links to the row before it in the journal.
fn new_session(host: &str, before: &[u8; 32]) -> Session {
    Session {
        host: host.to_owned(),
        hash: *before,
        fresh: Some(NewSession { first_link: *before, ..NewSession::default() }),
        ..Session::default()
    }
}

fn session(db: &mut dyn Connection, id: &str) -> Result<Option<Session>, DbError> {
    let text = "SELECT host, seq, hash, project, ended FROM sessions WHERE id = $1";
    let rows = db.rows(text, &[Value::text(id)])?;
    let Some([host, seq, hash, project, ended]) = rows.first().map(Vec::as_slice) else { return Ok(None) };
    Ok(Some(Session {
        host: host.as_text().to_owned(),
        seq: u64::try_from(seq.as_int()).unwrap_or_default(),
        hash: keys::hash(hash.as_text()).unwrap_or(FIRST_LINK),
        project: project.as_text().to_owned(),
        fresh: None,
        last_at: String::new(),
        ended: ended.as_int() != 0,
    }))
}

fn insert(db: &mut dyn Connection, host: &str, rows: &[(i64, &Raw, IndexedFields)]) -> Result<(), DbError> {
    let whole = rows.chunks_exact(ROWS_IN_STATEMENT);
    let rest = whole.remainder().chunks(1);
    for chunk in whole.chain(rest) {
        let mut values = Vec::with_capacity(chunk.len() * COLUMNS);
        for (arrival, row, facts) in chunk {
            let short = |text: &Option<String>| {
                text.as_deref().map_or(Value::Null, |text| Value::Text(indexed(text)))
            };
            values.extend([
                Value::Int(*arrival),
                Value::text(host),
                Value::text(&*row.session),
                Value::Int(i64::try_from(row.seq).unwrap_or(i64::MAX)),
                Value::text(&*row.time),
                Value::Text(indexed(&facts.kind)),
                // JSON spells a NUL, and PostgreSQL takes none.
                Value::Text(row.body.replace('\0', " ")),
                Value::Text(agentsh_base::hex(&row.hash)),
                short(&facts.server_id),
                short(&facts.tool_name),
                short(&facts.action),
                short(&facts.severity),
                call_of(row, facts),
            ]);
        }
        db.change(&statement(chunk.len()), &values)?;
    }
    Ok(())
}

fn statement(rows: usize) -> String {
    let row = |number: usize| {
        let places: Vec<String> =
            (1..=COLUMNS).map(|column| format!("${}", number * COLUMNS + column)).collect();
        format!("({})", places.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!(
        "INSERT INTO events (id, host, session, seq, time, type, body, hash, server_id, tool_name, action, severity, call) \
         VALUES {}",
        rows.join(", ")
    )
}

/// The id of the call that an event is about, as JSON.
fn call_of(row: &Raw, facts: &IndexedFields) -> Value {
    if !matches!(
        facts.kind.as_str(),
        "mcp_tool_called" | "mcp_tool_call_intercepted" | "mcp_server_unavailable"
    ) {
        return Value::Null;
    }
    let body: Json = serde_json::from_str(&row.body).unwrap_or_default();
    body.get("jsonrpc_id").map_or(Value::Null, |id| Value::Text(indexed(&id.to_string())))
}

/// The host is refused until an operator accepts the incident.
pub(crate) fn put_on_record(
    db: &mut dyn Connection,
    places: &Places,
    host: &str,
    misfit: ChainMismatch,
) -> Result<Refusal, DbError> {
    let now = Value::text(Timestamp::now().to_string());
    db.change("UPDATE hosts SET state = 'refused' WHERE id = $1", &[Value::text(host)])?;
    db.change(
        "INSERT INTO incidents (id, host, at, kind, session, detail, found) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            Value::Int(places.next()?),
            Value::text(host),
            now,
            Value::text(misfit.kind),
            Value::text(&*misfit.session),
            Value::Text(storable_text(&misfit.detail)),
            Value::text(misfit.found),
        ],
    )?;
    Ok(Refusal::Rewritten(format!("{}: {}; the host is blocked", misfit.kind, misfit.detail)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use agentsh_database::Database;

    use super::*;
    use crate::fleet::schema;

    #[test]
    fn the_newest_event_is_looked_up_where_it_was_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::File(dir.path().join("fleet.db"));
        schema::prepare(&database).unwrap();
        let mut db = database.connect(None).unwrap();
        let insert = "INSERT INTO hosts (id, name, key, state, version, enrolled_at, seen_at, last_id, last_hash) \
                      VALUES ($1, '', '', 'active', '', '', '', $2, '')";
        for (host, last_id) in [("old", 2), ("new", 0)] {
            db.change(insert, &[Value::text(host), Value::Int(last_id)]).unwrap();
        }
        let insert = "INSERT INTO events (id, host, session, seq, time, type, body, hash) VALUES ($1, $2, '', 1, '', '', '', '')";
        for (id, host) in [(5, "old"), (9, "old"), (12, "other")] {
            db.change(insert, &[Value::Int(id), Value::text(host)]).unwrap();
        }
        assert_eq!(hold(db.as_mut(), "old").unwrap().last_event, 9);
        assert_eq!(hold(db.as_mut(), "new").unwrap().last_event, 0);
        db.change("UPDATE hosts SET last_event = 7", &[]).unwrap();
        assert_eq!(hold(db.as_mut(), "old").unwrap().last_event, 7);
    }
}
