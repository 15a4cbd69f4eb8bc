#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use super::*;
use crate::testing::{called, session, verdict};
use crate::verify::SessionState;
use crate::words::Action;
use crate::{EventFilter, Reader, TapMessage};

async fn kinds(dir: &Path) -> Vec<String> {
    let mut reader = Reader::open(dir).await.unwrap().unwrap();
    let filter = EventFilter { limit: u64::MAX, ..EventFilter::default() };
    reader.events(&filter).await.unwrap().into_iter().map(|record| record.kind).collect()
}

#[tokio::test]
async fn a_committed_event_brings_everything_before_it_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), session(1)).await.unwrap();
    journal.record(called("a", 1));
    journal.commit(verdict("a", 1, Action::Block)).await.unwrap();
    assert_eq!(kinds(dir.path()).await, ["mcp_tool_called", "mcp_tool_call_intercepted"]);
    assert_eq!(journal.broken(), None);
}

#[tokio::test]
async fn recorded_event_is_flushed_without_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), session(1)).await.unwrap();
    journal.record(called("a", 1));
    tokio::time::sleep(FLUSH_AFTER * 6).await;
    assert_eq!(kinds(dir.path()).await, ["mcp_tool_called"]);
    // The writer waits again, and hears of the first one alone.
    journal.record(verdict("a", 1, Action::Allow));
    journal.record(called("a", 2));
    tokio::time::sleep(FLUSH_AFTER * 6).await;
    assert_eq!(kinds(dir.path()).await.len(), 3);
}

#[tokio::test]
async fn closing_writes_the_rest_and_ends_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), session(1)).await.unwrap();
    journal.record(called("a", 1));
    journal.record(Event::SessionEnded { exit_code: 0, duration_ms: 1, head: None, left: Vec::new() });
    journal.close().await.unwrap();
    journal.close().await.unwrap();
    assert_eq!(kinds(dir.path()).await, ["mcp_tool_called", "session_ended"]);
    let check = Reader::open(dir.path()).await.unwrap().unwrap().verify().await.unwrap();
    assert!(check.ok && check.sessions[0].state == SessionState::Ended, "{check:?}");
    journal.commit(called("late", 2)).await.unwrap_err();
    assert!(journal.broken().unwrap().contains("closed"));
}

#[tokio::test]
async fn subscribers_hear_what_is_on_disk_and_how_much_they_lost() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), session(1)).await.unwrap();
    journal.commit(called("before", 0)).await.unwrap();
    let mut quick = journal.subscribe();
    let mut slow = journal.subscribe();
    journal.record(called("a", 1));
    let Some(TapMessage::Event(told)) = quick.next().await else { panic!("an event") };
    assert_eq!((told.seq, told.session, told.event()), (2, session(1), Some(called("a", 1))));
    assert_eq!(kinds(dir.path()).await.len(), 2);
    // Nobody waits for the slow one.
    for id in 0..1000 {
        journal.record(called("many", id));
    }
    journal.close().await.unwrap();
    let Some(TapMessage::Lost(lost)) = slow.next().await else { panic!("a loss") };
    let mut heard = 0;
    while let Some(TapMessage::Event(_)) = slow.next().await {
        heard += 1;
    }
    assert!(lost > 0 && lost + heard == 1001, "{lost} {heard}");
    assert_eq!(slow.next().await, None);
}

#[tokio::test]
async fn unwritable_journal_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    Journal::open(dir.path(), session(1)).await.unwrap().close().await.unwrap();
    let holder = crate::database::open_writer(dir.path()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = Journal::open(dir.path(), session(2)).await.unwrap_err().to_string();
    assert!(error.contains("locked") && error.contains("another program has it locked"), "{error}");
}

const SCHEMA_1: &str = include_str!("../../../../tests/fixtures/journals/schema-1.sql");

#[tokio::test]
async fn journal_of_an_older_version_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agentsh.db");
    let old = rusqlite::Connection::open(&file).unwrap();
    old.execute_batch(SCHEMA_1).unwrap_or_else(|error| panic!("{error}"));
    let version = |connection: &rusqlite::Connection| -> i64 {
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    };
    let asked = async || {
        let mut reader = Reader::open(dir.path()).await.unwrap().unwrap();
        let filter = EventFilter::default();
        (
            reader.calls(&filter).await.unwrap(),
            reader.tools(&filter).await.unwrap(),
            reader.servers(&filter).await.unwrap(),
            reader.sessions(10).await.unwrap(),
            reader.verify().await.unwrap(),
        )
    };
    // A reader changes nothing.
    let before = asked().await;
    assert_eq!((version(&old), before.0.len(), before.0[0].jsonrpc_id.as_str()), (1, 2, Some("aé")));
    assert!(before.0.iter().all(|call| call.input.is_some()), "{:?}", before.0);
    assert_eq!(before.2[0].project.as_deref(), Some("/tmp/demo/project"));
    assert!(before.4.ok && before.4.events == 29, "{:?}", before.4);
    let journal = Journal::open(dir.path(), session(1)).await.unwrap();
    assert_eq!((version(&old), asked().await), (4, before));
    // An older agentsh that still runs writes into it too.
    journal.commit(called("new", 1)).await.unwrap();
    old.execute_batch("INSERT INTO events (session, seq, time, type, body, prev, hash)         SELECT 'x', 1, time, 'mcp_tool_called', '{\"type\":\"mcp_tool_called\",\"jsonrpc_id\":5}', hash, hash         FROM events ORDER BY id DESC LIMIT 1")
        .unwrap();
    let id: String =
        old.query_row("SELECT jsonrpc_id FROM events WHERE session = 'x'", [], |row| row.get(0)).unwrap();
    assert_eq!(id, "5");
    journal.close().await.unwrap();
}

