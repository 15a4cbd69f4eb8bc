//! Input and output of an adapter: plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agentsh_base::types::ServerId;

/// Everything an adapter may look at. Paths are absolute, and the same inside and outside the sandbox.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The agent's whole command line, the program first.
    pub argv: &'a [String],
    /// The environment that agentsh was started with, unfiltered.
    pub env: &'a BTreeMap<String, String>,
    pub home: &'a Path,
    pub project: &'a Path,
    /// The directory in which the agent will be started.
    pub cwd: &'a Path,
    /// Path of agentsh inside the sandbox.
    pub bridge: &'a str,
    /// Value of `AGENTSH_SOCKET` inside the sandbox.
    pub socket: &'a str,
    /// Directory inside the sandbox for injected files.
    pub inject_dir: &'a Path,
    /// `agent.mcp_config` of the policy, expanded.
    pub generic_config: Option<&'a Path>,
    /// Servers of the policy that carry a command: they add to the agent's own or override them.
    pub extra: &'a BTreeMap<ServerId, Declared>,
    /// Files of projects that the user has agreed to, each by the [`super::agreement::key`] of path and content.
    pub agreed: &'a BTreeSet<String>,
    /// The text about the sandbox for the agent.
    pub told: Option<&'a str>,
}

/// One MCP server as declared, with variables expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub id: ServerId,
    pub transport: Transport,
    pub origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: Option<String>,
    },
    /// Its headers are for the session alone.
    Remote {
        url: String,
        headers: BTreeMap<String, String>,
        kind: RemoteKind,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteKind {
    Http,
    Sse,
    /// A known transport that agentsh does not support.
    Other,
}

/// The place of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A file, or `command line`.
    pub file: PathBuf,
    /// Line of the server's key, counted from 1; 0 on the command line.
    pub line: u64,
    /// The number of servers before it in its file.
    pub nth: usize,
    pub scope: Scope,
    /// It came with the project, and the user has agreed to the file as it is.
    pub agreed: bool,
}

/// The author of a declaration. A declaration to which the project contributed anything is `Project`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Came with the project: not the user's word.
    Project,
    User,
    /// The user's, for this project alone.
    Local,
    CommandLine,
    Policy,
}

/// How to launch the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The agent's command line, the program first, as it was typed.
    pub argv: Vec<String>,
    /// Variables to set in the agent's environment, whatever its filter says.
    pub env: BTreeMap<String, String>,
    /// Servers to start behind the bridges. All of them are stdio servers.
    pub servers: BTreeMap<ServerId, Declared>,
    /// Files to create inside the sandbox, missing parent directories too.
    pub files: Vec<InjectedFile>,
    /// The paths of the real home that the agent sees. The rest of its home is empty and private.
    pub home_state: Vec<HomeState>,
    /// Files of the agent or the project that are covered by a read-only bind mount, and what is there.
    pub replaced: Vec<(PathBuf, Vec<u8>)>,
    /// Files and directories of the project of which the agent sees nothing.
    pub hidden: Vec<PathBuf>,
    /// The members of its logins that the run uses; empty: all.
    pub accounts: BTreeSet<String>,
    /// The keys that are kept of files which the agent changes inside.
    pub remembered: Vec<KeptFile>,
    /// Files that the agent writes in the home and obeys in later sessions, also outside a sandbox.
    pub memory: Vec<MemoryFiles>,
    /// The endpoints of the agent's model.
    pub endpoints: Vec<Endpoint>,
    /// Servers that are not passed to the agent, and why.
    pub refused: Vec<(ServerId, String)>,
    /// Messages for the user, one line each.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFile {
    /// Absolute, inside the sandbox.
    pub path: PathBuf,
    pub content: Vec<u8>,
    pub mode: u32,
}

