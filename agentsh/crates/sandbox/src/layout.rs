//! From a policy to the mounts of one sandbox: pure but for one question, what stands at a path.
//!
//! An empty tree gets the system directories, private `/tmp`, `/dev`, `/proc` and home, then every grant from the
//! shortest path to the longest, and on top of them, so that no grant can undo it, the masks of secrets and the
//! read-only hook files.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::host::{Found, Host};
use super::plan::{
    Access, Descriptor, Executable, FileKey, Identity, Kind, LandlockRule, Mount, PROJECT_LAYER, Source, What,
};
use crate::policy::builtin_paths;

mod git;
mod guards;
mod rights;
mod system;

pub use guards::instructing;

/// A path of the host that is shown at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub path: PathBuf,
    pub access: Access,
}

/// A path of the host that is shown at another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub access: Access,
}

/// A file whose bytes were hashed and which is to be executed or loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedFile {
    pub path: PathBuf,
    pub bytes: PinnedBytes,
    pub executable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinnedBytes {
    /// Bound, if it is still the file that was hashed. For files that only root can change, and for large ones.
    InPlace(FileKey),
    /// Copied from sealed memory, see [`super::sealed`].
    Copied { from: Descriptor },
}

/// The project as a copy-on-write layer, in which nothing needs a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectLayer {
    /// Mounted here; the directory of the host that holds what is written.
    Own(PathBuf),
    /// That of the agent's sandbox. [`Source::Layer`] is for the session to fill in.
    Lent,
}

/// A cache of the user below a layer of the project's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLayer {
    /// The user's.
    pub lower: PathBuf,
    /// The directory of the layer.
    pub layer: PathBuf,
    pub inside: PathBuf,
}

pub struct Request<'a> {
    pub identity: Identity,
    pub user: &'a str,
    pub home: &'a Path,
    pub project: &'a Path,
    /// None: the project is not shown.
    pub project_access: Option<Access>,
    /// None: what is written to the project reaches it.
    pub layer: Option<ProjectLayer>,
    pub grants: Vec<Grant>,
    /// The program's own files in the home directory: bound even inside a mask.
    pub own_state: Vec<Grant>,
    /// Paths that the policy hides.
    pub denied: Vec<PathBuf>,
    /// Built-in masks and hook files that the policy lifts, absolute.
    pub unmasked: Vec<PathBuf>,
    /// Guard also what only instructs or configures.
    pub guard_all: bool,
    pub pinned: Vec<PinnedFile>,
    /// Directories of the program itself, read-only.
    pub program_roots: Vec<PathBuf>,
    /// Links of the host that lead to what is shown, with what they say.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Size of each private writable area.
    pub private_bytes: u64,
    /// Generated files: inside path, content, mode.
    pub files: Vec<(PathBuf, Vec<u8>, u32)>,
    /// Files and directories of the host at another place.
    pub extra: Vec<Elsewhere>,
    /// Stand-ins may be made on disk; without them what is missing is not kept away.
    pub stand_ins: bool,
    /// As `extra`, and no rule of Landlock opens it.
    pub beyond_landlock: Vec<Elsewhere>,
    /// The program brings settings for git in its environment, which stay as they are.
    pub sets_git: bool,
    pub caches: Vec<CacheLayer>,
    /// The agent keeps its terminal; a server has none.
    pub for_agent: bool,
    /// agentsh's own executable, shown to the agent as its bridge.
    pub bridge: Option<(&'a Path, FileKey)>,
    /// Empty allows everything that can be seen.
    pub execute: Vec<PathBuf>,
    /// Unix sockets may be made in directories of the host too, where another sandbox may connect to them.
    pub shared_sockets: bool,
    /// The terminal from which agentsh was started, by its name on the host.
    pub terminal: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    pub mounts: Vec<Mount>,
    pub landlock: Vec<LandlockRule>,
    pub executable: Executable,
    /// Variables that the program gets beside its own, `NAME=VALUE`.
    pub env: Vec<String>,
    /// Paths that must not come into being: the session makes stand-ins for the time of the run.
    pub placeholders: Vec<(PathBuf, StandIn)>,
    /// Grants that a mask or a missing file made void, each with the reason.
    pub refused: Vec<(PathBuf, String)>,
    /// Repositories of which not everything could be looked at.
    pub unsearched: Vec<PathBuf>,
    /// Those of the mounts that guard something, or hold what is guarded in its place.
    pub guards: Vec<Mount>,
    /// Everything that git would take for a repository in writable directories.
    pub repositories: Vec<PathBuf>,
    /// Writable directories at whose top files may lie that instruct or configure.
    pub instructed: Vec<PathBuf>,
}

