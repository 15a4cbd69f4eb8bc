//! The end of a session: [`Session::close`].

use std::cell::{Cell, OnceCell, RefCell};

use agentsh_sandbox::cgroup::SessionGroups;
use agentsh_store::running::RunningMark;
use agentsh_store::{Event, StoreError};
use agentsh_telemetry::subscriber::Subscriber;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Session;
use super::git_head::{Repository, head_and_left};
use super::sentinel::Sentinel;

/// The exit status of a session whose final check left something.
const NOT_CHECKED: u8 = 125;

/// What [`Session::close`] stops, awaits or removes.
pub struct Teardown {
    /// Marks the session as running; None if that failed.
    _mark: Option<RunningMark>,
    /// The memory limit of all sandboxes.
    groups: RefCell<SessionGroups>,
    pub(super) sentinel: RefCell<Option<Sentinel>>,
    /// Sends events to receivers.
    pub(super) telemetry: RefCell<Option<Subscriber>>,
    /// The final check failed somewhere.
    pub(super) remains: Cell<bool>,
    /// The project's, when nothing runs any more.
    pub(super) repository: OnceCell<Option<Repository>>,
    /// Clean-up tasks.
    cleaning: RefCell<Vec<JoinHandle<()>>>,
}

impl Teardown {
    #[must_use]
    pub fn new(mark: Option<RunningMark>, groups: SessionGroups) -> Self {
        Self {
            _mark: mark,
            groups: RefCell::new(groups),
            sentinel: RefCell::default(),
            telemetry: RefCell::default(),
            remains: Cell::default(),
            repository: OnceCell::new(),
            cleaning: RefCell::default(),
        }
    }

    /// Drops leftovers on another thread; [`Session::close`] waits for it.
    pub fn clean_up(&self, leftovers: impl Send + 'static) {
        self.cleaning.borrow_mut().push(spawn_blocking(move || drop(leftovers)));
    }
}

impl Session {
    /// The exit status: a success counts as a failure if something remains that the final check could not remove.
    #[must_use]
    pub fn exit_code(&self, exit_code: u8) -> u8 {
        if exit_code != 0 || !self.live.teardown.remains.get() {
            return exit_code;
        }
        self.record.note(&format!(
            "the exit status is {NOT_CHECKED}, because something could not be set aside or checked"
        ));
        NOT_CHECKED
    }

    /// Ends the journal. The exit code is the verb's.
    ///
    /// # Errors
    /// When the end could not be recorded.
    pub async fn close(&self, exit_code: u8) -> Result<(), StoreError> {
        let (live, teardown) = (&self.live, &self.live.teardown);
        teardown.sentinel.take();
        if live.servers.interfaces.ask_no_more() {
            // Lets the aborted tasks end before the journal does.
            tokio::task::yield_now().await;
        }
        live.network.close().await;
        self.keep_interfaces().await;
        let duration_ms = u64::try_from(self.facts.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        // A running clock does not count the time that the machine slept.
        let since = self.facts.id.0.get_timestamp().map_or(u64::MAX, |time| time.to_unix().0);
        let project = &self.facts.context.project;
        let repository = teardown.repository.get_or_init(|| Repository::of(project));
        let (head, left) = head_and_left(project, repository.as_ref(), since);
        self.record.journal.record(Event::SessionEnded { exit_code, duration_ms, head, left });
        if let Some(policed) = live.network.detach() {
            teardown.clean_up(policed);
        }
        if let Some(telemetry) = teardown.telemetry.take() {
            // A full disk is reported by the end of the journal.
            let _ = self.record.journal.flush().await;
            for note in telemetry.finish().await {
                self.record.announce(&format!("telemetry: {}", agentsh_store::escape::line(&note)));
            }
        }
        let ((), closed) = tokio::join!(live.servers.pins.close(), self.record.journal.close());
        for work in teardown.cleaning.take() {
            // It has no result; a panic was reported where it happened.
            let _ = work.await;
        }
        teardown.groups.borrow_mut().remove_now();
        closed
    }
}