/// One path of the real home that the agent sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeState {
    /// Relative to the home; absolute when the agent's directory was moved out of it. It may be a symlink.
    pub path: PathBuf,
    pub kind: StateKind,
    pub access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// A directory with `ReadWrite` access may be missing: it is then created, mode 0700.
    Dir,
    /// Listed only when it exists.
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A copy in the private home; changes are thrown away.
    Private,
    ReadWrite,
    ReadOnly,
    /// A writable copy of a directory: changes are thrown away. It may be in the project.
    Scratch,
    /// A separate one for each project, kept by agentsh, instead of one for all.
    PerProject,
    /// A JSON file with logins: a copy with these members alone, which are the agent's own account; all of them if none is
    /// named. A renewal of that account goes back, and nothing else.
    Login(&'static [&'static str]),
    /// A directory of the home for this run, with the files below it that other entries and [`Launch::files`] name, and
    /// nothing else. The agent replaces its files by renaming others onto them.
    Settings,
    /// A directory of the project that contains private copies of some of [`Launch::files`]. Its other entries can only be
    /// read. New entries are set aside at the end.
    Answers,
}

/// Files of one project in the home, as the agent sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFiles {
    /// Instructions: a directory of texts.
    pub memory: PathBuf,
    /// A directory with a transcript in each `*.jsonl`.
    pub transcripts: PathBuf,
}

/// A file that is inside as a private copy. When the agent has ended, these keys of it are kept, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Absolute, the same inside and outside.
    pub path: PathBuf,
    pub format: Format,
    pub keys: Vec<Key>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Toml,
}

/// One key whose value is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The path of the key from the top of the document.
    pub at: Vec<String>,
    pub shape: Shape,
    /// It grants nothing: it is written back to the user's own file. A program inside could have written everything else, such
    /// as the trust in a project; agentsh keeps it for the next run in this project, and no program outside a sandbox sees it.
    pub opens_nothing: bool,
}

/// The form of the values that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Flag,
    /// A number that only grows.
    Count,
    /// An object of names and counts.
    Counts,
    /// A short text of letters, digits and `-_.`.
    Word,
    OneOf(&'static [&'static str]),
    /// A list of names.
    Names,
    /// A list of rules, of 1 KiB at most each.
    Rules,
    /// The name of a model, such as `vendor/model-1.5:free`.
    Model,
    /// The name of a member of this object at the top of the user's own file.
    MemberOf(&'static str),
}

impl Key {
    /// A key that grants nothing.
    #[must_use]
    pub fn harmless(at: &[&str], shape: Shape) -> Self {
        Self { at: at.iter().map(|step| (*step).to_owned()).collect(), shape, opens_nothing: true }
    }

    /// A key that agentsh keeps for its own runs in this project.
    #[must_use]
    pub fn of_project(at: &[&str], shape: Shape) -> Self {
        Self { opens_nothing: false, ..Self::harmless(at, shape) }
    }
}

/// A host the agent's model is served from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub scheme: Scheme,
    pub host: String,
    pub port: u16,
    pub why: String,
    pub judged: TlsInspection,
    /// The variable whose key the user's configuration assigns to this endpoint.
    pub key: Option<String>,
    /// The agent has keys from its environment for this place, and no other account: a request with another key is not its
    /// user's.
    pub only_keys: bool,
    /// The requests that go there, as rules of `network.allow` write them; empty: every request.
    pub requests: &'static [&'static str],
}

/// Whether the TLS of an endpoint ends at the session, so that what the model says can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsInspection {
    /// The agent was seen to trust the session's authority there, and agentsh reads what is spoken.
    ByDefault,
    /// With `llm: {enabled: true}`.
    WhenAsked,
    /// No model speaks there: logins are renewed.
    Never,
}

impl Endpoint {
    /// With this inspection; a login host keeps [`TlsInspection::Never`].
    #[must_use]
    pub fn with_inspection(self, judged: TlsInspection) -> Self {
        if self.judged == TlsInspection::Never { self } else { Self { judged, ..self } }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}
