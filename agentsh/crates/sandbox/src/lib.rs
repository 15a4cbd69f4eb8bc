//! Runs one process tree in a sandbox.
//!
//! [`layout`] makes a [`plan::Plan`] (plain data) from a specification. [`spawn`] orders pid 1 from the [`zygote`];
//! [`init`] applies the plan, starts the program as its child and remains as the reaper. [`report::Enforcement`] says
//! what each layer enforces.

use agentsh_base::{listing, memory, proc_file, small_file, types, wsl};
use agentsh_policy as policy;

pub mod cached_host;
pub mod caps;
pub mod cgroup;
pub mod container;
pub mod control;
pub mod etc;
pub mod etc_cache;
pub mod freeze;
pub mod git_config;
pub mod host;
pub mod idmap;
pub mod init;
pub mod landlock;
pub mod landlock_audit;
pub mod layout;
#[cfg(test)]
mod layout_tests;
pub mod limits;
pub mod mount;
pub mod mount_calls;
pub mod mount_list;
pub mod name_aliases;
pub mod netlink;
pub mod network;
pub mod open_inside;
pub mod plan;
pub mod reaper;
pub mod remount_guards;
pub mod report;
pub mod sealed;
pub mod seccomp;
pub mod share_mounts;
pub mod spawn;
pub mod spec;
pub mod stage;
pub mod stubs;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod unanswered_packets;
pub mod watchdog;
pub mod zygote;

pub use plan::{Plan, Tier};
pub use report::{Enforcement, State};
pub use spawn::{Child, Launch, SpawnError, WaitingInit};
pub use zygote::{Closer, Zygote};
