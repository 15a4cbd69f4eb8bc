//! Aider. It has no MCP servers. It reads one options file in the home and one in the project.

use super::StateKind;
use super::adapter::Adapter;
use super::facts::{self, AgentDirectory, AgentFacts, BriefingPlace, per_project, private};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "aider",
    title: FACTS.title,
    programs: &["aider"],
    installed: &["/aider_chat/", "/aider/main.py"],
    headless: &["--message", "--msg", "-m", "--message-file", "-f"],
    environment: ENVIRONMENT,
    adapt: |context, _| facts::adapt(context, &FACTS),
    obeyed: |context| FACTS.obeyed_files(context),
};

const ENVIRONMENT: &[&str] = &[
    "AIDER_*",
    "ANTHROPIC_*",
    "CEREBRAS_API_KEY",
    "COHERE_API_KEY",
    "DEEPSEEK_*",
    "FIREWORKS_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_*",
    "LM_STUDIO_API_BASE",
    "MISTRAL_*",
    "OLLAMA_*",
    "OPENAI_*",
    "OPENROUTER_*",
    "TOGETHERAI_API_KEY",
    "XAI_*",
];

const FACTS: AgentFacts = AgentFacts {
    title: "Aider",
    own: AgentDirectory { variable: "", below: "", default: ".aider" },
    shown: &[
        per_project("$own/caches", StateKind::Dir),
        private(".aider.conf.yml", StateKind::File),
        private(".aider.model.settings.yml", StateKind::File),
        private(".aider.model.metadata.json", StateKind::File),
        private("$own/oauth-keys.env", StateKind::File),
    ],
    models: facts::ANY_MODEL,
    set: &[("AIDER_CHECK_UPDATE", "false"), ("AIDER_ANALYTICS", "false")],
    told: BriefingPlace::File("--read"),
    ..facts::NOTHING
};
