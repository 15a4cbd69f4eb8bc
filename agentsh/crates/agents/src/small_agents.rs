//! Agents with a short table: where their files are, which of them hold a login or history.

use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, AgentFacts, ConfigScope, Models, list, login, login_in, no_others, per_project,
    private, read_only, sealed_login,
};
use super::{AgentError, Context, Endpoint, StateKind, endpoint};

/// Keys of the providers that all of them can be given.
macro_rules! environment {
    ($($own:literal),*) => {
        &[
            "ANTHROPIC_*", "CEREBRAS_API_KEY", "DEEPSEEK_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY", "MISTRAL_API_KEY",
            "OLLAMA_*", "OPENAI_*", "OPENROUTER_API_KEY", "XAI_API_KEY", "ZAI_API_KEY", $($own),*
        ]
    };
}

pub(super) const PI: Adapter = Adapter {
    name: "pi",
    title: PI_FACTS.title,
    programs: &["pi"],
    installed: &["/@mariozechner/pi-coding-agent/"],
    headless: &["-p", "--print"],
    environment: environment!("PI_*"),
    adapt: |context, _| facts::adapt(context, &PI_FACTS),
    obeyed: |context| PI_FACTS.obeyed_files(context),
};

const PI_FACTS: AgentFacts = AgentFacts {
    title: "pi",
    own: AgentDirectory { variable: "PI_CODING_AGENT_DIR", below: "", default: ".pi/agent" },
    shown: &[
        login("$own/auth.json"),
        private("$own/settings.json", StateKind::File),
        private("$own/models.json", StateKind::File),
        per_project("$own/sessions", StateKind::Dir),
        read_only("$own/AGENTS.md", StateKind::File),
        read_only("$own/extensions", StateKind::Dir),
        read_only("$own/prompts", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
        read_only("$own/themes", StateKind::Dir),
        read_only("$own/tools", StateKind::Dir),
    ],
    models: Models { any: true, logins: Some("$own/auth.json"), others: no_others },
    urls: &["$own/models.json"],
    // Or it waits at its start for hosts that look for updates.
    set: &[("PI_OFFLINE", "1")],
    ..facts::NOTHING
};

pub(super) const DROID: Adapter = Adapter {
    name: "droid",
    title: DROID_FACTS.title,
    programs: &["droid"],
    installed: &["/.factory/bin/", "/@factory/cli"],
    headless: &["exec"],
    environment: environment!("FACTORY_*"),
    adapt: |context, _| facts::adapt(context, &DROID_FACTS),
    obeyed: |context| DROID_FACTS.obeyed_files(context),
};

const DROID_FACTS: AgentFacts = AgentFacts {
    title: "Droid",
    own: AgentDirectory { variable: "", below: "", default: ".factory" },
    lists: &[
        list(ConfigScope::User, "$own/mcp.json", "mcpServers", Dialect::Common),
        list(ConfigScope::Project, ".factory/mcp.json", "mcpServers", Dialect::Common),
    ],
    shown: &[
        sealed_login("$own/auth.json"),
        sealed_login("$own/auth.encrypted"),
        sealed_login("$own/auth.v2.file"),
        sealed_login("$own/auth.v2.key"),
        private("$own/settings.json", StateKind::File),
        private("$own/config.json", StateKind::File),
        per_project("$own/sessions", StateKind::Dir),
        per_project("$own/logs", StateKind::Dir),
        read_only("$own/AGENTS.md", StateKind::File),
        read_only("$own/commands", StateKind::Dir),
        read_only("$own/droids", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
    ],
    models: Models { any: true, logins: None, others: factory },
    ..facts::NOTHING
};

fn factory(_: &Context<'_>, _: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    Ok(vec![endpoint::https("api.factory.ai", "Factory")])
}

pub(super) const CRUSH: Adapter = Adapter {
    name: "crush",
    title: CRUSH_FACTS.title,
    programs: &["crush"],
    installed: &["/@charmland/crush"],
    headless: &["run"],
    environment: environment!("CRUSH_*"),
    adapt: |context, _| facts::adapt(context, &CRUSH_FACTS),
    obeyed: |context| CRUSH_FACTS.obeyed_files(context),
};

const CRUSH_FACTS: AgentFacts = AgentFacts {
    title: "Crush",
    own: AgentDirectory { variable: "", below: "", default: "$config/crush" },
    lists: &[
        list(ConfigScope::User, "$own/crush.json", "mcp", Dialect::Typed),
        list(ConfigScope::Project, "crush.json", "mcp", Dialect::Typed),
        list(ConfigScope::Project, ".crush.json", "mcp", Dialect::Typed),
    ],
    shown: &[
        login_in("$data/crush/crush.json", &["models", "providers", "recent_models"]),
        private("$data/crush/providers.json", StateKind::File),
        read_only("$own/commands", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
    ],
    models: facts::ANY_MODEL,
    set: &[("CRUSH_DISABLE_METRICS", "1"), ("CRUSH_DISABLE_PROVIDER_AUTO_UPDATE", "1")],
    ..facts::NOTHING
};

pub(super) const KIMI: Adapter = Adapter {
    name: "kimi",
    title: KIMI_FACTS.title,
    programs: &["kimi", "kimi-cli"],
    installed: &["/kimi-cli/", "/kimi_cli/"],
    headless: &["--print"],
    environment: environment!("KIMI_*", "MOONSHOT_*"),
    adapt: |context, _| facts::adapt(context, &KIMI_FACTS),
    obeyed: |context| KIMI_FACTS.obeyed_files(context),
};

const KIMI_FACTS: AgentFacts = AgentFacts {
    title: "Kimi CLI",
    own: AgentDirectory { variable: "KIMI_SHARE_DIR", below: "", default: ".kimi" },
    lists: &[list(ConfigScope::User, "$own/mcp.json", "mcpServers", Dialect::Common)],
    shown: &[
        facts::HomeEntry { path: "$own/credentials", kind: StateKind::Dir, access: super::Access::ReadWrite },
        private("$own/config.toml", StateKind::File),
        private("$own/config.json", StateKind::File),
        private("$own/kimi.json", StateKind::File),
        per_project("$own/sessions", StateKind::Dir),
        per_project("$own/logs", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
    ],
    models: Models { any: true, logins: None, others: moonshot },
    urls: &["$own/config.toml", "$own/config.json"],
    ..facts::NOTHING
};

fn moonshot(context: &Context<'_>, _: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    Ok(vec![facts::host_or_default(context, &["KIMI_BASE_URL"], "api.kimi.com", "Kimi")?])
}

pub(super) const VIBE: Adapter = Adapter {
    name: "vibe",
    title: VIBE_FACTS.title,
    programs: &["vibe", "vibe-acp"],
    installed: &["/mistral-vibe/"],
    headless: &["-p", "--prompt"],
    environment: environment!("VIBE_*"),
    adapt: |context, _| facts::adapt(context, &VIBE_FACTS),
    obeyed: |context| VIBE_FACTS.obeyed_files(context),
};

const VIBE_FACTS: AgentFacts = AgentFacts {
    title: "Mistral Vibe",
    own: AgentDirectory { variable: "VIBE_HOME", below: "", default: ".vibe" },
    shown: &[
        private("$own/.env", StateKind::File),
        private("$own/config.toml", StateKind::File),
        private("$own/trusted_folders.toml", StateKind::File),
        per_project("$own/logs", StateKind::Dir),
        read_only("$own/agents", StateKind::Dir),
        read_only("$own/prompts", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
        read_only("$own/tools", StateKind::Dir),
    ],
    models: Models { any: true, logins: None, others: mistral },
    urls: &["$own/config.toml"],
    set: &[("VIBE_ENABLE_UPDATE_CHECKS", "false")],
    ..facts::NOTHING
};

fn mistral(_: &Context<'_>, _: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    Ok(vec![endpoint::https("api.mistral.ai", "Mistral")])
}
