//! Verifies the whole journal.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row};
use serde::Serialize;

use super::StoreError;
use super::chain::{self, Columns};

/// Rows read at a time: at most 64 KiB each.
const PAGE: i64 = 256;

/// Problems that are described; the rest is counted.
const MAX_PROBLEMS: usize = 100;

/// The chain has no key: who can write the file can also write a new chain. It shows damage, and every change by
/// someone who did not know about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    pub ok: bool,
    pub events: u64,
    pub sessions: Vec<SessionCheck>,
    /// At most 100.
    pub problems: Vec<Problem>,
    pub problem_count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionCheck {
    pub session: String,
    pub events: u64,
    pub state: SessionState,
    pub first_at: String,
    pub last_at: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Its end is recorded.
    Ended,
    /// It runs, or it was killed: neither is an error.
    OpenOrKilled,
    Broken,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub kind: ProblemKind,
    pub session: Option<String>,
    /// Place in the session.
    pub seq: Option<i64>,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The row is not what its hash was made of.
    Edited,
    /// Rows that were written are gone.
    Missing,
    /// Rows are in another order than they were written.
    Reordered,
    /// A session does not link to the row before it.
    Unlinked,
    /// Rows at the end of a finished session are gone.
    Truncated,
    /// A column for filtering does not agree with the body.
    ColumnDiffers,
    /// The database file itself.
    Database,
}

#[derive(Default)]
struct Walk {
    sessions: BTreeMap<String, Progress>,
    order: Vec<String>,
    endings: BTreeMap<String, (i64, Vec<u8>)>,
    previous_id: i64,
    previous_hash: Vec<u8>,
    events: u64,
    problems: Vec<Problem>,
    problem_count: u64,
}

#[derive(Default)]
struct Progress {
    seq: i64,
    hash: Vec<u8>,
    first_at: String,
    last_at: String,
    events: u64,
    ended: bool,
    broken: bool,
}

/// Reads one consistent state of the database, however many sessions write at the same time.
pub(crate) fn verify(connection: &Connection) -> Result<Verification, StoreError> {
    let sql = |error: rusqlite::Error| StoreError::sql("verifying", &error);
    connection.execute_batch("BEGIN").map_err(sql)?;
    let result = walk(connection).map_err(sql);
    connection.execute_batch("ROLLBACK").map_err(sql)?;
    result
}

fn walk(connection: &Connection) -> Result<Verification, rusqlite::Error> {
    let mut walk = Walk::new();
    let mut endings = connection.prepare("SELECT session, seq, hash FROM endings")?;
    for ending in endings.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))? {
        let (session, end) = ending?;
        walk.endings.insert(session, end);
    }
    let mut page = connection.prepare("SELECT * FROM events WHERE id > $1 ORDER BY id LIMIT $2")?;
    loop {
        let before = walk.previous_id;
        let mut rows = page.query([before, PAGE])?;
        while let Some(row) = rows.next()? {
            walk.row(row)?;
        }
        if walk.previous_id == before {
            break;
        }
    }
    let newest = connection.query_row("SELECT id FROM newest", [], |row| row.get(0)).optional()?;
    walk.end(newest.unwrap_or(0));
    let mut structure = connection.prepare("PRAGMA integrity_check(10)")?;
    for message in structure.query_map([], |row| row.get::<_, String>(0))? {
        let message = message?;
        if message != "ok" {
            walk.problem(ProblemKind::Database, None, None, message);
        }
    }
    Ok(walk.result())
}

/// The result for an empty journal.
impl Default for Verification {
    fn default() -> Self {
        Self { ok: true, events: 0, sessions: Vec::new(), problems: Vec::new(), problem_count: 0 }
    }
}

impl Walk {
    fn new() -> Self {
        Self { previous_hash: chain::ZERO.to_vec(), ..Self::default() }
    }

    fn row(&mut self, row: &Row<'_>) -> Result<(), rusqlite::Error> {
        let id: i64 = row.get("id")?;
        let session: String = row.get("session")?;
        let seq: i64 = row.get("seq")?;
        let time: String = row.get("time")?;
        let body: String = row.get("body")?;
        let prev: Vec<u8> = row.get("prev")?;
        let hash: Vec<u8> = row.get("hash")?;
        self.events += 1;
        if id != self.previous_id + 1 {
            let detail = format!("{} rows are missing before this one", id - self.previous_id - 1);
            self.problem(ProblemKind::Missing, Some(&session), Some(seq), detail);
        }
        let position = u64::try_from(seq).unwrap_or_default();
        if hash != chain::hash(&prev, &session, position, &time, &body) {
            let detail = "the row was changed".to_owned();
            self.problem(ProblemKind::Edited, Some(&session), Some(seq), detail);
        }
        self.link(&session, seq, &prev);
        if let Some(detail) = differing_column(row, &body)? {
            self.problem(ProblemKind::ColumnDiffers, Some(&session), Some(seq), detail);
        }
        let ended = Columns::of(&body).is_ok_and(|columns| columns.kind == "session_ended");
        let progress = self.sessions.entry(session.clone()).or_insert_with(|| {
            self.order.push(session);
            Progress { first_at: time.clone(), ..Progress::default() }
        });
        progress.seq = seq;
        progress.last_at = time;
        progress.events += 1;
        progress.ended |= ended;
        progress.hash.clone_from(&hash);
        self.previous_id = id;
        self.previous_hash = hash;
        Ok(())
    }

