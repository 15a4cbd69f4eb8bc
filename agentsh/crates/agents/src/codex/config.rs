//! Codex's configuration: TOML layers that are merged key by key, and the resulting servers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::{Spanned, Table, Value};

use super::argv::Parsed;
use crate::servers::{
    COMMAND_LINE, FoundServer, GatheredServers, credential_problem, name_problem, withheld_variables_note,
};
use crate::{AgentError, Context, Declared, Origin, RemoteKind, Scope, Transport, agreement, expand, read};
use agentsh_base::types::ServerId;

/// How deep the values of a configuration are nested at most.
const MAX_DEPTH: usize = 64;

/// One file, or the command line.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) path: PathBuf,
    pub(super) scope: Scope,
    pub(super) table: Table,
    /// The user has agreed to this file of the project.
    pub(super) agreed: bool,
    lines: BTreeMap<String, u64>,
}

/// Everything Codex would read, lowest precedence first.
#[derive(Debug, Default)]
pub(super) struct Layers {
    /// The system's, the user's, and the profile's.
    pub(super) user: Vec<Layer>,
    /// `.codex/config.toml` from the repository down to the working directory.
    pub(super) project: Vec<Layer>,
    pub(super) command_line: Vec<Layer>,
    /// The administrator's, which overrides all of them.
    pub(super) managed: Vec<Layer>,
    pub(super) trusted: bool,
    /// From the repository down to the working directory.
    pub(super) project_directories: Vec<PathBuf>,
    /// Files of the project that could not be read.
    pub(super) unreadable: Vec<PathBuf>,
    pub(super) notes: Vec<String>,
}

