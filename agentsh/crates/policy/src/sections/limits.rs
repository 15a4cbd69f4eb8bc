//! `limits`: resource limits of a process tree.

use super::prelude::*;
use crate::{model, units};

/// Least memory with which a process tree can start at all.
const MIN_MEMORY: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub values: model::Limits,
}

const LIMITS: &[Key] = keys! {
    /// Memory of all its processes together.
    "memory": Kind::Either(&[Kind::Size, Kind::Number(MIN_MEMORY, u64::MAX)]),
        default: "the agent: half of the machine's; a server: 1GiB", example: "4GiB";
    /// Processes and threads at a time.
    "pids": Kind::Number(1, 4_194_304), default: "the agent: 2048; a server: 256", example: "2048";
    /// Open files of each process.
    "open_files": Kind::Number(16, 1_048_576), default: "the agent: 4096; a server: 1024", example: "4096";
    /// Processor time; `200%` is two processors.
    "cpu": Kind::Percent, default: "the agent: 400%; a server: 200%", example: "200%";
};

type Show<'f> = &'f dyn Fn(u64) -> String;

impl Limits {
    pub(crate) fn read_map(reader: &mut Reader<'_>, here: &Here<'_>) -> Self {
        let Some(limits) = reader.map(here, LIMITS) else { return Self::default() };
        let values = model::Limits {
            memory: memory(reader, limits.find("memory")),
            pids: reader.number(limits.find("pids"), 1, 4_194_304),
            open_files: reader.number(limits.find("open_files"), 16, 1_048_576),
            cpu_percent: cpu(reader, limits.find("cpu")),
        };
        Self { values }
    }
}

impl Section<ProcessPolicy> for Limits {
    const KEYS: &'static [Key] = keys! {
        /// What all its processes together may use. A process over its memory is ended.
        "limits": Kind::Map(LIMITS);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        fields.find("limits").map(|here| Self::read_map(reader, &here)).unwrap_or_default()
    }

    fn merge(&self, below: &mut ProcessPolicy) {
        let limits = &mut below.limits;
        merge_keys!(self.values => limits; memory, pids, open_files, cpu_percent);
    }

    fn narrow(&self, base: &mut ProcessPolicy, narrowing: &mut Narrowing<'_>) {
        let base = &mut base.limits;
        let in_force = base.clone().or(narrowing.limits.clone());
        let own = &self.values;
        for (name, slot, wanted, limit) in [
            ("memory", &mut base.memory, &own.memory, in_force.memory),
            ("pids", &mut base.pids, &own.pids, in_force.pids),
            ("open_files", &mut base.open_files, &own.open_files, in_force.open_files),
            ("cpu", &mut base.cpu_percent, &own.cpu_percent, in_force.cpu_percent),
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
        let percent = |value: u64| format!("{value}%");
        let plain = |value: u64| value.to_string();
        let shown: [(&str, &Option<Ruled<u64>>, Show<'_>); 4] = [
            ("memory", &limits.memory, &units::show_bytes),
            ("pids", &limits.pids, &plain),
            ("open_files", &limits.open_files, &plain),
            ("cpu", &limits.cpu_percent, &percent),
        ];
        for (part, limit, show) in shown {
            let Some(limit) = limit else { continue };
            // The same on every machine, like all shown values.
            let half = limit.rule == RuleRef::default_rule("agent.limits.memory");
            let text = if half { "50% RAM".to_owned() } else { show(limit.value) };
            lines.add(&format!("{name}.limits.{part}"), text, &limit.rule);
        }
    }
}

fn memory(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Option<Ruled<u64>> {
    let here = here?;
    let value = match &here.node.value {
        Value::Integer(value) => u64::try_from(*value).ok(),
        Value::Text(text) => units::bytes(text),
        other => return reader.wrong_type(&here, "a size such as `512MiB`", other),
    };
    match value {
        Some(value) if value >= MIN_MEMORY => Some(reader.ruled(&here, value)),
        Some(value) => reader.fault(&here, format!("{value} bytes are too little to start a program"), None),
        None => reader.fault(&here, "this is not a size", "write `4GiB`, `512MiB`, `1g` or plain bytes"),
    }
}

fn cpu(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Option<Ruled<u64>> {
    let here = here?;
    let value = match &here.node.value {
        Value::Text(text) => units::percent(text),
        _ => None,
    };
    match value {
        Some(value) if (1..=102_400).contains(&value) => Some(reader.ruled(&here, value)),
        _ => reader.fault(
            &here,
            "this is not a share of a processor",
            "write a share of one processor: `200%` is two processors",
        ),
    }
}