    fn link(&mut self, session: &str, seq: i64, prev: &[u8]) {
        let Some(progress) = self.sessions.get(session) else {
            if seq != 1 {
                let detail = format!("the session begins at event {seq}");
                self.problem(ProblemKind::Missing, Some(session), Some(seq), detail);
            } else if prev != self.previous_hash {
                let detail =
                    "the session does not link to the event before it: events were removed".to_owned();
                self.problem(ProblemKind::Unlinked, Some(session), Some(seq), detail);
            }
            return;
        };
        let (last, linked) = (progress.seq, progress.hash == prev);
        if seq <= last {
            let detail = format!("event {seq} follows event {last}");
            self.problem(ProblemKind::Reordered, Some(session), Some(seq), detail);
        } else if seq != last + 1 {
            let detail = format!("events {} to {} are missing", last + 1, seq - 1);
            self.problem(ProblemKind::Missing, Some(session), Some(seq), detail);
        } else if !linked {
            let detail = "the row does not link to the one before it".to_owned();
            self.problem(ProblemKind::Edited, Some(session), Some(seq), detail);
        }
    }

    /// `newest` is the highest id that was ever given out.
    fn end(&mut self, newest: i64) {
        if newest > self.previous_id {
            let detail = format!("the newest {} rows of the journal are missing", newest - self.previous_id);
            self.problem(ProblemKind::Missing, None, None, detail);
        }
        for (session, (seq, hash)) in std::mem::take(&mut self.endings) {
            let progress = self.sessions.get(&session);
            let whole = progress
                .is_some_and(|progress| progress.seq > seq || (progress.seq == seq && progress.hash == hash));
            if !whole {
                let detail = format!("the session ended with event {seq}, which is missing");
                self.problem(ProblemKind::Truncated, Some(&session), Some(seq), detail);
            }
        }
    }

    fn problem(&mut self, kind: ProblemKind, session: Option<&str>, seq: Option<i64>, detail: String) {
        self.problem_count += 1;
        if let Some(progress) = session.and_then(|session| self.sessions.get_mut(session)) {
            progress.broken = true;
        }
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { kind, session: session.map(str::to_owned), seq, detail });
        }
    }

    fn result(mut self) -> Verification {
        // A problem with the first row was found before its session was known.
        for session in self.problems.iter().filter_map(|problem| problem.session.as_ref()) {
            if let Some(progress) = self.sessions.get_mut(session) {
                progress.broken = true;
            }
        }
        let mut sessions = Vec::with_capacity(self.order.len());
        for session in self.order {
            let Some(progress) = self.sessions.remove(&session) else { continue };
            sessions.push(SessionCheck {
                session,
                events: progress.events,
                state: match (progress.broken, progress.ended) {
                    (true, _) => SessionState::Broken,
                    (false, true) => SessionState::Ended,
                    (false, false) => SessionState::OpenOrKilled,
                },
                first_at: progress.first_at,
                last_at: progress.last_at,
            });
        }
        Verification {
            ok: self.problem_count == 0,
            events: self.events,
            sessions,
            problems: self.problems,
            problem_count: self.problem_count,
        }
    }
}

