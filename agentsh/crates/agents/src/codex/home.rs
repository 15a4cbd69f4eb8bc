//! The files of the user's home that Codex sees, and the endpoint of its model.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::argv::Parsed;
use crate::facts::{HomeEntry, home_states, login, obeyed_of, per_project, private, read_only};
use crate::{
    AgentError, Context, Endpoint, Format, HomeState, KeptFile, Key, Launch, Shape, StateKind, TlsInspection,
    endpoint, json, read,
};

/// What Codex obeys can be read: if a sandboxed agent could write it, the next one outside would obey. What it keeps of all projects
/// in one place is here one for each. Its databases are private to each run: they are rebuilt from the transcripts, and their
/// journals cannot be shared file by file. So is the socket of its background server.
const HOME_ENTRIES: &[HomeEntry] = &[
    login("auth.json"),
    per_project("history.jsonl", StateKind::File),
    per_project("archived_sessions", StateKind::Dir),
    per_project("sessions", StateKind::Dir),
    read_only("AGENTS.md", StateKind::File),
    read_only("AGENTS.override.md", StateKind::File),
    read_only("hooks.json", StateKind::File),
    read_only("prompts", StateKind::Dir),
    read_only("rules", StateKind::Dir),
    read_only("themes", StateKind::Dir),
    // Codex unpacks its own skills next to the user's at every start.
    private("skills", StateKind::Dir),
    private("agents", StateKind::Dir),
];

/// `~/.codex`, or `CODEX_HOME`.
pub(super) fn directory(context: &Context<'_>) -> PathBuf {
    let moved = context.env.get("CODEX_HOME").filter(|path| !path.is_empty());
    moved.map_or_else(|| context.home.join(".codex"), |path| context.cwd.join(path))
}

/// The files in Codex's directory that it obeys.
pub(super) fn obeyed_files(context: &Context<'_>) -> Vec<PathBuf> {
    obeyed_of(HOME_ENTRIES)
        .chain(["config.toml", "skills"])
        .map(|name| directory(context).join(name))
        .collect()
}

/// The paths of the home that Codex sees.
pub(super) fn state(context: &Context<'_>, codex_home: &Path) -> Vec<HomeState> {
    home_states(context, HOME_ENTRIES, |name| codex_home.join(name))
}

/// Answers that Codex stores, as for Claude Code.
pub(super) fn stored_answers(context: &Context<'_>, codex_home: &Path) -> KeptFile {
    let cwd = std::fs::canonicalize(context.cwd).unwrap_or_else(|_| context.cwd.to_owned());
    let mut places = vec![context.project.to_string_lossy(), cwd.to_string_lossy()];
    places.dedup();
    let trust = Shape::OneOf(&["trusted", "untrusted"]);
    let mut keys: Vec<Key> =
        places.iter().map(|place| Key::of_project(&["projects", place, "trust_level"], trust)).collect();
    for name in [
        "hide_full_access_warning",
        "hide_gpt5_1_migration_prompt",
        "hide_rate_limit_model_nudge",
        "hide_world_writable_warning",
    ] {
        keys.push(Key::harmless(&["notice", name], Shape::Flag));
    }
    keys.push(Key::harmless(&["tui", "theme"], Shape::Word));
    KeptFile { path: codex_home.join("config.toml"), format: Format::Toml, keys }
}

