//! `agent.tell_sandbox`: whether the agent is told about its sandbox.

use super::prelude::*;

table! {
    /// What one file writes.
    struct Briefing;

    /// Whether agentsh puts into the agent's context what it can read, write and reach, and how to ask why
    /// something was refused. Supported for Claude Code and Codex.
    tell_sandbox: One<bool> = Kind::Flag, default: "true", example: "false";
}

impl Section<AgentPolicy> for Briefing {
    in_table! { AgentPolicy [tell_sandbox]: read merge describe }

    /// Neither value widens what the agent may do.
    fn narrow(&self, base: &mut AgentPolicy, _: &mut Narrowing<'_>) {
        Section::merge(self, base);
    }
}
