//! `agent.mcp_config`: where an agent without an adapter keeps its servers.

use super::path_pattern;
use super::prelude::*;

table! {
    /// What one file writes.
    struct McpConfig;

    /// The file in which an agent without an adapter of its own keeps its MCP servers.
    mcp_config: One<String> = Kind::Text, default: "what the adapter of a known agent finds",
        example: "~/.tool/mcp.json" => read file;
}

impl Section<AgentPolicy> for McpConfig {
    in_table! { AgentPolicy [mcp_config]: read merge describe }

    fn narrow(&self, _: &mut AgentPolicy, narrowing: &mut Narrowing<'_>) {
        narrowing
            .refuse_all(self.rules(), "a policy inside the project cannot name the agent's configuration");
    }
}

fn file(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = path_pattern(reader, here)?;
    if text.contains(['*', '?']) {
        return reader.fault(here, "this is one file, not a pattern", None);
    }
    Some(text)
}
