//! The thread itself: waits, stops the sandbox, compares, guards again.

mod ending;
mod guarding;
mod hearing;

pub use guarding::arrived;
pub(super) use guarding::{copies, is_guard};

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc::UnboundedSender;

use super::baseline::Baseline;
use super::names::{NameChange, Names};
use super::newcomers::NewRepositoryWatcher;
use super::unfinished::Unfinished;
use super::{GuardNotice, GuardedNames, fresh};
use agentsh_host::copies::Copy;
use agentsh_host::undo::SavedVersions;
use agentsh_sandbox::freeze::Freezer;
use agentsh_sandbox::host::RealHost;
use agentsh_sandbox::mend::Namespaces;
use agentsh_sandbox::mounted::MountList;
use agentsh_sandbox::placeholders::Placeholders;
use agentsh_sandbox::plan::{Executable, Identity, Mount};
use agentsh_sandbox::spec::PathRules;
use agentsh_sandbox::{Closer, Zygote, spawn};
use agentsh_store::words::GuardChange;

/// After events that were about nothing guarded: a program that writes a lot costs little.
const IDLE_PAUSE: Duration = Duration::from_millis(3);
/// Where not every name is told, repositories are looked for: no more often than this, and no longer than this part of
/// the time.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
const PART_OF_THE_TIME: u32 = 20;

pub(super) struct Watch {
    /// What is guarded again when the host takes it away.
    pub rules: PathRules,
    pub identity: Identity,
    pub guards: Vec<Mount>,
    /// Renames over these are decided about.
    pub guarded: GuardedNames,
    /// Where they lie.
    pub targets: BTreeSet<PathBuf>,
    pub executable: Executable,
    /// Repositories of before the run, and what was not guarded from the start.
    pub baseline: Baseline,
    /// What the next run does if this one is killed.
    pub unfinished: Unfinished,
    pub directories: Vec<PathBuf>,
    pub instructed: BTreeSet<PathBuf>,
    pub instructions: BTreeMap<PathBuf, (Copy, &'static str)>,
    pub state: PathBuf,
    pub aside: SavedVersions,
    pub sandbox: OwnedFd,
    pub namespaces: Namespaces,
    /// None: nobody knows what is mounted in it.
    pub mounted: Option<MountList>,
    pub freezer: Freezer,
    pub zygote: Zygote,
    /// Of the session's own.
    pub closer: Closer,
    pub host: RealHost,
    pub stand_ins: Vec<Placeholders>,
    /// Readable when the sandbox has ended.
    pub stop: OwnedFd,
    pub tell: UnboundedSender<GuardNotice>,
    pub copies: BTreeMap<PathBuf, Copy>,
    /// What happened to guarded names since they were last as they should be.
    pub seen: BTreeMap<PathBuf, Vec<NameChange>>,
    pub names: Option<Names>,
    pub newcomers: NewRepositoryWatcher,
    /// A repository of before the run lies elsewhere now.
    pub is_moved: bool,
    /// What runs by itself and has just been made.
    pub arrivals: BTreeSet<PathBuf>,
    /// When repositories are looked for, where not every name is told.
    pub look_again: Option<Instant>,
}

impl Watch {
    pub fn run(mut self) {
        self.names = Names::new().ok();
        self.watch_guarded();
        self.take_copies();
        // The program runs already.
        self.arrivals = self.baseline.arrivals();
        if let Err(why) = self.check(false) {
            self.end(&why);
        }
        let mut is_armed = false;
        let mut rests_until = None;
        loop {
            let now = Instant::now();
            rests_until = rests_until.filter(|until| *until > now);
            let wake = [rests_until, self.newcomers.due(), self.look_again, (!is_armed).then_some(now)];
            let wait = wake.into_iter().flatten().min().map(|until| until.saturating_duration_since(now));
            let (has_ended, has_names, lost) = self.wait(wait, rests_until.is_none());
            if has_ended {
                break;
            }
            let mut matters = lost;
            if has_names {
                matters |= self.hear();
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

    /// What cannot be guarded does not run.
    fn end(&mut self, why: &str) {
        let text = format!(
            "agentsh ended the sandbox: files that the host replaced could not be guarded again: \
        {why}"
        );
        self.say(&self.rules.project.clone(), GuardChange::Ended, text);
        spawn::kill(self.sandbox.as_fd());
        self.freezer.thaw();
    }

    /// Not every name is told: a repository may come into being unseen.
    fn is_incomplete(&self) -> bool {
        self.names.as_ref().is_none_or(|names| names.is_incomplete)
    }

    fn search(&self) -> fresh::Search<'_> {
        fresh::Search { roots: &self.directories, baseline: &self.baseline, host: &self.host }
    }

    fn must_guard_newcomers(&mut self) -> bool {
        let mut newcomers = std::mem::take(&mut self.newcomers);
        let must = newcomers.must_be_guarded(self.search());
        self.newcomers = newcomers;
        must
    }

    fn look_for_newcomers(&mut self) {
        let start = Instant::now();
        self.arrivals
            .extend(self.baseline.arrivals().into_iter().filter(|path| !self.targets.contains(path)));
        for entry in fresh::repositories(&self.directories, &self.host).0 {
            if !self.newcomers.holds(&entry) {
                self.note_repository(&entry);
            }
        }
        self.look_again = Some(start + LOOK_AGAIN.max(start.elapsed() * PART_OF_THE_TIME));
    }

    /// While nothing runs: what would run by itself is taken out before the rest is guarded.
    fn disarm_newcomers(&mut self) {
        for entry in self.newcomers.take() {
            let done = fresh::disarm(&entry, self.search(), &self.aside);
            fresh::renew(&entry, self.search());
            if !done.is_empty() {
                self.say(&entry, GuardChange::NewRepository, set_aside(&entry, &done));
            }
        }
    }

    /// Waits for the end, for names and for mounts.
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

    fn say(&self, path: &Path, what: GuardChange, text: String) {
        // A session that is gone hears nothing.
        let _ = self.tell.send(GuardNotice { path: path.to_owned(), what, text });
    }
}

pub(super) fn set_aside(entry: &Path, done: &[String]) -> String {
    format!(
        "new repository: {}; files that would run by themselves were set aside (`agentsh undo FILE` restores \
         them): {}",
        entry.display(),
        done.join("; ")
    )
}
