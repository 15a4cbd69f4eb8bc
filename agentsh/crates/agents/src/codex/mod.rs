//! Codex. Its servers are in layers of `config.toml`. Overrides on the command line are merged and cannot remove a
//! variable or a URL, so agentsh puts the bridges into a private copy of the file and removes the lists of all other
//! layers.

mod argv;
mod config;
mod home;
mod plugins;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::adapter::Adapter;
use super::walk::{MAX_FILES, files};
use super::{AgentError, Context, InjectedFile, Launch};
use agentsh_base::types::ServerId;

pub(super) const ADAPTER: Adapter = Adapter {
    name: "codex",
    title: "Codex",
    programs: &["codex"],
    installed: &["/@openai/codex/", "/codex-x86_64-", "/codex-aarch64-"],
    headless: &["exec", "e"],
    environment: &["CODEX_*", "OPENAI_*", "RUST_LOG"],
    adapt,
    obeyed: home::obeyed_files,
};

/// Members of an entry that say how to use a server, not how to start it.
const KEPT_MEMBERS: &[&str] = &[
    "default_tools_approval_mode",
    "disabled_tools",
    "enabled_tools",
    "required",
    "startup_timeout_ms",
    "startup_timeout_sec",
    "supports_parallel_tool_calls",
    "tool_timeout_sec",
    "tools",
];
/// Whether it looks for a newer version of itself.
const UPDATE_CHECK: &str = "check_for_update_on_startup";
/// Its setting for developer instructions to the model.
const INSTRUCTIONS: &str = "developer_instructions";

fn adapt(context: &Context<'_>, etc: &Path) -> Result<Launch, AgentError> {
    let (program, words) = context.argv.split_first().map_or((None, &[][..]), |(p, w)| (Some(p.clone()), w));
    let parsed = argv::parse(words);
    let codex_home = home::directory(context);
    let layers = config::layers(context, &parsed, &codex_home, etc)?;
    let mut launch = Launch::default();

    let (mut gathered, merged) = config::servers(context, &layers)?;
    gathered.notes.extend(layers.notes.iter().cloned());
    let effective = layers.effective_config();
    plugins::servers(context, &effective, &codex_home, &mut gathered);
    gathered.finish(context, &mut launch);
    refuse_names(&mut launch);
    let servers = bridges(context, &launch, &merged)?;

    let mut front = Vec::new();
    let mut rest = parsed.rest.clone();
    if parsed.ignore_user_config {
        // In front, and at each place where one was removed: the last `-c` of a key counts.
        let ours = format!("mcp_servers={}", Value::Table(servers));
        for at in &parsed.taken_out {
            rest[*at].clone_from(&ours);
        }
        front.extend(["-c".to_owned(), ours]);
    } else {
        launch.files.push(private_config(context, &layers, &codex_home, servers)?);
    }
    cover_other_layers(&layers, &parsed, &codex_home, &mut launch)?;
    cover_roles(context, &layers, &codex_home, &mut launch)?;
    cover_what_acts(context, &layers, &codex_home, &mut launch);

    match parsed.sandbox.as_deref() {
        Some("danger-full-access") => {}
        Some(chosen) => launch.notes.push(format!(
            "Codex's own sandbox ({chosen}) cannot start inside agentsh: its commands may fail; remove that option"
        )),
        None => {
            front.extend(["-c".to_owned(), "sandbox_mode=\"danger-full-access\"".to_owned()]);
            launch.notes.push(
                "Codex's own sandbox is off, because agentsh is the sandbox; its approval policy is unchanged".to_owned(),
            );
        }
    }
    // Its program cannot be replaced inside; looking for a newer one would be a question about a host at each start.
    let says_updates = |word: &String| word.contains(UPDATE_CHECK);
    let draws = matches!(parsed.subcommand.as_deref(), None | Some("resume"));
    if draws && !effective.contains_key(UPDATE_CHECK) && !words.iter().any(says_updates) {
        front.extend(["-c".to_owned(), format!("{UPDATE_CHECK}=false")]);
    }
    if let Some(text) = context.told {
        let own = effective.get(INSTRUCTIONS).and_then(Value::as_str);
        // An instruction on the command line overrides; the user may have wanted only that.
        let is_given = words.iter().any(|word| word.contains(INSTRUCTIONS));
        if !is_given {
            let whole = own.map_or_else(|| text.to_owned(), |own| format!("{own}\n\n{text}"));
            front.extend(["-c".to_owned(), format!("{INSTRUCTIONS}={}", Value::String(whole))]);
        }
    }
    launch.argv = program.into_iter().chain(front).chain(rest).collect();
    if matches!(parsed.subcommand.as_deref(), Some("mcp" | "plugin" | "features" | "login" | "logout")) {
        launch.notes.push("changes that `codex` makes to its configuration here are discarded".to_owned());
    }
    if !parsed.ignore_user_config {
        launch.remembered.push(home::stored_answers(context, &codex_home));
    }
    launch.home_state = home::state(context, &codex_home);
    home::model(context, &parsed, &effective, &codex_home, &mut launch)?;
    super::declared::take_out(context, &mut launch);
    Ok(launch)
}

