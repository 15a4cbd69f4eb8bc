//! The ends of the chains of a host, computed anew from its whole journal: what it changed after it was sent shows here.

use std::collections::BTreeMap;

use agentsh_database::{Connection, Value};
use agentsh_store::raw::NOTHING;
use agentsh_store::{Reader, StoreError};

use crate::arrival::{Misfit, put_on_record, stopped};
use crate::batch::{self, Unreadable};
use crate::keys;
use crate::places::Places;
use crate::refusal::Refusal;

/// Most sessions whose misfit is told one by one.
const MOST_TOLD: usize = 10;

/// Place and hash of the last row of each session, as they come out of its rows.
pub type Heads = BTreeMap<String, (u64, [u8; 32])>;

/// As a host says it.
type Claimed = BTreeMap<String, (u64, String)>;

/// Reads the rows up to the place `until` and computes their hashes. What was changed changes every hash behind it.
///
/// # Errors
/// When the journal cannot be read.
pub async fn computed(journal: &mut Reader, until: i64) -> Result<Heads, StoreError> {
    let mut heads = Heads::new();
    let (mut place, mut before) = (0, NOTHING);
    while place < until {
        let rows = journal.raw_after(place, batch::MOST_ROWS, batch::USUAL_BYTES).await?;
        let Some(last) = rows.last() else { break };
        place = last.id;
        for row in rows.iter().filter(|row| row.id <= until) {
            let prev = heads.get(&row.session).map_or(before, |(_, hash)| *hash);
            let hash = row.hash_behind(&prev);
            heads.insert(row.session.clone(), (row.seq, hash));
            before = hash;
        }
    }
    Ok(heads)
}

/// # Errors
/// Never, with memory enough.
pub fn packed(until: i64, heads: &Heads) -> Result<Vec<u8>, Unreadable> {
    let mut text = format!("{until}\n");
    for (session, (seq, hash)) in heads {
        text.push_str(&format!("{session}\t{seq}\t{}\n", keys::hex(hash)));
    }
    batch::pack(text.as_bytes())
}

fn unpacked(bytes: &[u8]) -> Result<(i64, Claimed), Unreadable> {
    let text = batch::unpack(bytes)?;
    let mut lines = text.lines();
    let wrong = |number| Unreadable::Line(number, "it is no end of a chain");
    let until = lines.next().and_then(|line| line.parse().ok()).ok_or_else(|| wrong(1))?;
    let mut heads = Claimed::new();
    for (line, number) in lines.zip(2..) {
        let mut words = line.split('\t');
        let (Some(session), Some(seq), Some(hash), None) =
            (words.next(), words.next().and_then(|seq| seq.parse().ok()), words.next(), words.next())
        else {
            return Err(wrong(number));
        };
        heads.insert(session.to_owned(), (seq, hash.to_owned()));
    }
    Ok((until, heads))
}

/// Compares what a host has with what is here. Gives the number of sessions; 0: the host stands elsewhere by now.
pub(crate) fn compare(
    db: &mut dyn Connection,
    places: &Places,
    host: &str,
    body: &[u8],
) -> Result<usize, Refusal> {
    let (until, claimed) = unpacked(body)?;
    crate::arrival::in_transaction(db, |db| {
        let values = [Value::text(host)];
        // As every batch does: the two do not run beside each other.
        db.change("UPDATE hosts SET state = state WHERE id = $1", &values)?;
        let rows = db.rows("SELECT last_id, state FROM hosts WHERE id = $1", &values)?;
        match rows.first().map(Vec::as_slice) {
            Some([_, state]) if state.as_text() != "active" => return Err(stopped(state.as_text())),
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
                Some((found_seq, found)) if i64::try_from(*found_seq).ok() == Some(seq.as_int()) => Misfit {
                    kind: "rewritten",
                    session: id.to_owned(),
                    detail: "its events are other ones than those that it sent".to_owned(),
                    found: found.clone(),
                },
                Some((found_seq, found)) => Misfit {
                    kind: "missing",
                    session: id.to_owned(),
                    detail: format!("it has events up to {found_seq}, and sent {}", seq.as_int()),
                    found: found.clone(),
                },
                None => Misfit {
                    kind: "missing",
                    session: id.to_owned(),
                    detail: "the session that it sent is gone".to_owned(),
                    found: "none".to_owned(),
                },
            };
            let is_known = accepted.iter().any(|row| {
                matches!(row.as_slice(), [session, found] if session.as_text() == id && found.as_text() == misfit.found)
            });
            if is_known || told >= MOST_TOLD {
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
