//! The launch of one sandbox as plain data.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::seccomp::Filter;
pub use crate::types::FileKey;

/// Index of a descriptor that [`super::spawn`] sends with the plan.
pub type Descriptor = usize;

/// The kind of a sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tier {
    /// Namespaces, with everything that needs them.
    #[default]
    Namespaces,
    /// Without namespaces, for containers: Landlock, the system call filter, process limits, and connections made by
    /// the session. Only on request.
    Container,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub tier: Tier,
    /// The process in messages: `agent` or the server's id.
    pub label: String,
    pub program: Program,
    pub identity: Identity,
    pub terminal: Terminal,
    /// In mount order; later ones may cover earlier ones.
    pub mounts: Vec<Mount>,
    pub landlock: Vec<LandlockRule>,
    pub limits: Limits,
    pub executable: Executable,
    pub network: Network,
    /// Sockets are needed through which servers inside are reached.
    pub published: bool,
    /// cgroup v1 `tasks` files; init writes `0` to join, the one move without the kernel's global cgroup lock.
    pub join: Vec<Descriptor>,
    /// A missing kernel layer stops the launch unless this is set.
    pub allow_degraded: bool,
    /// The session is notified of looked-up files. Signals that the caller ignores and agentsh too, as bits.
    pub ignored: u64,
    pub tells_files: bool,
    /// Renames are reported to the session first, because some names are guarded.
    pub hears_renames: bool,
}

/// The network namespace, besides loopback and the resolver. init creates its sockets and sends them to the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Every address is local, and these ports listen on all of them, so the original destination is visible.
    AnyIp { ports: Vec<u16> },
    /// No route; eBPF redirects allowed connections to these listeners.
    Redirected { listeners: Vec<SocketAddr> },
}

impl Network {
    /// Whether anything listens for connections to other hosts.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match self {
            Self::AnyIp { ports } => !ports.is_empty(),
            Self::Redirected { listeners } => !listeners.is_empty(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Absolute path inside the sandbox, symlinks followed.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// Any bytes except NUL.
    #[serde(with = "list_of_bytes")]
    pub argv: Vec<OsString>,
    /// `NAME=value`, complete: nothing is inherited.
    #[serde(with = "list_of_bytes")]
    pub env: Vec<OsString>,
    #[serde(with = "path_bytes")]
    pub workdir: PathBuf,
    /// Additional descriptors, each with its number.
    pub descriptors: Vec<(u32, Descriptor)>,
}

/// The only user and group of a sandbox: as the host sees them, never 0, and as its programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub host_uid: u32,
    pub host_gid: u32,
    pub uid: u32,
    pub gid: u32,
    /// Root started agentsh: ids are set with `setresuid`, not inherited.
    pub from_root: bool,
}

impl Identity {
    /// The same ids on both sides.
    #[must_use]
    pub const fn of(uid: u32, gid: u32) -> Self {
        Self { host_uid: uid, host_gid: gid, uid, gid, from_root: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Terminal {
    /// The agent stays in the terminal's session, for job control, window size and Ctrl-C, and in agentsh's process
    /// group, perhaps with other programs of a pipeline.
    Keep,
    /// As `Keep`, in its own process group, which programs inside can name. If agentsh was in the foreground, it
    /// becomes the foreground group.
    OwnGroup,
    /// A server gets its own session without a controlling terminal.
    NewSession,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path inside the sandbox.
    #[serde(with = "path_bytes")]
    pub target: PathBuf,
    pub what: NodeContent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeContent {
    Directory {
        mode: u32,
    },
    Symlink {
        #[serde(with = "path_bytes")]
        to: PathBuf,
    },
    /// Small generated or copied file.
    File {
        content: Vec<u8>,
        mode: u32,
    },
    Tmpfs {
        bytes: u64,
        mode: u32,
    },
    Bind {
        source: Source,
        access: Access,
        kind: Kind,
    },
    /// A copy of sealed memory, so that the hashed bytes cannot change between check and use.
    Copy {
        from: Descriptor,
        executable: bool,
    },
    /// A copy-on-write layer: writes stay in it.
    Overlay {
        lower: Source,
        /// A directory with [`UPPER`] and [`WORK`] in it.
        layer: Source,
        /// Without overlayfs: only what was written before.
        or_upper: bool,
    },
    Proc,
    /// The message queues of the sandbox's own IPC namespace.
    Mqueue,
    /// A pseudo-terminal directory of the sandbox's own.
    Devpts,
}

/// In the directory of a layer: what was written.
pub const UPPER: &str = "upper";
/// In the directory of a layer: the kernel's own.
pub const WORK: &str = "work";

/// Mount point of the project's layer while the tree is built, removed afterwards.
pub const PROJECT_LAYER: &str = "/.layer";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Opened by init. With `expect` the file must have that identity; with `no_links` no part of the path may be a
    /// symlink, because a sandbox may write there.
    Path {
        #[serde(with = "path_bytes")]
        path: PathBuf,
        expect: Option<FileKey>,
        no_links: bool,
    },
    /// A detached mount from the session (id-mapped, which needs host privilege).
    Detached(Descriptor),
    /// A part of the project's layer.
    Layer {
        #[serde(with = "path_bytes")]
        below: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    ReadOnly,
    ReadWrite,
    /// A device node: the only mount without nodev.
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Directory,
    File,
}

/// A Landlock grant for everything below a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockRule {
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    pub access: LandlockAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LandlockAccess {
    /// Read files, list directories, execute.
    Read,
    /// As `Read`, without execute.
    ReadNoExecute,
    /// Everything else, except for these two unless set.
    Write { execute: bool, sockets: bool },
}

/// The programs that may be executed, enforced by mounts in addition to Landlock. noexec also keeps a loader from
/// mapping a file as code, which Landlock does not cover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Executable {
    #[default]
    Everything,
    /// Everything below one of these paths inside.
    Below(Vec<PathBuf>),
}

impl Executable {
    #[must_use]
    pub fn holds(&self, target: &Path) -> bool {
        match self {
            Self::Everything => true,
            Self::Below(paths) => paths.iter().any(|path| target.starts_with(path)),
        }
    }

    #[must_use]
    pub fn filter(&self) -> Filter {
        match self {
            Self::Everything => Filter::AllPrograms,
            Self::Below(_) => Filter::ListedPrograms,
        }
    }
}

/// Limits set from inside; the cgroup or the watchdog limits memory and CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `RLIMIT_NPROC`, which counts per user namespace.
    pub pids: u64,
    /// Hard limit; the soft limit is `usual_open_files`.
    pub open_files: u64,
    /// The caller's soft limit.
    pub usual_open_files: u64,
    /// The caller's soft limit on file size.
    pub file_bytes: Option<u64>,
    /// This sandbox's part of limits that the kernel counts per host user.
    pub inotify_instances: u64,
    pub inotify_watches: u64,
}

/// Paths may be any bytes.
mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Vec::<u8>::deserialize(deserializer).map(|bytes| OsString::from_vec(bytes).into())
    }
}

/// Arguments and variables are any bytes too.
mod list_of_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(list: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|item| item.as_os_str().as_bytes()))
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<OsString>, D::Error> {
        let list = Vec::<Vec<u8>>::deserialize(deserializer)?;
        Ok(list.into_iter().map(OsString::from_vec).collect())
    }
}
