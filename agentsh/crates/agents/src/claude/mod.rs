//! Claude Code. Its servers are in `.mcp.json`, `~/.claude.json` and on the command line. With `--strict-mcp-config
//! --mcp-config` it reads only the given list.

mod answers;
mod argv;
mod config;
pub(super) mod front_matter;
mod home;
mod plugins;
mod repository;
mod settings;
mod subagents;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::adapter::Adapter;
use super::servers::{GatheredServers, bridge_entry};
use super::{AgentError, Context, InjectedFile, Launch, Scope};
use agentsh_base::types::ServerId;

pub(super) const ADAPTER: Adapter = Adapter {
    name: "claude",
    title: "Claude Code",
    programs: &["claude", "claude.exe"],
    installed: &["/@anthropic-ai/claude-code/", "/claude/versions/"],
    headless: &["-p", "--print"],
    environment: OWN_ENVIRONMENT,
    adapt,
    obeyed: home::obeyed_files,
};

const OWN_ENVIRONMENT: &[&str] = &[
    "ANTHROPIC_*",
    "API_TIMEOUT_MS",
    "AWS_REGION",
    "BASH_DEFAULT_TIMEOUT_MS",
    "BASH_MAX_OUTPUT_LENGTH",
    "BASH_MAX_TIMEOUT_MS",
    "CLAUDE_*",
    "CLOUD_ML_REGION",
    "DISABLE_AUTOUPDATER",
    "DISABLE_AUTO_COMPACT",
    "DISABLE_COST_WARNINGS",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_PROMPT_CACHING*",
    "DISABLE_TELEMETRY",
    "ENABLE_TOOL_SEARCH",
    "MAX_MCP_OUTPUT_TOKENS",
    "MAX_THINKING_TOKENS",
    "MCP_TIMEOUT",
    "MCP_TOOL_TIMEOUT",
    "USE_BUILTIN_RIPGREP",
    "VERTEX_REGION_*",
];

/// Features that do not work in the sandbox, switched off unless the user set them.
const DEFAULT_ENVIRONMENT: &[&str] = &[
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL",
    "DISABLE_AUTOUPDATER",
];

/// Servers that the account brings: `false` leaves them out.
const CONNECTORS: &str = "ENABLE_CLAUDEAI_MCP_SERVERS";

