//! Repositories created during a run, until they are guarded. Creation takes several steps, so guarding waits until
//! they are done, or until something appears that would run automatically.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::disarm_new;
use super::name_watcher::Names;
use agentsh_base::{proc_file, small_file};
use agentsh_policy::builtin_paths::{GIT_BARE, GIT_COMMON};
use agentsh_sandbox::git_config::entries;
use agentsh_sandbox::host::{Host, MAX_CONFIGURATION, RealHost, repository_names};

/// A new repository is unfinished for a moment: git still writes its configuration.
const REPOSITORY_SETTLE_DELAY: Duration = Duration::from_millis(1500);
/// By then it is finished, unless git is at work.
const MAX_TO_FINISH: Duration = Duration::from_secs(120);
/// For directories that look like the start of a bare repository.
const UNDECIDED_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit of pending entries: beyond it, repositories are guarded as they are, and undecided ones are dropped until
/// their next part appears.
const MAX_WAITING: usize = 256;

#[derive(Debug, Default)]
pub struct NewRepositoryWatcher {
    /// When each appeared, and when something last happened in it.
    since: BTreeMap<PathBuf, (Instant, Instant)>,
    guarded: BTreeSet<PathBuf>,
    /// Something happened in one of them.
    is_stirred: bool,
    /// When to check without an event.
    due: Option<Instant>,
}

/// Whether a name is a repository's, of git or another system.
#[must_use]
pub fn is_repository_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| repository_names().any(|known| name == known))
}

/// A name with which a bare repository begins.
#[must_use]
pub fn begins_bare(path: &Path) -> bool {
    let begins = |name: &std::ffi::OsStr| {
        name == "HEAD" || name == GIT_COMMON || GIT_BARE.iter().any(|bare| name == *bare)
    };
    path.file_name().is_some_and(begins)
}

impl NewRepositoryWatcher {
    /// Notes a new or possible repository.
    pub fn note(&mut self, entry: &Path, names: Option<&mut Names>, host: &RealHost) {
        self.guarded.remove(entry);
        let now = Instant::now();
        self.since.entry(entry.to_owned()).or_insert((now, now)).1 = now;
        self.is_stirred = true;
        self.due.get_or_insert_with(|| Instant::now() + REPOSITORY_SETTLE_DELAY);
        if let Some(names) = names {
            watch(entry, names, host);
        }
    }

    /// Handles an event.
    pub fn handle_event(&mut self, path: &Path, names: Option<&mut Names>, host: &RealHost) {
        if self.since.is_empty() {
            return;
        }
        // Set for events elsewhere too, because a `.git` file may name any directory.
        self.is_stirred = true;
        for (_, (_, last)) in self.since.iter_mut().filter(|(entry, _)| path.starts_with(entry)) {
            *last = Instant::now();
        }
        if let Some((names, entry)) = names.zip(self.since.keys().find(|entry| path.starts_with(entry))) {
            // Its hooks may have appeared.
            watch(entry, names, host);
        }
    }

    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        self.since.contains_key(path) || self.guarded.contains(path)
    }

    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Repositories that are not guarded yet.
    #[must_use]
    pub fn unfinished(&self) -> BTreeSet<PathBuf> {
        self.since.keys().cloned().collect()
    }

    /// Whether to guard now: one would run something, or is finished.
    pub fn must_be_guarded(&mut self, search: disarm_new::Search<'_>) -> bool {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if !self.is_stirred && !is_due {
            return false;
        }
        self.is_stirred = false;
        let is_full = self.since.len() > MAX_WAITING;
        let is_young = |since: Instant| !is_full && since.elapsed() < UNDECIDED_TIMEOUT;
        self.since.retain(|entry, (since, _)| {
            entry.symlink_metadata().is_ok() && (is_repository(entry) || is_young(*since))
        });
        if self.since.is_empty() {
            self.due = None;
            return false;
        }
        // `refs` and `hooks` in an ordinary directory run nothing.
        let is_armed = |entry: &PathBuf| is_repository(entry) && disarm_new::runs_by_itself(entry, search);
        if self.since.len() > MAX_WAITING || self.since.keys().any(is_armed) {
            return true;
        }
        if !is_due {
            return false;
        }
        self.due = Some(Instant::now() + REPOSITORY_SETTLE_DELAY);
        self.since
            .iter()
            .any(|(entry, times)| is_repository(entry) && is_finished(entry, *times, search.host))
    }

    /// Returns the repositories that are guarded from now on. The others still wait.
    pub fn take(&mut self, search: disarm_new::Search<'_>) -> Vec<PathBuf> {
        let is_full = self.since.len() > MAX_WAITING;
        let is_ready = |entry: &Path, times| {
            is_full || is_finished(entry, times, search.host) || disarm_new::runs_by_itself(entry, search)
        };
        let (taken, waiting) = std::mem::take(&mut self.since)
            .into_iter()
            .partition(|(entry, times)| is_repository(entry) && is_ready(entry, *times));
        self.since = waiting;
        self.due = (!self.since.is_empty()).then(|| Instant::now() + REPOSITORY_SETTLE_DELAY);
        let taken: Vec<PathBuf> = BTreeMap::into_keys(taken).collect();
        self.guarded.extend(taken.iter().cloned());
        taken
    }
}

/// Whether an entry has become a repository, or part of a linked worktree.
#[must_use]
pub fn is_repository(entry: &Path) -> bool {
    is_repository_name(entry) || disarm_new::is_bare(entry) || entry.join(GIT_COMMON).exists()
}

/// git writes the index last. What has none is finished when nothing happens in it any more. A `.git` file is as far as
/// the repository that it names: git writes it twice.
fn is_finished(entry: &Path, (since, last): (Instant, Instant), host: &RealHost) -> bool {
    let named = entry.is_file().then(|| host.git_directory(entry)).flatten();
    let git = named.as_deref().unwrap_or(entry);
    let names = std::fs::read_dir(git).into_iter().flatten().flatten().map(|found| found.file_name());
    let names: Vec<_> = names.collect();
    let is_locked = names.iter().any(|name| name.as_encoded_bytes().ends_with(b".lock"));
    // For a submodule, only the configuration says that it has a working tree.
    let config = || small_file::text(git.join("config"), MAX_CONFIGURATION).unwrap_or_default();
    let gets_index = git.is_dir()
        && (git.ends_with(".git")
            || entries(&config()).iter().any(|entry| entry.to_string() == "core.bare = false"));
    let is_made =
        names.iter().any(|name| name == "index") || !gets_index && last.elapsed() >= REPOSITORY_SETTLE_DELAY;
    is_made && !is_locked || since.elapsed() > MAX_TO_FINISH && !is_git_at_work()
}

/// Whether git runs in a sandbox: a clone may wait for its server, and nothing happens in the repository meanwhile.
fn is_git_at_work() -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| proc_file::read(process.path().join("status")).ok()).any(|status| {
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        status.starts_with("Name:\tgit") && ids.split_whitespace().count() > 1
    })
}

fn watch(entry: &Path, names: &mut Names, host: &RealHost) {
    for directory in disarm_new::directories_of(entry, host) {
        names.watch(&directory, true);
        names.watch(&directory.join("hooks"), true);
    }
}