pub(super) fn layers(
    context: &Context<'_>,
    parsed: &Parsed,
    codex_home: &Path,
    etc: &Path,
) -> Result<Layers, AgentError> {
    let mut layers = Layers::default();
    layers.user.extend(read_layer(&etc.join("codex/config.toml"), Scope::User, context.agreed)?);
    if !parsed.ignore_user_config {
        layers.user.extend(read_layer(&codex_home.join("config.toml"), Scope::User, context.agreed)?);
    }
    if let Some(profile) = &parsed.profile {
        // Codex takes a plain name here; anything else would read a file from elsewhere.
        if profile.contains('/') {
            return Err(AgentError::CommandLine {
                what: format!("the profile {profile:?} is a path"),
                fix: "give the name of a profile".to_owned(),
            });
        }
        layers.user.extend(read_layer(
            &codex_home.join(format!("{profile}.config.toml")),
            Scope::User,
            context.agreed,
        )?);
    }
    let mut session = Table::new();
    for (key, raw) in &parsed.overrides {
        let value =
            format!("value = {raw}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
        if key.split('.').count() > MAX_DEPTH {
            let what = "a -c option has too many dots".to_owned();
            return Err(AgentError::CommandLine { what, fix: "shorten it".to_owned() });
        }
        // A value that is not TOML is a string, as in Codex.
        assign(
            &mut session,
            key,
            value.unwrap_or_else(|| Value::String(raw.trim_matches(['"', '\'']).to_owned())),
        );
    }
    layers.command_line.push(Layer {
        path: PathBuf::from(COMMAND_LINE),
        scope: Scope::CommandLine,
        table: session,
        agreed: false,
        lines: BTreeMap::new(),
    });
    layers.managed.extend(read_layer(&etc.join("codex/managed_config.toml"), Scope::User, context.agreed)?);
    let cwd =
        parsed.directory.as_ref().map_or(context.cwd.to_owned(), |directory| context.cwd.join(directory));
    let cwd = std::fs::canonicalize(&cwd).unwrap_or(cwd);
    let root = cwd.ancestors().find(|part| part.join(".git").symlink_metadata().is_ok()).unwrap_or(&cwd);
    layers.trusted = parsed.trust || layers.trusts(&cwd) || layers.trusts(root);
    let inner: Vec<&Path> = cwd.ancestors().take_while(|part| part.starts_with(root)).collect();
    for directory in inner.into_iter().rev() {
        let path = directory.join(".codex/config.toml");
        // The user's own directory is not a project's.
        if path.parent() == Some(codex_home) {
            continue;
        }
        layers.project_directories.push(directory.to_owned());
        match read_layer(&path, Scope::Project, context.agreed) {
            Ok(layer) => layers.project.extend(layer),
            Err(error) => {
                layers.notes.push(format!("{error}; Codex gets an empty file instead"));
                layers.unreadable.push(path);
            }
        }
    }
    Ok(layers)
}

impl Layers {
    /// The merged configuration, without project settings that the user has not approved.
    pub(super) fn effective_config(&self) -> Table {
        let mut merged = Table::new();
        let agreed = self.project.iter().filter(|layer| self.trusted && layer.agreed);
        for layer in self.user.iter().chain(agreed).chain(&self.command_line).chain(&self.managed) {
            merge(&mut merged, &layer.table);
        }
        merged
    }

    fn trusts(&self, directory: &Path) -> bool {
        let effective = self.effective_config();
        let project =
            effective.get("projects").and_then(|projects| projects.get(&*directory.to_string_lossy()));
        project.and_then(|project| project.get("trust_level")).and_then(Value::as_str) == Some("trusted")
    }
}

/// The servers that Codex would start, and the merged entries they come from.
pub(super) fn servers(
    context: &Context<'_>,
    layers: &Layers,
) -> Result<(GatheredServers, BTreeMap<ServerId, Table>), AgentError> {
    let mut gathered = GatheredServers::default();
    let mut entries: BTreeMap<String, (Table, Origin)> = BTreeMap::new();
    let project: &[Layer] = if layers.trusted { &layers.project } else { &[] };
    if !layers.trusted {
        for layer in layers.project.iter().filter(|layer| layer.table.contains_key("mcp_servers")) {
            let path = layer.path.display();
            gathered
                .notes
                .push(format!("{path}: the project is not trusted in Codex; its servers are not started"));
        }
    }
    for layer in layers.user.iter().chain(project).chain(&layers.command_line).chain(&layers.managed) {
        let Some(list) = layer.table.get("mcp_servers") else { continue };
        let Some(list) = list.as_table() else {
            gathered.bad_file(layer.scope, layer.error("", "mcp_servers is not a table".to_owned()))?;
            continue;
        };
        for (nth, (name, entry)) in list.iter().enumerate() {
            let Some(entry) = entry.as_table() else {
                layer.refuse(&mut gathered, name, "its entry is not a table".to_owned())?;
                continue;
            };
            let line = layer.lines.get(name).copied().unwrap_or(0);
            let origin =
                Origin { file: layer.path.clone(), line, nth, scope: layer.scope, agreed: layer.agreed };
            match entries.get_mut(name) {
                // It would get what the user gave to a server of that name: variables, headers, grants of the policy.
                Some((_, known)) if layer.scope == Scope::Project && known.scope != Scope::Project => {
                    let path = layer.path.display();
                    gathered.notes.push(format!(
                        "{path}:{line}: server {name} of the project has the name of one of your own, which is started \
                         in its place"
                    ));
                }
                Some((merged, known)) => {
                    merge(merged, entry);
                    // A layer that changed anything may have changed the command.
                    if known.scope != Scope::Project || !origin.agreed {
                        *known = origin;
                    }
                }
                None => {
                    entries.insert(name.clone(), (entry.clone(), origin));
                }
            }
        }
    }
    let mut merged = BTreeMap::new();
    for (name, (entry, origin)) in entries {
        if entry.get("enabled") == Some(&Value::Boolean(false)) {
            continue;
        }
        let id = ServerId(name.clone());
        match declare_server(context, &id, &entry, &origin, &mut gathered.notes) {
            Ok(declared) => {
                merged.insert(id.clone(), entry);
                gathered.found.insert(id, FoundServer { declared, kept: Default::default() });
            }
            Err(problem) => {
                let layer = Layer {
                    path: origin.file,
                    scope: origin.scope,
                    table: Table::new(),
                    agreed: false,
                    lines: [(name.clone(), origin.line)].into(),
                };
                layer.refuse(&mut gathered, &name, problem)?;
            }
        }
    }
    Ok((gathered, merged))
}

/// Why Codex would not start a server of this name.
pub(super) fn codex_name_problem(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name_problem(name).or_else(|| {
        let other = !name.chars().all(plain);
        other.then(|| {
            format!(
                "its name {name:?} has characters other than letters, digits, `-` and `_`; Codex does not start \
                 such a server"
            )
        })
    })
}

/// Reads one file.
pub(super) fn read_layer(
    path: &Path,
    scope: Scope,
    agreed: &BTreeSet<String>,
) -> Result<Option<Layer>, AgentError> {
    let Some(text) = read::text(path, read::LIMIT)? else { return Ok(None) };
    let bad = |error: &toml::de::Error| AgentError::Config {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(&text, span.start)),
        what: error.message().to_owned(),
        fix: "correct the file".to_owned(),
    };
    let table: Table = text.parse().map_err(|error| bad(&error))?;
    #[derive(serde::Deserialize)]
    struct Lines {
        #[serde(default)]
        mcp_servers: BTreeMap<Spanned<String>, serde::de::IgnoredAny>,
    }
    let lines = toml::from_str::<Lines>(&text).map(|lines| lines.mcp_servers).unwrap_or_default();
    // Sorted by place, so that the lines are counted in one walk.
    let mut starts: Vec<(usize, String)> =
        lines.into_keys().map(|key| (key.span().start, key.into_inner())).collect();
    starts.sort();
    let mut counted = (0, 1);
    let mut lines = BTreeMap::new();
    for (start, name) in starts {
        let between = text.as_bytes().get(counted.0..start).unwrap_or_default();
        counted = (start, counted.1 + between.iter().filter(|byte| **byte == b'\n').count() as u64);
        lines.insert(name, counted.1);
    }
    let agreed = scope == Scope::Project && agreement::is_agreed(agreed, path, &text);
    Ok(Some(Layer { path: path.to_owned(), scope, table, agreed, lines }))
}

