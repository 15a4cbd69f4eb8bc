//! OpenCode. Its servers are under `mcp`, in up to three files of `~/.config/opencode` and in the project's
//! `opencode.json`.

use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, AgentFacts, BriefingPlace, ConfigScope, List, Models, list, login, no_others,
    per_project, read_only,
};
use super::{Access, Context, HomeState, Launch, StateKind};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "opencode",
    title: FACTS.title,
    programs: &["opencode", "opencode.exe"],
    installed: &["/opencode-ai/", "/opencode-linux-"],
    headless: &["run"],
    environment: ENVIRONMENT,
    adapt: |context, _| {
        let mut launch = facts::adapt(context, &FACTS)?;
        scratch(context, &mut launch);
        Ok(launch)
    },
    obeyed: |context| FACTS.obeyed_files(context),
};

const ENVIRONMENT: &[&str] = &[
    "ANTHROPIC_*",
    "CEREBRAS_API_KEY",
    "DEEPSEEK_API_KEY",
    "FIREWORKS_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "MOONSHOT_API_KEY",
    "OLLAMA_*",
    "OPENAI_*",
    "OPENCODE_*",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "ZAI_API_KEY",
    "ZHIPU_API_KEY",
];

const fn users(path: &'static str) -> List {
    list(ConfigScope::User, path, "mcp", Dialect::OpenCode)
}

const fn of_project(path: &'static str) -> List {
    List { whose: ConfigScope::Project, ..users(path) }
}

const FACTS: AgentFacts = AgentFacts {
    title: "OpenCode",
    own: AgentDirectory { variable: "OPENCODE_CONFIG_DIR", below: "", default: "$config/opencode" },
    lists: &[
        users("$own/config.json"),
        users("$own/opencode.jsonc"),
        users("$own/opencode.json"),
        of_project("opencode.json"),
        of_project("opencode.jsonc"),
        of_project(".opencode/opencode.json"),
        of_project(".opencode/opencode.jsonc"),
    ],
    shown: &[
        per_project("$data/opencode", StateKind::Dir),
        login("$data/opencode/auth.json"),
        per_project("$state/opencode", StateKind::Dir),
        per_project("$cache/opencode", StateKind::Dir),
        read_only("$own/AGENTS.md", StateKind::File),
        read_only("$own/agent", StateKind::Dir),
        read_only("$own/agents", StateKind::Dir),
        read_only("$own/command", StateKind::Dir),
        read_only("$own/commands", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
        read_only("$own/themes", StateKind::Dir),
        read_only("$own/tui.json", StateKind::File),
    ],
    models: Models { any: true, logins: Some("$data/opencode/auth.json"), others: no_others },
    set: &[
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    ],
    told: BriefingPlace::Listed("instructions"),
    ..facts::NOTHING
};

/// OpenCode writes into every `.opencode` on its way up, and ends when it cannot.
fn scratch(context: &Context<'_>, launch: &mut Launch) {
    let within = |directory: &&std::path::Path| directory.starts_with(context.project);
    for directory in context.cwd.ancestors().take_while(within) {
        let path = directory.join(".opencode");
        if directory == context.project || path.is_dir() {
            launch.home_state.push(HomeState { path, kind: StateKind::Dir, access: Access::Scratch });
        }
    }
}
