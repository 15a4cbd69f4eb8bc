//! Programs may remove and move repositories that they created or that are nested in the project. The guards are mounts, which
//! they cannot remove; the session unmounts them (decision 750).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::guarded::{Guarded, Names};
use super::new_version::{NewName, seen};
use agentsh_base::proc_file;
use agentsh_host::copies::{self, Copy};
use agentsh_host::undo::SavedVersions;
use agentsh_policy::builtin_paths::{GIT_BARE, GIT_COMMON, GIT_OBEYED, OTHER_REPOSITORIES};
use agentsh_sandbox::git_config::{GitConfig, parse};
use agentsh_sandbox::host::{Host, RealHost, repository_names};
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

    /// The repository around a path, if it existed before the run and is not that of a writable directory itself.
    fn nested(&self, path: &Path) -> Option<PathBuf> {
        self.baseline.as_ref()?;
        let entry = path.ancestors().find(|above| self.repositories.contains(*above))?;
        let (host, real) = (RealHost::default(), entry.canonicalize().ok());
        let is_of = |top: &PathBuf| {
            let named = host.git_directory(&top.join(".git"));
            let common = named.as_deref().and_then(|git| host.common_directory(git));
            entry == top
                || repository_names().any(|name| entry == top.join(name))
                || [named, common].iter().flatten().any(|git| Some(git) == real.as_ref())
        };
        (!self.tops.iter().any(is_of)).then(|| entry.to_owned())
    }

    /// The nested repository whose working tree is around a path that is in no repository.
    fn tree_around(&self, path: &Path) -> Option<PathBuf> {
        if path.ancestors().any(|above| self.repositories.contains(above)) {
            return None;
        }
        let mut entries = path.ancestors().skip(1).map(|above| above.join(".git"));
        entries.find(|entry| self.repositories.contains(entry)).and_then(|entry| self.nested(&entry))
    }

    /// Whether it is the `.git` file of a submodule whose configuration says nothing that runs. Git looks from its working tree for
    /// what it runs, wherever that is.
    fn is_pointer(&self, path: &Path) -> bool {
        let host = RealHost::default();
        let git = self.nested(path).filter(|entry| entry == path).and_then(|_| host.git_directory(path));
        let says_nothing = |name: &str, git: &Path| {
            host.git_config(&git.join(name))
                .is_none_or(|said| GitConfig { worktrees: Vec::new(), ..said } == GitConfig::default())
        };
        git.is_some_and(|git| {
            host.common_directory(&git).is_none_or(|common| common == git)
                && says_nothing("config", &git)
                && says_nothing("config.worktree", &git)
        })
    }

    /// Whether a configuration names the working tree of its own repository, and nothing that runs there.
    pub(super) fn names_its_worktree(&self, git: &Path, text: &str) -> bool {
        let said = parse(text);
        let is_own = |named: &String| {
            let real = git.join(named).canonicalize().unwrap_or_default();
            self.tops.iter().any(|top| real.starts_with(top))
                && RealHost::default().git_directory(&real.join(".git")).as_deref() == Some(git)
        };
        said.worktrees.iter().all(is_own)
            && GitConfig { worktrees: Vec::new(), ..said } == GitConfig::default()
    }

    /// A repository from before the run loses a guarded file: keeps all, because what is there from now on is not the user's. The
    /// text says so the first time.
    ///
    /// # Errors
    /// When they cannot be kept; the repository stays known.
    fn lose(&mut self, entry: &Path, aside: &SavedVersions, state: &Path) -> io::Result<Option<String>> {
        if !self.baseline.as_ref().is_some_and(|baseline| baseline.holds(entry)) {
            return Ok(None);
        }
        for guard in self.files.iter().chain(&self.directories).filter(|guard| guard.starts_with(entry)) {
            let mut copy = Copy::of_own(guard);
            if let Copy::Directory(hooks) = &mut copy {
                hooks.retain(|name, _| name.extension().is_none_or(|end| end != "sample"));
            }
            if !stubs::is_stub(state, guard) {
                aside.keep(guard, &copy)?;
            }
        }
        self.lost.extend(self.baseline.as_mut().and_then(|baseline| baseline.forget_repository(entry)));
        let shown = entry.display();
        Ok(Some(format!(
            "{shown}, which was there before the run, is being removed or moved inside; `agentsh undo FILE` restores what is guarded in it"
        )))
    }

    /// Forgets removed paths.
    fn forget(&mut self, gone: &Path) {
        for names in
            [&mut self.files, &mut self.directories, &mut self.held, &mut self.held_before, &mut self.private]
        {
            names.retain(|name| !name.starts_with(gone));
        }
    }
}

