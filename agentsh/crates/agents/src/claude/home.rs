//! The files of the user's home that Claude Code sees, and the endpoint of its model.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::config::Sources;
use super::settings::Settings;
use crate::facts::{HomeEntry, home_states, login_in, obeyed_of, per_project, read_only, relative};
use crate::{
    Access, AgentError, Context, Endpoint, Format, HomeState, InjectedFile, KeptFile, Key, Launch,
    MemoryFiles, Shape, StateKind, TlsInspection, endpoint,
};

/// Files that control Claude Code's behaviour are read-only: if a sandboxed agent could write them, the next agent
/// outside would obey. State that covers all projects is kept per project here. Private to each run, because they are
/// not listed: `shell-snapshots`, which a session outside the sandbox executes, and `sessions`, whose process ids
/// mean nothing inside.
const HOME_ENTRIES: &[HomeEntry] = &[
    // Next to it are the tokens of remote servers, which are behind bridges.
    login_in(".credentials.json", &["claudeAiOauth"]),
    per_project("history.jsonl", StateKind::File),
    per_project("file-history", StateKind::Dir),
    per_project("plans", StateKind::Dir),
    per_project("tasks", StateKind::Dir),
    per_project("todos", StateKind::Dir),
    read_only("settings.json", StateKind::File),
    read_only("settings.local.json", StateKind::File),
    read_only("CLAUDE.md", StateKind::File),
    read_only("keybindings.json", StateKind::File),
    read_only("agents", StateKind::Dir),
    read_only("commands", StateKind::Dir),
    read_only("hooks", StateKind::Dir),
    read_only("output-styles", StateKind::Dir),
    read_only("plugins", StateKind::Dir),
    read_only("rules", StateKind::Dir),
    read_only("skills", StateKind::Dir),
    read_only("themes", StateKind::Dir),
    read_only("workflows", StateKind::Dir),
];

/// The files in Claude Code's own directory that it obeys.
pub(super) fn obeyed_files(context: &Context<'_>) -> Vec<PathBuf> {
    let names = obeyed_of(HOME_ENTRIES).chain([".claude.json"]);
    super::config::custom_config_directory(context)
        .map(|own| names.map(|name| own.join(name)).collect())
        .unwrap_or_default()
}

/// The paths of the home that the agent sees.
pub(super) fn state(context: &Context<'_>, sources: &Sources) -> Vec<HomeState> {
    let mut state = home_states(context, HOME_ENTRIES, |name| sources.directory.join(name));
    // Transcripts and memory of this project, for --continue and --resume.
    state.extend(of_project(context, sources).into_iter().map(|path| HomeState {
        path: relative(context, path),
        kind: StateKind::Dir,
        access: Access::ReadWrite,
    }));
    state
}

/// Directories with the transcripts and the memory of this project.
fn of_project(context: &Context<'_>, sources: &Sources) -> Vec<PathBuf> {
    let cwd = std::fs::canonicalize(context.cwd).unwrap_or_else(|_| context.cwd.to_owned());
    let mut names = vec![transcripts(&cwd.to_string_lossy()), transcripts(&sources.project_key)];
    names.dedup();
    names.into_iter().flatten().map(|name| sources.directory.join("projects").join(name)).collect()
}

/// The memory of this project is read at the start of each session, a transcript with `--continue` and `--resume`.
pub(super) fn memory(context: &Context<'_>, sources: &Sources) -> Vec<MemoryFiles> {
    let directories = of_project(context, sources).into_iter();
    directories.map(|path| MemoryFiles { memory: path.join("memory"), transcripts: path }).collect()
}

/// Claude Code's state without servers and without other projects, or with `servers` as the user's. None when
/// there is nothing to say.
pub(super) fn state_copy(
    sources: &Sources,
    servers: Option<&Map<String, Value>>,
) -> Result<Option<InjectedFile>, AgentError> {
    let mut state = match &sources.state {
        None if servers.is_none() => return Ok(None),
        None => Map::new(),
        Some(Value::Object(state)) => state.clone(),
        Some(_) => {
            return Err(AgentError::Config {
                path: sources.state_path.clone(),
                line: 1,
                what: "not a JSON object".to_owned(),
                fix: "restore it from a copy in ~/.claude/backups".to_owned(),
            });
        }
    };
    state.remove("mcpServers");
    state.remove("githubRepoPaths");
    if let Some(Value::Object(projects)) = state.get_mut("projects") {
        projects.retain(|path, _| *path == sources.project_key);
        for project in projects.values_mut().filter_map(Value::as_object_mut) {
            project.remove("mcpServers");
        }
    }
    if let Some(servers) = servers {
        state.insert("mcpServers".to_owned(), Value::Object(servers.clone()));
    }
    let content = super::render(&Value::Object(state))?;
    Ok(Some(InjectedFile { path: sources.state_path.clone(), content, mode: 0o600 }))
}

