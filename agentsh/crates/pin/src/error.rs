//! Why a command cannot be resolved, or differs from its pin.

use std::io;
use std::path::{Path, PathBuf};

use agentsh_base::escape;

/// Every message fits after `error: ` and says what to do where the user can do something.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("{}", not_found(.program))]
    NotFound { program: String },
    #[error("{}: is not executable; `chmod +x` it or name its interpreter", .path.display())]
    NotExecutable { path: PathBuf },
    #[error("{}: is a {kind}, not a regular file", .path.display())]
    NotRegular { path: PathBuf, kind: &'static str },
    #[error("{}: {}", .path.display(), plain(.source))]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: cannot be read, so it cannot be pinned: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: is a {kind} inside a program's tree; a tree contains only files, directories and links", .path.display())]
    SpecialFile { path: PathBuf, kind: &'static str },
    #[error(
        "{}: the tree that this program can load from is too large to pin (more than {limit}); \
         move the program to a directory of its own", .root.display()
    )]
    TooLarge { root: PathBuf, limit: &'static str },
    #[error("{}: changes while it is read; try again", .path.display())]
    Changing { path: PathBuf },
    #[error("{}: changed after it was verified", .path.display())]
    ChangedSince { path: PathBuf },
    #[error("{package} is not installed: {instead}")]
    PackageNotInstalled { package: String, instead: String, wanted: Option<Box<super::PackageRequest>> },
    #[error(
        "{}: files in it were changed after it was fetched; remove it and start the server again, which fetches it again",
        .path.display()
    )]
    StoreChanged { path: PathBuf },
    #[error("{}: {why}", .path.display())]
    BadManifest { path: PathBuf, why: String },
    #[error("{what} is code from the network, which cannot be pinned; download it and name the file")]
    RemoteCode { what: String },
    #[error("{what} cannot be pinned: {instead}")]
    Unsupported { what: String, instead: String },
    #[error("{}: its chain of interpreters is longer than {}", .path.display(), super::MAX_INTERPRETERS)]
    TooManyInterpreters { path: PathBuf },
    #[error("{}: {why}", .path.display())]
    BadScript { path: PathBuf, why: &'static str },
    #[error("no module named {module} (searched {searched})")]
    ModuleNotFound { module: String, searched: String },
    #[error("{}: its #! line names {}, which does not exist", .path.display(), escape::line(&.interpreter.to_string_lossy()))]
    NoInterpreter { path: PathBuf, interpreter: PathBuf },
    #[error("{0}")]
    Internal(String),
    #[error("{}: is not an absolute path", .path.display())]
    RelativeDirectory { path: PathBuf },
}

fn not_found(program: &str) -> String {
    match program {
        "" => "the command is empty: name a program".to_owned(),
        program => {
            format!(
                "{program}: no such command in PATH (agentsh searches the absolute directories of PATH that it can read)"
            )
        }
    }
}

/// Without the number of the system.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::NotADirectory => "part of this path is not a directory".to_owned(),
        _ => error.to_string(),
    }
}

impl PinError {
    /// A failure of agentsh itself.
    #[must_use]
    pub fn internal(message: &str) -> Self {
        Self::Internal(message.to_owned())
    }

    /// There is no such program: exit status 127 of a shell.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. }
                | Self::PackageNotInstalled { .. }
                | Self::ModuleNotFound { .. }
                | Self::NoInterpreter { .. }
        ) || self.is_absent()
    }

    /// It exists and cannot be executed: exit status 126 of a shell.
    #[must_use]
    pub fn is_not_executable(&self) -> bool {
        matches!(self, Self::NotExecutable { .. } | Self::NotRegular { .. } | Self::Unreadable { .. })
    }

    /// A failed system call on a file: forbidden, or another error.
    pub fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_owned(), source.into());
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::Unreadable { path, source }
        } else {
            Self::Io { path, source }
        }
    }

    /// True when the path does not exist: the only failure after which another place may be tried.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
    }
}