fn differing_column(row: &Row<'_>, body: &str) -> Result<Option<String>, rusqlite::Error> {
    let columns = match Columns::of(body) {
        Ok(columns) => columns,
        Err(error) => return Ok(Some(format!("the body is not an event: {error}"))),
    };
    let kind: String = row.get("type")?;
    if kind != columns.kind {
        return Ok(Some("the column `type` does not agree with the body".to_owned()));
    }
    let copies = [
        ("server_id", columns.server_id),
        ("tool_name", columns.tool_name),
        ("action", columns.action),
        ("severity", columns.severity),
    ];
    for (name, expected) in copies {
        let found: Option<String> = row.get(name)?;
        if found.as_deref() != expected.as_deref() {
            return Ok(Some(format!("the column `{name}` does not agree with the body")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::Reader;
    use crate::testing::{called, events, session, tamper, write};

    /// Two ended sessions of 21 events with a killed one of 3 between them, then `tampering`.
    async fn after(tampering: &'static str) -> Verification {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), session(1), events()).await;
        write(dir.path(), session(2), vec![called("a", 1), called("a", 2), called("a", 3)]).await;
        write(dir.path(), session(3), events()).await;
        if !tampering.is_empty() {
            tamper(dir.path(), tampering).await;
        }
        Reader::open(dir.path()).await.unwrap().unwrap().verify().await.unwrap()
    }

    fn kinds(check: &Verification) -> Vec<ProblemKind> {
        assert_eq!(check.ok, check.problems.is_empty());
        check.problems.iter().map(|problem| problem.kind).collect()
    }

    #[tokio::test]
    async fn unchanged_journal_verifies() {
        let check = after("").await;
        assert_eq!((kinds(&check), check.events), (vec![], 45));
        let states: Vec<_> = check.sessions.iter().map(|session| session.state).collect();
        assert_eq!(states, [SessionState::Ended, SessionState::OpenOrKilled, SessionState::Ended]);
    }

    #[tokio::test]
    async fn edited_events_are_detected() {
        let check =
            after("UPDATE events SET body = replace(body, '/project/a', '/project/b') WHERE id = 8").await;
        assert_eq!(kinds(&check), [ProblemKind::Edited]);
        assert_eq!((check.problems[0].seq, check.sessions[0].state), (Some(8), SessionState::Broken));
        let check = after("UPDATE events SET time = '2020-01-01T00:00:00.000000Z' WHERE id = 22").await;
        assert_eq!(kinds(&check), [ProblemKind::Edited]);
        let check = after("UPDATE events SET hash = zeroblob(32) WHERE id = 23").await;
        assert_eq!(kinds(&check), [ProblemKind::Edited, ProblemKind::Edited]);
    }

    #[tokio::test]
    async fn edited_columns_are_detected() {
        for tampering in [
            "UPDATE events SET action = 'allow' WHERE action = 'block' AND id = 11",
            "UPDATE events SET tool_name = NULL WHERE id = 8",
            "UPDATE events SET server_id = 'other' WHERE id = 8",
            "UPDATE events SET severity = 'low' WHERE id = 8",
            "UPDATE events SET type = 'other' WHERE id = 8",
        ] {
            assert_eq!(kinds(&after(tampering).await), [ProblemKind::ColumnDiffers], "{tampering}");
        }
    }

    #[tokio::test]
    async fn deleted_events_are_detected_anywhere() {
        let check = after("DELETE FROM events WHERE id = 8").await;
        assert_eq!(kinds(&check), [ProblemKind::Missing, ProblemKind::Missing]);
        let check = after("DELETE FROM events WHERE session LIKE '%2'").await;
        assert_eq!(kinds(&check), [ProblemKind::Missing, ProblemKind::Unlinked]);
        let check = after("DELETE FROM events WHERE id = 45").await;
        assert_eq!(kinds(&check), [ProblemKind::Missing, ProblemKind::Truncated]);
        let check = after("DELETE FROM events WHERE id = 45; DELETE FROM newest").await;
        assert_eq!(kinds(&check), [ProblemKind::Truncated]);
        let check = after("DELETE FROM events WHERE id = 24").await;
        assert_eq!(kinds(&check), [ProblemKind::Missing, ProblemKind::Unlinked]);
        let check = after("DELETE FROM events").await;
        assert_eq!(kinds(&check), [ProblemKind::Missing, ProblemKind::Truncated, ProblemKind::Truncated]);
    }

    #[tokio::test]
    async fn deletion_with_renumbered_events_is_detected() {
        let close_ranks = "DELETE FROM events WHERE session LIKE '%2';
            UPDATE events SET id = id - 3 WHERE id > 24; UPDATE newest SET id = 42;";
        assert_eq!(kinds(&after(close_ranks).await), [ProblemKind::Unlinked]);
    }

    #[tokio::test]
    async fn reordered_events_are_detected() {
        let swap = "UPDATE events SET id = 100 WHERE id = 8; UPDATE events SET id = 8 WHERE id = 9;
            UPDATE events SET id = 9 WHERE id = 100; UPDATE newest SET id = 45;";
        let check = after(swap).await;
        assert!(kinds(&check).contains(&ProblemKind::Reordered), "{check:?}");
    }

    #[tokio::test]
    async fn the_journal_refuses_to_be_edited() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), session(1), events()).await;
        let connection = crate::database::open_writer(dir.path()).unwrap();
        for statement in ["UPDATE events SET type = 'x'", "DELETE FROM events"] {
            let error = connection.execute_batch(statement).unwrap_err();
            assert!(error.to_string().contains("append-only"), "{error}");
        }
    }

    #[tokio::test]
    async fn damaged_journal_file_is_reported_as_damaged() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..20 {
            write(dir.path(), session(number), events()).await;
        }
        let file = dir.path().join("agentsh.db");
        let mut bytes = std::fs::read(&file).unwrap();
        let half = bytes.len() / 2;
        bytes[half..].fill(0xa5);
        std::fs::write(&file, bytes).unwrap();
        match Reader::open(dir.path()).await.unwrap().unwrap().verify().await {
            Err(StoreError::Damaged { .. }) => {}
            Ok(check) => assert!(!check.ok),
            Err(error) => assert!(matches!(error, StoreError::Damaged { .. }), "{error}"),
        }
    }
}
