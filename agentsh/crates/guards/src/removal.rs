//! Programs may remove and move repositories that they created or that are nested in the project. The guards are mounts, which
//! they cannot remove; the session unmounts them (decision 750).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::guarded::{Guarded, Names};
use super::new_version::{NewName, open_both_views};
use agentsh_base::proc_file;
use agentsh_host::copies::{self, Copy};
use agentsh_host::undo::SavedVersions;
use agentsh_policy::builtin_paths::{GIT_BARE, GIT_COMMON, GIT_OBEYED, OTHER_REPOSITORIES};
use agentsh_sandbox::git_config::{GitConfig, parse};
use agentsh_sandbox::host::{Host, RealHost, normalised_path, repository_names};
use agentsh_sandbox::seccomp::FileEffect;
use agentsh_sandbox::spec::{NamedFile, NamedKind};
use agentsh_sandbox::stubs;

impl Names {
    /// Whether a path is outside of every repository that existed before the run. Inner: the new repository; None for
    /// a directory that is held only to keep others in place.
    fn made_inside(&self, path: &Path) -> Option<Option<PathBuf>> {
        let Some(entry) = path.ancestors().find(|above| self.repositories.contains(*above)) else {
            return self.held.contains(path).then_some(None);
        };
        let is_new = self.baseline.as_ref().is_some_and(|baseline| !baseline.existed_before(entry));
        is_new.then(|| Some(entry.to_owned()))
    }

    /// The repository around a path, if it existed before the run and is not that of a writable directory itself.
    fn repository_around(&self, path: &Path) -> Option<PathBuf> {
        self.baseline.as_ref()?;
        let entry = path.ancestors().find(|above| self.repositories.contains(*above))?;
        self.before.get(entry)?;
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
        entries.find(|entry| self.before.contains(entry)).and_then(|entry| self.repository_around(&entry))
    }

