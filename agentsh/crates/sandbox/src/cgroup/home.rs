//! The version 2 group below which sandboxes get their groups, and its controllers.
//!
//! A group with processes cannot delegate controllers. So sandboxes are siblings of agentsh's own group; if a service
//! manager gave agentsh a group of its own, agentsh moves one level down in it.

use std::fs;
use std::path::{Path, PathBuf};

use super::write;
use crate::{proc_file, zygote};

/// The rights of this process over cgroups.
pub(super) struct Rights<'r> {
    /// Root may write everywhere, so permissions do not show who owns a group.
    pub is_root: bool,
    /// Groups may be made here, and processes moved here.
    pub may_make: &'r dyn Fn(&Path) -> bool,
}

impl Rights<'static> {
    pub fn of_this_process() -> Self {
        Self { is_root: rustix::process::geteuid().is_root(), may_make: &may_make }
    }
}

/// According to permissions.
fn may_make(directory: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(directory, Access::WRITE_OK).is_ok()
        && access(directory.join("cgroup.procs"), Access::WRITE_OK).is_ok()
}

/// A sibling of our own group, if the parent delegates memory or is this user's and empty; else below it. In a systemd
/// session the user owns everything below `user@UID.service`; a service with `User=` and `Delegate=` is in a slice of
/// root, and with `DelegateSubgroup=` one level below its own group.
pub(super) fn of_sandboxes(own: &Path, mount_point: &Path, rights: &Rights<'_>) -> PathBuf {
    let is_given = |parent: &Path| !rights.is_root && has_memory(parent) && processes(parent).is_empty();
    match own.parent() {
        Some(parent)
            if own != mount_point
                && (can_delegate(parent) || is_given(parent))
                && (rights.may_make)(parent) =>
        {
            parent.to_owned()
        }
        _ => own.to_owned(),
    }
}

/// Whether this group has the memory controller.
pub(super) fn has_memory(directory: &Path) -> bool {
    lists_memory(&directory.join("cgroup.controllers"))
}

/// Whether groups below this one have the memory controller.
pub(super) fn can_delegate(directory: &Path) -> bool {
    lists_memory(&directory.join("cgroup.subtree_control"))
}

fn lists_memory(file: &Path) -> bool {
    proc_file::value(file).is_ok_and(|list| list.split_whitespace().any(|name| name == "memory"))
}

fn processes(directory: &Path) -> Vec<u32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Enables controllers for children. Refused if the parent has processes; then limits cannot be written, which is
/// noticed and reported.
pub(super) fn enable_controllers(parent: &Path) {
    let _ = write(&parent.join("cgroup.subtree_control"), "+memory +pids +cpu");
}

/// This process and its zygote, one step below the group that they were started in. They move back when this is dropped.
#[derive(Debug)]
pub struct Settled {
    home: PathBuf,
    below: PathBuf,
}

impl Settled {
    /// None if there is nothing to do, or nothing possible: controllers are delegated already, or the group has other
    /// processes.
    pub(super) fn move_into_child(home: &Path, name: &str) -> Option<Self> {
        let own: Vec<u32> = [std::process::id()].into_iter().chain(zygote::forked_ahead_pid()).collect();
        let is_ours = || processes(home).iter().all(|process| own.contains(process));
        if can_delegate(home) || !is_ours() || !may_make(home) {
            return None;
        }
        let settled = Self { home: home.to_owned(), below: home.join(name) };
        fs::create_dir(&settled.below).ok()?;
        // From here on a failure is undone by dropping it.
        let procs = settled.below.join("cgroup.procs");
        own.iter().try_for_each(|process| write(&procs, &process.to_string())).ok()?;
        enable_controllers(home);
        can_delegate(home).then_some(settled)
    }
}

impl Settled {
    fn has_neighbours(&self) -> bool {
        fs::read_dir(&self.home).is_ok_and(|entries| {
            entries
                .flatten()
                .any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.path() != self.below)
        })
    }
}

impl Drop for Settled {
    fn drop(&mut self) {
        // The remaining group may be a sandbox's, which needs its controllers: a later run removes it.
        if self.has_neighbours() {
            return;
        }
        let _ = write(&self.home.join("cgroup.subtree_control"), "-memory -pids -cpu");
        for process in processes(&self.below) {
            let _ = write(&self.home.join("cgroup.procs"), &process.to_string());
        }
        let _ = fs::remove_dir(&self.below);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    /// A tree of files as the kernel shows it: which groups hand memory down, and which are the user's.
    #[test]
    fn delegated_parent_cgroup_is_used_and_a_foreign_one_is_not() {
        let mount = tempfile::tempdir().unwrap();
        let mount = mount.path();
        let slice = mount.join("user.slice/user-1000.slice");
        let manager = slice.join("user@1000.service");
        let scope = manager.join("app.slice/shell.scope");
        fs::create_dir_all(&scope).unwrap();
        fs::create_dir_all(slice.join("session-3.scope")).unwrap();
        for (directory, controllers) in [
            (mount, "cpu memory pids"),
            (&slice, "memory pids"),
            (&manager, "cpu memory pids"),
            (&manager.join("app.slice"), ""),
        ] {
            fs::write(directory.join("cgroup.subtree_control"), controllers).unwrap();
        }
        let users = |directory: &Path| directory.starts_with(&manager);
        let home = |own: &Path, may_make: &dyn Fn(&Path) -> bool| {
            of_sandboxes(own, mount, &Rights { is_root: false, may_make })
        };
        // `app.slice` hands nothing down.
        assert_eq!(home(&scope, &users), scope);
        fs::write(manager.join("app.slice/cgroup.subtree_control"), "memory").unwrap();
        assert_eq!(home(&scope, &users), manager.join("app.slice"));
        // An ssh login is outside of the delegated groups; the user's own group inside a foreign one is kept.
        assert_eq!(home(&slice.join("session-3.scope"), &users), slice.join("session-3.scope"));
        assert_eq!(home(&manager, &users), manager);
        // Root: as before, the parent.
        assert_eq!(home(&slice.join("session-3.scope"), &|_| true), slice);
        assert_eq!(home(mount, &|_| true), mount);
    }

    #[test]
    fn empty_cgroup_owned_by_the_user_is_used() {
        let mount = tempfile::tempdir().unwrap();
        let service = mount.path().join("system.slice/agent.service");
        let own = service.join("supervisor");
        fs::create_dir_all(&own).unwrap();
        fs::write(service.join("cgroup.controllers"), "cpu memory pids").unwrap();
        fs::write(service.join("cgroup.procs"), "").unwrap();
        let home = |is_root| of_sandboxes(&own, mount.path(), &Rights { is_root, may_make: &|_| true });
        assert_eq!(home(false), service);
        // Root may write everywhere.
        assert_eq!(home(true), own);
        fs::write(service.join("cgroup.procs"), "17\n").unwrap();
        assert_eq!(home(false), own);
    }

    #[test]
    fn process_that_shares_its_cgroup_is_not_moved() {
        let home = tempfile::tempdir().unwrap();
        let own = std::process::id();
        fs::write(home.path().join("cgroup.procs"), format!("{own}\n17\n")).unwrap();
        assert!(Settled::move_into_child(home.path(), "agentsh-1-self").is_none());
        assert!(!home.path().join("agentsh-1-self").exists());
    }
}
