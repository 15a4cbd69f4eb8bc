//! Makes the mounts of one sandbox from its specification. Pure, except for questions to [`Host`](super::host::Host).
//!
//! Order: system directories, private `/tmp`, `/dev`, `/proc` and home; grants, from the shortest path to the longest;
//! masks over secrets and read-only hook files, which no grant undoes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::cached_host::CachedHost;
use super::host::{Host, PathKind, SmallFile, SmallTree};
use super::plan::{Access, Executable, Kind, LandlockRule, Mount, NodeContent, PROJECT_LAYER, Source};
use super::share_mounts::HELD_TREE;
use super::spec::{NamedFile, PathRules, Placed, SandboxSpec};
use crate::policy::{Ruled, builtin_paths};

mod git;
mod guards;
mod rights;
mod system;

pub use super::spec::{CacheLayer, Grant, PinnedBytes, PinnedFile, ProjectLayer, RelocatedPath};
pub use guards::instructing;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    pub mounts: Vec<Mount>,
    pub landlock: Vec<LandlockRule>,
    pub executable: Executable,
    /// The mounts in whose place a copy may be shown.
    pub copied: BTreeMap<PathBuf, SmallTree>,
    /// Guarded paths that do not exist: the session creates stubs for the run.
    pub stubs: Vec<(PathBuf, Stub)>,
    /// Grants without effect because of a mask or a missing file, with the reason.
    pub refused: Vec<(PathBuf, String)>,
    /// Guarded directories of which the sandbox has a writable copy of its own.
    pub private: BTreeSet<PathBuf>,
    /// Repositories that could not be searched completely.
    pub unsearched: Vec<PathBuf>,
    /// The mounts that are guards, or keep a guard's place.
    pub guards: Vec<Mount>,
    /// All repositories in writable directories.
    pub repositories: Vec<PathBuf>,
    /// Hooks and programs that git searches for in each of them, relative to the working tree.
    pub in_repositories: BTreeSet<PathBuf>,
    /// Those that the configuration of one of them names: its directory, what it names, and what that is for the user.
    pub in_repository: BTreeSet<(PathBuf, PathBuf, PathBuf)>,
    /// Writable directories that may have instruction or configuration files at their top.
    pub instructed: Vec<PathBuf>,
    /// Directories in them with such files.
    pub obeyed_in: Vec<PathBuf>,
    /// Directories in which people work: new files there that would run automatically are set aside.
    pub worked_in: Vec<PathBuf>,
    /// Directories in which nothing may be created.
    pub closed: Vec<PathBuf>,
    /// Directories of commands: a new file there with another command's name is set aside.
    pub commands: Vec<PathBuf>,
    /// Files that stay writable and are reported at the end, each with who names it.
    pub told: BTreeMap<PathBuf, String>,
    /// Missing files that programs would obey: set aside when they appear.
    pub expected: BTreeMap<PathBuf, NamedFile>,
}

/// The kind of a stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stub {
    Directory,
    /// Empty.
    File,
    /// Invisible to git, which neither adds nor removes sockets.
    Socket,
}

/// The directory of agentsh's own files in an agent's sandbox.
pub const OWN_DIRECTORY: &str = "/run/agentsh";
/// The directory that holds names of an agent's sandbox, see [`super::share_mounts::hold`]. No program inside
/// may look into it.
pub const HELD_DIRECTORY: &str = "/run/agentsh/held";

/// # Panics
/// Never. Equal specifications on equal hosts give equal layouts.
#[must_use]
pub fn layout(spec: &SandboxSpec, host: &dyn Host) -> Layout {
    let host = CachedHost::new(host);
    // Many names are asked for in each.
    let asked = [Path::new("/"), Path::new("/etc"), &spec.paths.home, &spec.paths.project];
    asked.into_iter().for_each(|directory| host.read(directory));
    let mut out = Builder::new(&spec.paths, &host);
    out.system();
    out.machine();
    out.private(spec);
    if spec.process.kind.is_agent() && !spec.paths.shared_sockets {
        out.push(HELD_DIRECTORY, NodeContent::Directory { mode: 0 });
        out.push(Path::new(HELD_DIRECTORY).join(HELD_TREE), NodeContent::Directory { mode: 0 });
    }
    out.grants();
    out.program(spec);
    out.links(&spec.placed);
    out.generated(spec);
    out.ignore_stubs();
    out.one_temporary_directory();
    out.landlock(&spec.process);
    out.add_relocated(&spec.placed.beyond_landlock);
    out.put_layer_below();
    out.layout
}

/// Only the guards, as they would be made now, to restore what the host removed during a run.
#[must_use]
pub fn guards(rules: &PathRules, host: &dyn Host) -> Layout {
    let host = CachedHost::new(host);
    let mut out = Builder::new(rules, &host);
    out.grants();
    out.layout
}

