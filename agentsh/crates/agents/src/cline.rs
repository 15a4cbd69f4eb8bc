//! Cline on the command line. All its files are below `~/.cline/data`.

use std::path::Path;

use serde_json::Value;

use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, AgentFacts, BriefingPlace, ConfigScope, KeptKeys, Models, list, login, per_project,
    private, read_only, settings,
};
use super::{
    AgentError, Context, Endpoint, Key, Shape, StateKind, TlsInspection, endpoint, json, providers, read,
};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "cline",
    title: FACTS.title,
    programs: &["cline"],
    installed: &["/@cline/cli-linux-", "/node_modules/cline/"],
    headless: &[],
    environment: ENVIRONMENT,
    adapt: |context, _| facts::adapt(context, &FACTS),
    obeyed: |context| FACTS.obeyed_files(context),
};

const ENVIRONMENT: &[&str] = &[
    "ANTHROPIC_*",
    "CLINE_*",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OLLAMA_*",
    "OPENAI_*",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
];

const FACTS: AgentFacts = AgentFacts {
    title: "Cline",
    own: AgentDirectory { variable: "CLINE_DIR", below: "", default: ".cline" },
    lists: &[list(
        ConfigScope::User,
        "$own/data/settings/cline_mcp_settings.json",
        "mcpServers",
        Dialect::Common,
    )],
    shown: &[
        settings("$own/data/settings"),
        login(PROVIDERS),
        private("$own/data/settings/global-settings.json", StateKind::File),
        per_project("$own/data/sessions", StateKind::Dir),
        per_project("$own/data/db", StateKind::Dir),
        per_project("$own/data/teams", StateKind::Dir),
        per_project("$own/data/workspaces", StateKind::Dir),
        read_only("$own/agents", StateKind::Dir),
        read_only("$own/skills", StateKind::Dir),
        read_only("$own/workflows", StateKind::Dir),
    ],
    models: Models { any: true, logins: None, others: models },
    // It is built with Bun, which sends an Encrypted Client Hello to every host: accepted only where TLS ends at the session.
    judged: TlsInspection::ByDefault,
    // Its daemon on this machine would be out of reach, or the user's own, outside.
    set: &[("CLINE_SESSION_BACKEND_MODE", "local")],
    told: BriefingPlace::Instructions("$own/rules/agentsh.md"),
    remembered: stored_model_choice,
    ..facts::NOTHING
};

const PROVIDERS: &str = "$own/data/settings/providers.json";

/// The provider in use, and the model of each provider that the user has: they name no host and carry no key.
fn stored_model_choice(context: &Context<'_>) -> Vec<KeptKeys> {
    let text =
        read::text(&FACTS.expand_path(context, PROVIDERS), read::LIMIT).ok().flatten().unwrap_or_default();
    let document = json::parse_relaxed(&text, Path::new("")).unwrap_or_default();
    let names = document.get("providers").and_then(Value::as_object);
    let model = |name: &String| Key::harmless(&["providers", name, "settings", "model"], Shape::Model);
    let models = names.into_iter().flat_map(|names| names.keys().map(model));
    let keys = models.chain([Key::harmless(&["lastUsedProvider"], Shape::MemberOf("providers"))]);
    vec![(PROVIDERS, keys.collect())]
}

/// Cline's own, or what its file of providers says.
fn models(context: &Context<'_>, facts: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    let mut found = Vec::new();
    let set = |name: &str| context.env.get(name).filter(|value| !value.is_empty());
    if let Some(url) = set("CLINE_API_BASE_URL") {
        found.push(providers::from_url(url, "CLINE_API_BASE_URL")?);
    } else if set("CLINE_API_KEY").is_some() {
        found.push(endpoint::https("api.cline.bot", "Cline"));
    }
    let path = facts.expand_path(context, PROVIDERS);
    let text = read::text(&path, read::LIMIT)?.unwrap_or_default();
    if !text.trim().is_empty() {
        let document = json::parse_relaxed(&text, &path)?;
        found.extend(providers::of_configuration(&document, &path, &mut Vec::new()));
        let named = document.get("providers").unwrap_or(&document);
        if named.get("cline").is_some() {
            found.push(endpoint::https("api.cline.bot", "Cline"));
        }
        found.extend(providers::of_logins(named));
    }
    Ok(found)
}
