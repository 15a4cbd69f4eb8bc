//! Goose. Its servers are the `extensions` of `~/.config/goose/config.yaml` that are programs or have a URL.

use super::StateKind;
use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, BriefingPlace, ConfigScope, Facts, FileFormat, List, Models, no_others,
    nothing_remembered, nothing_to_settle, per_project, private, read_only,
};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "goose",
    title: FACTS.title,
    programs: &["goose"],
    installed: &[],
    headless: &["run"],
    environment: ENVIRONMENT,
    adapt: |context, _| facts::adapt(context, &FACTS),
    obeyed: |context| FACTS.obeyed(context),
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

const FACTS: Facts = Facts {
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
        private("$own/secrets.yaml", StateKind::File),
        read_only("$own/custom_providers", StateKind::Dir),
        read_only("$own/recipes", StateKind::Dir),
        per_project("$data/goose", StateKind::Dir),
        per_project("$state/goose", StateKind::Dir),
    ],
    models: Models { any: true, logins: None, others: no_others },
    // The keyring is not visible, and asking it is an error.
    set: &[("GOOSE_DISABLE_KEYRING", "1")],
    settle: nothing_to_settle,
    told: BriefingPlace::Instructions("$own/.goosehints"),
    remembered: nothing_remembered,
};