/// Answers that Claude Code stores. A program inside could also have written that the user trusts a project or approves its
/// servers, so such answers only apply to further runs in this project, in a sandbox.
pub(super) fn stored_answers(sources: &Sources) -> KeptFile {
    let project = |name: &str, shape| Key::of_project(&["projects", &sources.project_key, name], shape);
    let keys = vec![
        Key::harmless(&["hasCompletedOnboarding"], Shape::Flag),
        Key::harmless(&["lastOnboardingVersion"], Shape::Word),
        Key::harmless(&["lastReleaseNotesSeen"], Shape::Word),
        Key::harmless(&["numStartups"], Shape::Count),
        Key::harmless(&["promptQueueUseCount"], Shape::Count),
        Key::harmless(&["theme"], Shape::Word),
        Key::harmless(&["tipsHistory"], Shape::Counts),
        Key { opens_nothing: true, ..project("projectOnboardingSeenCount", Shape::Count) },
        Key { opens_nothing: true, ..project("hasCompletedProjectOnboarding", Shape::Flag) },
        Key::of_project(&["customApiKeyResponses", "approved"], Shape::Names),
        Key::of_project(&["customApiKeyResponses", "rejected"], Shape::Names),
        project("hasTrustDialogAccepted", Shape::Flag),
        project("hasClaudeMdExternalIncludesApproved", Shape::Flag),
        project("hasClaudeMdExternalIncludesWarningShown", Shape::Flag),
        project("enabledMcpjsonServers", Shape::Names),
        project("disabledMcpjsonServers", Shape::Names),
    ];
    KeptFile { path: sources.state_path.clone(), format: Format::Json, keys }
}

/// Variables with a key of the user.
const KEYS: [&str; 2] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"];
/// Other variables that may give Claude Code an account.
const FURTHER_KEYS: [&str; 4] = [
    "ANTHROPIC_CUSTOM_HEADERS",
    "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN_FILE_DESCRIPTOR",
];
/// The requests of Claude Code to its login server.
const LOGIN: &[&str] = &["POST /v1/oauth/token", "POST /v1/oauth/token/revoke", CONNECTIVITY_CHECK];
/// The first start asks the login server whether it is online, with a key too, and ends after 30 seconds without an answer.
const CONNECTIVITY_CHECK: &str = "GET /v1/oauth/hello";