impl Layer {
    fn error(&self, name: &str, what: String) -> AgentError {
        if self.path == Path::new(COMMAND_LINE) {
            return AgentError::CommandLine { what, fix: "correct the -c option".to_owned() };
        }
        let line = self.lines.get(name).copied().unwrap_or(1);
        let fix = "correct or remove this entry".to_owned();
        AgentError::Config { path: self.path.clone(), line, what, fix }
    }

    fn refuse(&self, gathered: &mut GatheredServers, name: &str, problem: String) -> Result<(), AgentError> {
        if self.scope != Scope::Project {
            return Err(self.error(name, format!("MCP server {name:?}: {problem}")));
        }
        let line = self.lines.get(name).copied().unwrap_or(0);
        let shown =
            if name_problem(name).is_some() { name.escape_debug().to_string() } else { name.to_owned() };
        gathered.refused.push((ServerId(shown), format!("{}:{line}: {problem}", self.path.display())));
        Ok(())
    }
}

fn declare_server(
    context: &Context<'_>,
    id: &ServerId,
    entry: &Table,
    origin: &Origin,
    notes: &mut Vec<String>,
) -> Result<Declared, String> {
    if let Some(problem) = codex_name_problem(&id.0) {
        return Err(problem);
    }
    let text = |key: &str| match entry.get(key) {
        None => Ok(None),
        Some(Value::String(text)) if text.contains('\0') => {
            Err(format!("its {key} contains a NUL character"))
        }
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("its {key} is not a string")),
    };
    let transport = match (text("command")?, text("url")?) {
        (Some(_), Some(_)) => return Err("it has both a command and a URL".to_owned()),
        (None, None) => return Err("it has neither a command nor a URL".to_owned()),
        (None, Some(url)) => {
            Transport::Remote { url, headers: headers(context, entry, notes)?, kind: RemoteKind::Http }
        }
        (Some(command), None) if command.is_empty() => return Err("its command is empty".to_owned()),
        (Some(command), None) => Transport::Stdio {
            command,
            args: args(entry)?,
            env: env(context, entry, id, origin, notes)?,
            cwd: text("cwd")?,
        },
    };
    Ok(Declared { id: id.clone(), transport, origin: origin.clone() })
}

