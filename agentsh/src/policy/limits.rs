//! What a process tree may use when no policy says otherwise.

use super::model::{Limits, Ruled};
use crate::types::RuleRef;

/// The agent: room for a language server and a build, not for the whole machine.
#[must_use]
pub fn limits_for_agent() -> Limits {
    defaults("agent.limits", [2900 << 20, 512, 4096, 400])
}

/// One server.
#[must_use]
pub fn limits_for_server() -> Limits {
    defaults("sandbox.mcp.servers.limits", [1 << 30, 256, 1024, 200])
}

impl Limits {
    /// Every limit that is not set taken from `defaults`.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            memory: self.memory.or(defaults.memory),
            pids: self.pids.or(defaults.pids),
            open_files: self.open_files.or(defaults.open_files),
            cpu_percent: self.cpu_percent.or(defaults.cpu_percent),
        }
    }
}

fn defaults(section: &str, [memory, pids, open_files, cpu_percent]: [u64; 4]) -> Limits {
    let ruled =
        |key: &str, value| Some(Ruled { value, rule: RuleRef::default_rule(&format!("{section}.{key}")) });
    Limits {
        memory: ruled("memory", memory),
        pids: ruled("pids", pids),
        open_files: ruled("open_files", open_files),
        cpu_percent: ruled("cpu", cpu_percent),
    }
}
