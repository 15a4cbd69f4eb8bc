//! Agents that a table describes: where their servers are declared, their files in the home, their models. Inside, the
//! user's files are private copies with bridges, and the project's files are covered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::dialect::{Dialect, Start};
use super::servers::{EntrySource, FoundServer, GatheredServers, read_server_entries};
use super::{
    Access, AgentError, Context, Endpoint, HomeState, InjectedFile, KeptFile, Key, Launch, Scope, StateKind,
    TlsInspection, Transport, agreement, declared, endpoint, json, project, providers, read,
};
use agentsh_base::types::ServerId;

/// The facts about one agent. Paths are below the home, unless they begin with `$own/` (its own directory), `$config/`,
/// `$data/`, `$state/` or `$cache/`.
pub(super) struct AgentFacts {
    pub(super) title: &'static str,
    pub(super) own: AgentDirectory,
    /// Lowest precedence first. The bridges are written into the user's last one.
    pub(super) lists: &'static [List],
    pub(super) shown: &'static [HomeEntry],
    pub(super) models: Models,
    /// Files of its configuration, JSON or TOML, that may name the base URLs of models.
    pub(super) urls: &'static [&'static str],
    /// Whether TLS with its models ends at the session.
    pub(super) judged: TlsInspection,
    /// Variables that are set unless the user has set them.
    pub(super) set: &'static [(&'static str, &'static str)],
    /// Changes to the private copy of the user's last file: the agent's own sandbox is switched off.
    pub(super) settle: fn(&mut Map<String, Value>),
    pub(super) told: BriefingPlace,
    /// Keys of files that are kept when the agent has ended.
    pub(super) remembered: fn(&Context<'_>) -> Vec<KeptKeys>,
}

