//! Restores a working tree if git is stopped at a guarded file: git would continue and leave a mixture of the old and
//! the new tree.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal};

use super::new_version::may_write;
use agentsh_base::proc_file;
use agentsh_host::copies::{Copy, make_directories_above};
use agentsh_sandbox::mount_calls::open_without_links;

/// Limit of kept files. Guarded ones begin with a dot, so they are among the first.
const MAX_FILES: usize = 1000;

/// Limit of all copies; and of git processes at a time.
const MAX_BYTES: usize = 32 << 20;
const MAX_PROCESSES: usize = 8;

/// Original files of one git process, by path.
type OriginalFiles = BTreeMap<PathBuf, Copy>;

#[derive(Debug, Default)]
struct LoadedOriginals {
    found: OriginalFiles,
    bytes: usize,
    /// There were more than the limit.
    is_cut: bool,
}

impl LoadedOriginals {
    fn keep(&mut self, path: &Path) {
        if self.is_cut || self.found.contains_key(path) {
            return;
        }
        let copy = Copy::of(path);
        // A removed directory is restored with its content.
        if matches!(copy, Copy::Directory(_)) {
            return;
        }
        self.bytes += if let Copy::File { content, .. } = &copy { content.len() } else { 0 };
        self.is_cut = self.found.len() >= MAX_FILES
            || self.bytes > MAX_BYTES / MAX_PROCESSES
            || matches!(copy, Copy::Unread { .. });
        self.found.insert(path.to_owned(), copy);
    }
}

/// The working trees of one sandbox.
#[derive(Debug, Default)]
pub struct Trees {
    /// Directories called `.git`.
    repositories: BTreeSet<PathBuf>,
    work: RefCell<BTreeMap<u32, LoadedOriginals>>,
}

/// What git keeps while it does several steps, and the command that gives them up.
const IN_PROGRESS: [(&str, &str); 6] = [
    ("rebase-apply/applying", "git am --abort"),
    ("rebase-merge", "git rebase --abort"),
    ("rebase-apply", "git rebase --abort"),
    ("CHERRY_PICK_HEAD", "git cherry-pick --abort"),
    ("MERGE_HEAD", "git merge --abort"),
    ("REVERT_HEAD", "git revert --abort"),
];

impl Trees {
    /// The command that ends what git has begun in the tree of a path.
    #[must_use]
    pub fn abort_command(&self, path: &Path) -> Option<&'static str> {
        let is_its_tree = |git: &&PathBuf| git.parent().is_some_and(|top| path.starts_with(top));
        let git = self.repositories.iter().filter(is_its_tree).max_by_key(|git| git.as_os_str().len())?;
        IN_PROGRESS.iter().find(|(name, _)| git.join(name).exists()).map(|(_, command)| *command)
    }

    #[must_use]
    pub fn of(repositories: BTreeSet<PathBuf>) -> Self {
        let is_in_its_tree = |path: &PathBuf| path.file_name().is_some_and(|name| name == ".git");
        Self {
            repositories: repositories.into_iter().filter(is_in_its_tree).collect(),
            work: RefCell::default(),
        }
    }

    /// A process changes a path. Some: git changes a tree and meets a path that it may not have; these are its earlier changes.
    pub fn note_change(
        &self,
        pid: u32,
        path: &Path,
        is_refused: impl FnOnce() -> bool,
    ) -> Option<OriginalFiles> {
        let is_at_work = self.repositories.iter().any(|git| {
            let is_in_tree = git.parent().is_some_and(|top| path.starts_with(top)) && !path.starts_with(git);
            is_in_tree && git.join("index.lock").exists()
        });
        if !is_at_work
            || !proc_file::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "git")
        {
            return None;
        }
        let mut work = self.work.borrow_mut();
        if is_refused() {
            let known =
                work.remove(&pid).or_else(|| (work.len() < MAX_PROCESSES).then(LoadedOriginals::default));
            return known.filter(|work| !work.is_cut).map(|work| work.found);
        }
        work.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
        // Files that it cannot change need no copy.
        if (work.contains_key(&pid) || work.len() < MAX_PROCESSES) && may_write(pid, path) {
            work.entry(pid).or_default().keep(path);
        }
        None
    }
}

/// Restores what git changed, tells it why, and ends it while it waits for the answer to its call, before anything can
/// see its end. Returns what could not be restored.
#[must_use]
pub fn stop(pid: u32, text: &str, found: OriginalFiles) -> Vec<String> {
    // Deepest first: directories that git created are then empty.
    let left = found.into_iter().rev().filter_map(|(path, copy)| {
        let error = put_back(&path, &copy).err()?;
        (Copy::of(&path) != copy).then(|| format!("{}: {error}", path.display()))
    });
    let left = left.collect();
    let process = Pid::from_raw(pid.cast_signed()).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    if let Some(Ok(process)) = process {
        write_to_stderr(process.as_fd(), text);
        // git removes its locks on this signal.
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
    left
}

fn put_back(path: &Path, copy: &Copy) -> std::io::Result<()> {
    if *copy != Copy::Absent {
        make_directories_above(path)?;
        return copy.put_back(path);
    }
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let above = open_without_links(above, OFlags::PATH | OFlags::DIRECTORY)?;
    // A directory with other content stays.
    let unlinked = match rustix::fs::unlinkat(&above, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR),
        other => other,
    };
    Ok(unlinked?)
}

/// Writes to git's standard error, as far as there is room.
fn write_to_stderr(process: std::os::fd::BorrowedFd<'_>, text: &str) {
    let Ok(error) = pidfd_getfd(process, 2, PidfdGetfdFlags::empty()) else { return };
    let mut polled = [PollFd::new(&error, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::OUT) {
        let _ = std::fs::File::from(error).write_all(format!("agentsh: {text}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn originals_kept_for_git_are_bounded() {
        let place = tempfile::tempdir().unwrap();
        let large = place.path().join("large");
        std::fs::write(&large, vec![b'x'; 1 << 20]).unwrap();
        let mut work = LoadedOriginals::default();
        work.keep(&large);
        work.keep(&place.path().join("none"));
        work.keep(&large);
        assert!(!work.is_cut && work.bytes == 1 << 20 && work.found.len() == 2);
        for number in 0..9 {
            let path = place.path().join(number.to_string());
            std::fs::copy(&large, &path).unwrap();
            work.keep(&path);
        }
        assert!(work.is_cut && work.found.len() < 8);
    }
}
