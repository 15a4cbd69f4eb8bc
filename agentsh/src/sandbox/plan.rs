//! What the launcher will do, as plain data, before any system call.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::types::FileKey;

/// Index into the descriptors that [`super::spawn`] passes beside the plan.
pub type Descriptor = usize;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Who runs here, for messages: `agent` or the server's id.
    pub label: String,
    pub program: Program,
    pub identity: Identity,
    pub terminal: Terminal,
    /// In the order in which they are made; a later one may lie on an earlier one.
    pub mounts: Vec<Mount>,
    pub landlock: Vec<LandlockRule>,
    pub limits: Limits,
    pub network: Network,
    /// cgroup v1 `tasks` files that init joins by writing `0`: moving oneself is the one move that does not
    /// take the kernel's global cgroup lock.
    pub join: Vec<Descriptor>,
    /// A layer that the kernel lacks stops the launch unless this is set.
    pub allow_degraded: bool,
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
    pub path: PathBuf,
    pub argv: Vec<String>,
    /// `NAME=value`, complete: nothing is inherited.
    pub env: Vec<String>,
    pub workdir: PathBuf,
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
    /// The agent stays in the session of its terminal: job control, window size and Ctrl-C are the terminal's.
    Keep,
    /// A server gets a session of its own and no controlling terminal.
    NewSession,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute path inside the sandbox.
    pub target: PathBuf,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    Directory {
        mode: u32,
    },
    Symlink {
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
    Proc,
    /// A pseudo-terminal directory of the sandbox's own.
    Devpts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Opened by init. With `expect` the file must still be the one that was hashed; with `no_links` no part of the
    /// path may be a symlink: it lies where a sandbox may write, and could lead anywhere by now.
    Path { path: PathBuf, expect: Option<FileKey>, no_links: bool },
    /// A detached mount that the session made (id-mapped: needs host privilege).
    Detached(Descriptor),
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
    pub path: PathBuf,
    pub access: LandlockAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LandlockAccess {
    /// Read files, list directories, execute.
    Read,
    /// As `Read`, without execute.
    ReadNoExecute,
    /// Everything.
    Write,
}

/// Limits that are set from inside; memory and CPU are held by the cgroup or the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `RLIMIT_NPROC`, which counts per user namespace: the sandbox alone.
    pub pids: u64,
    pub open_files: u64,
    /// `RLIMIT_DATA` in bytes, where no cgroup can hold memory.
    pub data: Option<u64>,
}
