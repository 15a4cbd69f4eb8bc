//! What git changes in a working tree before it meets a guarded file there. Git would go on, and leave a tree that is neither the
//! old one nor the new one: it is stopped, and what it had changed is as before.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal};

use super::copies::{Copy, make_directories_above};
use crate::base::proc_file;

/// Files of which git's version of before is kept. The guarded ones begin with a dot and are among the first.
const MAX_FILES: usize = 1000;

/// What one process of git found in the tree, by path.
type Found = BTreeMap<PathBuf, Copy>;

/// The working trees of one sandbox.
#[derive(Debug, Default)]
pub struct Trees {
    /// Directories called `.git`.
    repositories: BTreeSet<PathBuf>,
    work: RefCell<BTreeMap<u32, Found>>,
}

impl Trees {
    #[must_use]
    pub fn of(repositories: BTreeSet<PathBuf>) -> Self {
        let is_in_its_tree = |path: &PathBuf| path.file_name().is_some_and(|name| name == ".git");
        Self {
            repositories: repositories.into_iter().filter(is_in_its_tree).collect(),
            work: RefCell::default(),
        }
    }

    /// A process changes a path. Some: it is git, at work on a tree, the path is guarded, and this is what it changed before.
    pub fn hear(&self, pid: u32, path: &Path, is_guarded: bool) -> Option<Found> {
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
        if is_guarded {
            let can_be_restored = |found: &Found| {
                found.len() < MAX_FILES && found.values().all(|copy| !matches!(copy, Copy::Unread { .. }))
            };
            return Some(work.remove(&pid).unwrap_or_default()).filter(can_be_restored);
        }
        work.retain(|pid, _| Path::new(&format!("/proc/{pid}")).exists());
        let found = work.entry(pid).or_default();
        if found.len() < MAX_FILES && !found.contains_key(path) {
            found.insert(path.to_owned(), Copy::of(path));
        }
        None
    }
}

/// Puts back what git had changed, tells it why, and ends it: while it waits for the answer to its call, before anybody can see that it
/// ended. Gives what could not be put back.
#[must_use]
pub fn stop(pid: u32, text: &str, found: Found) -> Vec<String> {
    let put_back = |(path, copy): (PathBuf, Copy)| {
        let made = if copy == Copy::Absent { Ok(()) } else { make_directories_above(&path) };
        let error = made.and_then(|()| copy.put_back(&path)).err()?;
        (Copy::of(&path) != copy).then(|| format!("{}: {error}", path.display()))
    };
    let left = found.into_iter().filter_map(put_back).collect();
    let process = Pid::from_raw(pid.cast_signed()).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    if let Some(Ok(process)) = process {
        tell(process.as_fd(), text);
        // At which it takes its locks away.
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
    left
}

/// On its own standard error, as far as there is room: it has no other way to know.
fn tell(process: std::os::fd::BorrowedFd<'_>, text: &str) {
    let Ok(error) = pidfd_getfd(process, 2, PidfdGetfdFlags::empty()) else { return };
    let mut polled = [PollFd::new(&error, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::OUT) {
        let _ = std::fs::File::from(error).write_all(format!("agentsh: {text}\n").as_bytes());
    }
}
