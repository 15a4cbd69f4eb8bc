//! The files that really run when a command is started, as bytes.
//!
//! A hash of `node` says nothing about the server that node is given, so a command is resolved past its launcher
//! (`npx`, `uvx`, `env`, a shebang line) to interpreter, entry file and the trees that the program can load from;
//! all of it is hashed, and the launcher is given a program and arguments that need no look-up any more.
//!
//! How to execute what was pinned: [`Resolved::program`] is the path for `execve`, with [`Resolved::argv`],
//! [`Resolved::env`] added and [`Resolved::cwd`] entered. Call [`Resolved::unchanged_since`] right before, or
//! execute the descriptor of the file whose role is `Interpreter` or `Executable` and whose path `program` leads
//! to. In a Python virtual environment `program` is the link inside it: Python finds the environment by the path
//! it was started under. Python never reads `__pycache__` next to the sources: `env` points it to an empty place,
//! because a planted cache file with the right timestamp would otherwise run instead of the pinned source.
//!
//! Not pinned: shared libraries outside the trees, what a program loads by a path of its own making, and what
//! [`Resolved::unpinned`] names.

use agentsh_base::words;
use agentsh_base::{types, wsl};
use agentsh_policy as policy;

mod command;
mod context;
mod error;
mod file;
mod node;
mod node_line;
mod node_tree;
mod npx;
mod npx_line;
mod package;
mod python;
mod python_env;
mod python_line;
mod python_package;
mod runtimes;
mod search;
mod semver;
mod status;
mod store;
mod tree;
mod uv;
mod uv_line;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

pub use error::PinError;
pub use file::{DigestCache, FileKey, MAX_BYTES, MAX_FILES, NoCache, PinnedFile, Progress, Role};
pub use status::{Action, Change, ChangeKind, FileChange, PinnedState, Status, compare, decide};
pub use store::{PackageRequest, Store};
pub use tree::{Listed, PinnedTree, TreeSource};

/// Interpreters of interpreters (`env`, a shebang script named by a shebang line) that are followed.
pub const MAX_INTERPRETERS: usize = 4;

/// A command as a configuration file or the user wrote it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub program: &'a str,
    pub args: &'a [String],
    /// Absolute.
    pub cwd: &'a Path,
    /// Value of PATH. Relative and empty entries are ignored.
    pub path_env: &'a OsStr,
    /// Absolute: caches and user-wide installations are looked for below it.
    pub home: &'a Path,
    /// Absolute: its parent directory is never pinned or shown as a whole because it has a script.
    pub project: &'a Path,
    /// What the process will have in its environment. Read: `VIRTUAL_ENV`, `UV_*`, `PIPX_HOME`, `PIPX_BIN_DIR`,
    /// `npm_config_prefix`, `npm_config_cache`, `PYENV_VERSION`, `XDG_CACHE_HOME`, `XDG_DATA_HOME`.
    pub env: &'a BTreeMap<String, String>,
    /// A package that is not installed is not an error: the launcher that would download it is pinned instead, and
    /// `unpinned` says so.
    pub accept_missing_package: bool,
    /// Packages and modules below this directory are not what the command means, unless it says so (`npx --no-install`,
    /// `uv run` without `--with`): it was written without knowledge of them.
    pub not_below: Option<&'a Path>,
    /// A directory that no sandbox shows, and in which files change at any time: agentsh's own.
    pub hidden: Option<&'a Path>,
    /// Packages that were fetched before; they come after what is installed and before the caches of launchers.
    pub store: Option<&'a Store>,
}

words! {
    /// How the command starts its program.
    pub enum Launcher: name {
        Direct = "direct",
        Shebang = "shebang",
        Node = "node",
        Npx = "npx",
        Python = "python",
        PythonModule = "python-module",
        Uvx = "uvx",
        Pipx = "pipx",
        Bun = "bun",
        Deno = "deno",
    }
}

/// Variables that an `env` wrapper takes away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    all: bool,
    names: BTreeSet<String>,
}

impl Removed {
    fn names(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }
}

/// What runs, and its bytes.
#[derive(Debug)]
pub struct Resolved {
    pub launcher: Launcher,
    /// Stable text for people: `npm:@scope/name@1.2.3`, `file:/abs/server.js`, `python-module:name`.
    pub identity: String,
    /// Absolute path for `execve`; links followed, except into a Python virtual environment.
    pub program: PathBuf,
    /// `argv[0]` included.
    pub argv: Vec<OsString>,
    /// Variables to set on top of the environment, because the interpreter needs them.
    pub env: BTreeMap<String, String>,
    /// Variables that an `env` wrapper sets: words of the command, as good as who wrote it.
    pub worded: BTreeMap<String, String>,
    /// See [`Resolved::removes`].
    pub removed: Removed,
    /// Program text or packages on the command line, next to what `identity` names.
    pub has_additions: bool,
    /// The working directory when the command line chooses one (`env -C`, `uv --directory`).
    pub cwd: Option<PathBuf>,
    pub files: Vec<PinnedFile>,
    pub trees: Vec<PinnedTree>,
    /// Directories, or single files, that the sandbox must show read-only. Nothing below `/usr` is here.
    pub read_roots: Vec<PathBuf>,
    /// Directories of which a script alone is shown: what lies next to it is other people's, or holds the project.
    pub alone_in: Vec<PathBuf>,
    /// The parts of this command that no hash covers, for the report. None when everything that was asked for is
    /// covered.
    pub unpinned: Option<String>,
    /// `sha256:` over files and trees; independent of working directory, user arguments and the place of a tree.
    pub digest: String,
    inline: Option<Vec<u8>>,
}

/// Finds, opens and hashes everything that `request` will run. Blocks for as long as reading takes: up to 2 GiB.
///
/// # Errors
/// If a file is missing, unreadable, ambiguous, too large or code from the network: nothing is skipped silently.
pub fn resolve(
    request: &Request<'_>,
    cache: &mut dyn DigestCache,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Resolved, PinError> {
    for path in [request.cwd, request.home, request.project] {
        if !path.is_absolute() {
            return Err(PinError::RelativeDirectory { path: path.to_owned() });
        }
    }
    let mut context = context::Context::new(request, file::Hasher::new(cache, progress));
    let first = command::Command {
        word: request.program.into(),
        args: request.args.iter().map(OsString::from).collect(),
        cwd: request.cwd.to_owned(),
        path_env: request.path_env.to_owned(),
        depth: 0,
    };
    let target = command::resolve(&mut context, first)?;
    if let Some(store) = request.store {
        store::verify(store, &context.trees)?;
    }
    Ok(context.finish(target))
}

impl Resolved {
    /// Whether an `env` wrapper takes a variable away, and nothing behind it sets it again.
    #[must_use]
    pub fn removes(&self, name: &str) -> bool {
        self.removed.names(name) && !self.env.contains_key(name) && !self.worded.contains_key(name)
    }

    /// The same of an assignment `NAME=VALUE`: whether it stays.
    #[must_use]
    pub fn keeps_assignment(&self, assignment: &OsStr) -> bool {
        let name = assignment.as_encoded_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        !self.removes(&String::from_utf8_lossy(name))
    }

    /// Looks at everything again, right before it is executed. Fast: bytes are read again only of files that
    /// were written in the two seconds before they were hashed.
    ///
    /// # Errors
    /// Names the first file that is not the one that was pinned.
    pub fn unchanged_since(&self) -> Result<(), PinError> {
        self.files.iter().try_for_each(PinnedFile::unchanged_since)?;
        self.trees.iter().try_for_each(PinnedTree::unchanged_since)
    }
}
