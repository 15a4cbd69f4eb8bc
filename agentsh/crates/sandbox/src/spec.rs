//! The specification of one sandbox, as plain data.
//!
//! Each feature (toolchains, credentials, git identity, ...) returns a [`Contribution`]; [`merge`] merges them in the
//! order of [`Feature`]. The launch, `agentsh why` and the report read the result.

mod contribution;
mod environment;
mod explain;
mod links;
mod merge;
mod network;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::git_config::GitConfig;
use super::plan::{Access, Descriptor, FileKey, Identity, Terminal};
use super::report::Enforcement;
use crate::policy::limits::ResolvedLimits;
use crate::policy::{NetworkPolicy, Ruled};

pub use crate::policy::{HostRule, Precedence};
pub use contribution::{Contribution, EnvChange, Feature, File};
pub use environment::Filtered;
pub use explain::{Explained, Visibility};
pub use links::{MAX_LINKS, make_room, resolve, target};
pub use merge::{Rules, environment_so_far, hidden_paths, links, merge, network_rules, user_grants};

/// A host path, visible at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub path: PathBuf,
    pub access: Access,
}

/// A host path, visible at another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelocatedPath {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub access: Access,
}

/// A hashed file to be executed or loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedFile {
    pub path: PathBuf,
    pub bytes: PinnedBytes,
    pub executable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinnedBytes {
    /// Bound, if unchanged since it was hashed. For files that only root can change, and large ones.
    InPlace(FileKey),
    /// Copied from sealed memory, see [`super::sealed`].
    Copied { from: Descriptor },
}

/// The project as a copy-on-write layer, which needs no guards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectLayer {
    /// Mounted here; the host directory for writes.
    Own(PathBuf),
    /// The agent's. The session fills in [`super::plan::Source::Layer`].
    Lent,
}

/// A user's cache below a layer of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLayer {
    /// The user's.
    pub lower: PathBuf,
    /// The layer's directory.
    pub layer: PathBuf,
    pub inside: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// The program after `agentsh run --`.
    Agent,
    /// An MCP server.
    Server,
    /// A package manager that fetches a server.
    Fetch,
    /// agentsh itself, to test what this machine can enforce.
    Probe,
}

impl ProcessKind {
    /// Whether it gets the terminal device, the bridge, and the agent's share of inotify limits.
    #[must_use]
    pub fn is_agent(self) -> bool {
        matches!(self, Self::Agent | Self::Probe)
    }
}

/// Identity and program, known before the contributions.
#[derive(Clone, Debug)]
pub struct Process {
    pub kind: ProcessKind,
    /// In messages: `agent`, or the server's id.
    pub label: String,
    pub identity: Identity,
    /// Login name for `/etc/passwd` inside.
    pub user: String,
    /// Absolute path inside, resolved.
    pub program: PathBuf,
    /// Any bytes except NUL.
    pub argv: Vec<OsString>,
    pub workdir: PathBuf,
    /// Additional descriptors, each with its number.
    pub descriptors: Vec<(u32, Descriptor)>,
    /// `NAME=value` of permitted variables that are not UTF-8.
    pub raw_environment: Vec<OsString>,
    pub pinned: Vec<PinnedFile>,
    pub terminal: Terminal,
    /// The terminal of agentsh, by its host name.
    pub terminal_device: Option<PathBuf>,
    /// agentsh's executable, the agent's bridge.
    pub bridge: Option<(PathBuf, FileKey)>,
    pub limits: ResolvedLimits,
    /// A missing kernel layer does not stop the launch.
    pub allow_degraded: bool,
    /// Lookups of missing files are reported.
    pub reports_files: bool,
}

/// What git reads for every repository.
#[derive(Clone, Debug, Default)]
pub struct GitEverywhere {
    /// Configurations of user and machine, also possible ones.
    pub files: Vec<PathBuf>,
    /// From the environment.
    pub said: GitConfig,
}