impl Guarded {
    /// Whether the session may remove a guarded file of a new or nested repository, or an empty directory that only kept others in
    /// place: where it lies, and the repository around it. None: the kernel decides.
    fn removable(&self, pid: u32, path: &Path, touch: FileEffect) -> Option<(OwnedFd, Option<PathBuf>)> {
        let is_there = match touch {
            FileEffect::Unlinks => self.is_guarded(path),
            FileEffect::RemovesDirectory => {
                self.is_guarded(path) || self.is_held(path) || self.is_mounted(path)
            }
            _ => false,
        };
        if !is_there {
            return None;
        }
        let (above, inside) = seen(pid, path).ok()?;
        let names = self.names.lock();
        let is_removable = |entry: &PathBuf| is_part(entry, path) && is_written(pid, entry);
        let nested = || names.nested(path).filter(is_removable).map(Some);
        let tree = || names.tree_around(path).filter(|entry| is_written(pid, entry)).map(Some);
        let is_place = || names.held_before.contains(path) && !names.tops.contains(path);
        let around = names.made_inside(path).or_else(nested).or_else(tree);
        let around = around.or_else(|| is_place().then_some(None));
        around.filter(|_| may_change(pid, inside.as_fd())).map(|entry| (above, entry))
    }

    pub(super) fn is_removable(&self, pid: u32, path: &Path, touch: FileEffect) -> bool {
        self.removable(pid, path, touch).is_some()
    }

    /// Removes it. A repository from before the run counts as new from then on; the text says what was removed first.
    pub(super) fn removed(
        &self,
        aside: &SavedVersions,
        state: &Path,
        pid: u32,
        path: &Path,
        touch: FileEffect,
    ) -> Option<(Result<(), Errno>, Option<String>)> {
        let (above, entry) = self.removable(pid, path, touch)?;
        let is_guard = self.is_guarded(path) || self.names.lock().directories.contains(path);
        let mut names = self.names.lock();
        // What cannot be kept is not removed.
        let text = entry.as_deref().map_or(Ok(None), |entry| names.lose(entry, aside, state)).ok()?;
        if is_guard && entry.as_ref().is_some_and(|entry| !is_part(entry, path)) {
            // In its working tree, where others may name it, too.
            aside.keep(path, &Copy::of_own(path)).ok()?;
            names.removed.push(path.to_owned());
        }
        if touch == FileEffect::RemovesDirectory && names.private.contains(path) {
            // The whole copy inside is gone.
            let _ = copies::remove(path, true);
        }
        // Before it is removed, or the thread would guard it again at once.
        names.released.extend(entry);
        let name = path.file_name()?;
        let flags = if touch == FileEffect::Unlinks { AtFlags::empty() } else { AtFlags::REMOVEDIR };
        let mut outcome = rustix::fs::unlinkat(&above, name, flags);
        if outcome == Err(Errno::NOTEMPTY) {
            // Stubs created after the caller listed the directory.
            stubs::remove_in(state, path);
            outcome = rustix::fs::unlinkat(&above, name, flags);
        }
        if outcome.is_ok() || path.symlink_metadata().is_err() {
            outcome = Ok(());
            names.forget(path);
            names.released.push(path.to_owned());
        }
        Some((outcome, text))
    }

