//! `limits`: resource limits of a process tree.

use super::prelude::*;
use crate::units;

/// Least memory with which a process tree can start at all.
const MIN_MEMORY: u64 = 1 << 20;

table! {
    /// None means the default of that kind of process.
    struct Limits;

    /// Memory of all its processes together.
    pub memory: One<u64> = Kind::Either(&[Kind::Size, Kind::Number(MIN_MEMORY, u64::MAX)]),
        default: "the agent: half of the machine's; a server: 1GiB", example: "4GiB"
        => read memory => show |bytes| units::show_bytes(*bytes);
    /// Processes and threads at a time.
    pub pids: One<u64> = Kind::Number(1, 4_194_304), default: "the agent: 2048; a server: 256", example: "2048";
    /// Open files of each process.
    pub open_files: One<u64> = Kind::Number(16, 1_048_576), default: "the agent: 4096; a server: 1024",
        example: "4096";
    /// Processor time; `200%` is two processors.
    pub cpu: One<u64> = Kind::Percent, default: "the agent: 400%; a server: 200%", example: "200%"
        => read cpu => show |percent| format!("{percent}%");
}

impl Section<ProcessPolicy> for Limits {
    const KEYS: &'static [Key] = keys! {
        /// What all its processes together may use. A process over its memory is ended.
        "limits": Kind::Map(Self::TABLE);
    };

    in_table! { ProcessPolicy (limits): read merge }

    fn narrow(&self, base: &mut ProcessPolicy, narrowing: &mut Narrowing<'_>) {
        let base = &mut base.limits;
        let in_force = base.clone().or(narrowing.limits.clone());
        for (name, slot, wanted, limit) in [
            ("memory", &mut base.memory, &self.memory, in_force.memory),
            ("pids", &mut base.pids, &self.pids, in_force.pids),
            ("open_files", &mut base.open_files, &self.open_files, in_force.open_files),
            ("cpu", &mut base.cpu, &self.cpu, in_force.cpu),
        ] {
            let Some(wanted) = wanted else { continue };
            if limit.as_ref().is_some_and(|limit| wanted.value > limit.value) {
                narrowing.refuse(&wanted.rule, format!("this file would raise the limit of {name}"));
            }
            if limit.as_ref().is_none_or(|limit| wanted.value <= limit.value) {
                *slot = Some(wanted.clone());
            }
        }
    }

    fn describe(policy: &ProcessPolicy, name: &str, lines: &mut Lines) {
        let limits = policy.limits.clone().or(lines.limits.clone());
        let name = format!("{name}.limits");
        match limits.memory.as_ref().map(|memory| &memory.rule) {
            // The same on every machine, like all shown values.
            Some(rule) if *rule == RuleRef::default_rule("agent.limits.memory") => {
                lines.add(&format!("{name}.memory"), "50% RAM", rule);
            }
            _ => limits.describe_keys(&["memory"], &name, lines),
        }
        limits.describe_keys(&["pids", "open_files", "cpu"], &name, lines);
    }
}

fn memory(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u64> {
    let value = match &here.node.value {
        Value::Integer(value) => u64::try_from(*value).ok(),
        Value::Text(text) => units::bytes(text),
        other => return reader.wrong_type(here, "a size such as `512MiB`", other),
    };
    match value {
        Some(value) if value >= MIN_MEMORY => Some(value),
        Some(value) => reader.fault(here, format!("{value} bytes are too little to start a program"), None),
        None => reader.fault(here, "this is not a size", "write `4GiB`, `512MiB`, `1g` or plain bytes"),
    }
}

fn cpu(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u64> {
    let value = match &here.node.value {
        Value::Text(text) => units::percent(text),
        _ => None,
    };
    value.filter(|value| (1..=102_400).contains(value)).or_else(|| {
        let help = "write a share of one processor: `200%` is two processors";
        reader.fault(here, "this is not a share of a processor", help)
    })
}