struct Builder<'a> {
    rules: &'a PathRules,
    host: &'a dyn Host,
    layout: Layout,
    /// The project and grants, with links resolved.
    roots: RefCell<BTreeMap<PathBuf, Option<PathBuf>>>,
    /// The first link in the path to a directory below one of them.
    links: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
    /// Requested paths, including the project.
    granted: BTreeMap<PathBuf, Access>,
    /// Directories and links that were followed.
    followed: BTreeSet<PathBuf>,
    /// Repositories that may be moved with their parent directory.
    movable: HashSet<PathBuf>,
    /// Files of [`Layout::private`], for each directory.
    remade: BTreeMap<PathBuf, Vec<SmallFile>>,
    /// [`Layout::stubs`] as a set, for thousands of repositories.
    stood_in: HashSet<(PathBuf, Stub)>,
}

impl<'a> Builder<'a> {
    fn new(rules: &'a PathRules, host: &'a dyn Host) -> Self {
        Self {
            rules,
            host,
            layout: Layout::default(),
            roots: RefCell::default(),
            links: RefCell::default(),
            granted: BTreeMap::new(),
            followed: BTreeSet::new(),
            movable: HashSet::new(),
            remade: BTreeMap::new(),
            stood_in: HashSet::new(),
        }
    }
}

