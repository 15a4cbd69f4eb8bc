//! The handle for recording events. [`Journal::commit`] returns when the event is on disk, as for refusals;
//! [`Journal::record`] only queues it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};

use super::tap::{Subscription, Tap};
use super::writer::{Pending, Writer};
use super::{Event, StoreError, Summary, text_limits};
use crate::types::SessionId;

/// An event is on its way to the disk at latest this long after [`Journal::record`].
const FLUSH_AFTER: Duration = Duration::from_millis(50);

/// Like [`FLUSH_AFTER`], after [`Journal::start_collecting`].
const GATHER_TIMEOUT: Duration = Duration::from_secs(2);

/// The writer does not wait longer once this many events are queued.
const FLUSH_EVENTS: usize = 4096;

/// The queue length from which [`Journal::wait_for_room`] waits for the disk.
const CROWDED_EVENTS: usize = 16_384;
const BACKPRESSURE_BYTES: usize = 8 * 1024 * 1024;

/// Beyond either of these the journal is broken: some code records without waiting for room, and an unrecorded
/// call must not run.
const MAX_QUEUED_EVENTS: usize = 65_536;
const MAX_QUEUED_BYTES: usize = 32 * 1024 * 1024;

/// Cheap to clone: every clone writes into the same chain. When the last one is dropped, what is queued is still
/// written if the process lives that long; only [`Journal::close`] waits for it.
#[derive(Clone)]
pub struct Journal {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// The queue is no longer empty, or must be written at once.
    queued: Condvar,
    /// The queue was taken to the disk, or never will be.
    emptied: Notify,
    tap: Tap,
}

#[derive(Default)]
struct State {
    batch: Batch,
    bytes: usize,
    /// A caller waits, or the queue is long: do not collect any more.
    urgent: bool,
    /// More events are expected soon, so the writer waits for them.
    gathers: bool,
    broken: Option<String>,
    /// No further event is accepted.
    closing: bool,
    /// The writer is gone; None while it works.
    finished: Option<Result<(), StoreError>>,
    summary: Summary,
}

/// Something else that is written on the journal's thread.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Batch {
    events: Vec<Pending>,
    others: Vec<Work>,
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

impl Journal {
    /// Starts the thread that writes, which opens (or makes) the store in `state_dir` and writes to it once.
    ///
    /// # Errors
    /// When the directory or the database cannot be used, or not be written.
    pub async fn open(state_dir: &Path, session: SessionId) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::new(session));
        let (opened, is_open) = oneshot::channel();
        // A separate thread, so that recording does not wait for the hashes and statements of a batch.
        let write = {
            let (shared, state_dir) = (Arc::clone(&shared), state_dir.to_owned());
            move || match Writer::open(&state_dir, session) {
                Ok(writer) => {
                    // If the opener is gone, the handle is dropped too, which ends the writer.
                    let _ = opened.send(Ok(()));
                    write_until_closed(writer, &shared);
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                }
            }
        };
        let handle = Arc::new(Handle { shared });
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(write)
            .map_err(|error| StoreError::Broken(format!("cannot start its thread: {error}")))?;
        is_open.await.unwrap_or_else(|_| Err(StoreError::Broken("the writer stopped".to_owned())))?;
        Ok(Self { handle })
    }

    /// Every event of this session from now on, once it is on disk. The journal waits for no subscriber: a slow one gets the
    /// number of events that it lost.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        self.shared().tap.subscribe()
    }

    /// Returns when everything that was recorded is on disk, and subscribers can have it.
    ///
    /// # Errors
    /// When it is not on disk.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.wait(false).await
    }

    async fn wait(&self, is_last: bool) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        {
            let mut state = self.shared().state();
            if let Some(result) = &state.finished {
                return result.clone();
            }
            state.closing |= is_last;
            state.batch.waiters.push(done);
        }
        self.shared().wake(true);
        written.await.unwrap_or_else(|_| Err(self.shared().fail("the writer stopped")))
    }

    /// Runs `work` on the thread of the journal, after the events of the next batch. It is dropped where that thread
    /// has ended.
    pub(crate) fn run_after_batch(&self, work: Work) {
        let mut state = self.shared().state();
        if state.finished.is_none() {
            let is_first = state.batch.is_empty();
            state.batch.others.push(work);
            drop(state);
            self.shared().wake_for(is_first, false);
        }
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

    /// Collects events until [`Journal::flush_now`], until a caller waits for one, or for two seconds.
    pub fn start_collecting(&self) {
        self.shared().state().gathers = true;
    }

    /// Writes queued events at once instead of collecting more. Does not wait.
    pub fn flush_now(&self) {
        self.shared().wake(true);
    }

    /// Returns when the disk has caught up. Recording on behalf of a peer that can send without end waits here before its next
    /// message, so that a fast peer slows down instead of breaking the journal.
    pub async fn wait_for_room(&self) {
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

    /// The summary of this session so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.shared().state().summary.clone()
    }

    /// Writes what is queued and closes the database. Later events are refused; closing again gives the same
    /// result.
    ///
    /// # Errors
    /// When a recorded event could not be written.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.wait(true).await
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("broken", &self.broken()).finish_non_exhaustive()
    }
}