/// What takes the place of something that must not come into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StandIn {
    Directory,
    /// Says nothing to whoever reads it.
    File,
    /// Something that version control does not see: git neither adds nor removes it.
    Socket,
}

/// What decides about guards, for the time of a run: what the host takes away is guarded again as it is then.
#[derive(Clone, Debug)]
pub struct Keep {
    pub identity: Identity,
    pub home: PathBuf,
    pub project: PathBuf,
    pub project_access: Option<Access>,
    /// The project is a layer.
    pub is_layered: bool,
    pub grants: Vec<Grant>,
    pub program_roots: Vec<PathBuf>,
    pub denied: Vec<PathBuf>,
    pub unmasked: Vec<PathBuf>,
    pub guard_all: bool,
}

/// Where agentsh's own files stand inside an agent's sandbox.
pub const OWN_DIRECTORY: &str = "/run/agentsh";

/// # Panics
/// Never. Equal requests on equal hosts give equal layouts.
#[must_use]
pub fn layout(request: &Request<'_>, host: &dyn Host) -> Layout {
    let mut out = Builder::new(request, host);
    out.system();
    out.private();
    out.grants();
    out.program();
    out.links();
    out.generated();
    out.unlisted();
    out.landlock();
    out.elsewhere(&request.beyond_landlock);
    out.put_layer_below();
    out.layout
}

/// The guards alone, as they would be made now.
#[must_use]
pub fn guards(keep: &Keep, host: &dyn Host) -> Layout {
    let request = Request {
        identity: keep.identity,
        user: "",
        home: &keep.home,
        project: &keep.project,
        project_access: keep.project_access,
        layer: keep.is_layered.then_some(ProjectLayer::Lent),
        grants: keep.grants.clone(),
        own_state: Vec::new(),
        denied: keep.denied.clone(),
        unmasked: keep.unmasked.clone(),
        guard_all: keep.guard_all,
        pinned: Vec::new(),
        program_roots: keep.program_roots.clone(),
        links: Vec::new(),
        private_bytes: 0,
        files: Vec::new(),
        extra: Vec::new(),
        stand_ins: true,
        beyond_landlock: Vec::new(),
        sets_git: true,
        caches: Vec::new(),
        for_agent: false,
        bridge: None,
        execute: Vec::new(),
        shared_sockets: true,
        terminal: None,
    };
    let mut out = Builder::new(&request, host);
    out.grants();
    out.layout
}

struct Builder<'a> {
    request: &'a Request<'a>,
    host: &'a dyn Host,
    layout: Layout,
    /// The project and grants with their links followed.
    roots: RefCell<BTreeMap<PathBuf, Option<PathBuf>>>,
    /// The first link on the way to a directory below one of them, itself included.
    links: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
    /// What was asked for, the project among it.
    granted: BTreeMap<PathBuf, Access>,
    /// Directories and links that were followed already.
    followed: BTreeSet<PathBuf>,
    /// What [`Layout::placeholders`] holds, to be asked for each of thousands of repositories.
    stood_in: HashSet<(PathBuf, StandIn)>,
}