impl Builder<'_> {
    fn push(&mut self, target: impl Into<PathBuf>, what: NodeContent) {
        self.layout.mounts.push(Mount { target: target.into(), what });
    }

    fn bind(&mut self, path: &Path, access: Access, kind: Kind) {
        let source = self.source(path);
        self.push(path, NodeContent::Bind { source, access, kind });
    }

    /// Below writable directories links are not followed, because one could be created at any time.
    fn source(&self, path: &Path) -> Source {
        let real = self.real(path);
        Source::Path { no_links: real.is_some(), path: real.unwrap_or_else(|| path.to_owned()), expect: None }
    }

    /// A path below the project or a grant, with the links above them resolved.
    fn real(&self, path: &Path) -> Option<PathBuf> {
        let root = self.root_of(path)?;
        let rest = path.strip_prefix(root).ok()?;
        let mut roots = self.roots.borrow_mut();
        let root = roots.entry(root.to_owned()).or_insert_with(|| self.host.canonical(root)).clone()?;
        Some(if rest.as_os_str().is_empty() { root } else { root.join(rest) })
    }

    /// The project or grant above a path.
    fn root_of(&self, path: &Path) -> Option<&Path> {
        let project = self.rules.project.as_path();
        if path.starts_with(project) {
            return Some(project);
        }
        let grants = self.rules.grants.iter().map(|grant| grant.value.path.as_path());
        grants
            .filter(|grant| path.starts_with(grant) && path != *grant)
            .max_by_key(|grant| grant.as_os_str().len())
    }

    fn grants(&mut self) {
        let rules = self.rules;
        let mut grants: BTreeMap<PathBuf, Access> = BTreeMap::new();
        if let Some(access) = self.rules.project_access {
            grants.insert(rules.project.clone(), access);
        }
        for grant in rules.grants.iter().map(|grant| &grant.value) {
            let is_above = |hidden: &&Ruled<PathBuf>| {
                grant.path.starts_with(&hidden.value) && grant.path != hidden.value
            };
            if let Some(hidden) = rules.hidden.iter().find(is_above) {
                let why = format!("{} is hidden by {}", hidden.value.display(), hidden.rule);
                self.refuse(&grant.path, why);
                continue;
            }
            // Two grants for one path: the wider access applies.
            let entry = grants.entry(grant.path.clone()).or_insert(grant.access);
            if grant.access == Access::ReadWrite {
                *entry = Access::ReadWrite;
            }
        }
        // In their order among the grants: one that holds the project, or what is hidden, covers neither.
        let is_own = |root: &Path| rules.own.iter().any(|own| root.starts_with(&own.value.path));
        for root in rules.program_roots.iter().filter(|root| self.is_shown_for_program(root)) {
            if self.mask_reason(root).is_none() && !is_own(root) {
                grants.entry(root.clone()).or_insert(Access::ReadOnly);
            }
        }
        self.granted.clone_from(&grants);
        let before = std::mem::take(&mut self.layout.mounts);
        self.guard();
        let mut guards = on_top(std::mem::replace(&mut self.layout.mounts, before));
        if rules.layer.is_some() {
            // A grant around the project guards what it finds below.
            guards.retain(|mount| {
                !self.is_layered(&mount.target) || !matches!(mount.what, NodeContent::Bind { .. })
            });
            let stubs = std::mem::take(&mut self.layout.stubs);
            let kept = stubs.into_iter().filter(|(path, _)| !self.is_layered(path));
            self.layout.stubs = kept.collect();
        }
        // What cannot be guarded has been made read-only before.
        let mut placed = self.granted.clone();
        let held = self.immovable_directories(&guards);
        for path in &held {
            placed.insert(path.clone(), Access::ReadWrite);
        }
        // A separate mount lifts noexec from it.
        for path in &rules.execute {
            if let Some(access) = self.access(path)
                && self.host.path_kind(path).is_some()
            {
                placed.entry(path.clone()).or_insert(access);
            }
        }
        // Shortest first, so that longer paths lie on top; the home is one of them.
        let mut placed_home = grants.contains_key(&rules.home);
        for (path, access) in &placed {
            if !placed_home && *path > rules.home {
                self.push(&rules.home, NodeContent::Tmpfs { bytes: rules.private_bytes, mode: 0o700 });
                placed_home = true;
            }
            self.grant(path, *access);
        }
        if !placed_home {
            self.push(&rules.home, NodeContent::Tmpfs { bytes: rules.private_bytes, mode: 0o700 });
        }
        if rules.has_project_directory && self.rules.project_access.is_none() {
            // The agent starts there, even if it sees only parts of it.
            self.push(&rules.project, NodeContent::Directory { mode: 0o755 });
        }
        let holds = self.layout.mounts.iter().filter(|mount| {
            held.contains(&mount.target) || granted_in_writable(&self.granted, &mount.target)
        });
        self.layout.guards = holds.cloned().chain(guards.iter().cloned()).collect();
        self.layout.mounts.extend(guards);
        for (path, files) in std::mem::take(&mut self.remade) {
            for (name, content, mode) in files {
                self.push(path.join(name), NodeContent::File { content, mode });
            }
        }
    }

    fn grant(&mut self, path: &Path, access: Access) {
        if let Some(why) = self.mask_reason(path) {
            self.refuse(path, why);
            return;
        }
        if self.link_to(path).is_some() {
            self.refuse(path, "it is behind a symbolic link; name its real path");
            return;
        }
        match self.host.path_kind(path) {
            Some(PathKind::Directory) => self.bind(path, access, Kind::Directory),
            Some(PathKind::File) => self.bind(path, access, Kind::File),
            Some(PathKind::Symlink | PathKind::Special) => {
                self.refuse(path, "not a file or a directory");
            }
            Some(PathKind::Closed) => {
                self.refuse(path, "it cannot be checked: a directory above it is not accessible")
            }
            None => self.refuse(path, "does not exist"),
        }
    }

    fn refuse(&mut self, path: &Path, why: impl Into<String>) {
        self.layout.refused.push((path.to_owned(), why.into()));
    }

    fn program(&mut self, spec: &SandboxSpec) {
        for grant in self.rules.own.iter().map(|own| &own.value) {
            match self.host.path_kind(&grant.path) {
                Some(PathKind::Directory) => self.bind(&grant.path, grant.access, Kind::Directory),
                Some(PathKind::File) => self.bind(&grant.path, grant.access, Kind::File),
                _ => {}
            }
        }
        for root in &self.rules.program_roots {
            if self.is_shown_for_program(root) && !self.granted.contains_key(root) {
                self.bind(root, Access::ReadOnly, Kind::Directory);
            }
        }
        for file in &spec.process.pinned {
            if self.is_shown_anyway(spec, file) {
                continue;
            }
            let what = match &file.bytes {
                PinnedBytes::InPlace(key) => NodeContent::Bind {
                    source: Source::Path { path: file.path.clone(), expect: Some(*key), no_links: false },
                    access: Access::ReadOnly,
                    kind: Kind::File,
                },
                PinnedBytes::Copied { from } => {
                    NodeContent::Copy { from: *from, executable: file.executable }
                }
            };
            self.push(&file.path, what);
        }
    }

    fn is_shown_for_program(&self, root: &Path) -> bool {
        !is_system(root)
            && !root.starts_with(&self.rules.project)
            && self.host.path_kind(root) == Some(PathKind::Directory)
    }

    /// Links between visible paths. A bind mount has its own links, and a mount point needs a real directory.
    fn links(&mut self, own: &Placed) {
        let placed = own.elsewhere.iter().map(|one| one.inside.as_path());
        let placed = placed.chain(own.caches.iter().map(|cache| cache.inside.as_path()));
        let placed: Vec<&Path> = placed.chain(own.files.iter().map(|file| file.path.as_path())).collect();
        for (link, to) in
            own.links.iter().filter(|(link, _)| !placed.iter().any(|path| path.starts_with(link)))
        {
            let is_there = |mount: &Mount| match &mount.what {
                NodeContent::Directory { .. } | NodeContent::Tmpfs { .. } => mount.target == *link,
                _ => link.starts_with(&mount.target),
            };
            if !self.layout.mounts.iter().any(is_there) {
                self.push(link, NodeContent::Symlink { to: to.clone() });
            }
        }
    }

    /// Adds the stubs to the file of names that git ignores in all of the user's repositories.
    fn ignore_stubs(&mut self) {
        // git ignores sockets; `git clean` and `git stash -u` remove empty directories.
        let is_empty = |(path, kind): &&(PathBuf, Stub)| match (self.host.path_kind(path), kind) {
            (None, Stub::Directory) => true,
            (None, Stub::File) => builtin_paths::stub_content(path).is_empty(),
            (None, Stub::Socket) => false,
            (Some(_), _) => self.host.is_empty(path),
        };
        // git lists nothing inside a repository.
        let repositories: HashSet<&Path> = self.layout.repositories.iter().map(PathBuf::as_path).collect();
        let in_repository = |path: &Path| path.ancestors().any(|above| repositories.contains(above));
        let listed = self.layout.stubs.iter().filter(|(path, _)| !in_repository(path));
        let empty = listed.filter(is_empty);
        // From the top of its working tree, so that no other file of the name is ignored.
        let is_top =
            |above: &&Path| repositories.contains(&*above.join(".git")) || *above == self.rules.project;
        let line = |path: &Path| {
            let top = path.ancestors().skip(1).find(is_top);
            let place = top.and_then(|top| path.strip_prefix(top).ok()?.to_str());
            let place = place.map(|place| format!("/{}", place.replace(['*', '?', '[', '\\'], "?")));
            Some(place.or_else(|| Some(path.file_name()?.to_str()?.to_owned()))? + "\n")
        };
        let names: Vec<String> = empty.filter_map(|(path, _)| line(path)).collect();
        let list = self.rules.home.join(".config").join(builtin_paths::GIT_IGNORE);
        if names.is_empty() {
            return;
        }
        let content = names.concat().into_bytes();
        let own = self.layout.mounts.iter_mut().rev().find(|mount| mount.target == list);
        if let Some(Mount { what: NodeContent::File { content: before, .. }, .. }) = own {
            before.extend([b"\n", &*content].concat());
        } else if self.is_private(&list) {
            self.push(list, NodeContent::File { content, mode: 0o644 });
        }
    }

    /// Whether a path, as written or resolved, is below a project in review mode.
    fn is_layered(&self, path: &Path) -> bool {
        self.rules.layer.is_some()
            && (path.starts_with(&self.rules.project)
                || self.real(&self.rules.project).is_some_and(|real| path.starts_with(real)))
    }

    /// Takes everything of the project from its layer, except for hashed files.
    fn put_layer_below(&mut self) {
        let (Some(layer), Some(_)) = (&self.rules.layer, self.rules.project_access) else { return };
        let project = self.real(&self.rules.project).unwrap_or_else(|| self.rules.project.clone());
        for mount in &mut self.layout.mounts {
            let NodeContent::Bind { source, .. } = &mut mount.what else { continue };
            let Source::Path { path, expect: None, .. } = source else { continue };
            let below = path.strip_prefix(&project).or_else(|_| path.strip_prefix(&self.rules.project));
            if let Ok(below) = below.map(Path::to_owned) {
                *source = Source::Layer { below };
            }
        }
        if let ProjectLayer::Own(directory) = layer {
            let lower = Source::Path { path: project, expect: None, no_links: true };
            let layer = Source::Path { path: directory.clone(), expect: None, no_links: false };
            let what = NodeContent::Overlay { lower, layer, or_upper: false };
            self.layout.mounts.insert(0, Mount { target: PROJECT_LAYER.into(), what });
        }
    }
}

/// A grant inside a writable one, whose mount point could be moved away. Read-only ones, such as toolchains, cannot be
/// moved, and are large.
fn granted_in_writable(granted: &BTreeMap<PathBuf, Access>, target: &Path) -> bool {
    let is_writable = |above: &Path| granted.get(above) == Some(&Access::ReadWrite);
    granted.contains_key(target) && target.ancestors().skip(1).any(is_writable)
}

/// Writable mounts first, from the shortest path to the longest, so that none covers a read-only or hidden one.
fn on_top(guards: Vec<Mount>) -> Vec<Mount> {
    let is_writable =
        |mount: &Mount| matches!(&mount.what, NodeContent::Bind { access: Access::ReadWrite, .. });
    let (mut writable, others): (Vec<_>, Vec<_>) = guards.into_iter().partition(is_writable);
    writable.sort_by(|one, other| one.target.cmp(&other.target));
    writable.dedup();
    writable.extend(others);
    writable
}

/// Visible to everybody anyway.
#[must_use]
pub fn is_system(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    // Comparing bytes is ten times faster, and every mount needs it.
    builtin_paths::SYSTEM_READ
        .iter()
        .any(|system| bytes.starts_with(system.as_bytes()) && path.starts_with(system))
}
