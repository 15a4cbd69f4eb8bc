//! What no grant can undo: masks over secrets, and files that run code later, read-only in every writable directory.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::Builder;
use crate::policy::builtin_paths::{self, HOME_MASKS, HOME_READ_ONLY, PROJECT_READ_ONLY};
use crate::sandbox::host::Found;
use crate::sandbox::plan::{Access, Kind, Mount, What};

impl Builder<'_> {
    /// The reason for which a path lies in a mask that nobody lifted.
    pub(super) fn masked(&self, path: &Path) -> Option<&'static str> {
        HOME_MASKS.iter().find_map(|(mask, why)| {
            let mask = self.request.home.join(mask);
            let unmasked = |entry: &PathBuf| entry.starts_with(&mask) && path.starts_with(entry);
            (path.starts_with(&mask) && !self.request.unmasked.iter().any(unmasked)).then_some(*why)
        })
    }

    /// Whether the policy names what is guarded. A name of something above lifts nothing: it would lift more than is
    /// written there.
    fn lifted(&self, guarded: &Path) -> bool {
        self.request.unmasked.iter().any(|entry| entry == guarded)
    }

    /// On top of the grants: hook files read-only, secrets and denied paths hidden.
    pub(super) fn guard(&mut self) {
        let home = self.request.home;
        for (path, _) in HOME_READ_ONLY {
            let path = home.join(path);
            if let Some((_, Access::ReadWrite)) = self.nearest(&path) {
                self.read_only(&path);
                if self.may_be_written(&path) {
                    self.stand_in(&path, Kind::Directory);
                }
            }
        }
        for (grant, access) in &self.granted.clone() {
            if *access == Access::ReadWrite
                && self.host.look(grant) == Some(Found::Directory)
                && self.masked(grant).is_none()
            {
                self.guard_project(grant);
            }
        }
        let masks = HOME_MASKS.iter().map(|(mask, _)| home.join(mask)).filter(|mask| !self.lifted(mask));
        let hidden: Vec<PathBuf> = masks
            .chain(self.request.denied.iter().cloned())
            .filter(|path| self.nearest(path).is_some())
            .collect();
        for path in hidden {
            self.hide(&path);
        }
    }

    /// Hook files of a writable directory and of every repository below it.
    fn guard_project(&mut self, directory: &Path) {
        self.guard_entry(&directory.join(".git"));
        for guarded in PROJECT_READ_ONLY {
            let path = directory.join(guarded.path);
            if guarded.path.starts_with(".git/") || self.lifted(&path) {
                continue;
            }
            self.read_only(&path);
            if guarded.placeholder
                && directory == self.request.project
                && self.request.project_access.is_some()
            {
                let kind = match guarded.kind {
                    builtin_paths::Kind::File => Kind::File,
                    builtin_paths::Kind::Dir => Kind::Directory,
                };
                self.stand_in(&path, kind);
            }
        }
        match self.host.repositories(directory) {
            Some(found) => {
                for entry in &found {
                    // The grant itself is a mount point already.
                    if entry == directory { self.guard_bare(entry) } else { self.guard_entry(entry) }
                }
            }
            None => self.layout.unsearched.push(directory.to_owned()),
        }
    }

    /// Something that must not come into being. Also where something stands: it may be the stand-in of another run, which
    /// must outlive it. Where a directory on the way is missing, that one must not come into being.
    pub(super) fn stand_in(&mut self, path: &Path, kind: Kind) {
        if self.lifted(path) || self.link_to(path).is_some() {
            return;
        }
        let root = self.root_of(path).unwrap_or(path);
        let on_the_way = path.ancestors().take_while(|above| *above != root && above.starts_with(root));
        let missing = on_the_way.filter(|above| self.host.look(above).is_none()).last().map(Path::to_owned);
        let (path, kind) = match &missing {
            Some(above) if above != path => (above.as_path(), Kind::Directory),
            _ => (path, kind),
        };
        let place = (self.real(path).unwrap_or_else(|| path.to_owned()), kind);
        if missing.is_some() && !self.layout.placeholders.contains(&place) {
            self.bind(path, Access::ReadOnly, kind);
        }
        self.layout.placeholders.push(place);
    }

    /// The grant that holds for a path: the longest of those in which it lies, or that it is.
    fn nearest(&self, path: &Path) -> Option<(&Path, Access)> {
        let around = self.granted.iter().filter(|(grant, _)| path.starts_with(grant));
        let nearest = around.max_by_key(|(grant, _)| grant.as_os_str().len());
        nearest.map(|(grant, access)| (grant.as_path(), *access))
    }

    /// Whether a path lies below a grant that is writable, and in none that is read-only and nearer.
    pub(super) fn may_be_written(&self, path: &Path) -> bool {
        self.nearest(path).is_some_and(|(grant, access)| path != grant && access == Access::ReadWrite)
    }

    /// The first link on the way to a path below the project or a grant.
    pub(super) fn link_to(&self, path: &Path) -> Option<PathBuf> {
        let root = self.root_of(path)?;
        let mut above: Vec<&Path> =
            path.ancestors().skip(1).take_while(|above| above.starts_with(root) && *above != root).collect();
        above.reverse();
        let link = above.into_iter().find(|above| self.host.look(above) == Some(Found::Symlink))?;
        Some(link.to_owned())
    }

    pub(super) fn read_only(&mut self, path: &Path) {
        if self.lifted(path) {
            return;
        }
        // What lies behind a link is not there for whoever puts something else in its place.
        if let Some(link) = self.link_to(path) {
            if self.layout.mounts.iter().all(|mount| mount.target != link) {
                self.hide(&link);
            }
            return;
        }
        match self.host.look(path) {
            Some(Found::Directory) => self.bind(path, Access::ReadOnly, Kind::Directory),
            Some(Found::File) => self.bind(path, Access::ReadOnly, Kind::File),
            // The link is covered, so that it cannot be replaced: with the file that it names, where that is part of
            // the project (`CLAUDE.md` that leads to `AGENTS.md`), else with nothing that can be followed. A directory
            // that it names in the project is guarded where it is.
            Some(Found::Symlink) => match self.named_file(path) {
                Some(file) => {
                    let source = self.source(&file);
                    self.push(path, What::Bind { source, access: Access::ReadOnly, kind: Kind::File });
                }
                None => {
                    let named = self.host.canonical(path).filter(|named| self.may_be_written(named));
                    if let Some(named) = named
                        && self.host.look(&named) == Some(Found::Directory)
                    {
                        self.bind(&named, Access::ReadOnly, Kind::Directory);
                    }
                    self.hide(path);
                }
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
        let inside = plain && file.starts_with(self.request.project) && self.link_to(&file).is_none();
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

    /// Directories between a writable grant and something in it that is guarded or may only be read. As mount points
    /// they can be neither moved nor removed; otherwise whoever renames the parent makes the file anew.
    pub(super) fn held(&self, guards: &[Mount]) -> BTreeSet<PathBuf> {
        let targets: BTreeSet<&Path> = guards.iter().map(|mount| mount.target.as_path()).collect();
        let read = self.granted.iter().filter(|(_, access)| **access == Access::ReadOnly);
        // A grant on the way is no end of it: what lies around it counts.
        let lies_in_writable = |path: &Path| {
            path.parent()
                .and_then(|parent| self.nearest(parent))
                .is_some_and(|(_, access)| access == Access::ReadWrite)
        };
        targets
            .iter()
            .copied()
            .chain(read.map(|(grant, _)| grant.as_path()))
            .flat_map(|target| target.ancestors().skip(1).take_while(|above| lies_in_writable(above)))
            .filter(|above| {
                !targets.contains(above)
                    && !self.granted.contains_key(*above)
                    && self.host.look(above) == Some(Found::Directory)
                    && self.link_to(above).is_none()
            })
            .map(Path::to_owned)
            .collect()
    }
}