#[tokio::test]
async fn sessions_write_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let mut tasks = Vec::new();
    for number in 0..4 {
        let path = dir.path().to_owned();
        tasks.push(tokio::spawn(async move {
            let journal = Journal::open(&path, session(number)).await.unwrap();
            for id in 0..200 {
                journal.record(called("a", id));
                if id % 50 == 0 {
                    journal.commit(verdict("a", id, Action::Block)).await.unwrap();
                }
            }
            journal.close().await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let check = Reader::open(dir.path()).await.unwrap().unwrap().verify().await.unwrap();
    assert!(check.ok, "{:?}", check.problems);
    assert_eq!((check.events, check.sessions.len()), (4 * 204, 4));
}

#[tokio::test]
async fn journal_breaks_when_its_database_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("agentsh");
    let journal = Journal::open(&state, session(1)).await.unwrap();
    journal.commit(called("a", 1)).await.unwrap();
    std::fs::remove_dir_all(&state).unwrap();
    let error = journal.commit(verdict("a", 1, Action::Block)).await.unwrap_err();
    assert!(matches!(error, StoreError::Moved { .. }), "{error}");
    assert!(journal.broken().unwrap().contains("removed"));
    journal.commit(called("b", 2)).await.unwrap_err();
    journal.close().await.unwrap_err();
}

#[tokio::test]
async fn a_full_disk_breaks_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(dir.path(), session(1)).unwrap();
    writer.make_disk_small().unwrap();
    let shared = Arc::new(Shared::new(session(1)));
    let journal = Journal { handle: Arc::new(Handle { shared: Arc::clone(&shared) }) };
    std::thread::spawn(move || write_until_closed(writer, &shared));
    let mut failure = None;
    for id in 0..50 {
        failure = journal.commit(called(&"n".repeat(10_000), id)).await.err();
        if failure.is_some() {
            break;
        }
    }
    let Some(StoreError::Sql { message, .. }) = failure else { panic!("{failure:?}") };
    assert!(message.contains("full"), "{message}");
    assert!(journal.broken().is_some());
    let check = Reader::open(dir.path()).await.unwrap().unwrap().verify().await.unwrap();
    assert!(check.ok && check.events > 0, "{check:?}");
}

#[tokio::test]
async fn a_queue_that_is_full_breaks_the_journal() {
    let shared = Shared::new(session(1));
    let big = called(&"n".repeat(60_000), 1);
    let taken = (0..10_000).take_while(|_| shared.enqueue(&big, None).is_ok()).count();
    assert!((500..600).contains(&taken), "{taken}");
    assert!(shared.state().broken.is_some());
    let shared = Shared::new(session(1));
    let taken = (0..100_000).take_while(|_| shared.enqueue(&called("a", 1), None).is_ok()).count();
    assert_eq!(taken, MAX_QUEUED_EVENTS);
}

#[tokio::test]
async fn journal_queue_never_fills_for_writers_that_wait() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path(), session(1)).await.unwrap();
    let count = MAX_QUEUED_EVENTS as u64 + 5_000;
    for id in 0..count {
        journal.wait_for_room().await;
        journal.record(called("a", id));
    }
    journal.close().await.unwrap();
    assert_eq!(kinds(dir.path()).await.len() as u64, count);
}

#[tokio::test]
async fn broken_journal_releases_waiting_writers() {
    let shared = Arc::new(Shared::new(session(1)));
    let journal = Journal { handle: Arc::new(Handle { shared: Arc::clone(&shared) }) };
    for _ in 0..CROWDED_EVENTS {
        journal.record(called("a", 1));
    }
    let waiting = tokio::spawn({
        let journal = journal.clone();
        async move { journal.wait_for_room().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    let _ = shared.fail("the disk is gone");
    waiting.await.unwrap();
}

#[tokio::test]
async fn unusable_journal_paths_are_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("agentsh.db"), "this is not a database, however long it is ".repeat(100))
        .unwrap();
    let error = Journal::open(dir.path(), session(1)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Damaged { message } if message.contains("agentsh.db")), "{error}");
    let error = Journal::open(std::path::Path::new("/proc/agentsh"), session(1)).await.unwrap_err();
    assert!(error.to_string().contains("/proc/agentsh"), "{error}");
}

#[tokio::test]
async fn journal_of_a_newer_schema_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    Journal::open(dir.path(), session(1)).await.unwrap().close().await.unwrap();
    let connection = crate::database::open_writer(dir.path()).unwrap();
    connection.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(connection);
    for error in [
        Journal::open(dir.path(), session(2)).await.map(|_| ()).unwrap_err(),
        Reader::open(dir.path()).await.map(|_| ()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("newer agentsh (schema 99, this one knows 4)"), "{error}");
    }
}