fn adapt(context: &Context<'_>, etc: &Path) -> Result<Launch, AgentError> {
    let (program, words) = context.argv.split_first().map_or((None, &[][..]), |(p, w)| (Some(p.clone()), w));
    let mut parsed = argv::parse(words);
    let sources = config::sources(context)?;
    let settings = settings::settings(context, &parsed, &sources.directory);
    let mut launch = Launch::default();

    let managed = etc.join("claude-code/managed-mcp.json");
    let is_managed = managed.exists();
    let mut gathered = if is_managed {
        let mut gathered = GatheredServers::default();
        config::file_servers(context, &managed, Scope::User, &mut gathered)?;
        gathered
    } else {
        config::servers(context, &parsed, &sources, &settings)?
    };
    let shared: BTreeSet<ServerId> = gathered.found.keys().chain(context.extra.keys()).cloned().collect();
    if !is_managed {
        replace_inline_servers(context, &mut parsed, &mut gathered)?;
    }
    gathered.notes.extend(settings.notes.iter().cloned());
    launch.replaced.extend(settings.covered.iter().cloned());
    subagents::check_subagents(context, &parsed, &sources.directory, &mut launch);
    let mut options = gathered.finish(context, &mut launch);
    // A server that one subagent declares belongs only to it.
    options.retain(|id, _| shared.contains(id));
    let servers = bridges(context, &options);

    if let Some(text) = context.told.filter(|_| !is_managed)
        && !parsed.append_system_prompt(text)
        && parsed.appended_file
    {
        launch.notes.push(
            "Claude Code gets no briefing about its sandbox: --append-system-prompt-file is already used"
                .to_owned(),
        );
    }
    if settings.sandbox && parsed.subcommand.is_none() {
        let is_off = !is_managed && parsed.set(r#"{"sandbox":{"enabled":false}}"#);
        launch.notes.push(if is_off {
            "Claude Code's own sandbox is off, because agentsh is the sandbox".to_owned()
        } else {
            "Claude Code's own sandbox cannot start inside agentsh: its commands may fail; remove `sandbox` from --settings"
                .to_owned()
        });
    }
    let list = context.inject_dir.join("mcp.json");
    let words = if is_managed {
        // Claude Code then refuses the options, and takes nothing but this file.
        launch.replaced.push((managed, render(&json!({"mcpServers": servers}))?));
        launch
            .notes
            .push("Claude Code's servers are set by its administrator; no others are passed".to_owned());
        words.to_vec()
    } else {
        let content = render(&json!({"mcpServers": servers}))?;
        launch.files.push(InjectedFile { path: list.clone(), content, mode: 0o600 });
        argv::inject(&parsed, &list.to_string_lossy())
    };
    launch.argv = program.into_iter().chain(words).collect();

    let plain_subcommand = parsed.subcommand == Some(argv::Subcommand::Other) && !is_managed;
    if plain_subcommand {
        // Such a command reads the usual files instead of our list, so the bridges are there.
        for path in &sources.mcp_json {
            launch.replaced.push((path.clone(), render(&json!({"mcpServers": {}}))?));
        }
        launch.notes.push("changes that `claude` makes to its configuration here are discarded".to_owned());
    }
    let usual = plain_subcommand.then_some(&servers);
    if let Some(file) = home::state_copy(&sources, usual)? {
        launch.files.push(file);
    }
    if !plain_subcommand {
        launch.remembered.push(home::stored_answers(&sources));
    }
    launch.home_state = home::state(context, &sources);
    launch.memory = home::memory(context, &sources);
    if !plain_subcommand && !is_managed {
        answers::provide_settings_file(context, &sources, &mut launch);
    }
    let hidden = launch.hidden.clone();
    launch.home_state.retain(|state| {
        let path = context.home.join(&state.path);
        !hidden.contains(&std::fs::canonicalize(&path).unwrap_or(path))
    });
    home::endpoints(context, &sources, &settings, &mut launch)?;
    for name in DEFAULT_ENVIRONMENT {
        if !context.env.contains_key(*name) && !settings.env.contains_key(*name) {
            launch.env.insert((*name).to_owned(), "1".to_owned());
        }
    }
    // It would fetch a list of servers from its own host, and connect to them.
    launch.env.insert(CONNECTORS.to_owned(), "false".to_owned());
    if asks_for_servers(&parsed) {
        // `claude mcp list` starts what plugins bring, to see whether it works.
        let plugins = sources.directory.join("plugins");
        launch.home_state.retain(|state| context.home.join(&state.path) != plugins);
    }
    super::declared::take_out(context, &mut launch);
    Ok(launch)
}

fn asks_for_servers(parsed: &argv::Parsed) -> bool {
    let mut words = parsed.rest.iter();
    parsed.subcommand == Some(argv::Subcommand::Other) && words.any(|word| word == "mcp" || word == "doctor")
}

/// Rewrites the agents on the command line that bring servers of their own.
fn replace_inline_servers(
    context: &Context<'_>,
    parsed: &mut argv::Parsed,
    gathered: &mut GatheredServers,
) -> Result<(), AgentError> {
    for (index, prefix) in parsed.agents.clone() {
        let Some(word) = parsed.rest.get(index) else { continue };
        let (option, value) = word.split_at(prefix.min(word.len()));
        if value.trim().is_empty() {
            continue;
        }
        let bridge = |id: &ServerId| Value::Object(bridge_entry(id, context));
        let rewritten = format!("{option}{}", config::agents_value(context, value, gathered, bridge)?);
        if let Some(word) = parsed.rest.get_mut(index) {
            *word = rewritten;
        }
    }
    Ok(())
}

fn bridges(context: &Context<'_>, options: &BTreeMap<ServerId, Map<String, Value>>) -> Map<String, Value> {
    let entry = |(id, kept): (&ServerId, &Map<String, Value>)| {
        let mut entry = bridge_entry(id, context);
        entry.insert("type".to_owned(), "stdio".into());
        entry.extend(kept.clone());
        (id.0.clone(), Value::Object(entry))
    };
    options.iter().map(entry).collect()
}

fn render(value: &Value) -> Result<Vec<u8>, AgentError> {
    serde_json::to_vec_pretty(value).map_err(|error| AgentError::Render { what: error.to_string() })
}