/// Adds the endpoints of the model: the user's base URL, a cloud provider, or Anthropic.
pub(super) fn endpoints(
    context: &Context<'_>,
    sources: &Sources,
    settings: &Settings,
    launch: &mut Launch,
) -> Result<(), AgentError> {
    let mut env: BTreeMap<&str, &str> =
        context.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    env.extend(settings.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let value = |name: &str| env.get(name).copied().filter(|value| !value.is_empty());
    let on = |name: &str| {
        value(name).is_some_and(|v| matches!(v.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"))
    };
    let from_url = |name: &str| -> Result<Option<Endpoint>, AgentError> {
        let parsed = value(name).map(|url| endpoint::parse(url, name)).transpose();
        parsed.map_err(|what| AgentError::CommandLine { what, fix: format!("correct {name}") })
    };
    let mut add = |found: Endpoint| {
        if !launch.endpoints.iter().any(|known| (&known.host, known.port) == (&found.host, found.port)) {
            launch.endpoints.push(found);
        }
    };
    if on("CLAUDE_CODE_USE_BEDROCK") {
        let region = value("AWS_REGION").or_else(|| value("AWS_DEFAULT_REGION")).unwrap_or("us-east-1");
        let host = format!("bedrock-runtime.{region}.amazonaws.com");
        add(from_url("ANTHROPIC_BEDROCK_BASE_URL")?.unwrap_or_else(|| endpoint::https(&host, "Bedrock")));
        launch.notes.push(
            "Bedrock: pass the credentials with agent.env_allow (AWS_BEARER_TOKEN_BEDROCK or AWS_*); ~/.aws is not visible"
                .to_owned(),
        );
    } else if on("CLAUDE_CODE_USE_VERTEX") {
        let region = value("CLOUD_ML_REGION").unwrap_or("us-east5");
        let host = match region {
            "global" => "aiplatform.googleapis.com".to_owned(),
            "us" | "eu" => format!("aiplatform.{region}.rep.googleapis.com"),
            region => format!("{region}-aiplatform.googleapis.com"),
        };
        add(from_url("ANTHROPIC_VERTEX_BASE_URL")?.unwrap_or_else(|| endpoint::https(&host, "Vertex AI")));
        add(endpoint::google_login("Google access tokens"));
        launch.notes.push(
            "Vertex AI: allow the credentials file with agent.filesystem.read and pass GOOGLE_APPLICATION_CREDENTIALS"
                .to_owned(),
        );
    } else if on("CLAUDE_CODE_USE_FOUNDRY") {
        match (from_url("ANTHROPIC_FOUNDRY_BASE_URL")?, value("ANTHROPIC_FOUNDRY_RESOURCE")) {
            (Some(found), _) => add(found),
            (None, Some(resource)) => {
                let url = format!("https://{resource}.services.ai.azure.com");
                let found = endpoint::parse(&url, "ANTHROPIC_FOUNDRY_RESOURCE");
                let fix = "correct ANTHROPIC_FOUNDRY_RESOURCE".to_owned();
                add(found.map_err(|what| AgentError::CommandLine { what, fix })?);
            }
            (None, None) => launch.notes.push(
                "Foundry: neither ANTHROPIC_FOUNDRY_BASE_URL nor ANTHROPIC_FOUNDRY_RESOURCE is set"
                    .to_owned(),
            ),
        }
    } else {
        let default = || endpoint::https("api.anthropic.com", "Anthropic API");
        let moved = from_url("ANTHROPIC_BASE_URL")?;
        let is_moved = moved.is_some();
        let has_login = sources.directory.join(".credentials.json").is_file();
        let has_account = sources.state.as_ref().is_some_and(|state| state.get("primaryApiKey").is_some());
        let of_environment = |name: &str| context.env.get(name).is_some_and(|value| !value.is_empty());
        let is_elsewhere = |name: &str| settings.env.contains_key(name);
        let only_keys = KEYS.iter().any(|name| of_environment(name))
            && !KEYS.iter().any(|name| is_elsewhere(name))
            && !FURTHER_KEYS.iter().any(|name| of_environment(name) || is_elsewhere(name))
            && !settings.key_helper
            && !has_login
            && !has_account;
        let found = Endpoint { only_keys, ..moved.unwrap_or_else(default) };
        // A client certificate proves Claude Code only to the model's host itself.
        let has_certificate = value("CLAUDE_CODE_CLIENT_CERT").is_some();
        add(if has_certificate { found } else { found.with_inspection(TlsInspection::ByDefault) });
        let keyed = KEYS.iter().any(|name| value(name).is_some()) || settings.key_helper;
        if !keyed && (has_login || !is_moved) {
            add(endpoint::login("platform.claude.com", "login and token renewal", LOGIN));
        } else if !is_moved && !is_set_up(sources) {
            add(endpoint::login("platform.claude.com", "the first-start check", &[CONNECTIVITY_CHECK]));
        }
        if !keyed
            && !has_login
            && !is_moved
            && !has_account
            && !FURTHER_KEYS.iter().any(|name| value(name).is_some())
        {
            launch.notes.push(
                "Claude Code is not logged in: log in once outside agentsh (`claude`); a login inside ends with the run".to_owned(),
            );
        }
        if !keyed && has_login {
            launch.notes.push(
                "Claude login: api.anthropic.com and platform.claude.com are reachable; `/login` itself needs a browser outside; \
                 connectors of the account are not started: declare their servers in ~/.claude.json"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

/// Whether Claude Code has asked its questions of the first start.
fn is_set_up(sources: &Sources) -> bool {
    sources
        .state
        .as_ref()
        .is_some_and(|state| state.get("hasCompletedOnboarding") == Some(&Value::Bool(true)))
}

/// Name of the directory of a project's transcripts. None for paths so long that Claude Code adds a hash: their
/// transcripts stay private.
fn transcripts(path: &str) -> Option<String> {
    let safe = |unit: u16| match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
        _ => '-',
    };
    let name: String = path.encode_utf16().map(safe).collect();
    (name.len() <= 200).then_some(name)
}
