//! GitHub Copilot CLI. Its servers are in `~/.copilot/mcp-config.json`.

use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, AgentFacts, BriefingPlace, ConfigScope, List, Models, host_or_default, list,
    per_project, private, read_only,
};
use super::{AgentError, Context, Endpoint, StateKind, endpoint};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "copilot",
    title: FACTS.title,
    programs: &["copilot"],
    installed: &["/@github/copilot/", "/@github/copilot-linux-"],
    headless: &["-p", "--prompt"],
    environment: &["COPILOT_*", "GH_HOST", "GH_TOKEN", "GITHUB_COPILOT_*", "GITHUB_TOKEN"],
    adapt: |context, _| facts::adapt(context, &FACTS),
    obeyed: |context| FACTS.obeyed_files(context),
};

const fn servers(whose: ConfigScope, path: &'static str) -> List {
    list(whose, path, "mcpServers", Dialect::Copilot)
}

const FACTS: AgentFacts = AgentFacts {
    title: "GitHub Copilot CLI",
    own: AgentDirectory { variable: "COPILOT_HOME", below: "", default: ".copilot" },
    lists: &[
        servers(ConfigScope::User, "$own/mcp-config.json"),
        servers(ConfigScope::Project, ".mcp.json"),
        servers(ConfigScope::Project, ".github/mcp.json"),
        servers(ConfigScope::Project, ".vscode/mcp.json"),
    ],
    shown: &[
        private("$own/config.json", StateKind::File),
        private("$own/settings.json", StateKind::File),
        per_project("$own/session-state", StateKind::Dir),
        per_project("$own/history-session-state", StateKind::Dir),
        per_project("$own/logs", StateKind::Dir),
        per_project("$cache/copilot", StateKind::Dir),
        read_only("$own/agents", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
    ],
    models: Models { any: false, logins: None, others: models },
    set: &[("COPILOT_AUTO_UPDATE", "false")],
    told: BriefingPlace::Instructions("$own/copilot-instructions.md"),
    ..facts::NOTHING
};

/// GitHub's, by the plan of the account; or another provider that the user has configured.
fn models(context: &Context<'_>, _: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    let host = "api.githubcopilot.com";
    let mut found = vec![host_or_default(context, &["COPILOT_PROVIDER_BASE_URL"], host, "GitHub Copilot")?];
    if found.iter().all(|endpoint| endpoint.host == host) {
        for plan in ["individual", "business", "enterprise"] {
            found.push(endpoint::https(&format!("api.{plan}.githubcopilot.com"), "GitHub Copilot"));
        }
        found.push(endpoint::login("api.github.com", "GitHub login", &[]));
    }
    Ok(found)
}
