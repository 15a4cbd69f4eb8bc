//! Mounts that no grant undoes: masks over secrets, and read-only mounts over files that run later.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Builder, Stub, is_system};
use crate::host::{Host, PathKind, normalised_path, outermost_guarded_parent, repository_names};
use crate::plan::{Access, Kind, Mount, NodeContent};
use crate::policy::builtin_paths::{
    self, HOME_MASKS, HOME_READ_ONLY, PROJECT_READ_ONLY, ProjectReadOnly, Tier,
};
use crate::spec::{NamedFile, NamedKind};

/// See [`Host::has_other_names`].
const SEVERAL_NAMES: &str =
    "its files can be reached by several names (different letter case, Windows short names)";
/// Size of a directory of [`Builder::remade`].
const REMADE_BYTES: u64 = 4 << 20;
const ELSEWHERE: &str = "work in a Linux directory instead, such as one in your home";

impl Builder<'_> {
    /// Why a path is masked, if the mask was not lifted.
    pub(super) fn mask_reason(&self, path: &Path) -> Option<&'static str> {
        let below = path.strip_prefix(&self.rules.home).ok()?;
        HOME_MASKS.iter().filter(|(mask, _)| below.starts_with(mask)).find_map(|(mask, why)| {
            let mask = self.rules.home.join(mask);
            let unmasked = |entry: &PathBuf| entry.starts_with(&mask) && path.starts_with(entry);
            (!self.rules.unmasked.iter().any(unmasked)).then_some(*why)
        })
    }

    /// Whether the policy names the guarded path itself. A parent's name does not count, because it would lift more
    /// than it says.
    fn is_lifted(&self, guarded: &Path) -> bool {
        self.rules.unmasked.iter().any(|entry| entry == guarded)
    }

    /// Above all grants: hook files read-only, secrets and denied paths hidden.
    pub(super) fn guard(&mut self) {
        let home = &self.rules.home;
        let ambiguous = self.ambiguous();
        for (path, _) in HOME_READ_ONLY {
            let path = home.join(path);
            if let Some((_, Access::ReadWrite)) = self.nearest_grant(&path) {
                self.read_only(&path);
                if self.may_be_written(&path) {
                    self.add_stub(&path, Stub::Directory);
                }
            }
        }
        for (grant, access) in &self.granted.clone() {
            if *access == Access::ReadWrite
                && !self.is_layered(grant)
                && self.host.path_kind(grant) == Some(PathKind::Directory)
                && self.mask_reason(grant).is_none()
            {
                self.guard_project(grant);
            }
        }
        // Tools that run in a subdirectory read files from there up to the top.
        let below = self.rules.start.ancestors().take_while(|above| !self.granted.contains_key(*above));
        for directory in below.collect::<Vec<_>>() {
            if self.may_be_written(directory) && self.link_to(&directory.join("x")).is_none() {
                self.guard_names(directory);
            }
        }
        for (path, named) in &self.rules.named {
            self.guard_named(path, named);
        }
        self.guard_other_names();
        // A tool makes them again at each installation; what it writes inside runs inside alone.
        for path in self.remade.keys().cloned().collect::<Vec<_>>() {
            self.push(&path, NodeContent::Tmpfs { bytes: REMADE_BYTES, mode: 0o755 });
            self.layout.private.insert(path);
        }
        let masks = HOME_MASKS.iter().map(|(mask, _)| home.join(mask)).filter(|mask| !self.is_lifted(mask));
        let hidden: Vec<PathBuf> = masks
            .chain(self.rules.hidden.iter().map(|hidden| hidden.value.clone()))
            .filter(|path| self.nearest_grant(path).is_some() || is_system(path))
            .collect();
        let mut emptied = BTreeSet::new();
        for path in hidden {
            let around = self.nearest_grant(&path).map(|(grant, _)| grant.to_owned());
            match around.filter(|grant| ambiguous.contains(grant) && self.host.path_kind(&path).is_some()) {
                Some(grant) if emptied.contains(&grant) => {}
                Some(grant) => {
                    let shown = path.display();
                    let why = format!(
                        "{SEVERAL_NAMES}, so {shown} cannot be hidden; it is empty inside: {ELSEWHERE}"
                    );
                    self.refuse(&grant, why);
                    self.hide(&grant);
                    emptied.insert(grant);
                }
                None => self.hide(&path),
            }
        }
    }

    /// Guards a path that is in no table. A directory that contains a grant is never closed.
    fn guard_named(&mut self, path: &Path, named: &NamedFile) {
        let holds_grant = self.granted.keys().any(|grant| grant.starts_with(path));
        let is_guarded = self.layout.mounts.iter().any(|mount| {
            let is_open = matches!(mount.what, NodeContent::Bind { access: Access::ReadWrite, .. });
            path.starts_with(&mount.target) && !is_open
        });
        if !self.may_be_written(path) || holds_grant || is_guarded || self.is_lifted(path) {
            return;
        }
        if named.kind == NamedKind::Told {
            self.layout.told.insert(path.to_owned(), named.why.clone());
        } else if named.kind == NamedKind::Commands {
            self.layout.commands.push(path.to_owned());
        } else if self.host.path_kind(path).is_some() {
            self.read_only(path);
        } else {
            self.layout.expected.insert(path.to_owned(), named.clone());
        }
    }

    /// Guards other hard links of guarded files in writable directories.
    fn guard_other_names(&mut self) {
        let guarded: BTreeSet<PathBuf> =
            self.layout.mounts.iter().map(|mount| mount.target.clone()).collect();
        let files = guarded.iter().filter(|path| self.may_be_written(path));
        let mut numbers = BTreeSet::new();
        for path in files {
            match self.host.path_kind(path) {
                Some(PathKind::File) => numbers.extend(self.host.shared_inode(path)),
                Some(PathKind::Directory) if path.ends_with("hooks") => {
                    let hooks =
                        self.host.names(path).unwrap_or_default().into_iter().take(super::git::MAX_HOOKS);
                    let hooks = hooks.filter(|(name, _)| !name.as_encoded_bytes().ends_with(b".sample"));
                    numbers.extend(hooks.filter_map(|(name, _)| self.host.shared_inode(&path.join(name))));
                }
                _ => {}
            }
        }
        if numbers.is_empty() {
            return;
        }
        let writable = self.granted.iter().filter(|(_, access)| **access == Access::ReadWrite);
        let found = writable.flat_map(|(grant, _)| self.host.names_of(grant, &numbers));
        let is_known = |path: &Path| {
            path.ancestors().any(|above| guarded.contains(above) && !self.granted.contains_key(above))
        };
        let found: Vec<_> = found.filter(|path| !is_known(path)).collect();
        for path in found {
            self.read_only(&path);
        }
    }

    /// Grants in which a file has several names. They are read-only, because nothing in them can be guarded.
    fn ambiguous(&mut self) -> BTreeSet<PathBuf> {
        let is_one = |grant: &PathBuf| {
            self.host.path_kind(grant) == Some(PathKind::Directory) && self.host.has_other_names(grant)
        };
        let found: BTreeSet<PathBuf> = self.granted.keys().filter(|grant| is_one(grant)).cloned().collect();
        for grant in &found {
            if self.granted.insert(grant.clone(), Access::ReadOnly) == Some(Access::ReadWrite) {
                let why = format!(
                    "{SEVERAL_NAMES}, so nothing in it can be guarded; it is read-only inside: {ELSEWHERE}"
                );
                self.refuse(grant, why);
            }
        }
        found
    }

    /// Hook files of a writable directory and of its repositories.
    fn guard_project(&mut self, directory: &Path) {
        if !self.guard_repositories(directory) {
            return;
        }
        self.layout.instructed.push(directory.to_owned());
        self.guard_names(directory);
    }

    /// Automatically run files at the top of a directory.
    fn guard_names(&mut self, directory: &Path) {
        let is_worked_in = self.is_worked_in(directory);
        if is_worked_in {
            self.layout.worked_in.push(directory.to_owned());
        }
        for guarded in PROJECT_READ_ONLY {
            if Path::new(guarded.path)
                .parent()
                .is_some_and(|above| repository_names().any(|name| above.starts_with(name)))
                || (guarded.tier == Tier::Instructs && !self.rules.guard_all)
            {
                continue;
            }
            for path in paths_of_entry(guarded, directory, self.host) {
                if self.is_lifted(&path) {
                    continue;
                }
                if !self.guard_around_packages(guarded, &path) {
                    self.read_only(&path);
                }
                // Below the top, new files are set aside instead.
                let is_top = is_worked_in && self.granted.contains_key(directory);
                if is_top && self.is_read_by_some_program(guarded) {
                    self.add_stub(&path, stub_for(guarded));
                }
            }
        }
        for path in self.rules.with_stub.iter().filter(|path| path.parent() == Some(directory)) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(guarded) = builtin_paths::guarded(name, self.rules.guard_all) {
                self.add_stub(path, stub_for(guarded));
            }
        }
    }

    /// Guards next to package directories, which stay writable. False: there are none.
    fn guard_around_packages(&mut self, guarded: &ProjectReadOnly, directory: &Path) -> bool {
        let is_kind = |(name, kind): &(OsString, PathKind)| {
            *kind == PathKind::Directory && name.to_str().is_some_and(|name| guarded.holds_packages(name))
        };
        if guarded.packages.is_empty() || self.link_to(&directory.join("x")).is_some() {
            return false;
        }
        let names = self.host.names(directory).filter(|names| names.iter().any(is_kind));
        let Some(names) = names else { return false };
        self.bind(directory, Access::ReadWrite, Kind::Directory);
        self.layout.closed.push(directory.to_owned());
        for entry in names {
            let path = directory.join(&entry.0);
            if is_kind(&entry) {
                self.bind(&path, Access::ReadWrite, Kind::Directory);
                self.layout.commands.push(path.join("bin"));
            } else {
                self.read_only(&path);
            }
        }
        true
    }

    /// Whether the user has a program that reads such a file.
    fn is_read_by_some_program(&self, guarded: &ProjectReadOnly) -> bool {
        let mut signs = guarded.signs.iter();
        signs.any(|sign| self.host.path_kind(&self.rules.home.join(sign)).is_some())
    }

    /// A directory in which people work, as opposed to a program's own.
    fn is_worked_in(&self, directory: &Path) -> bool {
        let is_dotted = |path: &Path| path.iter().any(|part| part.as_encoded_bytes().starts_with(b"."));
        match directory.strip_prefix(&self.rules.home) {
            _ if directory == self.rules.project => self.rules.project_access.is_some(),
            Ok(below) => !is_dotted(below),
            Err(_) => true,
        }
    }

    /// Reserves a missing path with a stub. Also if something exists: it may be the stub of another run, which must
    /// outlive it. If a parent is missing, the parent gets the stub.
    pub(super) fn add_stub(&mut self, path: &Path, kind: Stub) {
        if self.is_lifted(path) {
            return;
        }
        if self.link_to(path).is_some() {
            self.keep_links(path);
            if let Some(real) = self.behind_links(path) {
                self.add_stub(&real, kind);
            }
            return;
        }
        let root = self.root_of(path).unwrap_or(path);
        let on_the_way = path.ancestors().take_while(|above| *above != root && above.starts_with(root));
        let missing =
            on_the_way.filter(|above| self.host.path_kind(above).is_none()).last().map(Path::to_owned);
        let (path, kind) = match &missing {
            Some(above) if above != path => (above.as_path(), Stub::Directory),
            _ => (path, kind),
        };
        if missing.is_some()
            && let Some(above) = path.parent()
            && !self.host.may_make_in(above)
        {
            self.keep_from_writing(above);
            return;
        }
        if missing.is_some() && !self.rules.stubs {
            return;
        }
        let place = (self.real(path).unwrap_or_else(|| path.to_owned()), kind);
        let is_new = self.stood_in.insert(place.clone());
        if missing.is_some() && is_new {
            let kind = if kind == Stub::Directory { Kind::Directory } else { Kind::File };
            self.bind(path, Access::ReadOnly, kind);
        }
        self.layout.stubs.push(place);
    }

    /// A directory in which its owner cannot create files, so no stub is possible. A program inside could restore the
    /// permission.
    fn keep_from_writing(&mut self, directory: &Path) {
        if self.granted.contains_key(directory) {
            self.refuse(
                directory,
                "no file can be created in it, so it cannot be guarded; it is read-only inside",
            );
            self.granted.insert(directory.to_owned(), Access::ReadOnly);
        } else {
            self.bind(directory, Access::ReadOnly, Kind::Directory);
        }
    }

    /// Hides a directory that cannot be searched, because it cannot be guarded.
    pub(super) fn hide_closed(&mut self, path: &Path) {
        let path = self.nearest_grant(path).map_or(path, |(grant, _)| outermost_guarded_parent(path, grant));
        let visible = path.ancestors().find(|above| self.host.path_kind(above) == Some(PathKind::Directory));
        let Some(visible) = visible.filter(|visible| self.may_be_written(visible)).map(Path::to_owned) else {
            return;
        };
        let is_hidden = |mount: &Mount| {
            mount.target == visible
                && matches!(mount.what, NodeContent::Tmpfs { .. } | NodeContent::File { .. })
        };
        if !self.layout.mounts.iter().any(is_hidden) {
            self.refuse(
                &visible,
                "it cannot be searched completely, so nothing in it can be guarded; it is empty inside",
            );
            self.hide(&visible);
        }
    }

    /// The grant that applies to a path: the longest one above it, or the path itself.
    pub(super) fn nearest_grant(&self, path: &Path) -> Option<(&Path, Access)> {
        let nearest = path.ancestors().find_map(|above| self.granted.get_key_value(above));
        nearest.map(|(grant, access)| (grant.as_path(), *access))
    }

    /// The access to a path below a grant; None for a grant itself and for invisible paths.
    pub(super) fn access(&self, path: &Path) -> Option<Access> {
        self.nearest_grant(path).filter(|(grant, _)| path != *grant).map(|(_, access)| access)
    }

    /// Whether the nearest grant above a path is writable.
    pub(super) fn may_be_written(&self, path: &Path) -> bool {
        self.nearest_grant(path).is_some_and(|(grant, access)| path != grant && access == Access::ReadWrite)
    }

    /// The first link in a path below the project or a grant.
    pub(super) fn link_to(&self, path: &Path) -> Option<PathBuf> {
        let root = self.root_of(path)?;
        let mut known = self.links.borrow_mut();
        let (mut link, mut unknown) = (None, Vec::new());
        // All parents have the same root.
        for above in path.ancestors().skip(1).take_while(|above| *above != root && above.starts_with(root)) {
            if let Some(found) = known.get(above) {
                link.clone_from(found);
                break;
            }
            unknown.push(above);
        }
        for above in unknown.into_iter().rev() {
            let is_link = |above: &&Path| self.host.path_kind(above) == Some(PathKind::Symlink);
            link = link.or_else(|| Some(above).filter(is_link).map(Path::to_owned));
            known.insert(above.to_owned(), link.clone());
        }
        link
    }

    pub(super) fn read_only(&mut self, path: &Path) {
        if self.is_lifted(path) {
            return;
        }
        if self.link_to(path).is_some() {
            self.keep_links(path);
            if let Some(real) = self.behind_links(path) {
                self.read_only(&real);
            }
            return;
        }
        match self.host.path_kind(path) {
            Some(PathKind::Directory) => {
                self.bind(path, Access::ReadOnly, Kind::Directory);
                self.follow_links_in(path, &mut { MAX_FOLLOWED });
            }
            Some(PathKind::Closed) => self.hide_closed(path),
            Some(PathKind::File) => self.bind(path, Access::ReadOnly, Kind::File),
            Some(PathKind::Symlink) => {
                self.follow(path);
                let named = self.host.canonical(path).filter(|named| self.may_be_written(named));
                if let Some(named) = named
                    && self.host.path_kind(&named) == Some(PathKind::Directory)
                {
                    self.bind(&named, Access::ReadOnly, Kind::Directory);
                }
                self.keep_link(path);
            }
            // A stub of another run, or something that nothing runs.
            Some(PathKind::Special) => self.bind(path, Access::ReadOnly, Kind::File),
            None => {}
        }
    }

    /// Links in a guarded directory, such as hooks: their targets run, so they are guarded.
    pub(super) fn follow_links_in(&mut self, directory: &Path, budget: &mut usize) {
        if !self.followed.insert(directory.to_owned()) {
            return;
        }
        let Some(names) = self.host.names(directory) else {
            self.hide_closed(directory);
            return;
        };
        for (name, kind) in names {
            let Some(rest) = budget.checked_sub(1) else {
                self.layout.unsearched.push(directory.to_owned());
                return;
            };
            *budget = rest;
            match kind {
                PathKind::Symlink => self.follow(&directory.join(name)),
                PathKind::Directory => self.follow_links_in(&directory.join(name), budget),
                _ => {}
            }
        }
    }

    /// Guards the targets of a chain of links.
    fn follow(&mut self, link: &Path) {
        let mut at = link.to_owned();
        for _ in 0..MAX_LINKS {
            let Some(to) = self.host.link(&at) else { break };
            at = normalised_path(&at.parent().unwrap_or(Path::new("/")).join(to));
            if !self.may_be_written(&at) || !self.followed.insert(at.clone()) {
                continue;
            }
            match self.host.path_kind(&at) {
                Some(_) => self.read_only(&at),
                None => self.add_stub(&at, Stub::File),
            }
        }
        let end = self.host.canonical(link).filter(|end| self.may_be_written(end));
        if let Some(end) = end.filter(|end| self.followed.insert(end.clone())) {
            self.read_only(&end);
        }
    }

    /// Mounts a link on itself: it stays readable as a link, and cannot be replaced.
    fn keep_link(&mut self, link: &Path) {
        if self.layout.mounts.iter().all(|mount| mount.target != link) {
            self.bind(link, Access::ReadOnly, Kind::File);
        }
    }

    /// Keeps all links on the way to a path.
    fn keep_links(&mut self, path: &Path) {
        let mut at = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Some(link) = self.link_to(&at) else { return };
            let (Some(to), Ok(rest)) = (self.host.link(&link), at.strip_prefix(&link)) else { return };
            let to = link.parent().unwrap_or(Path::new("/")).join(to).join(rest);
            self.keep_link(&link);
            at = normalised_path(&to);
        }
    }

    /// The place of a path whose parent is behind a link, if it may be written there.
    fn behind_links(&self, path: &Path) -> Option<PathBuf> {
        let real = self.host.canonical(path.parent()?)?.join(path.file_name()?);
        (self.may_be_written(&real) && self.link_to(&real).is_none()).then_some(real)
    }

    pub(super) fn hide(&mut self, path: &Path) {
        match self.host.path_kind(path) {
            Some(PathKind::Directory) => {
                self.push(path, NodeContent::Tmpfs { bytes: 4096, mode: 0o555 });
            }
            // It may be opened up from inside.
            Some(PathKind::Closed) => self.hide_closed(path),
            // Without permissions, so that programs get an error instead of an empty directory.
            Some(_) => self.push(path, NodeContent::File { content: Vec::new(), mode: 0 }),
            None => {}
        }
    }

    /// Directories between a writable grant and a guarded or read-only path in it. As mount points they cannot be
    /// moved or removed; otherwise the parent could be renamed and the file replaced. Directories above a repository
    /// may be moved, because git treats it as a new one.
    pub(super) fn immovable_directories(&self, guards: &[Mount]) -> BTreeSet<PathBuf> {
        let targets: BTreeSet<&Path> = guards.iter().map(|mount| mount.target.as_path()).collect();
        let read = self.granted.iter().filter(|(_, access)| **access == Access::ReadOnly);
        // Continues above a grant that lies inside another.
        let lies_in_writable = |path: &Path| {
            path.parent()
                .and_then(|parent| self.nearest_grant(parent))
                .is_some_and(|(_, access)| access == Access::ReadWrite)
        };
        let mut seen = BTreeSet::new();
        let is_movable = |target: &&Path| target.ancestors().any(|above| self.movable.contains(above));
        let fixed = targets.iter().copied().filter(|target| !is_movable(target));
        for target in fixed.chain(read.map(|(grant, _)| grant.as_path())) {
            for above in target.ancestors().skip(1).take_while(|above| lies_in_writable(above)) {
                // Parents of a seen directory were seen with it.
                if !seen.insert(above) {
                    break;
                }
            }
        }
        seen.retain(|above| {
            !targets.contains(above)
                && !self.granted.contains_key(*above)
                && self.host.path_kind(above) == Some(PathKind::Directory)
                && self.link_to(above).is_none()
        });
        seen.into_iter().map(Path::to_owned).collect()
    }
}

