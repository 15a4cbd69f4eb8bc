//! Qwen Code, a fork of Gemini CLI: the same settings, other models.

use super::adapter::Adapter;
use super::facts::{
    self, AgentDirectory, AgentFacts, BriefingPlace, List, Models, login, per_project, private, read_only,
};
use super::{AgentError, Context, Endpoint, StateKind, endpoint, gemini, providers};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "qwen",
    title: FACTS.title,
    programs: &["qwen"],
    installed: &["/@qwen-code/qwen-code/"],
    headless: &["-p", "--prompt"],
    environment: &[
        "ANTHROPIC_*",
        "DASHSCOPE_*",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "MODELSCOPE_API_KEY",
        "OPENAI_*",
        "OPENROUTER_API_KEY",
        "QWEN_*",
    ],
    adapt: |context, _| facts::adapt(context, &FACTS),
    obeyed: |context| FACTS.obeyed_files(context),
};

const FACTS: AgentFacts = gemini::family(
    "Qwen Code",
    AgentDirectory { variable: "QWEN_HOME", below: "", default: ".qwen" },
    &LISTS,
    &[
        login("$own/oauth_creds.json"),
        private("$own/installation_id", StateKind::File),
        private("$own/trustedFolders.json", StateKind::File),
        per_project("$own/tmp", StateKind::Dir),
        per_project("$own/projects", StateKind::Dir),
        per_project("$own/history", StateKind::Dir),
        read_only("$own/agents", StateKind::Dir),
        read_only("$own/commands", StateKind::Dir),
        read_only("$own/keybindings.json", StateKind::File),
        read_only("$own/skills", StateKind::Dir),
    ],
    Models { any: true, logins: None, others: models },
    &[("QWEN_SANDBOX", "false")],
    BriefingPlace::Instructions("$own/QWEN.md"),
);

const LISTS: [List; 2] = gemini::lists(".qwen/settings.json");

/// The endpoints that a login of Qwen uses.
fn models(context: &Context<'_>, facts: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    if !facts.expand_path(context, "$own/oauth_creds.json").is_file() {
        return Ok(Vec::new());
    }
    Ok(vec![
        endpoint::https("portal.qwen.ai", "Qwen"),
        endpoint::login("chat.qwen.ai", "renewal of the login", &["POST /api/v1/oauth2/**"]),
        providers::from_url("https://dashscope.aliyuncs.com", "Qwen")?,
    ])
}
