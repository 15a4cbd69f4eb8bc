//! What git changes in a working tree before it meets a guarded file there. Git would go on, and leave a tree that is neither the
//! old one nor the new one: it is stopped, and what it had changed is as before.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal};

use super::copies::{Copy, make_directories_above};
use crate::base::proc_file;

/// Files of which git's version of before is kept. The guarded ones begin with a dot and are among the first.
const MAX_FILES: usize = 1000;
/// Git takes its locks away when it is asked to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

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

/// Tells git why, ends it, and puts back what it had changed. Gives what could not be put back; None: git goes on all the same.
pub async fn stop(pid: u32, text: &str, found: Found) -> Option<Vec<String>> {
    let process = pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()?;
    tell(process.as_fd(), text);
    pidfd_send_signal(&process, Signal::TERM).ok()?;
    let until = tokio::time::Instant::now() + END_TIMEOUT;
    // A process that has ended can be read from.
    while !is_ready(process.as_fd(), PollFlags::IN) {
        if tokio::time::Instant::now() > until {
            return None;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let put_back = |(path, copy): (PathBuf, Copy)| {
        if copy != Copy::Absent
            && let Err(error) = make_directories_above(&path)
        {
            return Some(format!("{}: {error}", path.display()));
        }
        copy.put_back(&path)
            .err()
            .filter(|_| Copy::of(&path) != copy)
            .map(|error| format!("{}: {error}", path.display()))
    };
    Some(found.into_iter().filter_map(put_back).collect())
}

/// On its own standard error, as far as there is room: it has no other way to know.
fn tell(process: std::os::fd::BorrowedFd<'_>, text: &str) {
    let Ok(error) = pidfd_getfd(process, 2, PidfdGetfdFlags::empty()) else { return };
    if is_ready(error.as_fd(), PollFlags::OUT) {
        let _ = std::fs::File::from(error).write_all(format!("agentsh: {text}\n").as_bytes());
    }
}

fn is_ready(descriptor: std::os::fd::BorrowedFd<'_>, wanted: PollFlags) -> bool {
    let mut polled = [PollFd::new(&descriptor, wanted)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0) && polled[0].revents().contains(wanted)
}
