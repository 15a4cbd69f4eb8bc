//! What no grant can undo: masks over secrets, and files that run code later, read-only in every writable directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::Builder;
use crate::policy::builtin_paths::{self, HOME_MASKS, HOME_READ_ONLY, PROJECT_READ_ONLY};
use crate::sandbox::host::Found;
use crate::sandbox::plan::{Access, Kind, Mount, Source, What};

impl Builder<'_> {
    /// The reason for which a path lies in a mask that nobody lifted.
    pub(super) fn masked(&self, path: &Path) -> Option<&'static str> {
        HOME_MASKS.iter().find_map(|(mask, why)| {
            let mask = self.request.home.join(mask);
            (path.starts_with(&mask) && !self.lifted(path) && !self.lifted(&mask)).then_some(*why)
        })
    }

    fn lifted(&self, path: &Path) -> bool {
        self.request.unmasked.iter().any(|lifted| path.starts_with(lifted))
    }

    /// On top of the grants: hook files read-only, secrets and denied paths hidden.
    pub(super) fn guard(&mut self, grants: &BTreeMap<PathBuf, Access>) {
        let reach = |path: &Path| {
            grants
                .iter()
                .filter(|(grant, _)| path.starts_with(grant))
                .max_by_key(|(grant, _)| grant.as_os_str().len())
        };
        let home = self.request.home;
        for (path, _) in HOME_READ_ONLY {
            let path = home.join(path);
            if reach(&path).is_some_and(|(_, access)| *access == Access::ReadWrite) {
                self.read_only(&path);
            }
        }
        for (grant, access) in grants {
            if *access == Access::ReadWrite
                && self.host.look(grant) == Some(Found::Directory)
                && self.masked(grant).is_none()
            {
                self.guard_project(grant);
            }
        }
        let masks = HOME_MASKS.iter().map(|(mask, _)| home.join(mask)).filter(|mask| !self.lifted(mask));
        let hidden: Vec<PathBuf> =
            masks.chain(self.request.denied.iter().cloned()).filter(|path| reach(path).is_some()).collect();
        for path in hidden {
            self.hide(&path);
        }
    }

    /// Hook files of a writable directory and of every repository below it.
    fn guard_project(&mut self, directory: &Path) {
        self.guard_repository(directory);
        for guarded in PROJECT_READ_ONLY {
            let path = directory.join(guarded.path);
            if guarded.path.starts_with(".git/") || self.lifted(&path) {
                continue;
            }
            let exists = self.host.look(&path).is_some();
            if exists {
                self.read_only(&path);
            }
            if guarded.placeholder
                && directory == self.request.project
                && self.request.project_access.is_some()
            {
                let kind = match guarded.kind {
                    builtin_paths::Kind::File => Kind::File,
                    builtin_paths::Kind::Dir => Kind::Directory,
                };
                // Also where something stands: it may be the stand-in of another run, which must outlive it.
                self.layout.placeholders.push((path.clone(), kind));
                if !exists {
                    self.bind(&path, Access::ReadOnly, kind);
                }
            }
        }
        match self.host.repositories(directory) {
            Some(found) => {
                for repository in found {
                    self.guard_repository(&repository);
                }
            }
            None => self.layout.unsearched.push(directory.to_owned()),
        }
    }

    /// `.git` becomes a mount point of its own, so that it cannot be moved away and made anew.
    fn guard_repository(&mut self, directory: &Path) {
        let git = directory.join(".git");
        match self.host.look(&git) {
            Some(Found::Directory) => self.bind(&git, Access::ReadWrite, Kind::Directory),
            Some(Found::File) => return self.read_only(&git),
            _ => return,
        }
        for (path, _) in builtin_paths::NESTED_READ_ONLY {
            self.read_only(&directory.join(path));
        }
        self.guard_hooks(&git.join("hooks"));
        self.guard_common(&git);
        // Submodules keep their hooks and configuration here, linked working trees the way back.
        for inner in self.host.modules(&git) {
            for name in ["hooks", "config", "config.worktree", "commondir", "gitdir"] {
                self.read_only(&inner.join(name));
            }
            self.guard_hooks(&inner.join("hooks"));
            self.guard_common(&inner);
        }
    }

    /// A missing `commondir` must not come into being: it would send git elsewhere for its configuration and hooks.
    fn guard_common(&mut self, git: &Path) {
        let common = git.join(builtin_paths::GIT_COMMON);
        if self.lifted(&common) {
            return;
        }
        self.layout.placeholders.push((common.clone(), Kind::File));
        if self.host.look(&common).is_none() {
            self.bind(&common, Access::ReadOnly, Kind::File);
        }
    }

    /// A missing directory of hooks must not come into being either.
    fn guard_hooks(&mut self, hooks: &Path) {
        if self.lifted(hooks) {
            return;
        }
        // Also where something stands: it may be the stand-in of another run, which must outlive it.
        self.layout.placeholders.push((hooks.to_owned(), Kind::Directory));
        if self.host.look(hooks).is_none() {
            self.bind(hooks, Access::ReadOnly, Kind::Directory);
        }
    }

    fn read_only(&mut self, path: &Path) {
        if self.lifted(path) {
            return;
        }
        match self.host.look(path) {
            Some(Found::Directory) => self.bind(path, Access::ReadOnly, Kind::Directory),
            Some(Found::File) => self.bind(path, Access::ReadOnly, Kind::File),
            // The link is covered, so that it cannot be replaced: with the file that it names, where that is part of
            // the project (`CLAUDE.md` that leads to `AGENTS.md`), else with nothing that can be followed.
            Some(Found::Symlink) => match self.named_file(path) {
                Some(file) => {
                    let source = Source::Path { path: file, expect: None };
                    self.push(path, What::Bind { source, access: Access::ReadOnly, kind: Kind::File });
                }
                None => self.hide(path),
            },
            Some(Found::Special) => self.hide(path),
            None => {}
        }
    }

    /// The regular file of the project that a link names directly.
    fn named_file(&self, link: &Path) -> Option<PathBuf> {
        let to = self.host.link(link)?;
        let plain = to.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let file = link.parent()?.join(to);
        let inside = plain && file.starts_with(self.request.project);
        (inside && self.host.look(&file) == Some(Found::File)).then_some(file)
    }

    pub(super) fn hide(&mut self, path: &Path) {
        match self.host.look(path) {
            Some(Found::Directory) => {
                self.push(path, What::Tmpfs { bytes: 4096, mode: 0o555 });
            }
            // Without permissions: whoever opens it is told so, instead of finding it empty.
            Some(_) => self.push(path, What::File { content: Vec::new(), mode: 0 }),
            None => {}
        }
    }

    /// Directories between a writable grant and something guarded in it. As mount points they can be neither moved
    /// nor removed; otherwise whoever renames the parent makes the guarded file anew.
    pub(super) fn held(&self, grants: &BTreeMap<PathBuf, Access>, guards: &[Mount]) -> BTreeSet<PathBuf> {
        let targets: BTreeSet<&Path> = guards.iter().map(|mount| mount.target.as_path()).collect();
        let writable = |path: &Path| {
            let above = grants.iter().filter(|(grant, _)| path.starts_with(grant) && path != grant.as_path());
            above
                .max_by_key(|(grant, _)| grant.as_os_str().len())
                .is_some_and(|(_, access)| *access == Access::ReadWrite)
        };
        targets
            .iter()
            .flat_map(|target| target.ancestors().skip(1).take_while(|above| writable(above)))
            .filter(|above| {
                !targets.contains(above)
                    && !grants.contains_key(*above)
                    && self.host.look(above) == Some(Found::Directory)
            })
            .map(Path::to_owned)
            .collect()
    }
}
