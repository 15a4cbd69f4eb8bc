//! One process tree in a sandbox of its own.
//!
//! [`layout`] turns a policy into a [`plan::Plan`] (plain data). [`spawn`] orders pid 1 from the [`zygote`], agentsh
//! re-executed, which bears it into its cgroup and namespaces; as [`init`] it applies the plan from top to bottom,
//! starts the program as its child and stays as the reaping pid 1. What each layer really gave comes back as
//! [`report::Enforcement`] values.

use agentsh_base::{memory, proc_file, small_file, types, wsl};
use agentsh_policy as policy;

pub mod audit;
pub mod caps;
pub mod cgroup;
pub mod container;
pub mod control;
pub mod etc;
pub mod freeze;
pub mod git_config;
pub mod host;
pub mod idmap;
pub mod init;
pub mod kept;
pub mod landlock;
pub mod layout;
#[cfg(test)]
mod layout_tests;
pub mod lend;
pub mod limits;
pub mod listed_host;
pub mod mend;
pub mod mount;
pub mod mount_calls;
pub mod mounted;
pub mod netlink;
pub mod network;
pub mod placeholders;
pub mod plan;
pub mod reaper;
pub mod refused;
pub mod report;
pub mod sealed;
pub mod seccomp;
pub mod spawn;
pub mod spec;
pub mod spelling;
pub mod stage;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod visit;
pub mod watchdog;
pub mod zygote;

pub use plan::{Plan, Tier};
pub use report::{Enforcement, State};
pub use spawn::{Child, Launch, SpawnError, WaitingInit};
pub use zygote::{Closer, Zygote};
