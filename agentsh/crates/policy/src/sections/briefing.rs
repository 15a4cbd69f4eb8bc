//! `agent.tell_sandbox`: whether the agent is told about its sandbox.

use super::prelude::*;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Briefing {
    pub tell: Option<Ruled<bool>>,
}

impl Section<AgentPolicy> for Briefing {
    const KEYS: &'static [Key] = keys! {
        /// Whether agentsh puts into the agent's context what it can read, write and reach, and how to ask why
        /// something was refused. Supported for Claude Code and Codex.
        "tell_sandbox": Kind::Flag, default: "true", example: "false";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        Self { tell: reader.boolean(fields.find("tell_sandbox")) }
    }

    fn merge(&self, below: &mut AgentPolicy) {
        merge_key(&self.tell, &mut below.tell_sandbox);
    }

    /// Neither value widens what the agent may do.
    fn narrow(&self, base: &mut AgentPolicy, _: &mut Narrowing<'_>) {
        self.merge(base);
    }

    fn describe(policy: &AgentPolicy, name: &str, lines: &mut Lines) {
        lines.list(&format!("{name}.tell_sandbox"), &policy.tell_sandbox, ToString::to_string);
    }
}