    /// Whether it is the `.git` file of a submodule whose configuration says nothing that runs. Git looks from its working tree for
    /// what it runs, wherever that is.
    fn is_pointer(&self, path: &Path) -> bool {
        let host = RealHost::default();
        let git =
            self.repository_around(path).filter(|entry| entry == path).and_then(|_| host.git_directory(path));
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

    /// The working trees that a configuration names; None if one is not that of its own repository, or something that runs is named.
    pub(super) fn own_worktrees(&self, git: &Path, text: &str) -> Option<Vec<PathBuf>> {
        let said = parse(text);
        let own = |named: &String| {
            let tree = normalised_path(&git.join(named));
            let is_own = tree.canonicalize().is_ok_and(|real| real == tree)
                && self.tops.iter().any(|top| tree.starts_with(top))
                && RealHost::default().git_directory(&tree.join(".git")).as_deref() == Some(git);
            is_own.then_some(tree)
        };
        let trees = said.worktrees.iter().map(own).collect::<Option<_>>()?;
        (GitConfig { worktrees: Vec::new(), ..said } == GitConfig::default()).then_some(trees)
    }

    /// What appears at a path is set aside from now on.
    ///
    /// # Errors
    /// When a later run would not know it.
    pub(super) fn expect(&mut self, path: &Path, named: NamedFile) -> io::Result<()> {
        self.marker.as_ref().ok_or(io::ErrorKind::NotFound)?.expect(path, &named)?;
        self.expected.insert(path.to_owned(), named);
        Ok(())
    }

    /// A repository from before the run loses a guarded file: keeps all, because what is there from now on is not the user's. The
    /// text says so the first time.
    ///
    /// # Errors
    /// When they cannot be kept; the repository stays known.
    fn record_lost_guard(
        &mut self,
        entry: &Path,
        aside: &SavedVersions,
        state: &Path,
    ) -> io::Result<Option<String>> {
        let Some(known) = self.baseline.as_ref().and_then(|baseline| baseline.known_identity(entry)) else {
            return Ok(None);
        };
        for guard in self.files.iter().chain(&self.directories).filter(|guard| guard.starts_with(entry)) {
            if !stubs::is_stub(state, guard) {
                aside.keep_users(guard, &Copy::of_own(guard))?;
            }
        }
        self.marker.as_ref().ok_or(io::ErrorKind::NotFound)?.forget(&known)?;
        self.baseline.iter_mut().for_each(|baseline| baseline.forget_repository(&known));
        self.lost.push(known);
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
        let (above, inside) = open_both_views(pid, path).ok()?;
        let names = self.names.lock();
        let is_removable = |entry: &PathBuf| is_part(entry, path) && is_written(pid, entry);
        let nested = || names.repository_around(path).filter(is_removable).map(Some);
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
    pub(super) fn remove_repository(
        &self,
        aside: &SavedVersions,
        state: &Path,
        pid: u32,
        path: &Path,
        touch: FileEffect,
    ) -> Option<(Result<(), Errno>, Option<String>)> {
        let (above, entry) = self.removable(pid, path, touch)?;
        // git tries `rmdir .git` whenever it has removed a file there.
        let is_private = self.names.lock().private.contains(path);
        if touch == FileEffect::RemovesDirectory && !is_private && !stubs::has_only_stubs(state, path) {
            return Some((Err(Errno::NOTEMPTY), None));
        }
        let mut lost: BTreeSet<PathBuf> =
            self.is_guarded(path).then(|| path.to_owned()).into_iter().collect();
        let mut names = self.names.lock();
        let guards = names.files.iter().chain(&names.directories);
        lost.extend(guards.filter(|guard| guard.starts_with(path)).cloned());
        // What cannot be kept is not removed.
        let text =
            entry.as_deref().map_or(Ok(None), |entry| names.record_lost_guard(entry, aside, state)).ok()?;
        // A guard of the repository's own goes with it. Others may name any other, and obey what comes back at its path.
        let is_named =
            |guard: &Path| names.baseline.as_ref().is_some_and(|baseline| baseline.is_named(guard));
        let is_own =
            |guard: &PathBuf| entry.as_ref().is_some_and(|entry| is_part(entry, guard)) && !is_named(guard);
        lost.retain(|guard| !is_own(guard));
        for guard in lost {
            if !stubs::is_stub(state, &guard) {
                aside.keep_users(&guard, &Copy::of_own(&guard)).ok()?;
            }
            let why = "a guarded file was there, which was removed inside".to_owned();
            names.expect(&guard, NamedFile { kind: NamedKind::Directory, why }).ok()?;
        }
        if touch == FileEffect::RemovesDirectory && is_private {
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
    pub(super) fn move_repository(
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
        let (beside, beside_inside) = open_both_views(*pid, from).ok()?;
        let (above, above_inside) = open_both_views(*pid, to).ok()?;
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
        let texts: io::Result<Vec<_>> =
            known.iter().map(|guard| names.record_lost_guard(guard, aside, state)).collect();
        let text = texts.ok()?.into_iter().flatten().next();
        let now = |path: &Path| Some(to.iter().chain(path.strip_prefix(from).ok()?).collect::<PathBuf>());
        // The target may be a mount point inside.
        let flags = RenameFlags::NOREPLACE;
        let outcome = rustix::fs::renameat_with(&beside, from.file_name()?, &above, to.file_name()?, flags);
        match outcome {
            Ok(()) => {
                // The guards of `.git` files are on the files, wherever they are: git writes them anew, and for a linked working tree
                // the way back to them.
                let guards =
                    names.files.iter().chain(&names.directories).filter(|guard| guard.starts_with(from));
                let (before, others): (Vec<&PathBuf>, Vec<_>) =
                    guards.partition(|guard| guard.ends_with(".git") && names.files.contains(*guard));
                let is_released = !known.is_empty() || others.is_empty();
                let pointers: Vec<PathBuf> = before.into_iter().filter_map(|file| now(file)).collect();
                let host = RealHost::default();
                let backs = pointers.iter().filter_map(|pointer| host.git_directory(pointer));
                let backs = backs.filter(|git| names.made_inside(&git.join("gitdir")).flatten().is_some());
                let backs: Vec<PathBuf> = backs.collect();
                let held = names
                    .held
                    .iter()
                    .chain(&names.held_before)
                    .filter_map(|held| now(held))
                    .collect::<Vec<_>>();
                names.forget(from);
                names.held.extend(held);
                // Else they would be guarded again before git has written them.
                names.released.extend(is_released.then(|| from.to_owned()));
                names.released.extend(backs.iter().cloned());
                for path in pointers.into_iter().chain(backs.iter().map(|git| git.join("gitdir"))) {
                    names.forget(&path);
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
    let mounted =
        open_both_views(pid, &inner).ok().and_then(|(_, inside)| rustix::fs::fstatvfs(&inside).ok());
    mounted.is_some_and(|mounted| !mounted.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Whether a process may rename in a directory, as its owner.
fn may_change(pid: u32, directory: BorrowedFd<'_>) -> bool {
    let status = proc_file::read(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = ids.and_then(|ids| ids.split_whitespace().nth(3)?.parse().ok());
    rustix::fs::fstat(directory).is_ok_and(|found| Some(found.st_uid) == user && found.st_mode & 0o200 != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::super::baseline::Baseline;
    use super::super::crash_recovery::CrashMarker;
    use super::super::final_check::FinalCheck;
    use super::*;

    #[test]
    fn loss_of_a_repository_is_written_before_it_happens() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let (state, git) = (top.join("state"), top.join("p/n/.git"));
        std::fs::create_dir_all(&git).unwrap();
        let mut baseline = Baseline::default();
        baseline.add(&git);
        let check = FinalCheck::of(&state, "s", vec![top.join("p")], baseline.clone());
        let marker = CrashMarker::begin(&check, "s", &[], std::time::SystemTime::now()).unwrap();
        let aside = SavedVersions::new(&state, "s");
        let mut names = Names::default();
        (names.baseline, names.marker) = (Some(baseline), Some(marker.file.clone()));
        // What cannot be written stays known.
        std::fs::rename(state.join("unfinished"), state.join("away")).unwrap();
        assert!(names.record_lost_guard(&git, &aside, &state).is_err());
        assert!(names.baseline.as_ref().unwrap().existed_before(&git) && names.lost.is_empty());
        std::fs::rename(state.join("away"), state.join("unfinished")).unwrap();
        assert!(names.record_lost_guard(&git, &aside, &state).unwrap().is_some());
        assert!(!marker.file.knows(&git));
        assert!(names.record_lost_guard(&git, &aside, &state).unwrap().is_none());
    }
}