/// A file, and the keys of it that are kept.
pub(super) type KeptKeys = (&'static str, Vec<Key>);

pub(super) struct AgentDirectory {
    /// Moves it.
    pub(super) variable: &'static str,
    /// Below the variable's value.
    pub(super) below: &'static str,
    /// The default path, written like other paths.
    pub(super) default: &'static str,
}

/// The defaults, which most tables keep.
pub(super) const NOTHING: AgentFacts = AgentFacts {
    title: "",
    own: AgentDirectory { variable: "", below: "", default: "" },
    lists: &[],
    shown: &[],
    models: ANY_MODEL,
    urls: &[],
    judged: TlsInspection::WhenAsked,
    set: &[],
    settle: |_| {},
    told: BriefingPlace::Nowhere,
    remembered: |_| Vec::new(),
};
pub(super) const ANY_MODEL: Models = Models { any: true, logins: None, others: no_others };

pub(super) struct List {
    pub(super) whose: ConfigScope,
    pub(super) path: &'static str,
    pub(super) format: FileFormat,
    /// Their key.
    pub(super) key: &'static str,
    pub(super) dialect: Dialect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigScope {
    User,
    /// Below every directory from the project down to where the agent starts.
    Project,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFormat {
    /// With comments, as all of these programs read it.
    Json,
    /// The copy is JSON, which is YAML.
    Yaml,
}

/// A part of the home.
pub(super) struct HomeEntry {
    pub(super) path: &'static str,
    pub(super) kind: StateKind,
    pub(super) access: Access,
}

/// How the agent is told about its sandbox.
#[derive(Clone, Copy, Debug)]
pub(super) enum BriefingPlace {
    /// In a private copy of the user's own instructions.
    Instructions(&'static str),
    /// By the name of a file, in a list of its configuration.
    Listed(&'static str),
    /// By an option that names a file.
    File(&'static str),
    Nowhere,
}

/// The agent's model endpoints.
#[derive(Clone, Copy)]
pub(super) struct Models {
    /// The providers with which the user has an account, according to the environment.
    pub(super) any: bool,
    /// A file whose keys are names of providers.
    pub(super) logins: Option<&'static str>,
    pub(super) others: fn(&Context<'_>, &AgentFacts) -> Result<Vec<Endpoint>, AgentError>,
}

pub(super) const fn settings(path: &'static str) -> HomeEntry {
    HomeEntry { path, kind: StateKind::Dir, access: Access::Settings }
}

pub(super) const fn read_only(path: &'static str, kind: StateKind) -> HomeEntry {
    HomeEntry { path, kind, access: Access::ReadOnly }
}

/// A JSON file that is the agent's own login.
pub(super) const fn login(path: &'static str) -> HomeEntry {
    login_in(path, &[])
}

/// A JSON file of which these members are the agent's own login.
pub(super) const fn login_in(path: &'static str, own: &'static [&'static str]) -> HomeEntry {
    HomeEntry { path, kind: StateKind::File, access: Access::Login(own) }
}

/// A login that only the agent can read.
pub(super) const fn sealed_login(path: &'static str) -> HomeEntry {
    HomeEntry { path, kind: StateKind::File, access: Access::ReadWrite }
}

pub(super) const fn private(path: &'static str, kind: StateKind) -> HomeEntry {
    HomeEntry { path, kind, access: Access::Private }
}

pub(super) const fn per_project(path: &'static str, kind: StateKind) -> HomeEntry {
    HomeEntry { path, kind, access: Access::PerProject }
}

/// Which of them the agent obeys.
pub(super) fn obeyed_of(entries: &[HomeEntry]) -> impl Iterator<Item = &'static str> {
    entries.iter().filter(|entry| entry.access == Access::ReadOnly).map(|entry| entry.path)
}

/// A list in JSON.
pub(super) const fn list(
    whose: ConfigScope,
    path: &'static str,
    key: &'static str,
    dialect: Dialect,
) -> List {
    List { whose, path, format: FileFormat::Json, key, dialect }
}

pub(super) fn no_others(_: &Context<'_>, _: &AgentFacts) -> Result<Vec<Endpoint>, AgentError> {
    Ok(Vec::new())
}

impl AgentFacts {
    /// The location of a path of the table.
    pub(super) fn expand_path(&self, context: &Context<'_>, path: &str) -> PathBuf {
        let base = |variable: &str, default: &str| {
            let moved = context.env.get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
            moved.unwrap_or_else(|| context.home.join(default))
        };
        match path.split_once('/') {
            Some(("$own", rest)) => self.directory(context).join(rest),
            Some(("$config", rest)) => base("XDG_CONFIG_HOME", ".config").join(rest),
            Some(("$data", rest)) => base("XDG_DATA_HOME", ".local/share").join(rest),
            Some(("$state", rest)) => base("XDG_STATE_HOME", ".local/state").join(rest),
            Some(("$cache", rest)) => base("XDG_CACHE_HOME", ".cache").join(rest),
            _ => context.home.join(path),
        }
    }

    /// The user's files that the agent obeys.
    pub(super) fn obeyed_files(&self, context: &Context<'_>) -> Vec<PathBuf> {
        let shown = obeyed_of(self.shown);
        let lists = self.lists.iter().filter(|list| list.whose == ConfigScope::User).map(|list| list.path);
        shown.chain(lists).map(|path| self.expand_path(context, path)).collect()
    }

    fn directory(&self, context: &Context<'_>) -> PathBuf {
        let moved = context.env.get(self.own.variable).filter(|path| !path.is_empty());
        moved.map_or_else(
            || self.expand_path(context, self.own.default),
            |path| context.cwd.join(path).join(self.own.below),
        )
    }
}

/// A file of the user, as it was read.
struct Users<'f> {
    list: &'f List,
    path: PathBuf,
    document: Map<String, Value>,
    exists: bool,
}

/// Launches the agent of this table.
pub(super) fn adapt(context: &Context<'_>, facts: &AgentFacts) -> Result<Launch, AgentError> {
    let mut launch = Launch { argv: context.argv.to_vec(), ..Launch::default() };
    let mut gathered = GatheredServers::default();
    let mut users: Vec<Users<'_>> = Vec::new();
    for list in facts.lists.iter().filter(|list| list.whose == ConfigScope::User) {
        users.push(users_file(context, facts, list, &mut gathered)?);
    }
    choose(context, facts, &mut users, &mut launch)?;
    for own in &users {
        let document = Value::Object(own.document.clone());
        launch.endpoints.extend(providers::of_configuration(&document, &own.path, &mut launch.notes));
    }
    for list in facts.lists.iter().filter(|list| list.whose == ConfigScope::Project) {
        for path in of_project(context, list.path) {
            project_file(context, facts, list, &path, &mut gathered, &mut launch)?;
        }
    }
    // Files that the adapter does not read itself.
    let lists = facts.lists.iter().filter(|list| list.whose == ConfigScope::Project);
    let own: Vec<PathBuf> =
        lists.flat_map(|list| of_project(context, list.path)).map(|path| real(&path)).collect();
    super::project::mask(context, &own, &mut launch);
    gathered.finish(context, &mut launch);
    add_briefing(context, facts, &mut users, &mut launch)?;
    write_users(context, facts, users, &mut launch)?;
    launch.home_state = home_states(context, facts.shown, |path| facts.expand_path(context, path));
    models(context, facts, &mut launch)?;
    // Servers of others are not behind bridges.
    if !facts.lists.is_empty() {
        declared::take_out(context, &mut launch);
    }
    for (name, value) in facts.set {
        if !context.env.contains_key(*name) {
            launch.env.insert((*name).to_owned(), (*value).to_owned());
        }
    }
    for (path, keys) in (facts.remembered)(context) {
        let path = facts.expand_path(context, path);
        launch.remembered.push(KeptFile { path, format: super::Format::Json, keys });
    }
    Ok(launch)
}

/// If the run names its models, the sandbox gets no logins and keys of other providers.
fn choose(
    context: &Context<'_>,
    facts: &AgentFacts,
    users: &mut [Users<'_>],
    launch: &mut Launch,
) -> Result<(), AgentError> {
    let Some(logins) = facts.models.logins else { return Ok(()) };
    let mut chosen = providers::chosen_by(context.argv);
    for (name, value) in users.iter().flat_map(|own| &own.document) {
        providers::add_named_providers(name, value, &mut chosen);
    }
    for list in facts.lists.iter().filter(|list| list.whose == ConfigScope::Project) {
        for path in of_project(context, list.path) {
            let text = read::text(&path, read::LIMIT).ok().flatten().unwrap_or_default();
            let document = parse(list, &text, &path).unwrap_or_default();
            providers::add_named_providers("", &document, &mut chosen);
        }
    }
    if chosen.is_empty() {
        return Ok(());
    }
    let mut logins = Value::Object(logins_of(context, facts, logins)?);
    let mut others = BTreeSet::new();
    let entries = users.iter_mut().filter_map(|own| own.document.get_mut("provider"));
    for members in entries.chain([&mut logins]).filter_map(Value::as_object_mut) {
        others.extend(members.keys().filter(|name| !chosen.contains(*name)).cloned());
        members.retain(|name, _| chosen.contains(name));
    }
    if !others.is_empty() {
        let list = |names: &BTreeSet<String>| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            agentsh_base::escape::line(&names.join(", ")).into_owned()
        };
        launch.notes.push(format!(
            "{} gets no login and no key of {}: the models of this run are of {}; for another, name its model on the command line",
            facts.title,
            list(&others),
            list(&chosen)
        ));
    }
    launch.accounts = chosen;
    Ok(())
}

/// An unreadable login opens nothing.
fn logins_of(
    context: &Context<'_>,
    facts: &AgentFacts,
    path: &str,
) -> Result<Map<String, Value>, AgentError> {
    let path = facts.expand_path(context, path);
    let text = read::text(&path, read::LIMIT)?.unwrap_or_default();
    match json::parse_relaxed(&text, &path) {
        Ok(Value::Object(logins)) => Ok(logins),
        _ => Ok(Map::new()),
    }
}

fn users_file<'f>(
    context: &Context<'_>,
    facts: &AgentFacts,
    list: &'f List,
    gathered: &mut GatheredServers,
) -> Result<Users<'f>, AgentError> {
    let path = facts.expand_path(context, list.path);
    let Some(text) = read::text(&path, read::LIMIT)? else {
        return Ok(Users { list, path, document: Map::new(), exists: false });
    };
    let Value::Object(document) = parse(list, &text, &path)? else {
        return Err(AgentError::Config {
            path,
            line: 1,
            what: "not an object".to_owned(),
            fix: "correct the file".to_owned(),
        });
    };
    if let Some(entries) = document.get(list.key) {
        let lines = lines(list, &text);
        let place = EntrySource { file: &path, scope: Scope::User, agreed: false, lines };
        gather_in(context, list, entries, &place, gathered)?;
    }
    Ok(Users { list, path, document, exists: true })
}

fn parse(list: &List, text: &str, path: &Path) -> Result<Value, AgentError> {
    match list.format {
        _ if text.trim().is_empty() => Ok(Value::Object(Map::new())),
        FileFormat::Json => json::parse_relaxed(text, path),
        FileFormat::Yaml => serde_saphyr::from_str(text).map_err(|error| AgentError::Config {
            path: path.to_owned(),
            line: error.location().map_or(1, |place| place.line().max(1)),
            what: "not valid YAML".to_owned(),
            fix: "correct the file".to_owned(),
        }),
    }
}

fn lines(list: &List, text: &str) -> std::collections::BTreeMap<String, u64> {
    match list.format {
        FileFormat::Json => json::key_lines(&json::blank_comments(text), &[list.key]),
        FileFormat::Yaml => Default::default(),
    }
}

fn gather_in(
    context: &Context<'_>,
    list: &List,
    entries: &Value,
    place: &EntrySource<'_>,
    into: &mut GatheredServers,
) -> Result<(), AgentError> {
    let common = match entries {
        Value::Object(entries) => entries
            .iter()
            .filter(|(_, entry)| !list.dialect.is_off(entry))
            .map(|(name, entry)| (name.clone(), list.dialect.common(entry)))
            .collect(),
        other => other.clone(),
    };
    read_server_entries(
        &common,
        place,
        &["timeout"],
        |text, lookups| list.dialect.expand(text, context, lookups),
        into,
    )
}

/// The files of a list from the project down to where the agent starts.
fn of_project(context: &Context<'_>, name: &str) -> Vec<PathBuf> {
    let cwd = std::fs::canonicalize(context.cwd).unwrap_or_else(|_| context.cwd.to_owned());
    let project = std::fs::canonicalize(context.project).unwrap_or_else(|_| context.project.to_owned());
    let mut directories: Vec<&Path> =
        cwd.ancestors().take_while(|directory| directory.starts_with(&project)).collect();
    directories.reverse();
    let files = directories.into_iter().map(|directory| directory.join(name));
    files.filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// Declarations of the project's file count as the project's; the agent reads the file without them.
fn project_file(
    context: &Context<'_>,
    facts: &AgentFacts,
    list: &List,
    path: &Path,
    gathered: &mut GatheredServers,
    launch: &mut Launch,
) -> Result<(), AgentError> {
    let read = read::text(path, read::LIMIT).and_then(|text| {
        let text = text.unwrap_or_default();
        parse(list, &text, path).map(|document| (text, document))
    });
    let (text, mut document) = match read {
        Ok(found) => found,
        Err(error) => {
            gathered.bad_file(Scope::Project, error)?;
            launch.replaced.push((real(path), b"{}\n".to_vec()));
            return Ok(());
        }
    };
    let entries = document.as_object_mut().and_then(|members| members.shift_remove(list.key));
    if let Some(entries) = &entries {
        let agreed = agreement::is_agreed(context.agreed, path, &text);
        let place = EntrySource { file: path, scope: Scope::Project, agreed, lines: lines(list, &text) };
        let mut own = GatheredServers::default();
        gather_in(context, list, entries, &place, &mut own)?;
        for (id, FoundServer { declared, kept }) in own.found {
            let line = declared.origin.line;
            if gathered.found.contains_key(&id) {
                own.notes.push(format!(
                    "{}:{line}: server {id} of the project has the name of one of your own, which is started instead",
                    path.display()
                ));
                continue;
            }
            if matches!(declared.transport, Transport::Stdio { .. }) && !agreed {
                own.notes.push(format!(
                    "{}:{line}: server {id} came with the project; it runs sandboxed",
                    path.display()
                ));
            }
            gathered.found.insert(id, FoundServer { declared, kept });
        }
        gathered.refused.extend(own.refused);
        gathered.notes.extend(own.notes);
    }
    let taken = project::remove_disallowed(&mut document);
    if !taken.is_empty() {
        let names = agentsh_base::escape::line(&taken.join(", ")).into_owned();
        launch.notes.push(format!(
            "{}: ignored {names}, which came with the project; to use it, move it to {}'s own settings",
            path.display(),
            facts.title
        ));
    }
    if entries.is_some() || !taken.is_empty() || !document.is_object() {
        let document = if document.is_object() { document } else { Value::Object(Map::new()) };
        launch.replaced.push((real(path), render(&document)?));
    }
    Ok(())
}

/// The target of a link: the replacement covers that file, not the link.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn add_briefing(
    context: &Context<'_>,
    facts: &AgentFacts,
    users: &mut [Users<'_>],
    launch: &mut Launch,
) -> Result<(), AgentError> {
    let Some(text) = context.told else { return Ok(()) };
    let file = context.inject_dir.join("briefing.md");
    let brief =
        || InjectedFile { path: file.clone(), content: format!("{text}\n").into_bytes(), mode: 0o444 };
    match facts.told {
        BriefingPlace::Nowhere => {}
        BriefingPlace::Instructions(path) => {
            let path = facts.expand_path(context, path);
            let own = read::text(&path, read::LIMIT)?.unwrap_or_default();
            let whole =
                if own.is_empty() { format!("{text}\n") } else { format!("{}\n\n{text}\n", own.trim_end()) };
            launch.files.push(InjectedFile { path, content: whole.into_bytes(), mode: 0o600 });
        }
        BriefingPlace::Listed(key) => {
            let Some(own) = users.last_mut() else { return Ok(()) };
            let list = own.document.entry(key).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                list.push(file.to_string_lossy().into_owned().into());
                launch.files.push(brief());
            }
        }
        BriefingPlace::File(option) => {
            launch.files.push(brief());
            launch.argv.extend([option.to_owned(), file.to_string_lossy().into_owned()]);
        }
    }
    Ok(())
}

/// The user's files without servers, and the bridges in the last of them.
fn write_users(
    context: &Context<'_>,
    facts: &AgentFacts,
    mut users: Vec<Users<'_>>,
    launch: &mut Launch,
) -> Result<(), AgentError> {
    let befores: Vec<(Dialect, Value)> = users
        .iter_mut()
        .filter_map(|own| Some((own.list.dialect, own.document.shift_remove(own.list.key)?)))
        .collect();
    let Some(last) = users.last_mut() else { return Ok(()) };
    let dialect = last.list.dialect;
    let bridge = |id: &ServerId| {
        let before = befores.iter().rev().find(|(of, list)| *of == dialect && list.get(&id.0).is_some());
        let start = Start {
            command: context.bridge.to_owned(),
            args: vec!["bridge".to_owned(), id.0.clone()],
            env: [("AGENTSH_SOCKET".to_owned(), context.socket.to_owned())].into(),
        };
        (id.0.clone(), dialect.server_entry(&start, before.and_then(|(_, list)| list.get(&id.0))))
    };
    let mut bridges: Map<String, Value> = launch.servers.keys().map(bridge).collect();
    // Entries that are not separate servers, such as an extension that is part of the agent, stay.
    for (_, list) in befores.iter().filter(|(of, _)| *of == dialect && dialect == Dialect::Goose) {
        for (name, entry) in list.as_object().into_iter().flatten() {
            let kind = entry.get("type").and_then(Value::as_str);
            if matches!(kind, Some("builtin" | "platform")) {
                bridges.entry(name.clone()).or_insert_with(|| entry.clone());
            }
        }
    }
    if !bridges.is_empty() {
        last.document.insert(last.list.key.to_owned(), Value::Object(bridges));
    }
    (facts.settle)(&mut last.document);
    let mut written = BTreeSet::new();
    // Several lists may be in one file; the last one has everything.
    for own in users.into_iter().rev() {
        if (own.exists || !own.document.is_empty()) && written.insert(own.path.clone()) {
            let content = render(&Value::Object(own.document))?;
            if own.path.starts_with(context.home) && !own.path.starts_with(context.project) {
                launch.files.push(InjectedFile { path: own.path, content, mode: 0o600 });
            } else {
                launch.replaced.push((own.path, content));
            }
        }
    }
    Ok(())
}

/// The entries that exist, and those that are made for the agent.
pub(super) fn home_states(
    context: &Context<'_>,
    entries: &[HomeEntry],
    place: impl Fn(&str) -> PathBuf,
) -> Vec<HomeState> {
    let state = |entry: &HomeEntry| {
        let HomeEntry { path, kind, access } = *entry;
        let path = place(path);
        let exists = match kind {
            StateKind::Dir => path.is_dir(),
            StateKind::File => path.is_file(),
        };
        let is_made = access == Access::PerProject || (access == Access::ReadWrite && kind == StateKind::Dir);
        (exists || is_made).then(|| HomeState { path: relative(context, path), kind, access })
    };
    entries.iter().filter_map(state).collect()
}

/// The path relative to the home, if it is below it.
pub(super) fn relative(context: &Context<'_>, path: PathBuf) -> PathBuf {
    path.strip_prefix(context.home).map(PathBuf::from).unwrap_or(path)
}

fn models(context: &Context<'_>, facts: &AgentFacts, launch: &mut Launch) -> Result<(), AgentError> {
    let mut found = (facts.models.others)(context, facts)?;
    if facts.models.any {
        found.extend(providers::of_environment(context)?);
    }
    for file in facts.urls {
        let path = facts.expand_path(context, file);
        let text = read::text(&path, read::LIMIT)?.unwrap_or_default();
        if !text.trim().is_empty() {
            let document = match path.extension().is_some_and(|extension| extension == "toml") {
                // The program itself says what is wrong with it.
                true => toml::from_str(&text).unwrap_or_default(),
                false => json::parse_relaxed(&text, &path)?,
            };
            found.extend(providers::of_configuration(&document, &path, &mut launch.notes));
        }
    }
    if let Some(path) = facts.models.logins {
        let mut logins = logins_of(context, facts, path)?;
        logins.retain(|name, _| launch.accounts.is_empty() || launch.accounts.contains(name));
        found.extend(providers::of_logins(&Value::Object(logins)));
    }
    for endpoint in found {
        let is_known = |known: &Endpoint| (&known.host, known.port) == (&endpoint.host, endpoint.port);
        if !launch.endpoints.iter().any(is_known) {
            launch.endpoints.push(endpoint.with_inspection(facts.judged));
        }
    }
    if launch.endpoints.is_empty() {
        let is_login = |entry: &&HomeEntry| matches!(entry.access, Access::Login(_));
        let login = match facts.shown.iter().find(is_login) {
            Some(_) => "; to use an account, log in once outside agentsh: a login inside ends with the run",
            None => "",
        };
        launch.notes.push(format!(
            "no model host of {} is known: no key is in your environment, and agentsh found no URL in its configuration; to allow one: \
             `--allow HOST`{login}",
            facts.title
        ));
    }
    Ok(())
}

/// The first of these variables that is set moves the model; else it is at `host`.
pub(super) fn host_or_default(
    context: &Context<'_>,
    variables: &[&str],
    host: &str,
    why: &str,
) -> Result<Endpoint, AgentError> {
    let set = |name: &&&str| context.env.get(**name).is_some_and(|value| !value.is_empty());
    match variables.iter().find(set).and_then(|name| Some((name, context.env.get(*name)?))) {
        Some((name, url)) => providers::from_url(url, name),
        None => Ok(endpoint::https(host, why)),
    }
}

pub(super) fn render(document: &Value) -> Result<Vec<u8>, AgentError> {
    let mut content = serde_json::to_vec_pretty(document)
        .map_err(|error| AgentError::Render { what: error.to_string() })?;
    content.push(b'\n');
    Ok(content)
}
