//! Repositories that come into being during a run, until they are guarded.
//!
//! Whoever makes one writes its configuration in several steps, so that it is not guarded at once. Meanwhile each step is
//! looked at: with the first thing that would run by itself the waiting ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::fresh;
use super::names::Names;
use agentsh_policy::builtin_paths::{GIT_BARE, GIT_COMMON};
use agentsh_sandbox::host::{RealHost, repository_names};

/// A repository that has just been made is not finished: git still writes its configuration.
const REPOSITORY_SETTLE_DELAY: Duration = Duration::from_millis(1500);
const MAX_TO_FINISH: Duration = Duration::from_secs(120);
/// What looked like the beginning of a repository without a working tree, and did not become one.
const UNDECIDED_TIMEOUT: Duration = Duration::from_secs(20);
/// NewRepositoryWatcher that are waited for at once: with more, repositories are guarded as they are, and doubtful ones are forgotten
/// until the next of their parts is made.
const MAX_WAITING: usize = 256;

#[derive(Debug, Default)]
pub struct NewRepositoryWatcher {
    since: BTreeMap<PathBuf, Instant>,
    guarded: BTreeSet<PathBuf>,
    /// Something happened in one of them.
    is_stirred: bool,
    /// When they are looked at without an event.
    due: Option<Instant>,
}

/// Whether a name is that of a repository of git, or of another system.
#[must_use]
pub fn is_repository_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| repository_names().any(|known| name == known))
}

/// A name with which a repository without a working tree begins.
#[must_use]
pub fn begins_bare(path: &Path) -> bool {
    let begins = |name: &std::ffi::OsStr| {
        name == "HEAD" || name == GIT_COMMON || GIT_BARE.iter().any(|bare| name == *bare)
    };
    path.file_name().is_some_and(begins)
}

impl NewRepositoryWatcher {
    /// Something that became a repository, or may become one.
    pub fn note(&mut self, entry: &Path, names: Option<&mut Names>, host: &RealHost) {
        self.guarded.remove(entry);
        self.since.entry(entry.to_owned()).or_insert_with(Instant::now);
        self.is_stirred = true;
        self.due.get_or_insert_with(|| Instant::now() + REPOSITORY_SETTLE_DELAY);
        if let Some(names) = names {
            watch(entry, names, host);
        }
    }

    /// A name that something happened to.
    pub fn hear(&mut self, path: &Path, names: Option<&mut Names>, host: &RealHost) {
        if self.since.is_empty() {
            return;
        }
        // Also what happens elsewhere: the directory that a file `.git` names may lie anywhere.
        self.is_stirred = true;
        if let Some((names, entry)) = names.zip(self.since.keys().find(|entry| path.starts_with(entry))) {
            // Its hooks may have come.
            watch(entry, names, host);
        }
    }

    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        self.since.contains_key(path) || self.guarded.contains(path)
    }

    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether they have to be guarded now: one holds what would run by itself, or all are finished.
    pub fn must_be_guarded(&mut self, search: fresh::Search<'_>) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if !self.is_stirred && !is_due {
            return false;
        }
        self.is_stirred = false;
        let is_full = self.since.len() > MAX_WAITING;
        let is_young = |since: &Instant| !is_full && since.elapsed() < UNDECIDED_TIMEOUT;
        // Whoever waits for one that is gone never guards the others.
        self.since.retain(|entry, since| {
            entry.symlink_metadata().is_ok() && (is_repository(entry) || is_young(since))
        });
        if self.since.is_empty() {
            self.due = None;
            return false;
        }
        // An ordinary directory may have a `refs`, and `hooks` beside it: nothing runs those.
        let is_armed = |entry: &PathBuf| is_repository(entry) && fresh::is_armed(entry, search);
        if self.since.len() > MAX_WAITING || self.since.keys().any(is_armed) {
            return true;
        }
        if !is_due {
            return false;
        }
        self.due = Some(Instant::now() + REPOSITORY_SETTLE_DELAY);
        let mut waiting = self.since.iter().filter(|(entry, _)| is_repository(entry)).peekable();
        waiting.peek().is_some()
            && waiting.all(|(entry, since)| is_finished(entry) || since.elapsed() > MAX_TO_FINISH)
    }

    /// All that are repositories, which are guarded from now on.
    pub fn take(&mut self) -> Vec<PathBuf> {
        let (taken, doubtful) =
            std::mem::take(&mut self.since).into_iter().partition(|(entry, _)| is_repository(entry));
        self.since = doubtful;
        self.due = (!self.since.is_empty()).then(|| Instant::now() + REPOSITORY_SETTLE_DELAY);
        let taken: Vec<PathBuf> = BTreeMap::into_keys(taken).collect();
        self.guarded.extend(taken.iter().cloned());
        taken
    }
}

/// Whether a newcomer is a repository by now, or the part of a linked working tree.
#[must_use]
pub fn is_repository(entry: &Path) -> bool {
    is_repository_name(entry) || fresh::is_bare(entry) || entry.join(GIT_COMMON).exists()
}

/// Git makes a repository in several steps, of which the last writes the index.
fn is_finished(entry: &Path) -> bool {
    let names = std::fs::read_dir(entry).into_iter().flatten().flatten().map(|found| found.file_name());
    let names: Vec<_> = names.collect();
    let is_locked = names.iter().any(|name| name.as_encoded_bytes().ends_with(b".lock"));
    let is_made = names.iter().any(|name| name == "index") || entry.is_file() || !entry.ends_with(".git");
    is_made && !is_locked
}

fn watch(entry: &Path, names: &mut Names, host: &RealHost) {
    for directory in fresh::directories_of(entry, host) {
        names.watch(&directory, true);
        names.watch(&directory.join("hooks"), true);
    }
}
