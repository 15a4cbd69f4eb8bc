//! Goose. Its servers are the `extensions` of `~/.config/goose/config.yaml` that are programs or have a URL.

use serde_json::Value;

use super::StateKind;
use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, AgentFacts, BriefingPlace, ConfigScope, FileFormat, List, per_project, read_only,
};
use super::{AgentError, Context, InjectedFile, read};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "goose",
    title: FACTS.title,
    programs: &["goose"],
    installed: &[],
    headless: &["run"],
    environment: ENVIRONMENT,
    adapt: |context, _| {
        let mut launch = facts::adapt(context, &FACTS)?;
        launch.files.extend(own_secrets(context)?);
        Ok(launch)
    },
    obeyed: |context| FACTS.obeyed_files(context),
};

const ENVIRONMENT: &[&str] = &[
    "ANTHROPIC_*",
    "DATABRICKS_*",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOSE_*",
    "GROQ_*",
    "OLLAMA_*",
    "OPENAI_*",
    "OPENROUTER_*",
    "XAI_*",
];

const FACTS: AgentFacts = AgentFacts {
    title: "Goose",
    own: AgentDirectory { variable: "", below: "", default: "$config/goose" },
    lists: &[List {
        whose: ConfigScope::User,
        path: "$own/config.yaml",
        format: FileFormat::Yaml,
        key: "extensions",
        dialect: Dialect::Goose,
    }],
    shown: &[
        read_only("$own/custom_providers", StateKind::Dir),
        read_only("$own/recipes", StateKind::Dir),
        per_project("$data/goose", StateKind::Dir),
        per_project("$state/goose", StateKind::Dir),
    ],
    models: facts::ANY_MODEL,
    // The keyring is not visible, and asking it is an error.
    set: &[("GOOSE_DISABLE_KEYRING", "1")],
    told: BriefingPlace::Instructions("$own/.goosehints"),
    ..facts::NOTHING
};

/// Secrets of model providers among the agent's secrets: those with the names of its own variables, or named by a provider of
/// the user. All others belong to extensions, which are behind bridges.
fn own_secrets(context: &Context<'_>) -> Result<Option<InjectedFile>, AgentError> {
    let path = FACTS.expand_path(context, "$own/secrets.yaml");
    let text = read::text(&path, read::LIMIT)?.unwrap_or_default();
    // A file that Goose cannot read is not passed either.
    let Ok(Value::Object(mut secrets)) = serde_saphyr::from_str(&text) else { return Ok(None) };
    let providers =
        std::fs::read_dir(FACTS.expand_path(context, "$own/custom_providers")).into_iter().flatten();
    let providers = providers.flatten().filter_map(|entry| read::text(&entry.path(), read::LIMIT).ok()?);
    let providers: Vec<String> = providers.collect();
    let is_own = |name: &str| {
        let fits = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        ENVIRONMENT.iter().any(|pattern| fits(pattern))
            || providers.iter().any(|text| text.contains(&format!("\"{name}\"")))
    };
    secrets.retain(|name, _| is_own(name));
    Ok(Some(InjectedFile { path, content: facts::render(&Value::Object(secrets))?, mode: 0o600 }))
}
