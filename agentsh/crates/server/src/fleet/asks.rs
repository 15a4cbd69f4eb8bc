//! Questions of sessions for approvers. An answer is bound to the text of its question, counts once, and only while
//! the host's session still asks.

use agentsh_database::{Connection, Value};
use jiff::Timestamp;

use crate::fleet::arrival::{in_transaction, stopped_host};
use crate::fleet::refusal::Refusal;
use crate::fleet::tally::storable_text;
use agentsh_fleet::keys;
use agentsh_fleet::wire::{ApprovalAnswer, Ask, QuestionStatus, Waiting};

/// Longest body of a question, in bytes.
pub(crate) const MAX_BODY: usize = 64 << 10;
/// Maximum number of pending questions of one host.
const OF_ONE_HOST: i64 = 64;
/// Questions that are listed.
const MAX_LISTED: i64 = 500;
/// Seconds after which questions of a silent host are hidden until it is back.
const HOST_TIMEOUT_S: i64 = 60;
/// How often it is noted that a host still asks, in seconds.
const NOTE_INTERVAL_S: i64 = 10;
/// The longest wait, in seconds.
const MAX_WAIT_S: i64 = 24 * 3600;
/// How long questions are kept that are over, in seconds.
const KEPT_S: i64 = 90 * 86_400;

fn now_seconds() -> i64 {
    Timestamp::now().as_second()
}

/// Takes a question of a host. The same one sent twice is one.
pub(crate) fn put(db: &mut dyn Connection, host: &str, asked: &Ask) -> Result<(), Refusal> {
    if asked.id.len() != 32 || !asked.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Refusal::Wrong("a question id is 32 hex digits".to_owned()));
    }
    let now = now_seconds();
    if asked.expires_at <= now || asked.expires_at - now > MAX_WAIT_S {
        return Err(Refusal::Wrong("a question's timeout is 1 s to 24 h".to_owned()));
    }
    in_transaction(db, |db| {
        // Two questions of one host do not run next to each other.
        db.change("UPDATE hosts SET state = state WHERE id = $1", &[Value::text(host)])?;
        let state = db.rows("SELECT state FROM hosts WHERE id = $1", &[Value::text(host)])?;
        match state.first().and_then(|row| row.first()).map(Value::as_text) {
            Some("active") => {}
            Some(state) => return Err(stopped_host(state)),
            None => return Err(Refusal::Unknown("no such host")),
        }
        let digest = keys::digest(asked.question.as_bytes());
        let known = db.rows("SELECT host, digest FROM asks WHERE id = $1", &[Value::text(&*asked.id)])?;
        match known.first().map(Vec::as_slice) {
            Some([of, found]) if of.as_text() == host && found.as_text() == digest => return Ok(()),
            Some(_) => return Err(Refusal::Stale("another question has this id")),
            None => {}
        }
        let waiting = db.rows(
            "SELECT count(*) FROM asks WHERE host = $1 AND state = 'waiting' AND expires_at > $2",
            &[Value::text(host), Value::Int(now)],
        )?;
        let waiting = waiting.first().and_then(|row| row.first()).map(Value::as_int).unwrap_or_default();
        if waiting >= OF_ONE_HOST {
            return Err(Refusal::Busy);
        }
        db.change(
            "INSERT INTO asks (id, host, body, digest, state, asked_at, expires_at, heard_at) \
             VALUES ($1, $2, $3, $4, 'waiting', $5, $6, $5)",
            &[
                Value::text(&*asked.id),
                Value::text(host),
                Value::Text(asked.question.replace('\0', " ")),
                Value::text(digest),
                Value::Int(now),
                Value::Int(asked.expires_at),
            ],
        )?;
        Ok(())
    })
}

