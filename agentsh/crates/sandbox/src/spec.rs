//! The specification of one sandbox: everything that the launch needs to know, as plain data.
//!
//! Features of agentsh (toolchains, credentials, git identity, ...) each give a [`Contribution`]. [`merge`] puts the
//! contributions together, in the order of [`Feature`], and nothing else decides who wins over whom. The launch reads the
//! result; so do `agentsh why` and the report.

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
pub use merge::{Rules, environment_so_far, hidden, links, merge, network_rules, user_grants};

/// A path of the host that is shown at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub path: PathBuf,
    pub access: Access,
}

/// A path of the host that is shown at another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelocatedPath {
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
    /// That of the agent's sandbox. [`super::plan::Source::Layer`] is for the session to fill in.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessKind {
    /// The program after `agentsh run --`.
    Agent,
    /// An MCP server.
    Server,
    /// A package manager that downloads a server.
    Fetch,
    /// agentsh itself, to find out what this machine can enforce.
    Probe,
}

impl ProcessKind {
    /// The agent's device of the terminal, its bridge to the servers, and its share of the user's inotify limits.
    #[must_use]
    pub fn is_agent(self) -> bool {
        matches!(self, Self::Agent | Self::Probe)
    }
}

/// Who and what runs: known before any feature is asked.
#[derive(Clone, Debug)]
pub struct Process {
    pub kind: ProcessKind,
    /// For messages: `agent`, or the server's id.
    pub label: String,
    pub identity: Identity,
    /// Login name for `/etc/passwd` inside.
    pub user: String,
    /// Absolute path inside the sandbox, links followed.
    pub program: PathBuf,
    /// Any bytes but zero.
    pub argv: Vec<OsString>,
    pub workdir: PathBuf,
    /// Open beside the standard ones, each under its number.
    pub descriptors: Vec<(u32, Descriptor)>,
    /// `NAME=value` of variables whose values are no text, as the policy lets them pass.
    pub raw_environment: Vec<OsString>,
    pub pinned: Vec<PinnedFile>,
    pub terminal: Terminal,
    /// The terminal from which agentsh was started, by its name on the host.
    pub terminal_device: Option<PathBuf>,
    /// agentsh's own executable, shown to the agent as its bridge.
    pub bridge: Option<(PathBuf, FileKey)>,
    pub limits: ResolvedLimits,
    /// A kernel layer that cannot be had does not stop the launch.
    pub allow_degraded: bool,
    /// Files that are looked for and missing are reported.
    pub reports_files: bool,
}

/// What git reads for every repository, by its own word.
#[derive(Clone, Debug, Default)]
pub struct GitEverywhere {
    /// Configurations of the user and of the machine, those among them that may still come.
    pub files: Vec<PathBuf>,
    /// What the environment says.
    pub said: GitConfig,
}

/// Which files are shown and how, before anybody looked at the host.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    pub home: PathBuf,
    pub project: PathBuf,
    /// Where the program starts, in the project or below it.
    pub start: PathBuf,
    /// None: the project is not shown.
    pub project_access: Option<Access>,
    /// None: what is written to the project reaches it.
    pub layer: Option<ProjectLayer>,
    /// The working directory exists inside even where nothing of the project is shown.
    pub has_project_directory: bool,
    pub grants: Vec<Ruled<Grant>>,
    /// The program's own files in the home directory: bound even inside a mask.
    pub own: Vec<Ruled<Grant>>,
    /// Directories of the program itself, read-only.
    pub program_roots: Vec<PathBuf>,
    pub hidden: Vec<Ruled<PathBuf>>,
    /// Built-in masks and hook files that the policy lifts, absolute.
    pub unmasked: Vec<PathBuf>,
    /// Guard also what only instructs or configures.
    pub guard_all: bool,
    /// Empty allows everything that can be seen to be executed.
    pub execute: Vec<PathBuf>,
    /// Stand-ins may be made on disk; without them what is missing is not kept away.
    pub stand_ins: bool,
    /// Guarded names that get a stand-in whatever programs the user has: something is mounted there, or a file appeared during
    /// the run and was set aside.
    pub with_stand_in: BTreeSet<PathBuf>,
    pub git: GitEverywhere,
    /// Files that the user's own configurations name.
    pub named: Vec<PathBuf>,
    /// Unix sockets may be made in directories of the host too, where another sandbox may connect to them.
    pub shared_sockets: bool,
    /// Size of each private writable area, in bytes.
    pub private_bytes: u64,
}

/// What stands at places of the sandbox's own.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    pub files: Vec<File>,
    pub elsewhere: Vec<RelocatedPath>,
    /// As `elsewhere`, and no rule of Landlock opens it.
    pub beyond_landlock: Vec<RelocatedPath>,
    pub caches: Vec<CacheLayer>,
    /// Links of the host that lead to what is shown, with what they say.
    pub links: BTreeMap<PathBuf, PathBuf>,
}

/// One sandbox. Made by [`merge`] and by nothing else.
#[derive(Clone)]
pub struct SandboxSpec {
    pub process: Process,
    pub paths: PathRules,
    pub placed: Placed,
    /// Complete: nothing is inherited. Values may be secrets, so that this type has no `Debug`.
    pub environment: BTreeMap<String, String>,
    /// Names of the variables that were not passed on.
    pub stripped: Vec<String>,
    /// Every rule that is enforced, and nothing that is not.
    pub network: NetworkPolicy,
    /// For the user, one line each.
    pub notices: Vec<String>,
    pub enforcement: Vec<Enforcement>,
}

impl SandboxSpec {
    /// `NAME=value`, as execve takes it.
    #[must_use]
    pub fn environment_block(&self) -> Vec<OsString> {
        let text = self.environment.iter().map(|(name, value)| format!("{name}={value}").into());
        text.chain(self.process.raw_environment.iter().cloned()).collect()
    }

    /// The program brings settings for git in its environment, which stay as they are.
    #[must_use]
    pub fn sets_git(&self) -> bool {
        self.environment.contains_key("GIT_CONFIG_COUNT")
    }
}