impl<'a> Builder<'a> {
    fn new(request: &'a Request<'a>, host: &'a dyn Host) -> Self {
        Self {
            request,
            host,
            layout: Layout {
                mounts: Vec::new(),
                landlock: Vec::new(),
                executable: Executable::Everything,
                env: Vec::new(),
                placeholders: Vec::new(),
                refused: Vec::new(),
                unsearched: Vec::new(),
                guards: Vec::new(),
                repositories: Vec::new(),
                instructed: Vec::new(),
            },
            roots: RefCell::default(),
            links: RefCell::default(),
            granted: BTreeMap::new(),
            followed: BTreeSet::new(),
            stood_in: HashSet::new(),
        }
    }
}

impl Builder<'_> {
    fn push(&mut self, target: impl Into<PathBuf>, what: What) {
        self.layout.mounts.push(Mount { target: target.into(), what });
    }

    fn bind(&mut self, path: &Path, access: Access, kind: Kind) {
        let source = self.source(path);
        self.push(path, What::Bind { source, access, kind });
    }

    /// Below what sandboxes may write, links are not followed: one could be put there at any time.
    fn source(&self, path: &Path) -> Source {
        let real = self.real(path);
        Source::Path { no_links: real.is_some(), path: real.unwrap_or_else(|| path.to_owned()), expect: None }
    }

    /// A path below the project or a grant, with the links above that followed.
    fn real(&self, path: &Path) -> Option<PathBuf> {
        let root = self.root_of(path)?;
        let rest = path.strip_prefix(root).ok()?;
        let mut roots = self.roots.borrow_mut();
        let root = roots.entry(root.to_owned()).or_insert_with(|| self.host.canonical(root)).clone()?;
        Some(if rest.as_os_str().is_empty() { root } else { root.join(rest) })
    }

    /// The project, or the grant above a path.
    fn root_of(&self, path: &Path) -> Option<&Path> {
        let project = self.request.project;
        if path.starts_with(project) {
            return Some(project);
        }
        let grants = self.request.grants.iter().map(|grant| grant.path.as_path());
        grants
            .filter(|grant| path.starts_with(grant) && path != *grant)
            .max_by_key(|grant| grant.as_os_str().len())
    }

    fn grants(&mut self) {
        let request = self.request;
        let mut grants: BTreeMap<PathBuf, Access> = BTreeMap::new();
        if let Some(access) = request.project_access {
            grants.insert(request.project.to_owned(), access);
        }
        for grant in &request.grants {
            // The wider of two grants for one path: both were given.
            let entry = grants.entry(grant.path.clone()).or_insert(grant.access);
            if grant.access == Access::ReadWrite {
                *entry = Access::ReadWrite;
            }
        }
        // In their order among the grants: one that holds the project, or what is hidden, covers neither.
        let is_own = |root: &Path| request.own_state.iter().any(|own| root.starts_with(&own.path));
        for root in request.program_roots.iter().filter(|root| self.is_shown_for_program(root)) {
            if self.masked(root).is_none() && !is_own(root) {
                grants.entry(root.clone()).or_insert(Access::ReadOnly);
            }
        }
        self.granted.clone_from(&grants);
        let before = std::mem::take(&mut self.layout.mounts);
        self.guard();
        let mut guards = on_top(std::mem::replace(&mut self.layout.mounts, before));
        if request.layer.is_some() {
            // A grant around the project guards what it finds below.
            guards
                .retain(|mount| !self.is_layered(&mount.target) || !matches!(mount.what, What::Bind { .. }));
            let placeholders = std::mem::take(&mut self.layout.placeholders);
            let kept = placeholders.into_iter().filter(|(path, _)| !self.is_layered(path));
            self.layout.placeholders = kept.collect();
        }
        // What cannot be guarded may be read alone by now.
        let mut placed = self.granted.clone();
        let held = self.held(&guards);
        for path in &held {
            placed.insert(path.clone(), Access::ReadWrite);
        }
        // A mount of its own is what tells it from its surroundings, where nothing may be executed.
        for path in &request.execute {
            if let Some(access) = self.access(path)
                && self.host.look(path).is_some()
            {
                placed.entry(path.clone()).or_insert(access);
            }
        }
        // Shortest first, so that a longer path lies on top of a shorter one; the home is one of them.
        let home_granted = grants.contains_key(request.home);
        let mut placed_home = home_granted;
        for (path, access) in &placed {
            if !placed_home && path.as_path() > request.home {
                self.push(request.home, What::Tmpfs { bytes: request.private_bytes, mode: 0o700 });
                placed_home = true;
            }
            self.grant(path, *access);
        }
        if !placed_home {
            self.push(request.home, What::Tmpfs { bytes: request.private_bytes, mode: 0o700 });
        }
        if request.for_agent && request.project_access.is_none() {
            // The agent starts there, even if it may see only parts of it.
            self.push(request.project, What::Directory { mode: 0o755 });
        }
        let holds = self.layout.mounts.iter().filter(|mount| {
            held.contains(&mount.target) || granted_in_writable(&self.granted, &mount.target)
        });
        self.layout.guards = holds.cloned().chain(guards.iter().cloned()).collect();
        self.layout.mounts.extend(guards);
    }

    fn grant(&mut self, path: &Path, access: Access) {
        if let Some(why) = self.masked(path) {
            self.refuse(path, why);
            return;
        }
        if self.link_to(path).is_some() {
            self.refuse(path, "it lies behind a link; name where it is");
            return;
        }
        match self.host.look(path) {
            Some(Found::Directory) => self.bind(path, access, Kind::Directory),
            Some(Found::File) => self.bind(path, access, Kind::File),
            Some(Found::Symlink | Found::Special) => {
                self.refuse(path, "not a file or a directory");
            }
            Some(Found::Closed) => {
                self.refuse(path, "it cannot be looked at: a directory above it is closed")
            }
            None => self.refuse(path, "does not exist"),
        }
    }

    fn refuse(&mut self, path: &Path, why: impl Into<String>) {
        self.layout.refused.push((path.to_owned(), why.into()));
    }

    fn program(&mut self) {
        for grant in &self.request.own_state {
            match self.host.look(&grant.path) {
                Some(Found::Directory) => self.bind(&grant.path, grant.access, Kind::Directory),
                Some(Found::File) => self.bind(&grant.path, grant.access, Kind::File),
                _ => {}
            }
        }
        for root in &self.request.program_roots {
            if self.is_shown_for_program(root) && !self.granted.contains_key(root) {
                self.bind(root, Access::ReadOnly, Kind::Directory);
            }
        }
        for file in &self.request.pinned {
            let what = match &file.bytes {
                PinnedBytes::InPlace(key) => What::Bind {
                    source: Source::Path { path: file.path.clone(), expect: Some(*key), no_links: false },
                    access: Access::ReadOnly,
                    kind: Kind::File,
                },
                PinnedBytes::Copied { from } => What::Copy { from: *from, executable: file.executable },
            };
            self.push(&file.path, what);
        }
    }

    fn is_shown_for_program(&self, root: &Path) -> bool {
        !is_system(root)
            && !root.starts_with(self.request.project)
            && self.host.look(root) == Some(Found::Directory)
    }

    /// Links lie between what is shown: what is bound has its own, and where something is placed lies a directory.
    fn links(&mut self) {
        let request = self.request;
        let placed = request.extra.iter().map(|extra| extra.inside.as_path());
        let placed = placed.chain(request.caches.iter().map(|cache| cache.inside.as_path()));
        let placed: Vec<&Path> =
            placed.chain(request.files.iter().map(|(path, ..)| path.as_path())).collect();
        for (link, to) in
            request.links.iter().filter(|(link, _)| !placed.iter().any(|path| path.starts_with(link)))
        {
            let is_there = |mount: &Mount| match &mount.what {
                What::Directory { .. } | What::Tmpfs { .. } => mount.target == *link,
                _ => link.starts_with(&mount.target),
            };
            if !self.layout.mounts.iter().any(is_there) {
                self.push(link, What::Symlink { to: to.clone() });
            }
        }
    }

    /// Git inside does not list the stand-ins among the untracked files: they are not the project's.
    fn unlisted(&mut self) {
        if self.request.sets_git {
            return;
        }
        // Sockets are seen by no git; empty directories are what `git clean` and `git stash -u` remove.
        let is_empty = |(path, kind): &&(PathBuf, StandIn)| match (self.host.look(path), kind) {
            (None, StandIn::Directory) => true,
            (None, StandIn::File) => builtin_paths::stand_in_content(path).is_empty(),
            (None, StandIn::Socket) => false,
            (Some(_), _) => self.host.is_empty(path),
        };
        // Git lists nothing of a repository.
        let repositories: HashSet<&Path> = self.layout.repositories.iter().map(PathBuf::as_path).collect();
        let in_repository = |path: &Path| path.ancestors().any(|above| repositories.contains(above));
        let listed = self.layout.placeholders.iter().filter(|(path, _)| !in_repository(path));
        let empty = listed.filter(is_empty);
        let names: Vec<String> =
            empty.filter_map(|(path, _)| Some(path.file_name()?.to_str()?.to_owned() + "\n")).collect();
        if names.is_empty() {
            return;
        }
        let list = Path::new(OWN_DIRECTORY).join("gitignore");
        self.layout.env.extend([
            "GIT_CONFIG_COUNT=1".to_owned(),
            "GIT_CONFIG_KEY_0=core.excludesFile".to_owned(),
            format!("GIT_CONFIG_VALUE_0={}", list.display()),
        ]);
        self.push(list, What::File { content: names.concat().into_bytes(), mode: 0o444 });
    }

    /// Below the project that is a layer, by a path as it was written or with links followed.
    fn is_layered(&self, path: &Path) -> bool {
        self.request.layer.is_some()
            && (path.starts_with(self.request.project)
                || self.real(self.request.project).is_some_and(|real| path.starts_with(real)))
    }

    /// Everything of the project is a part of its layer. Only what was hashed is taken from the project itself.
    fn put_layer_below(&mut self) {
        let (Some(layer), Some(_)) = (&self.request.layer, self.request.project_access) else { return };
        let project = self.real(self.request.project).unwrap_or_else(|| self.request.project.to_owned());
        for mount in &mut self.layout.mounts {
            let What::Bind { source, .. } = &mut mount.what else { continue };
            let Source::Path { path, expect: None, .. } = source else { continue };
            let below = path.strip_prefix(&project).or_else(|_| path.strip_prefix(self.request.project));
            if let Ok(below) = below.map(Path::to_owned) {
                *source = Source::Layer { below };
            }
        }
        if let ProjectLayer::Own(directory) = layer {
            let lower = Source::Path { path: project, expect: None, no_links: true };
            let layer = Source::Path { path: directory.clone(), expect: None, no_links: false };
            let what = What::Overlay { lower, layer, or_upper: false };
            self.layout.mounts.insert(0, Mount { target: PROJECT_LAYER.into(), what });
        }
    }
}

/// A grant in a writable one: whoever moves what it lies on takes it away. Nobody moves what is read-only, as
/// toolchains are, and they are large.
fn granted_in_writable(granted: &BTreeMap<PathBuf, Access>, target: &Path) -> bool {
    let is_writable = |above: &Path| granted.get(above) == Some(&Access::ReadWrite);
    granted.contains_key(target) && target.ancestors().skip(1).any(is_writable)
}

/// What is writable first, from the shortest path to the longest: whatever names it, it never lies on top of what is
/// read-only or hidden.
fn on_top(guards: Vec<Mount>) -> Vec<Mount> {
    let is_writable = |mount: &Mount| matches!(&mount.what, What::Bind { access: Access::ReadWrite, .. });
    let (mut writable, others): (Vec<_>, Vec<_>) = guards.into_iter().partition(is_writable);
    writable.sort_by(|one, other| one.target.cmp(&other.target));
    writable.dedup();
    writable.extend(others);
    writable
}

/// Shown to everybody anyway.
#[must_use]
pub fn is_system(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    // Bytes are compared in a tenth of the time, and every mount asks.
    builtin_paths::SYSTEM_READ
        .iter()
        .any(|system| bytes.starts_with(system.as_bytes()) && path.starts_with(system))
}
