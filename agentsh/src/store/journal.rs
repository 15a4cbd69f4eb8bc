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

/// From here on [`Journal::room`] makes whoever records wait for the disk.
const CROWDED_EVENTS: usize = 16_384;
const CROWDED_BYTES: usize = 8 * 1024 * 1024;

/// Beyond either of these the journal is broken: somebody records without waiting for room, and an unrecorded
/// call must not run.
const MAX_QUEUED_EVENTS: usize = 65_536;
const MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;

/// Cheap to clone: every clone writes into the same chain. When the last one is dropped, what is queued is still
/// written if the process lives that long; only [`Journal::close`] waits for it.
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
    /// The queue was taken to the disk, or never will be.
    emptied: Notify,
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
    /// Opens (or makes) the store in `state_dir` and starts the thread that writes. Nothing is written before the first
    /// event.
    ///
    /// # Errors
    /// When the directory or the database cannot be used.
    pub async fn open(state_dir: &Path, session: SessionId) -> Result<Self, StoreError> {
        let writer = Writer::open(state_dir, session).await?;
        let shared = Arc::new(Shared::new(session));
        // Of its own: who records does not wait for the hashes and statements of a batch, nor is woken by each of them.
        let thread = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let shared = Arc::clone(&shared);
            let write = move || runtime.block_on(write_until_closed(writer, shared));
            std::thread::Builder::new().name("journal".to_owned()).spawn(write)
        };
        let started: std::io::Result<_> = thread();
        started.map_err(|error| StoreError::Broken(format!("no thread for it: {error}")))?;
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

    /// What is queued goes to the disk at once instead of being gathered. Waits for nothing.
    pub fn hurry(&self) {
        self.shared().wake(true);
    }

    /// Returns once the disk has kept up so far. Whoever records on behalf of a peer that can send without end
    /// waits here before it takes the next message, so that a fast peer slows down instead of breaking the journal.
    pub async fn room(&self) {
        loop {
            let emptied = self.shared().emptied.notified();
            if !self.shared().state().is_crowded() {
                return;
            }
            emptied.await;
        }
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

impl State {
    fn is_crowded(&self) -> bool {
        let crowded = self.batch.events.len() >= CROWDED_EVENTS || self.bytes >= CROWDED_BYTES;
        crowded && self.broken.is_none() && !self.closing
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
        Self {
            state: Mutex::new(state),
            queued: Notify::new(),
            urgent: Notify::new(),
            emptied: Notify::new(),
        }
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
        let why = self.state().broken.get_or_insert_with(|| why.to_owned()).clone();
        self.emptied.notify_waiters();
        StoreError::Broken(why)
    }

    /// The queue, and whether it is the last one.
    fn take(&self) -> (Batch, bool) {
        let mut state = self.state();
        state.bytes = 0;
        self.emptied.notify_waiters();
        (std::mem::take(&mut state.batch), state.closing)
    }
}

/// Held by the writer: however it ends, nobody waits for it afterwards.
struct Task(Arc<Shared>);

impl Drop for Task {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if state.finished.is_none() {
            let why = state.broken.get_or_insert_with(|| "the writer stopped".to_owned()).clone();
            state.finished = Some(Err(StoreError::Broken(why)));
            state.batch = Batch::default();
            self.0.emptied.notify_waiters();
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
#[path = "journal_tests.rs"]
mod tests;
