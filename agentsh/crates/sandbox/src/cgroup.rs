//! Control groups: memory and CPU limits, and `cgroup.kill`.
//!
//! Three kinds of host: version 2 with controllers; hybrid, with controllers in version 1 and `cgroup.kill` in version
//! 2; no access (an ordinary user), where rlimits and the watchdog enforce the limits.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod home;

use crate::proc_file;
pub use home::Settled;
use home::{Rights, can_delegate, enable_controllers};

/// The cgroups of this process, per hierarchy; found once per session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// Version 2, and whether it carries the memory controller.
    unified: Option<PathBuf>,
    unified_memory: bool,
    /// Version 1 directories of the controllers.
    memory: Option<PathBuf>,
    cpu: Option<PathBuf>,
}

/// The limits of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub memory_bytes: u64,
    pub cpu_percent: Option<u64>,
}

/// The cgroups of one sandbox. When dropped, kills everything inside and removes them.
#[derive(Debug)]
pub struct Cgroup {
    unified: Option<(PathBuf, OwnedFd)>,
    legacy: Vec<PathBuf>,
    /// `tasks` files of the version 1 directories, for init to join.
    tasks: Vec<OwnedFd>,
    pub memory_held: bool,
    pub cpu_held: bool,
}

impl Hierarchies {
    /// Reads the mounted hierarchies and this process's groups.
    #[must_use]
    pub fn find() -> Self {
        let mounts = proc_file::read("/proc/self/mountinfo").unwrap_or_default();
        let memberships = proc_file::value("/proc/self/cgroup").unwrap_or_default();
        Self::from_text(&mounts, &memberships)
    }

    fn from_text(mounts: &str, memberships: &str) -> Self {
        let mut found = Self::default();
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let Some(mount_point) = left.split(' ').nth(4) else { continue };
            let mut right = right.split(' ');
            let (kind, options) = (right.next(), right.nth(1).unwrap_or_default());
            let place = |controller: &str| {
                let own = membership(memberships, controller)?;
                Some(Path::new(mount_point).join(own.trim_start_matches('/')))
            };
            match kind {
                Some("cgroup2") => {
                    found.unified = place("").map(|own| {
                        home::of_sandboxes(&own, Path::new(mount_point), &Rights::of_this_process())
                    })
                }
                Some("cgroup") if options.split(',').any(|option| option == "memory") => {
                    found.memory = place("memory")
                }
                Some("cgroup") if options.split(',').any(|option| option == "cpu") => {
                    found.cpu = place("cpu")
                }
                _ => {}
            }
        }
        found.unified_memory = found.unified.as_deref().is_some_and(home::has_memory);
        found
    }

    /// If this process is alone in a version 2 group of its own: moves it into a child group, because a group with
    /// processes cannot delegate controllers. Undone on drop, or by [`SessionGroups::remove_now`].
    #[must_use]
    pub fn move_into_child(&self, name: &str) -> Option<Settled> {
        let home = self.unified.as_ref().filter(|_| self.unified_memory)?;
        Settled::move_into_child(home, &format!("{name}-self"))
    }

    /// Like `self`, with one more version 2 directory: programs attached to it apply to all sandboxes below.
    ///
    /// # Errors
    /// When there is no version 2 hierarchy, or no directory can be made in it.
    pub fn create_child(&self, name: &str) -> io::Result<(Self, Parent)> {
        let above = self.unified.as_ref().ok_or(io::ErrorKind::NotFound)?;
        if self.unified_memory {
            enable_controllers(above);
        }
        let directory = above.join(name);
        let descriptor = make(&directory)?;
        Ok((Self { unified: Some(directory.clone()), ..self.clone() }, Parent { directory, descriptor }))
    }

    /// Like `self`, with one more directory if possible, whose limit applies to all sandboxes together.
    #[must_use]
    pub fn create_bounded(&self, name: &str, memory_bytes: u64) -> (Self, SessionGroups) {
        let (mut bounded, mut bound) = (self.clone(), SessionGroups::default());
        bound.settled = self.move_into_child(name);
        let mut limited = |above: &Path, file: &str| {
            let directory = above.join(name);
            make(&directory).ok()?;
            bound.directories.push(directory.clone());
            write(&directory.join(file), &memory_bytes.to_string()).is_ok().then_some(directory)
        };
        if let Some(above) = self.unified.as_ref().filter(|_| self.unified_memory) {
            enable_controllers(above);
            if let Some(directory) = limited(above, "memory.max") {
                bounded.unified = Some(directory);
            }
        } else if let Some(above) = &self.memory
            && let Some(directory) = limited(above, "memory.limit_in_bytes")
        {
            bounded.memory = Some(directory);
        }
        (bounded, bound)
    }

    /// Whether a memory cgroup can be made here, as far as permissions show.
    #[must_use]
    pub fn may_hold_memory(&self) -> bool {
        let is_ours =
            |directory: &&PathBuf| rustix::fs::access(*directory, rustix::fs::Access::WRITE_OK).is_ok();
        let handed_down = |directory: &&PathBuf| {
            enable_controllers(directory);
            can_delegate(directory)
        };
        let unified = self.unified.as_ref().filter(|_| self.unified_memory).filter(is_ours);
        unified.filter(handed_down).is_some() || self.memory.as_ref().filter(is_ours).is_some()
    }

    /// Creates the version 2 group for pid 1. None is not a failure: the fields say what is missing.
    /// [`Hierarchies::complete`] creates the others.
    #[must_use]
    pub fn create(&self, name: &str, quota: Quota) -> Cgroup {
        let mut cgroup = Cgroup {
            unified: None,
            legacy: Vec::new(),
            tasks: Vec::new(),
            memory_held: false,
            cpu_held: false,
        };
        if let Some(parent) = &self.unified {
            if self.unified_memory {
                enable_controllers(parent);
            }
            let directory = parent.join(name);
            if let Ok(descriptor) = make(&directory) {
                cgroup.memory_held =
                    write(&directory.join("memory.max"), &quota.memory_bytes.to_string()).is_ok();
                if cgroup.memory_held {
                    // Without swap, so that the limit is exact; the file is missing without swap accounting.
                    let _ = write(&directory.join("memory.swap.max"), "0");
                }
                if let Some(percent) = quota.cpu_percent {
                    let text = format!("{} 100000", percent * 1000);
                    cgroup.cpu_held = write(&directory.join("cpu.max"), &text).is_ok();
                }
                cgroup.unified = Some((directory, descriptor));
            }
        }
        cgroup
    }

    /// Creates the version 1 groups for what version 2 does not limit. Pid 1 joins them itself, so they may be created
    /// while it starts.
    pub fn complete(&self, cgroup: &mut Cgroup, name: &str, quota: Quota) {
        if !cgroup.memory_held {
            let files = [("memory.limit_in_bytes", quota.memory_bytes.to_string())];
            cgroup.memory_held = cgroup.join_legacy(self.memory.as_deref(), name, &files);
            if let (true, Some(directory)) = (cgroup.memory_held, cgroup.legacy.last()) {
                // Memory and swap together; the file is missing without swap accounting.
                let _ =
                    write(&directory.join("memory.memsw.limit_in_bytes"), &quota.memory_bytes.to_string());
            }
        }
        if let (Some(percent), false) = (quota.cpu_percent, cgroup.cpu_held) {
            let files = [
                ("cpu.cfs_period_us", "100000".to_owned()),
                ("cpu.cfs_quota_us", (percent * 1000).to_string()),
            ];
            cgroup.cpu_held = cgroup.join_legacy(self.cpu.as_deref(), name, &files);
        }
    }
}

