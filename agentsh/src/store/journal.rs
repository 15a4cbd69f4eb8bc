//! The handle through which every room records what happens. A refusal is on disk before anyone hears of it:
//! [`Journal::commit`]; everything else is queued: [`Journal::record`].

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};

use super::writer::{Pending, Writer};
use super::{Event, StoreError, Summary, bound};
use crate::types::SessionId;

/// An event is on its way to the disk at latest this long after [`Journal::record`].
const FLUSH_AFTER: Duration = Duration::from_millis(50);

/// The writer does not wait longer once this many events are queued.
const FLUSH_EVENTS: usize = 4096;

/// Beyond either of these the journal is broken: the disk is too slow, and an unrecorded call must not run.
const MAX_QUEUED_EVENTS: usize = 65_536;
const MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;

/// Cheap to clone: every clone writes into the same chain. When the last one is dropped, what is queued is still
/// written if the runtime lives that long; only [`Journal::close`] waits for it.
#[derive(Clone, Debug)]
pub struct Journal {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The queue is no longer empty.
    queued: Notify,
    /// Somebody waits, or the queue is long: do not gather any more.
    urgent: Notify,
}

#[derive(Debug)]
struct State {
    batch: Batch,
    bytes: usize,
    broken: Option<String>,
    /// Nothing is taken any more.
    closing: bool,
    /// The writer is gone; None while it works.
    finished: Option<Result<(), StoreError>>,
    summary: Summary,
}

#[derive(Debug, Default)]
struct Batch {
    events: Vec<Pending>,
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

impl Journal {
    /// Opens (or makes) the store in `state_dir` and starts the writer task on the current runtime, which must
    /// have its time driver enabled. Nothing is written before the first event.
    ///
    /// # Errors
    /// When the directory or the database cannot be used.
    pub async fn open(state_dir: &Path, session: SessionId) -> Result<Self, StoreError> {
        let writer = Writer::open(state_dir, session).await?;
        let shared = Arc::new(Shared::new(session));
        tokio::spawn(write_until_closed(writer, Arc::clone(&shared)));
        Ok(Self { handle: Arc::new(Handle { shared }) })
    }

    /// Queues an event, with the time of this call. Never blocks. An event that cannot be queued breaks the
    /// journal: see [`Journal::broken`].
    pub fn record(&self, event: Event) {
        // A failure is kept in the state, where the caller looks before the next call.
        let _ = self.shared().enqueue(&event, None);
    }

    /// Writes an event and everything queued before it, in order. It is on disk when this returns.
    ///
    /// # Errors
    /// When it is not on disk. The journal is then broken for good.
    pub async fn commit(&self, event: Event) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        self.shared().enqueue(&event, Some(done))?;
        written.await.unwrap_or_else(|_| Err(self.shared().fail("the writer stopped")))
    }

    /// Why nothing can be recorded any more, if so. Callers then refuse every further call: what cannot be
    /// recorded does not happen.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        self.shared().state().broken.clone()
    }

    /// What this session has recorded so far, added up.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.shared().state().summary.clone()
    }

    /// Writes what is queued and closes the database. Later events are refused; closing again gives the same
    /// result.
    ///
    /// # Errors
    /// When something that was recorded is not on disk.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (done, closed) = oneshot::channel();
        {
            let mut state = self.shared().state();
            if let Some(result) = &state.finished {
                return result.clone();
            }
            state.closing = true;
            state.batch.waiters.push(done);
        }
        self.shared().wake(true);
        closed.await.unwrap_or_else(|_| Err(self.shared().fail("the writer stopped")))
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.state().closing = true;
        self.shared.wake(true);
    }
}