/// The pending questions of hosts that still ask, the oldest first.
pub(crate) fn waiting(db: &mut dyn Connection) -> Result<Vec<Waiting>, agentsh_database::DbError> {
    let now = now_seconds();
    let rows = db.rows(
        "SELECT asks.id, host, name, asked_at, expires_at, digest, body FROM asks JOIN hosts ON hosts.id = host \
         WHERE asks.state = 'waiting' AND hosts.state = 'active' AND expires_at > $1 AND heard_at > $2 \
         ORDER BY asked_at, asks.id LIMIT $3",
        &[Value::Int(now), Value::Int(now - HOST_TIMEOUT_S), Value::Int(MAX_LISTED)],
    )?;
    let one = |row: &Vec<Value>| {
        let [id, host, name, asked_at, expires_at, digest, body] = row.as_slice() else { return None };
        let text = |value: &Value| value.as_text().to_owned();
        Some(Waiting {
            id: text(id),
            host: text(host),
            host_name: text(name),
            asked_at: asked_at.as_int(),
            expires_at: expires_at.as_int(),
            bound: text(digest),
            question: text(body),
        })
    };
    Ok(rows.iter().filter_map(one).collect())
}

/// The first answer counts, and no other.
pub(crate) fn answer(
    db: &mut dyn Connection,
    id: &str,
    said: &ApprovalAnswer,
    by: &str,
) -> Result<(), Refusal> {
    if !matches!(said.scope.as_str(), "once" | "session") {
        return Err(Refusal::Wrong("the scope of an answer is once or session".to_owned()));
    }
    let now = now_seconds();
    let state = if said.approve { "approved" } else { "denied" };
    let changed = in_transaction(db, |db| {
        let answered = db.change(
            "UPDATE asks SET state = $2, scope = $3, answered_by = $4, answered_at = $5 WHERE id = $1 AND \
             state = 'waiting' AND digest = $6 AND expires_at > $7 AND heard_at > $8",
            &[
                Value::text(id),
                Value::text(state),
                Value::text(&*said.scope),
                Value::Text(storable_text(by)),
                Value::text(format!("{:.6}", Timestamp::now())),
                Value::text(&*said.bound),
                Value::Int(now),
                Value::Int(now - HOST_TIMEOUT_S),
            ],
        );
        Ok(answered?)
    })?;
    if changed > 0 {
        return Ok(());
    }
    let rows = db.rows("SELECT state, digest, expires_at FROM asks WHERE id = $1", &[Value::text(id)])?;
    Err(match rows.first().map(Vec::as_slice) {
        None => Refusal::Missing("no such question"),
        Some([state, ..]) if state.as_text() != "waiting" => {
            Refusal::Stale("it was already answered, or has expired")
        }
        Some([_, digest, _]) if digest.as_text() != said.bound => {
            Refusal::Stale("the question has changed since it was shown; reload it")
        }
        Some([_, _, expires_at]) if expires_at.as_int() <= now => Refusal::Stale("it has expired"),
        Some(_) => Refusal::Stale("its host has not been seen for a minute"),
    })
}

/// The status of a host's question. Asking for it shows that the host still waits.
pub(crate) fn question_status(
    db: &mut dyn Connection,
    host: &str,
    id: &str,
) -> Result<QuestionStatus, Refusal> {
    let (now, values) = (now_seconds(), [Value::text(id), Value::text(host)]);
    let text = "SELECT state, scope, answered_by, digest, expires_at, heard_at FROM asks WHERE id = $1 AND host = $2";
    let rows = db.rows(text, &values)?;
    let Some([state, scope, by, digest, expires_at, heard_at]) = rows.first().map(Vec::as_slice) else {
        return Err(Refusal::Missing("no such question"));
    };
    let is_over = state.as_text() == "waiting" && expires_at.as_int() <= now;
    let said = QuestionStatus {
        state: if is_over { "over" } else { state.as_text() }.to_owned(),
        scope: scope.as_text().to_owned(),
        by: by.as_text().to_owned(),
        bound: digest.as_text().to_owned(),
    };
    if said.state == "waiting" && now - heard_at.as_int() >= NOTE_INTERVAL_S {
        let [id, host] = values;
        db.change("UPDATE asks SET heard_at = $3 WHERE id = $1 AND host = $2", &[id, host, Value::Int(now)])?;
    }
    Ok(said)
}

/// The session no longer asks: the question was answered on its host, or expired.
pub(crate) fn end_question(db: &mut dyn Connection, host: &str, id: &str) -> Result<(), Refusal> {
    let values = [Value::text(id), Value::text(host)];
    db.change("UPDATE asks SET state = 'over' WHERE id = $1 AND host = $2 AND state = 'waiting'", &values)?;
    Ok(())
}

