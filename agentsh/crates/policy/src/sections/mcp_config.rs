//! `agent.mcp_config`: where an agent without an adapter keeps its servers.

use super::path_pattern;
use super::prelude::*;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct McpConfig {
    pub file: Option<Ruled<String>>,
}

impl Section<AgentPolicy> for McpConfig {
    const KEYS: &'static [Key] = keys! {
        /// The file in which an agent without an adapter of its own keeps its MCP servers.
        "mcp_config": Kind::Text, default: "what the adapter of a known agent finds",
            example: "~/.tool/mcp.json";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(here) = fields.find("mcp_config") else { return Self::default() };
        let Some(text) = path_pattern(reader, &here) else { return Self::default() };
        if text.contains(['*', '?']) {
            reader.problem(&here, "this is one file, not a pattern", None);
        }
        Self { file: Some(reader.ruled(&here, text)) }
    }

    fn merge(&self, below: &mut AgentPolicy) {
        merge_key(&self.file, &mut below.mcp_config);
    }

    fn narrow(&self, _: &mut AgentPolicy, narrowing: &mut Narrowing<'_>) {
        if let Some(file) = &self.file {
            narrowing.refuse(&file.rule, "a policy inside the project cannot name the agent's configuration");
        }
    }

    fn describe(policy: &AgentPolicy, name: &str, lines: &mut Lines) {
        lines.list(&format!("{name}.mcp_config"), &policy.mcp_config, Clone::clone);
    }
}
