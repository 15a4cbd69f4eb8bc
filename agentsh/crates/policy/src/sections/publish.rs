//! `agent.publish`: ports of the sandbox that are reachable from this machine.

use super::port;
use super::prelude::*;

table! {
    /// What one file writes.
    struct Publish;

    /// Ports on which a server of the agent is reachable from this machine, at the same port of 127.0.0.1.
    publish: Entries<u16> = Kind::List(&Kind::Number(1024, 65_535)), default: "none", example: "[3000]"
        => read listening => show ToString::to_string;
}

impl Section<AgentPolicy> for Publish {
    in_table! { AgentPolicy [publish]: read merge describe }

    fn narrow(&self, base: &mut AgentPolicy, narrowing: &mut Narrowing<'_>) {
        let covered = |base: &[Ruled<u16>], own: &u16| base.iter().any(|outer| outer.value == *own);
        let message = |port: &u16| format!("this file would publish port {port}");
        base.publish.narrow(&self.publish, narrowing, covered, message);
    }
}

fn listening(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<u16> {
    let found = port(reader, here)?;
    if found < 1024 {
        return reader.fault(here, "no program inside can listen on a port below 1024", None);
    }
    Some(found)
}