    /// Moves a new repository, or a directory whose other guards are `.git` files of submodules: they may be written then, as by
    /// `git mv`. None: the kernel decides.
    pub(super) fn moved(
        &self,
        aside: &SavedVersions,
        state: &Path,
        name: &NewName,
    ) -> Option<(Result<(), Errno>, Option<String>)> {
        let NewName { pid, from, to, is_link, .. } = name;
        let is_there = self.is_held(from) || self.is_mounted(from) || self.is_guarded(from);
        if *is_link || !is_there || self.is_guarded(to) {
            return None;
        }
        let (beside, beside_inside) = seen(*pid, from).ok()?;
        let (above, above_inside) = seen(*pid, to).ok()?;
        if rustix::fs::fstatvfs(&above_inside).ok()?.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return None;
        }
        let mut names = self.names.lock();
        let guards = names.files.iter().chain(&names.directories).filter(|guard| guard.starts_with(from));
        let known: Vec<PathBuf> =
            guards.filter(|guard| names.made_inside(guard).is_none()).cloned().collect();
        let is_place = names.held_before.contains(from) && !names.tops.contains(from) && !known.is_empty();
        if names.made_inside(from).is_none() && !is_place
            || !known.iter().all(|guard| names.is_pointer(guard) && is_written(*pid, guard))
            || !may_change(*pid, beside_inside.as_fd())
            || !may_change(*pid, above_inside.as_fd())
        {
            return None;
        }
        let texts: io::Result<Vec<_>> = known.iter().map(|guard| names.lose(guard, aside, state)).collect();
        let text = texts.ok()?.into_iter().flatten().next();
        let now = |path: &Path| Some(to.iter().chain(path.strip_prefix(from).ok()?).collect::<PathBuf>());
        // The target may be a mount point inside.
        let flags = RenameFlags::NOREPLACE;
        let outcome = rustix::fs::renameat_with(&beside, from.file_name()?, &above, to.file_name()?, flags);
        match outcome {
            Ok(()) => {
                let held = names
                    .held
                    .iter()
                    .chain(&names.held_before)
                    .filter_map(|held| now(held))
                    .collect::<Vec<_>>();
                names.forget(from);
                names.held.extend(held);
                // Else they would be guarded again before git has written them.
                names.released.extend((!known.is_empty()).then(|| from.to_owned()));
                for path in known.iter().filter_map(|guard| now(guard)) {
                    // The guard is on the file, wherever it is.
                    let _ = Copy::of_own(&path).renew(&path);
                }
            }
            Err(Errno::EXIST) => return None,
            Err(_) => {}
        }
        Some((outcome, text))
    }
}

/// Whether a path is a repository, or is guarded because it is a part of one. Elsewhere in it may be what others name.
fn is_part(entry: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(entry).unwrap_or(path);
    let mut others = OTHER_REPOSITORIES.iter();
    if let Some((_, files)) = others.find(|(name, _)| entry.file_name() == Some(name.as_ref())) {
        return files.iter().any(|file| Path::new(file).starts_with(below));
    }
    let (file, directories) = GIT_OBEYED;
    let names = ["hooks", "config", "config.worktree", GIT_COMMON, "gitdir", file].into_iter();
    let mut names = names.chain(directories).chain(GIT_BARE);
    below.iter().next().is_none_or(|first| names.any(|name| first == name))
}

/// Whether a repository is in a directory that a process sees as writable.
fn is_written(pid: u32, entry: &Path) -> bool {
    let inner = if entry.is_dir() { entry.join("HEAD") } else { entry.to_owned() };
    let mounted = seen(pid, &inner).ok().and_then(|(_, inside)| rustix::fs::fstatvfs(&inside).ok());
    mounted.is_some_and(|mounted| !mounted.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether a process may rename in a directory, as its owner.
fn may_change(pid: u32, directory: BorrowedFd<'_>) -> bool {
    let status = proc_file::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = ids.and_then(|ids| ids.split_whitespace().nth(3)?.parse().ok());
    rustix::fs::fstat(directory).is_ok_and(|found| Some(found.st_uid) == user && found.st_mode & 0o200 != 0)
}