/// The maximum number of simultaneous processes and threads of a sandbox: from the kernel, or without that controller, from
/// the watchdog.
#[derive(Clone, Debug, Default)]
pub struct TaskCount {
    peak: Option<PathBuf>,
    seen: Arc<AtomicU64>,
}

impl TaskCount {
    pub(crate) fn record_count(&self, tasks: u64) {
        self.seen.fetch_max(tasks, Ordering::Relaxed);
    }

    /// 0 if it was not counted.
    #[must_use]
    pub fn highest_count(&self) -> u64 {
        let counted = self.peak.as_deref().and_then(|file| fs::read_to_string(file).ok());
        let counted = counted.and_then(|text| text.trim().parse().ok());
        counted.unwrap_or_else(|| self.seen.load(Ordering::Relaxed))
    }
}

impl Cgroup {
    #[must_use]
    pub fn tasks(&self) -> TaskCount {
        let unified = self.unified.as_ref().filter(|_| self.memory_held && self.legacy.is_empty());
        let peak = unified.map(|(directory, _)| directory.join("pids.peak"));
        TaskCount { peak, seen: Arc::default() }
    }

    /// The directory in which pid 1 is created.
    #[must_use]
    pub fn unified(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(|(_, descriptor)| descriptor.as_fd())
    }