/// A file that is obeyed although no table lists its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFile {
    pub kind: NamedKind,
    /// The reason, such as `~/.bashrc:3 names it`.
    pub why: String,
}

impl NamedFile {
    /// See [`NamedKind::Tree`].
    #[must_use]
    pub fn tree() -> Self {
        let why = "the configuration of a repository names it as its working tree".to_owned();
        Self { kind: NamedKind::Tree, why }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamedKind {
    /// If nothing exists there, a program may make a directory.
    File,
    /// Everything in it is obeyed.
    Directory,
    /// A shell searches it for commands.
    Commands,
    /// It decides about every sandbox, so no message advises granting it.
    Own,
    /// Everyday files that a person starts, or whose variables are loaded: writable, and reported at the end.
    Told,
    /// The working tree of a repository, where git writes: no link may lead there.
    Tree,
}

/// Suffix of the reason for a file whose values are never shown.
pub const LOADS_VARIABLES: &str = "loads its variables";

/// Which files are visible and how, before the host is examined.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    pub home: PathBuf,
    pub project: PathBuf,
    /// The working directory, in the project.
    pub start: PathBuf,
    /// None: the project is not visible.
    pub project_access: Option<Access>,
    /// None: writes go to the project.
    pub layer: Option<ProjectLayer>,
    /// The working directory exists inside even if the project is not visible.
    pub has_project_directory: bool,
    pub grants: Vec<Ruled<Grant>>,
    /// The program's own files in the home, bound even inside a mask.
    pub own: Vec<Ruled<Grant>>,
    /// Directories of the program itself, read-only.
    pub program_roots: Vec<PathBuf>,
    pub hidden: Vec<Ruled<PathBuf>>,
    /// Built-in masks and hook files that the policy lifts, absolute.
    pub unmasked: Vec<PathBuf>,
    /// Also guard instruction and configuration files.
    pub guard_all: bool,
    /// Empty: every visible file may be executed.
    pub execute: Vec<PathBuf>,
    /// Stubs may be created on disk; without them missing paths are not guarded.
    pub stubs: bool,
    /// Guarded names that get a stub in any case: mount points, and files that were set aside during the run.
    pub with_stub: BTreeSet<PathBuf>,
    /// New repositories that git still makes: not guarded yet.
    pub unfinished: BTreeSet<PathBuf>,
    pub git: GitEverywhere,
    /// Files outside of every table that the user's programs or agentsh obey, by real path.
    pub named: BTreeMap<PathBuf, NamedFile>,
    /// Unix sockets may be created in host directories, where other sandboxes can connect.
    pub shared_sockets: bool,
    /// Bytes of each private writable directory.
    pub private_bytes: u64,
}

/// Files at places of the sandbox's own.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    pub files: Vec<File>,
    pub elsewhere: Vec<RelocatedPath>,
    /// As `elsewhere`, without a Landlock rule.
    pub beyond_landlock: Vec<RelocatedPath>,
    pub caches: Vec<CacheLayer>,
    /// Links of the host to visible paths, with targets.
    pub links: BTreeMap<PathBuf, PathBuf>,
}

/// One sandbox. Only [`merge`] makes it.
#[derive(Clone)]
pub struct SandboxSpec {
    pub process: Process,
    pub paths: PathRules,
    pub placed: Placed,
    /// Complete: nothing is inherited. Values may be secrets, so this type has no `Debug`.
    pub environment: BTreeMap<String, String>,
    /// Names of variables that were not passed.
    pub stripped: Vec<String>,
    /// Exactly the enforced rules.
    pub network: NetworkPolicy,
    /// Messages for the user, one line each.
    pub notices: Vec<String>,
    pub enforcement: Vec<Enforcement>,
}

impl SandboxSpec {
    /// `NAME=value`, for execve.
    #[must_use]
    pub fn environment_block(&self) -> Vec<OsString> {
        let text = self.environment.iter().map(|(name, value)| format!("{name}={value}").into());
        text.chain(self.process.raw_environment.iter().cloned()).collect()
    }
}
