//! Default resource limits.

use super::model::Ruled;
use super::sections::limits::Limits;
use crate::types::RuleRef;

/// The agent: room for a language server and a build, not for the whole machine. Of memory half of what there is.
#[must_use]
pub fn limits_for_agent() -> Limits {
    defaults("agent.limits", Limits::default().resolve_for_agent())
}

/// The defaults for a server.
#[must_use]
pub fn limits_for_server() -> Limits {
    defaults("sandbox.mcp.servers.limits", Limits::default().resolve_for_server())
}

/// The default if the machine's memory is unknown: enough for a build.
const MEMORY_WITHOUT_WORD: u64 = 2900 << 20;

/// Half of the machine's memory.
fn half_of_the_machine() -> u64 {
    agentsh_base::memory::total().map_or(MEMORY_WITHOUT_WORD, |bytes| bytes / 2)
}

/// The limits of a process tree: those of the policy, and defaults for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedLimits {
    /// Bytes of all processes together.
    pub memory: u64,
    /// Processes and threads at a time.
    pub pids: u64,
    /// For each process.
    pub open_files: u64,
    /// Percent of one processor: 200 is two processors.
    pub cpu_percent: u64,
}

impl Limits {
    /// For the agent, and for what is built or fetched for it.
    #[must_use]
    pub fn resolve_for_agent(&self) -> ResolvedLimits {
        self.resolve([half_of_the_machine(), 2048, 4096, 400])
    }

    /// For one server.
    #[must_use]
    pub fn resolve_for_server(&self) -> ResolvedLimits {
        self.resolve([1 << 30, 256, 1024, 200])
    }

    fn resolve(&self, [memory, pids, open_files, cpu_percent]: [u64; 4]) -> ResolvedLimits {
        let value = |limit: &Option<Ruled<u64>>, default| limit.as_ref().map_or(default, |ruled| ruled.value);
        ResolvedLimits {
            memory: value(&self.memory, memory),
            pids: value(&self.pids, pids),
            open_files: value(&self.open_files, open_files),
            cpu_percent: value(&self.cpu, cpu_percent),
        }
    }

    /// Every limit that is not set taken from `defaults`.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            memory: self.memory.or(defaults.memory),
            pids: self.pids.or(defaults.pids),
            open_files: self.open_files.or(defaults.open_files),
            cpu: self.cpu.or(defaults.cpu),
        }
    }
}

fn defaults(section: &str, limits: ResolvedLimits) -> Limits {
    let ResolvedLimits { memory, pids, open_files, cpu_percent } = limits;
    let ruled =
        |key: &str, value| Some(Ruled { value, rule: RuleRef::default_rule(&format!("{section}.{key}")) });
    Limits {
        memory: ruled("memory", memory),
        pids: ruled("pids", pids),
        open_files: ruled("open_files", open_files),
        cpu: ruled("cpu", cpu_percent),
    }
}