/// Takes out the policy's servers that Codex would not start by their name.
fn refuse_names(launch: &mut Launch) {
    let refused: Vec<_> = launch
        .servers
        .keys()
        .filter_map(|id| config::codex_name_problem(&id.0).map(|problem| (id.clone(), problem)))
        .collect();
    for (id, problem) in refused {
        launch.servers.remove(&id);
        launch.refused.push((id, problem));
    }
}

fn bridges(
    context: &Context<'_>,
    launch: &Launch,
    merged: &BTreeMap<ServerId, Table>,
) -> Result<Table, AgentError> {
    let mut servers = Table::new();
    for id in launch.servers.keys() {
        let bridge = super::servers::bridge_entry(id, context);
        let mut entry =
            Table::try_from(bridge).map_err(|error| AgentError::Render { what: error.to_string() })?;
        let before = merged.get(id).into_iter().flatten();
        entry.extend(
            before
                .filter(|(key, _)| KEPT_MEMBERS.contains(&key.as_str()))
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        servers.insert(id.0.clone(), Value::Table(entry));
    }
    Ok(servers)
}

/// The user's `config.toml` with bridges for servers and without other projects.
fn private_config(
    context: &Context<'_>,
    layers: &config::Layers,
    codex_home: &Path,
    servers: Table,
) -> Result<InjectedFile, AgentError> {
    let path = codex_home.join("config.toml");
    let own = layers.user.iter().find(|layer| layer.path == path);
    let mut table = own.map(|layer| layer.table.clone()).unwrap_or_default();
    table.insert("mcp_servers".to_owned(), Value::Table(servers));
    if let Some(Value::Table(projects)) = table.get_mut("projects") {
        let cwd = std::fs::canonicalize(context.cwd).unwrap_or_else(|_| context.cwd.to_owned());
        projects
            .retain(|key, _| [context.project, context.cwd, &cwd].iter().any(|path| path.starts_with(key)));
    }
    Ok(InjectedFile { path, content: render(&table)?, mode: 0o600 })
}

/// Takes the servers out of every layer but the user's file.
fn cover_other_layers(
    layers: &config::Layers,
    parsed: &argv::Parsed,
    codex_home: &Path,
    launch: &mut Launch,
) -> Result<(), AgentError> {
    let profile = parsed.profile.as_ref().map(|name| codex_home.join(format!("{name}.config.toml")));
    let own = codex_home.join("config.toml");
    for layer in layers.user.iter().chain(&layers.project).chain(&layers.managed) {
        let mut table = layer.table.clone();
        let had_servers = table.remove("mcp_servers").is_some();
        let is_theirs = layer.scope == super::Scope::Project && !layer.agreed;
        let taken = if is_theirs { remove_disallowed(&mut table, &[]) } else { Vec::new() };
        if !taken.is_empty() {
            let names = taken.join(", ");
            let names = agentsh_base::escape::line(&names);
            launch.notes.push(format!(
                "{}: ignored {names}, which came with the project; to use it, move it to {}, or approve the file: {}",
                layer.path.display(),
                own.display(),
                super::agreement::command(&layer.path)
            ));
        }
        let had_servers = had_servers || !taken.is_empty();
        if Some(&layer.path) == profile.as_ref() {
            let content = render(&table)?;
            launch.files.push(InjectedFile { path: layer.path.clone(), content, mode: 0o600 });
        } else if had_servers && layer.path != own {
            launch.replaced.push((layer.path.clone(), render(&table)?));
        }
    }
    for path in &layers.unreadable {
        launch.replaced.push((path.clone(), Vec::new()));
    }
    Ok(())
}

/// Numbers, switches and words of a project's file that change how things look, or what the model knows about the work.
const HARMLESS_KEYS: &[&str] = &[
    "disable_paste_burst",
    "file_opener",
    "hide_agent_reasoning",
    "model",
    "model_auto_compact_token_limit",
    "model_context_window",
    "model_max_output_tokens",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_supports_reasoning_summaries",
    "model_verbosity",
    "personality",
    "plan_mode_reasoning_effort",
    "project_doc_max_bytes",
    "review_model",
    "show_raw_agent_reasoning",
    "suppress_unstable_features_warning",
    "tool_output_token_limit",
];
/// Keys with the only values that a project may give them: they take something away.
const NARROWING: &[(&str, &[&str])] = &[
    ("approval_policy", &["on-request", "untrusted"]),
    ("sandbox_mode", &["read-only"]),
    ("web_search", &["disabled"]),
];
/// Further keys of a role. They instruct, as other files of the project do.
const ROLE_INSTRUCTION_KEYS: &[&str] =
    &["description", "developer_instructions", "name", "nickname_candidates"];

/// Takes out what is not for a project to say; gives the names.
fn remove_disallowed(table: &mut Table, also: &[&str]) -> Vec<String> {
    let is_a_projects = |key: &str, value: &Value| {
        let narrowing = NARROWING.iter().find(|(name, _)| *name == key);
        let is_narrowing =
            narrowing.is_some_and(|(_, values)| value.as_str().is_some_and(|value| values.contains(&value)));
        let is_plain = HARMLESS_KEYS.contains(&key) && !matches!(value, Value::Table(_) | Value::Array(_));
        is_narrowing || is_plain || (also.contains(&key) && !value.is_table())
    };
    let is_not = |(key, value): (&String, &Value)| (!is_a_projects(key, value)).then(|| key.clone());
    let names: Vec<String> = table.iter().filter_map(is_not).collect();
    for name in &names {
        table.remove(name);
    }
    names
}

/// Roles of a project may bring servers of their own, and speak for the user.
fn cover_roles(
    context: &Context<'_>,
    layers: &config::Layers,
    codex_home: &Path,
    launch: &mut Launch,
) -> Result<(), AgentError> {
    let roles = directories(context, layers, codex_home);
    let roles = roles
        .iter()
        .flat_map(|directory| files(&directory.join("agents"), &["toml"], &[], MAX_FILES, launch));
    for path in roles.collect::<Vec<_>>() {
        match config::read_layer(&path, super::Scope::Project, context.agreed) {
            Ok(Some(mut layer)) => {
                let had_servers = layer.table.remove("mcp_servers").is_some();
                let taken = if layer.agreed {
                    Vec::new()
                } else {
                    remove_disallowed(&mut layer.table, ROLE_INSTRUCTION_KEYS)
                };
                if !taken.is_empty() || had_servers {
                    launch
                        .notes
                        .push(format!("{}: only the instructions of this role are used", path.display()));
                    launch.replaced.push((path, render(&layer.table)?));
                }
            }
            Ok(None) => {}
            Err(error) => {
                launch.notes.push(format!("{error}; Codex gets an empty file instead"));
                launch.replaced.push((path, Vec::new()));
            }
        }
    }
    Ok(())
}

/// Hooks, and rules that let commands run unasked: what came with the project has no say in them.
fn cover_what_acts(context: &Context<'_>, layers: &config::Layers, codex_home: &Path, launch: &mut Launch) {
    for directory in directories(context, layers, codex_home) {
        let rules = files(&directory.join("rules"), &["rules"], &[], MAX_FILES, launch);
        let acting = rules.into_iter().chain([directory.join("hooks.json")]);
        super::project::mask_these(context, acting, launch);
    }
}

/// Each `.codex` that Codex reads of a project. The user's own is not a project's.
fn directories(context: &Context<'_>, layers: &config::Layers, codex_home: &Path) -> BTreeSet<PathBuf> {
    let above = layers.project_directories.iter().map(PathBuf::as_path).chain([context.project]);
    above.map(|directory| directory.join(".codex")).filter(|directory| directory != codex_home).collect()
}

fn render(table: &Table) -> Result<Vec<u8>, AgentError> {
    let text = toml::to_string(table).map_err(|error| AgentError::Render { what: error.to_string() })?;
    Ok(text.into_bytes())
}