/// Deletes questions that have long been over.
pub(crate) fn forget(db: &mut dyn Connection) -> Result<(), agentsh_database::DbError> {
    let now = now_seconds();
    db.change("DELETE FROM asks WHERE expires_at < $1", &[Value::Int(now - KEPT_S)])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use agentsh_database::Database;

    use super::*;

    fn ask(id: char, question: &str) -> Ask {
        Ask { id: id.to_string().repeat(32), question: question.to_owned(), expires_at: now_seconds() + 60 }
    }

    fn say(approve: bool, bound: &str) -> ApprovalAnswer {
        ApprovalAnswer { approve, scope: "once".to_owned(), bound: bound.to_owned() }
    }

    #[test]
    fn fleet_answer_counts_once_and_only_while_the_question_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::File(dir.path().join("fleet.db"));
        crate::fleet::schema::prepare(&database).unwrap();
        let mut db = database.connect(None).unwrap();
        let db = db.as_mut();
        for (id, state) in [("h1", "active"), ("h2", "active"), ("h3", "refused")] {
            db.change(
                "INSERT INTO hosts (id, name, key, state, version, enrolled_at, seen_at, last_id, last_hash) \
                 VALUES ($1, $1, '', $2, '', '', '', 0, '')",
                &[Value::text(id), Value::text(state)],
            )
            .unwrap();
        }
        put(db, "h1", &ask('a', "may I?")).unwrap();
        // Its answer was lost: the same question.
        put(db, "h1", &ask('a', "may I?")).unwrap();
        assert!(put(db, "h1", &ask('a', "may I not?")).is_err(), "another one under its id");
        assert!(put(db, "h2", &ask('a', "may I?")).is_err(), "that of another host");
        assert!(put(db, "h3", &ask('b', "may I?")).is_err(), "a host that is refused asks nobody");
        assert!(put(db, "h1", &Ask { expires_at: now_seconds(), ..ask('c', "?") }).is_err());
        let shown = waiting(db).unwrap().remove(0);
        assert!(question_status(db, "h2", &shown.id).is_err(), "answers are for the host that asked");
        assert_eq!(question_status(db, "h1", &shown.id).unwrap().state, "waiting");
        assert!(answer(db, &shown.id, &say(true, &keys::digest(b"may we?")), "abe").is_err());
        assert!(
            answer(
                db,
                &shown.id,
                &ApprovalAnswer { scope: "always".into(), ..say(true, &shown.bound) },
                "abe"
            )
            .is_err()
        );
        answer(db, &shown.id, &say(false, &shown.bound), "abe").unwrap();
        assert!(answer(db, &shown.id, &say(true, &shown.bound), "ada").is_err(), "one answer");
        let said = question_status(db, "h1", &shown.id).unwrap();
        assert_eq!((said.state.as_str(), said.by.as_str(), said.bound), ("denied", "abe", shown.bound));
        assert!(waiting(db).unwrap().is_empty());

        put(db, "h1", &ask('d', "and this?")).unwrap();
        db.change("UPDATE asks SET heard_at = heard_at - 100 WHERE state = 'waiting'", &[]).unwrap();
        assert!(waiting(db).unwrap().is_empty(), "a session that is gone is not answered");
        assert!(answer(db, &"d".repeat(32), &say(true, &keys::digest(b"and this?")), "abe").is_err());
        assert_eq!(question_status(db, "h1", &"d".repeat(32)).unwrap().state, "waiting");
        assert_eq!(waiting(db).unwrap().len(), 1, "it is back");
        end_question(db, "h2", &"d".repeat(32)).unwrap();
        assert_eq!(waiting(db).unwrap().len(), 1, "another host ends nothing");
        end_question(db, "h1", &"d".repeat(32)).unwrap();
        assert!(waiting(db).unwrap().is_empty());
        put(db, "h1", &ask('e', "too late?")).unwrap();
        db.change("UPDATE asks SET expires_at = expires_at - 100 WHERE state = 'waiting'", &[]).unwrap();
        assert!(answer(db, &"e".repeat(32), &say(true, &keys::digest(b"too late?")), "abe").is_err());
        assert_eq!(question_status(db, "h1", &"e".repeat(32)).unwrap().state, "over");
    }
}
