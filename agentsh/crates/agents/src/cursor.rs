//! Cursor's agent on the command line. Its servers are in `mcp.json` of `~/.cursor` and of the project's `.cursor`.

use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, AgentFacts, ConfigScope, Models, host_or_default, list, login, per_project,
    private, read_only,
};
use super::{AgentError, Context, Endpoint, StateKind};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "cursor",
    title: FACTS.title,
    programs: &["cursor-agent"],
    installed: &["/cursor-agent/versions/"],
    headless: &["-p", "--print"],
    environment: &["CURSOR_*"],
    adapt: |context, _| facts::adapt(context, &FACTS),
    obeyed: |context| FACTS.obeyed_files(context),
};

const FACTS: AgentFacts = AgentFacts {
    title: "Cursor",
    own: AgentDirectory { variable: "CURSOR_CONFIG_DIR", below: "", default: ".cursor" },
    lists: &[
        list(ConfigScope::User, "$own/mcp.json", "mcpServers", Dialect::Common),
        list(ConfigScope::Project, ".cursor/mcp.json", "mcpServers", Dialect::Common),
    ],
    shown: &[
        login("$config/cursor/auth.json"),
        private("$own/cli-config.json", StateKind::File),
        per_project("$own/chats", StateKind::Dir),
        per_project("$own/projects", StateKind::Dir),
        read_only("$own/commands", StateKind::Dir),
        read_only("$own/rules", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
    ],
    models: Models { any: false, logins: None, others: models },
    ..facts::NOTHING
};

fn models(context: &Context<'_>, _: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    Ok(vec![host_or_default(context, &["CURSOR_API_ENDPOINT"], "api2.cursor.sh", "Cursor")?])
}