/// Where the model is, and the variables that its provider is configured to read.
pub(super) fn model(
    context: &Context<'_>,
    parsed: &Parsed,
    config: &Table,
    codex_home: &Path,
    launch: &mut Launch,
) -> Result<(), AgentError> {
    let text = |key: &str| config.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let from_url = |url: &str, why: &str| {
        let fix = format!("correct {why}");
        endpoint::parse(url, why).map_err(|what| AgentError::CommandLine { what, fix })
    };
    let local = parsed.local_provider.as_deref().or_else(|| text("oss_provider"));
    let provider = match (parsed.local_model, local) {
        (true, Some(local)) => local,
        (true, None) => "ollama",
        (false, _) => text("model_provider").unwrap_or("openai"),
    };
    let custom = config.get("model_providers").and_then(|all| all.get(provider)).and_then(Value::as_table);
    if let Some(custom) = custom {
        pass_variables(context, custom, launch);
    }
    let mut found: Vec<Endpoint> = Vec::new();
    let base_url = custom.and_then(|custom| custom.get("base_url")).and_then(Value::as_str);
    match (provider, base_url) {
        (_, Some(url)) => {
            let key = custom.and_then(|custom| custom.get("env_key")).and_then(Value::as_str);
            let moved = from_url(url, &format!("model_providers.{provider}.base_url"))?;
            let is_set = |name: &str| context.env.get(name).is_some_and(|value| !value.is_empty());
            let has_others = |custom: &Table| OTHER_KEYS.iter().any(|name| custom.contains_key(*name));
            let only_keys = key.is_some_and(is_set) && !custom.is_some_and(has_others);
            found.push(Endpoint { key: key.map(str::to_owned), only_keys, ..moved });
        }
        ("openai", None) => {
            match text("openai_base_url") {
                Some(url) => found.push(from_url(url, "openai_base_url")?),
                None => found.extend(openai(context, codex_home, launch)),
            }
            // Read by older versions of Codex.
            if let Some(url) = context.env.get("OPENAI_BASE_URL").filter(|url| !url.is_empty()) {
                found.push(from_url(url, "OPENAI_BASE_URL")?);
            }
            if let Some(url) = text("chatgpt_base_url") {
                found.push(from_url(url, "chatgpt_base_url")?);
            }
        }
        ("ollama", None) => found.push(from_url("http://localhost:11434", "ollama")?),
        ("lmstudio", None) => found.push(from_url("http://localhost:1234", "lmstudio")?),
        (provider, None) => launch.notes.push(format!(
            "Codex's provider {provider:?} has no base_url: allow its hosts with agent.network.allow"
        )),
    }
    for endpoint in found {
        if !launch.endpoints.iter().any(|known| (&known.host, known.port) == (&endpoint.host, endpoint.port))
        {
            launch.endpoints.push(endpoint.with_inspection(TlsInspection::ByDefault));
        }
    }
    Ok(())
}

/// Keys of a provider by which Codex may come to an account next to `env_key`.
const OTHER_KEYS: [&str; 5] =
    ["auth", "env_http_headers", "experimental_bearer_token", "http_headers", "requires_openai_auth"];
/// The requests of Codex to its login server.
const LOGIN: &[&str] = &[
    "POST /oauth/token",
    "POST /oauth/revoke",
    "POST /api/accounts/deviceauth/usercode",
    "POST /api/accounts/deviceauth/token",
];

/// OpenAI's hosts, by the way in which the user is logged in.
fn openai(context: &Context<'_>, codex_home: &Path, launch: &mut Launch) -> Vec<Endpoint> {
    let set = |name: &str| context.env.get(name).is_some_and(|value| !value.is_empty());
    let path = codex_home.join("auth.json");
    let login = read::text(&path, read::LIMIT).ok().flatten().and_then(|text| json::parse(&text, &path).ok());
    let member =
        |name: &str| login.as_ref().and_then(|login| login.get(name)).is_some_and(|value| !value.is_null());
    let api = endpoint::https("api.openai.com", "OpenAI API");
    let has_key = set("CODEX_API_KEY") || set("OPENAI_API_KEY");
    if login.is_none() && has_key {
        return vec![Endpoint { only_keys: true, ..api }];
    }
    if set("CODEX_API_KEY") || member("OPENAI_API_KEY") {
        return vec![api];
    }
    if login.is_none() {
        launch.notes.push("Codex is not logged in: run `codex login` once outside agentsh; a login or key entered inside ends with the run".to_owned());
    }
    vec![
        endpoint::https("chatgpt.com", "model, by ChatGPT login"),
        endpoint::login("auth.openai.com", "login and token renewal", LOGIN),
        api,
    ]
}

/// Passes the variables from which a provider takes its key and headers.
fn pass_variables(context: &Context<'_>, provider: &Table, launch: &mut Launch) {
    let headers =
        provider.get("env_http_headers").and_then(Value::as_table).into_iter().flat_map(Table::values);
    for name in provider.get("env_key").into_iter().chain(headers).filter_map(Value::as_str) {
        if let Some(value) = context.env.get(name) {
            launch.env.insert(name.to_owned(), value.clone());
        }
    }
}
