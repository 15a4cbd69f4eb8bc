//! Programs may remove and move repositories that they created. The guards are mounts, which they cannot remove; the
//! session unmounts them (decision 750).

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::guarded::{Guarded, Names};
use super::new_version::{NewName, seen};
use agentsh_base::proc_file;
use agentsh_sandbox::seccomp::FileEffect;
use agentsh_sandbox::stubs;

impl Names {
    /// Whether a path is outside of every repository that existed before the run. Inner: the new repository; None for
    /// a directory that is held only to keep others in place.
    fn made_inside(&self, path: &Path) -> Option<Option<PathBuf>> {
        let Some(entry) = path.ancestors().find(|above| self.repositories.contains(*above)) else {
            return self.held.contains(path).then_some(None);
        };
        let is_new = self.baseline.as_ref().is_some_and(|baseline| !baseline.holds(entry));
        is_new.then(|| Some(entry.to_owned()))
    }

    /// Forgets removed paths.
    fn forget(&mut self, gone: &Path) {
        for names in [&mut self.files, &mut self.directories, &mut self.held] {
            names.retain(|name| !name.starts_with(gone));
        }
    }
}

impl Guarded {
    /// Removes a guarded file of a new repository, or an empty directory that only kept others in place. None: the
    /// kernel decides.
    pub(super) fn removed(
        &self,
        state: &Path,
        pid: u32,
        path: &Path,
        touch: FileEffect,
    ) -> Option<Result<(), Errno>> {
        let (flags, is_held) = match touch {
            FileEffect::Unlinks => (AtFlags::empty(), false),
            FileEffect::RemovesDirectory => (AtFlags::REMOVEDIR, self.is_held(path)),
            _ => return None,
        };
        if !is_held && !self.is_guarded(path) {
            return None;
        }
        let (above, inside) = seen(pid, path).ok()?;
        let mut names = self.names.lock();
        let entry = names.made_inside(path).filter(|_| may_change(pid, inside.as_fd()))?;
        // Before it is removed, or the thread would guard it again at once.
        names.released.extend(entry);
        let name = path.file_name()?;
        let mut outcome = rustix::fs::unlinkat(&above, name, flags);
        if outcome == Err(Errno::NOTEMPTY) {
            // Stubs created after the caller listed the directory.
            stubs::remove_in(state, path);
            outcome = rustix::fs::unlinkat(&above, name, flags);
        }
        if outcome.is_ok() {
            names.forget(path);
            names.released.push(path.to_owned());
        }
        Some(outcome)
    }

    /// Moves a new repository, or a directory without other guards. None: the kernel decides.
    pub(super) fn moved(&self, name: &NewName) -> Option<Result<(), Errno>> {
        let NewName { pid, from, to, is_link, .. } = name;
        if *is_link || !self.is_held(from) && !self.is_guarded(from) || self.is_guarded(to) {
            return None;
        }
        let (beside, beside_inside) = seen(*pid, from).ok()?;
        let (above, above_inside) = seen(*pid, to).ok()?;
        if rustix::fs::fstatvfs(&above_inside).ok()?.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return None;
        }
        let mut names = self.names.lock();
        let mut guards = names.files.iter().chain(&names.directories).filter(|guard| guard.starts_with(from));
        if names.made_inside(from).is_none()
            || !guards.all(|guard| names.made_inside(guard).is_some())
            || !may_change(*pid, beside_inside.as_fd())
            || !may_change(*pid, above_inside.as_fd())
        {
            return None;
        }
        // The target may be a mount point inside.
        let flags = RenameFlags::NOREPLACE;
        let outcome = rustix::fs::renameat_with(&beside, from.file_name()?, &above, to.file_name()?, flags);
        match outcome {
            Ok(()) => names.forget(from),
            Err(Errno::EXIST) => return None,
            Err(_) => {}
        }
        Some(outcome)
    }
}

/// Whether a process may rename in a directory, as its owner.
fn may_change(pid: u32, directory: BorrowedFd<'_>) -> bool {
    let status = proc_file::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = ids.and_then(|ids| ids.split_whitespace().nth(3)?.parse().ok());
    rustix::fs::fstat(directory).is_ok_and(|found| Some(found.st_uid) == user && found.st_mode & 0o200 != 0)
}
