//! The thread's loop: wait, stop the sandbox, compare, guard again.

mod check_guards;
mod inotify_events;

pub(super) use check_guards::{copies, is_guard};

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc::UnboundedSender;

use super::crash_recovery::CrashMarker;
use super::final_check::{FinalCheck, set_aside};
use super::name_watcher::{NameChange, Names};
use super::new_repositories::NewRepositoryWatcher;
use super::{GuardNotice, GuardedNames, disarm_new};
use agentsh_host::copies::Copy;
use agentsh_host::repositories;
use agentsh_sandbox::freeze::Freezer;
use agentsh_sandbox::mount_list::MountList;
use agentsh_sandbox::plan::{Executable, Identity, Mount};
use agentsh_sandbox::remount_guards::Namespaces;
use agentsh_sandbox::spec::PathRules;
use agentsh_sandbox::stubs::StubFiles;
use agentsh_sandbox::{Closer, Zygote, spawn};
use agentsh_store::words::GuardChange;

/// Delay after events without guarded names, so that a busy program costs little.
const IDLE_PAUSE: Duration = Duration::from_millis(3);
/// If some names are not watched: the minimum interval between searches for repositories, and their share of the time.
const REPOSITORY_SEARCH_INTERVAL: Duration = Duration::from_secs(3);
const SEARCH_TIME_DIVISOR: u32 = 20;

pub(super) struct Watch {
    /// The rules of what to guard.
    pub rules: PathRules,
    pub identity: Identity,
    pub guards: Vec<Mount>,
    /// Renames over these are decided by the session.
    pub guarded: GuardedNames,
    /// Where they lie.
    pub targets: BTreeSet<PathBuf>,
    pub executable: Executable,
    /// The check at the end, with the state before the run.
    pub check: FinalCheck,
    /// For recovery, if this run is killed.
    pub unfinished: CrashMarker,
    pub sandbox: OwnedFd,
    pub namespaces: Namespaces,
    /// None: the mount list is not available.
    pub mounted: Option<MountList>,
    pub freezer: Freezer,
    pub zygote: Zygote,
    /// Closes slow descriptors of the session itself.
    pub closer: Closer,
    pub stubs: Vec<StubFiles>,
    /// Readable when the sandbox has ended.
    pub stop: OwnedFd,
    pub tell: UnboundedSender<GuardNotice>,
    pub copies: BTreeMap<PathBuf, Copy>,
    /// Guarded files that the host has removed, as they were.
    pub removed: BTreeMap<PathBuf, Copy>,
    /// Events of guarded names since the last check.
    pub seen: BTreeMap<PathBuf, Vec<NameChange>>,
    pub names: Option<Names>,
    pub new_repository_watcher: NewRepositoryWatcher,
    /// A repository that existed before the run was moved.
    pub is_moved: bool,
    /// New automatically run files.
    pub arrivals: BTreeSet<PathBuf>,
    /// When to search for repositories, if some names are not watched.
    pub look_again: Option<Instant>,
}

impl Watch {
    pub fn run(mut self) {
        self.names = Names::new().ok();
        self.watch_guarded();
        self.take_copies();
        // The program runs already.
        self.arrivals = self.check.baseline.arrivals();
        if let Err(why) = self.check(false) {
            self.end(&why);
        }
        let mut is_armed = false;
        let mut rests_until = None;
        loop {
            let now = Instant::now();
            rests_until = rests_until.filter(|until| *until > now);
            let wake = [
                rests_until,
                self.new_repository_watcher.next_deadline(),
                self.look_again,
                (!is_armed).then_some(now),
            ];
            let wait = wake.into_iter().flatten().min().map(|until| until.saturating_duration_since(now));
            let (has_ended, has_names, lost) = self.wait(wait, rests_until.is_none());
            if has_ended {
                break;
            }
            let mut matters = lost;
            if has_names {
                matters |= self.read_events();
                rests_until = Some(Instant::now() + IDLE_PAUSE);
            }
            if self.look_again.is_some_and(|due| due <= Instant::now()) {
                self.look_for_newcomers();
            }
            let is_due = self.must_guard_newcomers() || !self.arrivals.is_empty();
            if (matters || is_due)
                && let Err(why) = self.check(is_due)
            {
                self.end(&why);
            }
            if !is_armed && !matters {
                is_armed = true;
                self.watch_tree();
                if self.is_incomplete() {
                    self.look_again = Some(Instant::now());
                }
            }
        }
        self.finish();
    }

