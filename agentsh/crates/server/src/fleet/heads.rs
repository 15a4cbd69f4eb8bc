//! Compares the last hashes of a host's chains with the stored ones, and looks up a hash for a receipt.

use agentsh_database::{Connection, Value};
use agentsh_fleet::heads::unpacked;
use agentsh_fleet::wire::Head;

use crate::fleet::arrival::{ChainMismatch, put_on_record, stopped_host};
use crate::fleet::event_ids::Places;
use crate::fleet::refusal::Refusal;

/// Maximum number of sessions whose mismatch is reported singly.
const MAX_REPORTED: usize = 10;

/// Compares a host's hashes with the stored ones. Returns the number of sessions; 0: the host has sent more meanwhile.
pub(crate) fn compare(
    db: &mut dyn Connection,
    places: &Places,
    host: &str,
    body: &[u8],
) -> Result<usize, Refusal> {
    let (until, claimed) = unpacked(body)?;
    crate::fleet::arrival::in_transaction(db, |db| {
        let values = [Value::text(host)];
        // Locks the host's row as every batch does, so that the two never run in parallel.
        db.change("UPDATE hosts SET state = state WHERE id = $1", &values)?;
        let rows = db.rows("SELECT last_id, state FROM hosts WHERE id = $1", &values)?;
        match rows.first().map(Vec::as_slice) {
            Some([_, state]) if state.as_text() != "active" => return Err(stopped_host(state.as_text())),
            Some([last_id, _]) if last_id.as_int() != until => return Ok(0),
            Some(_) => {}
            None => return Err(Refusal::Unknown("no such host")),
        }
        let here =
            db.rows("SELECT id, seq, hash FROM sessions WHERE host = $1 ORDER BY first_event", &values)?;
        let accepted = db.rows(
            "SELECT session, found FROM incidents WHERE host = $1 AND accepted_by IS NOT NULL",
            &values,
        )?;
        let mut refusal = None;
        let mut told = 0;
        for row in &here {
            let [id, seq, hash] = row.as_slice() else { continue };
            let id = id.as_text();
            let misfit = match claimed.get(id) {
                Some((_, found)) if found == hash.as_text() => continue,
                Some((found_seq, found)) if i64::try_from(*found_seq).ok() == Some(seq.as_int()) => {
                    ChainMismatch {
                        kind: "rewritten",
                        session: id.to_owned(),
                        detail: "its events differ from those it sent".to_owned(),
                        found: found.clone(),
                    }
                }
                Some((found_seq, found)) => ChainMismatch {
                    kind: "missing",
                    session: id.to_owned(),
                    detail: format!("it has events up to {found_seq}, but sent {}", seq.as_int()),
                    found: found.clone(),
                },
                None => ChainMismatch {
                    kind: "missing",
                    session: id.to_owned(),
                    detail: "the session that it sent is missing".to_owned(),
                    found: "none".to_owned(),
                },
            };
            let is_known = accepted.iter().any(|row| {
                matches!(row.as_slice(), [session, found] if session.as_text() == id && found.as_text() == misfit.found)
            });
            if is_known || told >= MAX_REPORTED {
                continue;
            }
            told += 1;
            refusal.get_or_insert(put_on_record(db, places, host, misfit)?);
        }
        match refusal {
            Some(refusal) => Err(refusal),
            None => Ok(here.len()),
        }
    })
}

/// The hash of an event as it arrived, of a session of any host. The caller has a receipt that names it.
pub(crate) fn head_of_event(db: &mut dyn Connection, session: String, seq: i64) -> Result<Head, Refusal> {
    let values = [Value::text(session), Value::Int(seq)];
    let rows = db.rows("SELECT hash FROM events WHERE session = $1 AND seq = $2", &values)?;
    match rows.first().map(Vec::as_slice) {
        Some([hash]) => Ok(Head { hash: hash.as_text().to_owned() }),
        _ => Err(Refusal::Missing("no such event")),
    }
}
