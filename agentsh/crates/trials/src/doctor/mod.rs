//! The attacks of `agentsh doctor`, and what the results say about each layer of protection.

pub mod host;
pub mod judge;
pub mod layer;
pub mod probe;
pub mod stage;

use agentsh_sandbox::Enforcement;

/// The outcome of a temporary sandbox.
#[derive(Debug)]
pub struct Probed {
    pub output: String,
    /// 128+n for signal n.
    pub exit_code: u8,
    pub enforcement: Vec<Enforcement>,
    /// A cgroup holds memory; otherwise the watchdog and a limit per process.
    pub memory_in_cgroup: bool,
    pub cpu_in_cgroup: bool,
    /// How often the cgroup made its processes wait for a processor; None without one.
    pub throttled: Option<u64>,
    pub ended: ProbeEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    ByItself,
    ByTheMemoryWatchdog,
    TooSlow,
}