fn stub_for(guarded: &ProjectReadOnly) -> Stub {
    match guarded.kind {
        builtin_paths::Kind::File => Stub::Socket,
        builtin_paths::Kind::Dir => Stub::Directory,
    }
}

/// The kernel's limit.
const MAX_LINKS: usize = 40;
/// Limit of entries of one guarded directory that are checked for links.
const MAX_FOLLOWED: usize = 20_000;

/// The paths of a table entry in a directory.
fn paths_of_entry(guarded: &ProjectReadOnly, directory: &Path, host: &dyn Host) -> Vec<PathBuf> {
    if !guarded.is_pattern() {
        return vec![directory.join(guarded.path)];
    }
    let names = host.names(directory).unwrap_or_default();
    names
        .into_iter()
        .filter(|(name, _)| name.to_str().is_some_and(|name| guarded.matches(name)))
        .map(|(name, _)| directory.join(name))
        .collect()
}

/// Instruction and configuration files at the top of a directory, with the reason.
#[must_use]
pub fn instructing(directory: &Path, host: &dyn Host) -> Vec<(PathBuf, &'static str)> {
    let table = PROJECT_READ_ONLY.iter().filter(|guarded| guarded.tier == Tier::Instructs);
    let mut found: Vec<(PathBuf, &'static str)> = table
        .flat_map(|guarded| {
            paths_of_entry(guarded, directory, host).into_iter().map(|path| (path, guarded.why))
        })
        .filter(|(path, _)| host.path_kind(path).is_some())
        .collect();
    found.sort();
    found.dedup_by(|one, other| one.0 == other.0);
    found
}
