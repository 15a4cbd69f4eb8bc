//! What a sandboxed process is started with.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use super::layer::Shown;
use super::network::Way;
use crate::policy::{Limits, ProcessPolicy};
use crate::sandbox::layout::{CacheLayer, Elsewhere, Grant, PinnedFile};
use crate::sandbox::plan::{Access, Program, Terminal};

/// One process tree to be started.
pub struct Start<'a> {
    pub label: &'a str,
    pub policy: &'a ProcessPolicy,
    /// Already completed with the defaults of its kind.
    pub limits: &'a Limits,
    pub for_agent: bool,
    /// The agent keeps the terminal that it was started from.
    pub terminal: Terminal,
    pub program: Program,
    pub pinned: Vec<PinnedFile>,
    pub program_roots: Vec<PathBuf>,
    /// As in [`crate::sandbox::layout::Request`].
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Descriptors that `pinned` refers to.
    pub descriptors: Vec<OwnedFd>,
    pub project_access: Option<Access>,
    /// None: what is written to the project reaches it.
    pub layer: Option<Shown<'a>>,
    pub grants: Vec<Grant>,
    pub own_state: Vec<Grant>,
    pub denied: Vec<PathBuf>,
    pub unmasked: Vec<PathBuf>,
    pub execute: Vec<PathBuf>,
    /// Unix sockets may be made in directories of the host, which another sandbox may see.
    pub shared_sockets: bool,
    pub files: Vec<(PathBuf, Vec<u8>, u32)>,
    pub extra: Vec<Elsewhere>,
    /// What must not come into being in the project is kept away, by stand-ins on disk where it takes one.
    pub stand_ins: bool,
    /// As `extra`, and no rule of Landlock opens it.
    pub beyond_landlock: Vec<Elsewhere>,
    pub caches: Vec<CacheLayer>,
    /// None: nobody serves it, and nothing is reached.
    pub network: Option<Way>,
    pub stdio: [BorrowedFd<'a>; 3],
    pub allow_degraded: bool,
}