    fn finish(mut self) {
        self.read_events();
        for path in self.lost_guards().unwrap_or_default() {
            if let Err(why) = self.judge_replacement(&path, false) {
                self.report_change(
                    &path,
                    GuardChange::NotPutBack,
                    format!("cannot restore the guarded files: {why}"),
                );
            }
        }
        let Self { copies, removed, tell, closer, names, namespaces, mounted, unfinished, check, .. } = self;
        let is_settled = |path: &Path, copy: &Copy| {
            copies.get(path).is_some_and(|copy| *copy != Copy::Absent) || removed.get(path) == Some(copy)
        };
        let say = &mut |path: &Path, what, text| GuardNotice::send(&tell, path, what, text);
        unfinished.close(check, is_settled, say);
        let mut open = namespaces.into_descriptors();
        open.extend(names.map(Names::into_descriptor));
        open.extend(mounted.map(OwnedFd::from));
        closer.close(open);
    }

    /// Ends the sandbox, because it cannot be guarded.
    fn end(&mut self, why: &str) {
        let text = format!(
            "agentsh ended the sandbox: files that the host replaced could not be guarded again: \
        {why}"
        );
        self.report_change(&self.rules.project.clone(), GuardChange::Ended, text);
        spawn::kill(self.sandbox.as_fd());
        self.freezer.thaw();
    }

    /// Some names are not watched, so a new repository may be missed.
    fn is_incomplete(&self) -> bool {
        self.names.as_ref().is_none_or(|names| names.is_incomplete)
    }

    fn search(&self) -> disarm_new::Search<'_> {
        disarm_new::Search {
            roots: &self.check.directories,
            baseline: &self.check.baseline,
            host: &self.check.host,
            is_live: true,
        }
    }

    fn must_guard_newcomers(&mut self) -> bool {
        let mut new_repository_watcher = std::mem::take(&mut self.new_repository_watcher);
        let must = new_repository_watcher.must_be_guarded(self.search());
        self.new_repository_watcher = new_repository_watcher;
        must
    }

    fn look_for_newcomers(&mut self) {
        let start = Instant::now();
        self.arrivals
            .extend(self.check.baseline.arrivals().into_iter().filter(|path| !self.targets.contains(path)));
        for entry in
            disarm_new::repositories(&self.check.directories, &self.check.baseline, &self.check.host).0
        {
            if !self.new_repository_watcher.holds(&entry) {
                self.note_repository(&entry);
            }
        }
        self.look_again = Some(start + REPOSITORY_SEARCH_INTERVAL.max(start.elapsed() * SEARCH_TIME_DIVISOR));
    }

    /// Sets aside what would run automatically in new repositories, before they are guarded. Call while nothing runs.
    fn disarm_newcomers(&mut self) {
        let mut new_repository_watcher = std::mem::take(&mut self.new_repository_watcher);
        let mut taken = new_repository_watcher.take(self.search());
        self.rules.unfinished = new_repository_watcher.unfinished();
        self.new_repository_watcher = new_repository_watcher;
        taken.retain(|entry| self.unfinished.is_in_place(entry));
        for entry in taken {
            // Not only at the end: the user may start agentsh there before.
            self.check.note_remotes(repositories::addresses_in(&entry), &mut |path, what, text| {
                self.report_change(path, what, text)
            });
            let done = disarm_new::disarm(&entry, self.search(), &self.check.aside);
            disarm_new::renew(&entry, self.search());
            if !done.names.is_empty() {
                let (what, text) = set_aside(&entry, &done, &self.check.baseline);
                self.report_change(&entry, what, text);
            }
        }
    }

    /// Waits for the end, an event or a mount.
    fn wait(&self, at_most: Option<Duration>, with_names: bool) -> (bool, bool, bool) {
        let mut wanted = vec![PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        match &self.mounted {
            Some(mounted) => wanted.push(PollFd::new(mounted.as_fd(), PollFlags::POLLPRI)),
            None => wanted.push(PollFd::new(self.stop.as_fd(), PollFlags::empty())),
        }
        if let Some(names) = self.names.as_ref().filter(|_| with_names) {
            wanted.push(PollFd::new(names.as_fd(), PollFlags::POLLIN));
        }
        let timeout = at_most.map_or(PollTimeout::NONE, |wait| {
            PollTimeout::try_from(wait.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX)
        });
        let timeout = if at_most == Some(Duration::ZERO) { PollTimeout::ZERO } else { timeout };
        if poll(&mut wanted, timeout).is_err() {
            return (false, false, false);
        }
        let is = |index: usize| {
            wanted.get(index).and_then(PollFd::revents).is_some_and(|events| !events.is_empty())
        };
        (is(0), is(2), is(1))
    }

    fn has_ended(&self) -> bool {
        self.wait(Some(Duration::ZERO), false).0
    }

    fn report_change(&self, path: &Path, what: GuardChange, text: String) {
        GuardNotice::send(&self.tell, path, what, text);
    }
}
