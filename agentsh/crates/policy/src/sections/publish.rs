//! `agent.publish`: ports of the sandbox that are reachable from this machine.

use super::port;
use super::prelude::*;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Publish {
    pub ports: List<u16>,
}

impl Section<AgentPolicy> for Publish {
    const KEYS: &'static [Key] = keys! {
        /// Ports on which a server of the agent is reachable from this machine, at the same port of 127.0.0.1.
        "publish": Kind::List(&Kind::Number(1024, 65_535)), default: "none", example: "[3000]";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let ports = reader.adding(fields.find("publish"), |reader, here| {
            let found = port(reader, here)?;
            if found < 1024 {
                return reader.fault(here, "no program inside can listen on a port below 1024", None);
            }
            Some(found)
        });
        Self { ports }
    }

    fn merge(&self, below: &mut AgentPolicy) {
        merge_list(&self.ports, &mut below.publish);
    }

    fn narrow(&self, base: &mut AgentPolicy, narrowing: &mut Narrowing<'_>) {
        let Some(list) = &self.ports else { return };
        let covered = |entry: &Ruled<u16>| base.publish.iter().any(|outer| outer.value == entry.value);
        for entry in list.value.iter().filter(|entry| !covered(entry)) {
            narrowing.refuse(&entry.rule, format!("this file would publish port {}", entry.value));
        }
        let kept = list.value.iter().filter(|entry| covered(entry)).cloned().collect();
        base.publish = kept;
    }

    fn describe(policy: &AgentPolicy, name: &str, lines: &mut Lines) {
        lines.list(&format!("{name}.publish"), &policy.publish, ToString::to_string);
    }
}
