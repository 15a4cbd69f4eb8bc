//! What the launcher will do, as plain data, before any system call.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::seccomp::Filter;
pub use crate::types::FileKey;

/// Index into the descriptors that [`super::spawn`] passes beside the plan.
pub type Descriptor = usize;

/// What a sandbox is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tier {
    /// Namespaces, and everything that they carry.
    #[default]
    Namespaces,
    /// For containers in which no namespace can be made: what Landlock, the system call filter and limits of the process
    /// can hold, with connections made by the session. Never taken unless it was asked for.
    Container,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub tier: Tier,
    /// Who runs here, for messages: `agent` or the server's id.
    pub label: String,
    pub program: Program,
    pub identity: Identity,
    pub terminal: Terminal,
    /// In the order in which they are made; a later one may lie on an earlier one.
    pub mounts: Vec<Mount>,
    pub landlock: Vec<LandlockRule>,
    pub limits: Limits,
    pub executable: Executable,
    pub network: Network,
    /// Sockets are wanted through which servers inside are reached.
    pub published: bool,
    /// cgroup v1 `tasks` files that init joins by writing `0`: moving oneself is the one move that does not
    /// take the kernel's global cgroup lock.
    pub join: Vec<Descriptor>,
    /// A layer that the kernel lacks stops the launch unless this is set.
    pub allow_degraded: bool,
    /// The session hears of the files that are looked for.
    /// Signals that whoever started agentsh ignores and agentsh does too, one bit each.
    pub ignored: u64,
    pub tells_files: bool,
    /// The session hears of renames before they are done: some names are guarded.
    pub hears_renames: bool,
}

/// What the network namespace is made of beside loopback and the resolver. Its sockets are made inside by init,
/// handed to the session and served there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// No route and no listener: every connection that leaves the sandbox's own loopback fails.
    Closed,
    /// Every address is local, and these ports listen on all of them: the address that a program asked for is the
    /// one at which it arrives.
    AnyIp { ports: Vec<u16> },
    /// No route; the kernel sends connections that policy names to these listeners.
    Redirected { listeners: Vec<SocketAddr> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Absolute path inside the sandbox, symlinks followed.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// Any bytes but zero, as the kernel takes them.
    #[serde(with = "list_of_bytes")]
    pub argv: Vec<OsString>,
    /// `NAME=value`, complete: nothing is inherited.
    #[serde(with = "list_of_bytes")]
    pub env: Vec<OsString>,
    #[serde(with = "path_bytes")]
    pub workdir: PathBuf,
    /// Open beside the standard ones, each under its number.
    pub descriptors: Vec<(u32, Descriptor)>,
}

/// The one user and group that exist inside. The host ids are never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub host_uid: u32,
    pub host_gid: u32,
    /// agentsh was started as root: the ids are entered with `setresuid`, not inherited.
    pub from_root: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Terminal {
    /// The agent stays in the session of its terminal: job control, window size and Ctrl-C are the terminal's. It shares
    /// the process group of agentsh, which other programs of a pipeline may share too.
    Keep,
    /// As `Keep`, in a process group of its own, which programs inside can name. Where agentsh was in the foreground of a
    /// terminal, it takes that place.
    OwnGroup,
    /// A server gets a session of its own and no controlling terminal.
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
    /// A copy of sealed memory: of the bytes that were hashed, which nobody can change between check and use.
    Copy {
        from: Descriptor,
        executable: bool,
    },
    /// A copy-on-write layer: what is written stays in the layer, and nothing reaches what lies below.
    Overlay {
        lower: Source,
        /// A directory with [`UPPER`] and [`WORK`] in it.
        layer: Source,
        /// Where no layer can be had: what was written to it before, alone.
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

/// Where the project's layer stands while the tree is built. It is taken away when everything that shows a part of it
/// is in place.
pub const PROJECT_LAYER: &str = "/.layer";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Opened by init. With `expect` the file must still be the one that was hashed; with `no_links` no part of the
    /// path may be a symlink: it lies where a sandbox may write, and could lead anywhere by now.
    Path {
        #[serde(with = "path_bytes")]
        path: PathBuf,
        expect: Option<FileKey>,
        no_links: bool,
    },
    /// A detached mount that the session made (id-mapped: needs host privilege).
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
    /// A device node: the only kind that keeps its device meaning.
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Directory,
    File,
}

/// Landlock grant over everything beneath a path inside the sandbox.
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
    /// Everything else; these two where they are said.
    Write { execute: bool, sockets: bool },
}

/// What may be executed, by the second mechanism beside Landlock: mounts. They also keep a loader from mapping a file as
/// code, which Landlock does not see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Executable {
    Everything,
    /// What lies below one of these paths inside the sandbox.
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

/// Limits that are set from inside; memory and CPU are held by the cgroup or the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `RLIMIT_NPROC`, which counts per user namespace: the sandbox alone.
    pub pids: u64,
    /// At most; a program that asks for nothing has `usual_open_files`.
    pub open_files: u64,
    /// What whoever started agentsh has unless he raises it.
    pub usual_open_files: u64,
    /// The soft limit on the size of a file that whoever started agentsh has.
    pub file_bytes: Option<u64>,
    /// What the kernel counts per user of the host, whatever the sandbox: this one's part of it.
    pub inotify_instances: u64,
    pub inotify_watches: u64,
}

/// A path is any bytes: what somebody called a directory must not keep a sandbox from starting.
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
