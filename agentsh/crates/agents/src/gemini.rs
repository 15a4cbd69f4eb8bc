//! Gemini CLI. Its settings are in `~/.gemini/settings.json` and in the project's `.gemini/settings.json`.

use serde_json::{Map, Value};

use super::adapter::Adapter;
use super::dialect::Dialect;
use super::facts::{
    self, AgentDirectory, AgentFacts, BriefingPlace, ConfigScope, HomeEntry, List, Models, host_or_default,
    list, login, per_project, private, read_only, sealed_login,
};
use super::{AgentError, Context, Endpoint, Key, Shape, StateKind, endpoint};

pub(super) const ADAPTER: Adapter = Adapter {
    name: "gemini",
    title: FACTS.title,
    programs: &["gemini"],
    installed: &["/@google/gemini-cli/"],
    headless: &["-p", "--prompt"],
    environment: &[
        "CODE_ASSIST_ENDPOINT",
        "GEMINI_*",
        "GOOGLE_API_KEY",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_GENAI_*",
        "GOOGLE_VERTEX_BASE_URL",
    ],
    adapt: |context, _| facts::adapt(context, &FACTS),
    obeyed: |context| FACTS.obeyed_files(context),
};

const FACTS: AgentFacts = family(
    "Gemini CLI",
    AgentDirectory { variable: "GEMINI_CLI_HOME", below: ".gemini", default: ".gemini" },
    &LISTS,
    HOME_ENTRIES,
    Models { any: false, logins: None, others: models },
    &[("GEMINI_SANDBOX", "false")],
    BriefingPlace::Instructions("$own/GEMINI.md"),
);

const LISTS: [List; 2] = lists(".gemini/settings.json");

/// The facts of Gemini CLI and its forks: settings, what is kept of them, and the changes to their copy are the same.
pub(super) const fn family(
    title: &'static str,
    own: AgentDirectory,
    lists: &'static [List],
    shown: &'static [HomeEntry],
    models: Models,
    set: &'static [(&'static str, &'static str)],
    told: BriefingPlace,
) -> AgentFacts {
    AgentFacts {
        title,
        own,
        lists,
        shown,
        models,
        set,
        settle: quiet,
        told,
        remembered: stored_answers,
        ..facts::NOTHING
    }
}

/// The user's settings, and those of the project at that path.
pub(super) const fn lists(project: &'static str) -> [List; 2] {
    [
        list(ConfigScope::User, "$own/settings.json", "mcpServers", Dialect::Gemini),
        list(ConfigScope::Project, project, "mcpServers", Dialect::Gemini),
    ]
}

fn stored_answers(context: &Context<'_>) -> Vec<facts::KeptKeys> {
    vec![trusted_folders(context), ("$own/settings.json", theme())]
}

/// Not among them: `extensions`, which bring servers of their own.
const HOME_ENTRIES: &[HomeEntry] = &[
    login("$own/oauth_creds.json"),
    sealed_login("$own/gemini-credentials.json"),
    private("$own/google_accounts.json", StateKind::File),
    private("$own/installation_id", StateKind::File),
    private("$own/state.json", StateKind::File),
    private("$own/trustedFolders.json", StateKind::File),
    per_project("$own/tmp", StateKind::Dir),
    per_project("$own/history", StateKind::Dir),
    read_only("$own/agents", StateKind::Dir),
    read_only("$own/commands", StateKind::Dir),
    read_only("$own/keybindings.json", StateKind::File),
    read_only("$own/policies", StateKind::Dir),
    read_only("$own/skills", StateKind::Dir),
];

/// Folders that the user trusted; the agent asks about each.
fn trusted_folders(context: &Context<'_>) -> facts::KeptKeys {
    const TRUSTED: Shape = Shape::OneOf(&["TRUST_FOLDER", "TRUST_PARENT", "DO_NOT_TRUST"]);
    let mut keys: Vec<Key> = Vec::new();
    for path in [context.project, context.cwd] {
        let key = Key::of_project(&[&path.to_string_lossy()], TRUSTED);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    ("$own/trustedFolders.json", keys)
}

fn theme() -> Vec<Key> {
    vec![
        Key::harmless(&["ui", "theme"], Shape::Word),
        Key::harmless(&["ui", "hideTips"], Shape::Flag),
        Key::harmless(&["ui", "hideBanner"], Shape::Flag),
        Key::of_project(&["security", "auth", "selectedType"], Shape::Word),
    ]
}

fn sandbox_off(settings: &mut Map<String, Value>) {
    if let Some(Value::Object(tools)) = settings.get_mut("tools") {
        tools.shift_remove("sandbox");
    }
}

/// Also switches usage reports off, which could not be sent anyway, unless the user wants them.
fn quiet(settings: &mut Map<String, Value>) {
    sandbox_off(settings);
    usage_off(settings);
}

fn usage_off(settings: &mut Map<String, Value>) {
    let privacy = settings.entry("privacy").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(privacy) = privacy {
        privacy.entry("usageStatisticsEnabled").or_insert(false.into());
    }
}

/// The account that the user is signed in with. Several files can name it: each existing one is opened.
fn models(context: &Context<'_>, facts: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    let set = |name: &str| context.env.get(name).filter(|value| !value.is_empty());
    let on = |name: &str| set(name).is_some_and(|value| value == "true" || value == "1");
    let mut found = Vec::new();
    if on("GOOGLE_GENAI_USE_VERTEXAI") {
        let host = match set("GOOGLE_CLOUD_LOCATION").map(String::as_str) {
            None | Some("global") => "aiplatform.googleapis.com".to_owned(),
            Some(area @ ("us" | "eu")) => format!("aiplatform.{area}.rep.googleapis.com"),
            Some(region) => format!("{region}-aiplatform.googleapis.com"),
        };
        found.push(host_or_default(context, &["GOOGLE_VERTEX_BASE_URL"], &host, "Vertex AI")?);
        found.push(endpoint::google_login("Google access tokens"));
    }
    if facts.expand_path(context, "$own/oauth_creds.json").is_file() {
        found.push(host_or_default(
            context,
            &["CODE_ASSIST_ENDPOINT"],
            "cloudcode-pa.googleapis.com",
            "Gemini Code Assist",
        )?);
        found.push(endpoint::google_login("renewal of the login"));
    }
    let has_key = set("GEMINI_API_KEY").is_some() || set("GOOGLE_GEMINI_BASE_URL").is_some();
    if has_key || found.is_empty() {
        let host = "generativelanguage.googleapis.com";
        found.push(host_or_default(context, &["GOOGLE_GEMINI_BASE_URL"], host, "Gemini API")?);
    }
    Ok(found)
}
