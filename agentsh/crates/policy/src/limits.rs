//! What a process tree may use when no policy says otherwise.

use super::model::{Limits, Ruled};
use crate::types::RuleRef;

/// The agent: room for a language server and a build, not for the whole machine. Of memory half of what there is.
#[must_use]
pub fn limits_for_agent() -> Limits {
    defaults("agent.limits", [half_of_the_machine(), 512, 4096, 400])
}

/// One server.
#[must_use]
pub fn limits_for_server() -> Limits {
    defaults("sandbox.mcp.servers.limits", [1 << 30, 256, 1024, 200])
}

/// Of a machine that does not say: what a build takes.
const MEMORY_WITHOUT_WORD: u64 = 2900 << 20;

/// Half of the machine's memory.
fn half_of_the_machine() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|rest| rest.trim().trim_end_matches("kB").trim_end().parse::<u64>().ok());
    kibibytes.map_or(MEMORY_WITHOUT_WORD, |kibibytes| kibibytes.saturating_mul(1024) / 2)
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