fn args(entry: &Table) -> Result<Vec<String>, String> {
    let Some(args) = entry.get("args") else { return Ok(Vec::new()) };
    let args = args.as_array().ok_or("its args are not a list")?;
    let text = |arg: &Value| match arg.as_str() {
        Some(arg) if arg.contains('\0') => Err("its args contain a NUL character".to_owned()),
        Some(arg) => Ok(arg.to_owned()),
        None => Err("its args contain something that is not a string".to_owned()),
    };
    args.iter().map(text).collect()
}

/// `http_headers`, `env_http_headers` (a header's variable), and `bearer_token_env_var`.
fn headers(
    context: &Context<'_>,
    entry: &Table,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, String>, String> {
    let texts = |key: &str| -> Result<BTreeMap<String, String>, String> {
        let Some(table) = entry.get(key) else { return Ok(BTreeMap::new()) };
        let table = table.as_table().ok_or_else(|| format!("its {key} is not a table"))?;
        let text = |(name, value): (&String, &Value)| match value.as_str() {
            Some(value) => Ok((name.clone(), value.to_owned())),
            None => Err(format!("its {key} gives {name:?} a value that is not a string")),
        };
        table.iter().map(text).collect()
    };
    let mut headers = texts("http_headers")?;
    let mut from: Vec<(String, String, &str)> =
        texts("env_http_headers")?.into_iter().map(|(header, variable)| (header, variable, "")).collect();
    if let Some(variable) = entry.get("bearer_token_env_var") {
        let variable = variable.as_str().ok_or("its bearer_token_env_var is not a string")?;
        from.push(("Authorization".to_owned(), variable.to_owned(), "Bearer "));
    }
    for (header, variable, before) in from {
        match context.env.get(&variable) {
            Some(value) => drop(headers.insert(header, format!("{before}{value}"))),
            None => {
                notes.push(format!("the header {header} needs the variable {variable}, which is not set"))
            }
        }
    }
    Ok(headers)
}

/// `env`, and the variables of the user's own environment that `env_vars` names.
fn env(
    context: &Context<'_>,
    entry: &Table,
    id: &ServerId,
    origin: &Origin,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut env = BTreeMap::new();
    let withhold = origin.scope == Scope::Project && !origin.agreed;
    let mut lookups = expand::Lookups { withhold, ..expand::Lookups::default() };
    if let Some(names) = entry.get("env_vars") {
        for name in names.as_array().ok_or("its env_vars are not a list")? {
            let name = name.as_str().or_else(|| name.get("name").and_then(Value::as_str));
            let name = name.ok_or("its env_vars contain something that is not a name")?;
            if let Some(value) = lookups.value(name, context.env) {
                env.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    if origin.scope == Scope::Project {
        if let Some(problem) = credential_problem(&lookups) {
            return Err(problem);
        }
        let (file, line) = (origin.file.display(), origin.line);
        if !lookups.withheld.is_empty() {
            notes.push(withheld_variables_note(
                &format!("{file}:{line}"),
                id,
                &lookups.withheld,
                &origin.file,
            ));
        }
        if !env.is_empty() {
            let names = env.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            notes.push(format!("{file}:{line}: server {id} came with the project and gets: {names}"));
        }
    }
    if let Some(own) = entry.get("env") {
        for (name, value) in own.as_table().ok_or("its env is not a table")? {
            let value = value
                .as_str()
                .ok_or_else(|| format!("its env gives {name:?} a value that is not a string"))?;
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(format!("its env names a variable {name:?}"));
            }
            env.insert(name.clone(), value.to_owned());
        }
    }
    Ok(env)
}

/// Lays one configuration over another: tables are joined, anything else is replaced.
fn merge(base: &mut Table, over: &Table) {
    merge_to(base, over, MAX_DEPTH);
}

fn merge_to(base: &mut Table, over: &Table, depth: usize) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(base)), Value::Table(over)) if depth > 0 => merge_to(base, over, depth - 1),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Writes a value at a dotted path, as `-c` does: the path knows no quotes, and a later `-c` replaces what an
/// earlier one put there. Only then are all of them merged into the files.
fn assign(table: &mut Table, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        table.insert(path.to_owned(), value);
        return;
    };
    let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
    if !inner.is_table() {
        *inner = Value::Table(Table::new());
    }
    if let Value::Table(inner) = inner {
        assign(inner, rest, value);
    }
}

fn line_of(text: &str, offset: usize) -> u64 {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count() as u64
}