impl State {
    fn is_crowded(&self) -> bool {
        let crowded = self.batch.events.len() >= CROWDED_EVENTS || self.bytes >= BACKPRESSURE_BYTES;
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
        let state = State { summary: Summary::new(session), ..State::default() };
        Self {
            state: Mutex::new(state),
            queued: Condvar::new(),
            emptied: Notify::new(),
            tap: Tap::new(session),
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
        let body = match text_limits::encode(event) {
            Ok(body) => body,
            Err(error) => return Err(self.fail(&format!("cannot write an event as JSON: {error}"))),
        };
        let (urgent, is_first);
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
                let why = format!("{} events are waiting: the disk is too slow", state.batch.events.len());
                state.broken = Some(why.clone());
                return Err(StoreError::Broken(why));
            }
            state.summary.add(time, event);
            state.bytes += body.len();
            let ends = matches!(event, Event::SessionEnded { .. });
            is_first = state.batch.is_empty();
            state.batch.events.push(Pending { time, body, ends });
            urgent = waiter.is_some() || state.batch.events.len() >= FLUSH_EVENTS;
            state.batch.waiters.extend(waiter);
        }
        self.wake_for(is_first, urgent);
        Ok(())
    }

    /// A writer that collects is not woken by each event, because waking costs more than everything else in recording.
    fn wake_for(&self, is_first: bool, urgent: bool) {
        if is_first || urgent {
            self.wake(urgent);
        }
    }

    fn wake(&self, urgent: bool) {
        self.state().urgent |= urgent;
        self.queued.notify_one();
    }

    /// The first reason stays.
    fn fail(&self, why: &str) -> StoreError {
        let why = self.state().broken.get_or_insert_with(|| why.to_owned()).clone();
        self.emptied.notify_waiters();
        StoreError::Broken(why)
    }

    /// The queue, and whether it is the last one. Waits until there is one that should be written.
    fn take(&self) -> (Batch, bool) {
        let wait = |state, idle: fn(&State) -> bool| {
            self.queued.wait_while(state, |state| idle(state)).unwrap_or_else(PoisonError::into_inner)
        };
        let state = wait(self.state(), |state| !state.closing && !state.urgent && state.batch.is_empty());
        let at_most = if state.gathers { GATHER_TIMEOUT } else { FLUSH_AFTER };
        let gather = self.queued.wait_timeout_while(state, at_most, |state| !state.closing && !state.urgent);
        let (mut state, _) = gather.unwrap_or_else(PoisonError::into_inner);
        (state.bytes, state.urgent, state.gathers) = (0, false, false);
        self.emptied.notify_waiters();
        (std::mem::take(&mut state.batch), state.closing)
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.others.is_empty() && self.waiters.is_empty()
    }
}

/// Held by the writer: however it ends, no caller waits for it afterwards.
struct Task<'a>(&'a Shared);

impl Drop for Task<'_> {
    fn drop(&mut self) {
        self.0.tap.close();
        let mut state = self.0.state();
        if state.finished.is_none() {
            let why = state.broken.get_or_insert_with(|| "the writer stopped".to_owned()).clone();
            state.finished = Some(Err(StoreError::Broken(why)));
            state.batch = Batch::default();
            self.0.emptied.notify_waiters();
        }
    }
}

fn write_until_closed(mut writer: Writer, shared: &Shared) {
    let _task = Task(shared);
    let mut result = Ok(());
    loop {
        let (Batch { events, others, waiters }, last) = shared.take();
        if !events.is_empty() && result.is_ok() {
            let before = writer.written_count();
            // Closing brings all of it to the disk.
            result = writer.append(&events, !waiters.is_empty() && !last);
            match &result {
                Ok(()) => shared.tap.publish(before, events),
                Err(error) => drop(shared.fail(&error.to_string())),
            }
        }
        others.into_iter().for_each(|work| work());
        if last {
            finish(writer, shared, result, waiters);
            return;
        }
        notify_waiters(waiters, &result);
    }
}

fn finish(
    writer: Writer,
    shared: &Shared,
    written: Result<(), StoreError>,
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
) {
    let result = written.and(writer.close());
    let late = {
        let mut state = shared.state();
        state.finished = Some(result.clone());
        std::mem::take(&mut state.batch)
    };
    notify_waiters(waiters, &result);
    notify_waiters(late.waiters, &result);
}

fn notify_waiters(waiters: Vec<oneshot::Sender<Result<(), StoreError>>>, result: &Result<(), StoreError>) {
    for waiter in waiters {
        // A waiter that is gone does not need the answer.
        let _ = waiter.send(result.clone());
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