    /// The control group by which the processes of the sandbox can be stopped.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.unified.as_ref().map(|(directory, _)| directory.as_path())
    }

    /// Files by which init joins the version 1 groups; taken once.
    pub fn take_tasks(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.tasks)
    }

    /// How often processes had to wait because the CPU quota of a period was used up; None without such a quota.
    #[must_use]
    pub fn times_throttled(&self) -> Option<u64> {
        let unified = self.unified.iter().map(|(directory, _)| directory);
        unified.chain(&self.legacy).find_map(|directory| {
            let text = fs::read_to_string(directory.join("cpu.stat")).ok()?;
            text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok())
        })
    }

    /// Whether the OOM killer ended a process at the memory limit.
    #[must_use]
    pub fn was_out_of_memory(&self) -> bool {
        let unified = self.unified.iter().map(|(directory, _)| directory.join("memory.events"));
        let legacy = self.legacy.iter().map(|directory| directory.join("memory.oom_control"));
        unified.chain(legacy).filter_map(|file| fs::read_to_string(file).ok()).any(|text| {
            let count =
                text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
            count.is_some_and(|count| count > 0)
        })
    }

    fn join_legacy(&mut self, parent: Option<&Path>, name: &str, files: &[(&str, String)]) -> bool {
        let Some(directory) = parent.map(|parent| parent.join(name)) else { return false };
        if make(&directory).is_err() {
            return false;
        }
        self.legacy.push(directory.clone());
        let limited = files.iter().all(|(file, value)| write(&directory.join(file), value).is_ok());
        let tasks = OpenOptions::new().write(true).open(directory.join("tasks"));
        match (limited, tasks) {
            (true, Ok(tasks)) => {
                self.tasks.push(tasks.into());
                true
            }
            _ => false,
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Some((directory, _)) = &self.unified {
            let _ = write(&directory.join("cgroup.kill"), "1");
        }
        for directory in self.unified.iter().map(|(directory, _)| directory).chain(&self.legacy) {
            // A killed process leaves its cgroup shortly after it is reaped. If it stays busy, a later run removes it.
            for _ in 0..10 {
                match fs::remove_dir(directory) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// The session's directories above all sandboxes, and its own. Removed on drop, if the sandboxes are gone.
#[derive(Debug, Default)]
pub struct SessionGroups {
    directories: Vec<PathBuf>,
    settled: Option<Settled>,
}

impl SessionGroups {
    /// Removes them now, before the process ends.
    pub fn remove_now(&mut self) {
        for directory in self.directories.drain(..) {
            // A later run removes what is still busy.
            let _ = fs::remove_dir(&directory);
        }
        self.settled = None;
    }
}

impl Drop for SessionGroups {
    fn drop(&mut self) {
        self.remove_now();
    }
}

/// A directory above the cgroups of sandboxes. Removed when dropped, if they are gone.
#[derive(Debug)]
pub struct Parent {
    directory: PathBuf,
    descriptor: OwnedFd,
}

impl AsFd for Parent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        // A later run removes what is still busy.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Removes cgroups of a killed agentsh: empty ones with agentsh's name pattern whose process is gone. Returns the
/// processes that still have groups.
pub fn remove_abandoned(hierarchies: &Hierarchies) -> BTreeSet<u32> {
    let mut busy = BTreeSet::new();
    let may_remove = |parent: &&PathBuf| rustix::fs::access(*parent, rustix::fs::Access::WRITE_OK).is_ok();
    let parents = [&hierarchies.unified, &hierarchies.memory, &hierarchies.cpu].into_iter().flatten();
    for parent in parents.filter(may_remove) {
        let Ok(entries) = fs::read_dir(parent) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix("agentsh-"))
                .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            let gone = owner.filter(|pid| !Path::new("/proc").join(pid.to_string()).exists());
            if let Some(pid) = gone {
                remove_tree(&entry.path(), MAX_DEPTH);
                if entry.path().exists() {
                    busy.insert(pid);
                }
            }
        }
    }
    busy
}

/// A session's directory, that of its network, and those of its sandboxes.
const MAX_DEPTH: usize = 3;

fn remove_tree(directory: &Path, depth: usize) {
    if depth > 0 {
        for inner in fs::read_dir(directory).into_iter().flatten().flatten() {
            if inner.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove_tree(&inner.path(), depth - 1);
            }
        }
    }
    let _ = fs::remove_dir(directory);
}

/// The path of this process in one hierarchy: `controller` is empty for version 2.
fn membership<'t>(memberships: &'t str, controller: &str) -> Option<&'t str> {
    memberships.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

fn make(directory: &Path) -> io::Result<OwnedFd> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    Ok(File::open(directory)?.into())
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /nowhere/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn cgroups_of_a_hybrid_host_are_read() {
        let found = Hierarchies::from_text(HYBRID, "5:memory:/user/one\n3:cpu,cpuacct:/\n0::/user.slice\n");
        assert_eq!(found.unified.as_deref(), Some(Path::new("/nowhere/unified/user.slice")));
        assert_eq!(found.memory.as_deref(), Some(Path::new("/sys/fs/cgroup/memory/user/one")));
        assert_eq!(found.cpu.as_deref(), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert!(!found.unified_memory);
    }

    #[test]
    fn host_without_cgroups_yields_an_empty_cgroup() {
        let found = Hierarchies::from_text("", "");
        let quota = Quota { memory_bytes: 1, cpu_percent: Some(1) };
        let mut cgroup = found.create("x", quota);
        found.complete(&mut cgroup, "x", quota);
        assert!(!cgroup.memory_held && !cgroup.cpu_held && cgroup.unified().is_none());
    }
}
