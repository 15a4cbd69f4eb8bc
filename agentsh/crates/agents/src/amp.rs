//! Amp. Its servers are under `amp.mcpServers` in `~/.config/amp/settings.json` and in the project's
//! `.amp/settings.json`.

use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, AgentFacts, BriefingPlace, ConfigScope, Models, host_or_default, list, login,
    per_project, private, read_only,
};
use super::{AgentError, Context, Endpoint, StateKind};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "amp",
    title: FACTS.title,
    programs: &["amp", "amp.exe"],
    installed: &["/@ampcode/cli", "/@sourcegraph/amp/"],
    headless: &["-x", "--execute"],
    environment: &["AMP_*"],
    adapt: |context, _| facts::adapt(context, &FACTS),
    obeyed: |context| FACTS.obeyed_files(context),
};

const FACTS: AgentFacts = AgentFacts {
    title: "Amp",
    own: AgentDirectory { variable: "", below: "", default: "$config/amp" },
    lists: &[
        list(ConfigScope::User, "$own/settings.json", "amp.mcpServers", Dialect::Common),
        list(ConfigScope::Project, ".amp/settings.json", "amp.mcpServers", Dialect::Common),
    ],
    shown: &[
        login("$data/amp/secrets.json"),
        private("$data/amp/session.json", StateKind::File),
        per_project("$data/amp/threads", StateKind::Dir),
        per_project("$cache/amp", StateKind::Dir),
        read_only("$own/commands", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
        read_only("$own/tools", StateKind::Dir),
    ],
    models: Models { any: false, logins: None, others: models },
    set: &[("AMP_SKIP_UPDATE_CHECK", "1")],
    told: BriefingPlace::Instructions("$own/AGENTS.md"),
    ..facts::NOTHING
};

fn models(context: &Context<'_>, _: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    Ok(vec![host_or_default(context, &["AMP_URL"], "ampcode.com", "Amp")?])
}