impl Shared {
    fn new(session: SessionId) -> Self {
        let state = State {
            batch: Batch::default(),
            bytes: 0,
            broken: None,
            closing: false,
            finished: None,
            summary: Summary::new(session),
        };
        Self { state: Mutex::new(state), queued: Notify::new(), urgent: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(
        &self,
        event: &Event,
        waiter: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Result<(), StoreError> {
        let time = Timestamp::now();
        let body = match bound::encode(event) {
            Ok(body) => body,
            Err(error) => return Err(self.fail(&format!("an event cannot be written as JSON: {error}"))),
        };
        let urgent;
        {
            let mut state = self.state();
            if let Some(why) = &state.broken {
                return Err(StoreError::Broken(why.clone()));
            }
            if state.closing {
                let why = "it is closed".to_owned();
                state.broken = Some(why.clone());
                return Err(StoreError::Broken(why));
            }
            let full = state.batch.events.len() >= MAX_QUEUED_EVENTS
                || state.bytes.saturating_add(body.len()) > MAX_QUEUED_BYTES;
            if full {
                let why = format!("{} events wait for a disk that is too slow", state.batch.events.len());
                state.broken = Some(why.clone());
                return Err(StoreError::Broken(why));
            }
            state.summary.add(time, event);
            state.bytes += body.len();
            let ends = matches!(event, Event::SessionEnded { .. });
            state.batch.events.push(Pending { time, body, ends });
            urgent = waiter.is_some() || state.batch.events.len() >= FLUSH_EVENTS;
            state.batch.waiters.extend(waiter);
        }
        self.wake(urgent);
        Ok(())
    }

    fn wake(&self, urgent: bool) {
        self.queued.notify_one();
        if urgent {
            self.urgent.notify_one();
        }
    }

    /// The first reason stays.
    fn fail(&self, why: &str) -> StoreError {
        StoreError::Broken(self.state().broken.get_or_insert_with(|| why.to_owned()).clone())
    }

    /// The queue, and whether it is the last one.
    fn take(&self) -> (Batch, bool) {
        let mut state = self.state();
        state.bytes = 0;
        (std::mem::take(&mut state.batch), state.closing)
    }
}

/// Held by the writer task: however it ends, nobody waits for it afterwards.
struct Task(Arc<Shared>);

impl Drop for Task {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.finished.is_none() {
            let why = state.broken.get_or_insert_with(|| "the writer stopped".to_owned()).clone();
            state.finished = Some(Err(StoreError::Broken(why)));
            state.batch = Batch::default();
        }
    }
}

async fn write_until_closed(mut writer: Writer, shared: Arc<Shared>) {
    let _task = Task(Arc::clone(&shared));
    let mut result = Ok(());
    loop {
        shared.queued.notified().await;
        // Either way the batch is written: the first of the two decides when.
        tokio::select! {
            () = tokio::time::sleep(FLUSH_AFTER) => {}
            () = shared.urgent.notified() => {}
        }
        let (Batch { events, waiters }, last) = shared.take();
        if !events.is_empty() && result.is_ok() {
            result = writer.append(events, !waiters.is_empty()).await;
            if let Err(error) = &result {
                shared.fail(&error.to_string());
            }
        }
        if last {
            finish(writer, &shared, result, waiters).await;
            return;
        }
        tell(waiters, &result);
    }
}

async fn finish(
    writer: Writer,
    shared: &Shared,
    written: Result<(), StoreError>,
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
) {
    let closed = writer.close().await;
    let result = written.and(closed);
    let late = {
        let mut state = shared.state();
        state.finished = Some(result.clone());
        std::mem::take(&mut state.batch)
    };
    tell(waiters, &result);
    tell(late.waiters, &result);
}

fn tell(waiters: Vec<oneshot::Sender<Result<(), StoreError>>>, result: &Result<(), StoreError>) {
    for waiter in waiters {
        // Who no longer listens has given up on the answer.
        let _ = waiter.send(result.clone());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::store::testing::{called, session, verdict};
    use crate::store::verify::SessionState;
    use crate::store::{EventFilter, Reader};

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
        journal.commit(verdict("a", 1, "block")).await.unwrap();
        assert_eq!(kinds(dir.path()).await, ["mcp_tool_called", "mcp_tool_call_intercepted"]);
        assert_eq!(journal.broken(), None);
    }

    #[tokio::test]
    async fn a_recorded_event_follows_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), session(1)).await.unwrap();
        journal.record(called("a", 1));
        tokio::time::sleep(FLUSH_AFTER * 6).await;
        assert_eq!(kinds(dir.path()).await, ["mcp_tool_called"]);
    }

    #[tokio::test]
    async fn closing_writes_the_rest_and_ends_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(dir.path(), session(1)).await.unwrap();
        journal.record(called("a", 1));
        journal.record(Event::SessionEnded { exit_code: 0, duration_ms: 1 });
        journal.close().await.unwrap();
        journal.close().await.unwrap();
        assert_eq!(kinds(dir.path()).await, ["mcp_tool_called", "session_ended"]);
        let check = Reader::open(dir.path()).await.unwrap().unwrap().verify().await.unwrap();
        assert!(check.ok && check.sessions[0].state == SessionState::Ended, "{check:?}");
        journal.commit(called("late", 2)).await.unwrap_err();
        assert!(journal.broken().unwrap().contains("closed"));
    }

    #[test]
    fn a_killed_process_loses_nothing_that_was_committed() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let journal = runtime.block_on(Journal::open(dir.path(), session(1))).unwrap();
        runtime.block_on(async {
            journal.commit(verdict("a", 1, "block")).await.unwrap();
            journal.record(called("lost", 2));
        });
        drop(runtime);
        assert!(matches!(
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(journal.commit(called("x", 3))),
            Err(StoreError::Broken(_))
        ));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert_eq!(kinds(dir.path()).await, ["mcp_tool_call_intercepted"]);
            let check = Reader::open(dir.path()).await.unwrap().unwrap().verify().await.unwrap();
            assert!(check.ok && check.sessions[0].state == SessionState::OpenOrKilled, "{check:?}");
        });
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
                        journal.commit(verdict("a", id, "block")).await.unwrap();
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
    async fn a_store_that_is_gone_breaks_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("agentsh");
        let journal = Journal::open(&state, session(1)).await.unwrap();
        journal.commit(called("a", 1)).await.unwrap();
        std::fs::remove_dir_all(&state).unwrap();
        let error = journal.commit(verdict("a", 1, "block")).await.unwrap_err();
        assert!(matches!(error, StoreError::Moved { .. }), "{error}");
        assert!(journal.broken().unwrap().contains("removed"));
        journal.commit(called("b", 2)).await.unwrap_err();
        journal.close().await.unwrap_err();
    }

    #[tokio::test]
    async fn a_full_disk_breaks_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), session(1)).await.unwrap();
        writer.make_disk_small().await.unwrap();
        let shared = Arc::new(Shared::new(session(1)));
        tokio::spawn(write_until_closed(writer, Arc::clone(&shared)));
        let journal = Journal { handle: Arc::new(Handle { shared }) };
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
    async fn places_that_cannot_be_used_are_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("agentsh.db"), "this is no database, however long it is ".repeat(100))
            .unwrap();
        let error = Journal::open(dir.path(), session(1)).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Damaged { message } if message.contains("agentsh.db")),
            "{error}"
        );
        let error = Journal::open(std::path::Path::new("/proc/agentsh"), session(1)).await.unwrap_err();
        assert!(error.to_string().contains("/proc/agentsh"), "{error}");
    }

    #[tokio::test]
    async fn a_newer_schema_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        Journal::open(dir.path(), session(1)).await.unwrap().close().await.unwrap();
        let mut connection = crate::store::database::open_writer(dir.path()).await.unwrap();
        crate::store::database::execute(&mut connection, "PRAGMA user_version = 99").await.unwrap();
        drop(connection);
        for error in [
            Journal::open(dir.path(), session(2)).await.map(|_| ()).unwrap_err(),
            Reader::open(dir.path()).await.map(|_| ()).unwrap_err(),
        ] {
            assert!(error.to_string().contains("newer agentsh (schema 99, this one knows 1)"), "{error}");
        }
    }
}
