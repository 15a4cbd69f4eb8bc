//! What runs by itself in the project and names other files of it: direnv's `.envrc`, tasks that an editor starts when it opens the
//! folder, and hooks of git, which somebody's own act starts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use agentsh_agents::json;
use agentsh_base::small_file;
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::{Host, PathKind};
use agentsh_sandbox::spec::NamedKind;

use super::NamedFiles;
use super::mentions::Writer;
use agentsh_policy::builtin_paths::{PROJECT_READ_ONLY, ProjectReadOnly, Tier};

const HOOKS: [&str; 3] = [".git/hooks", ".husky", ".githooks"];
/// Of mise's configuration (its documentation, "Configuration" and "Environments"), what may be anywhere in a directory.
const MISE_FILES: [&str; 9] = [
    "mise.toml",
    "mise.local.toml",
    ".mise.toml",
    ".mise.local.toml",
    "mise/config.toml",
    "mise/config.local.toml",
    ".config/mise.toml",
    ".config/mise.local.toml",
    ".rtx.toml",
];
const MISE_DIRECTORIES: [&str; 3] = [".mise", ".config/mise", "mise/conf.d"];
/// Entries of a list of what the user trusts.
const MAX_TRUSTED: usize = 1_000;
/// Of one directory.
const MAX_HOOKS: usize = 100;
const MAX_BYTES: u64 = 1 << 20;

/// The entries of a directory, which may be missing.
fn names_in(host: &CachedHost<'_>, directory: &Path) -> Vec<(OsString, PathKind)> {
    host.exists(directory).then(|| host.names(directory)).flatten().unwrap_or_default()
}

impl NamedFiles<'_> {
    pub(super) fn read_project(&mut self, host: &CachedHost<'_>) {
        let (project, directory) = (&self.context.project, &self.context.directory);
        let tops = directory.ancestors().take_while(|above| above.starts_with(project));
        let tops: Vec<PathBuf> =
            tops.filter(|top| *top != project).chain([project.as_path()]).map(PathBuf::from).collect();
        let allowed = self.allowed_by_direnv(host);
        let own = tops.iter().map(|top| top.join(".envrc")).filter(|file| host.is_file(file));
        let files: BTreeSet<PathBuf> = own.chain(allowed).collect();
        let mut files: Vec<_> = files.into_iter().map(|file| (Writer::Direnv, file)).collect();
        for directory in HOOKS.map(|directory| project.join(directory)) {
            let names = names_in(host, &directory);
            let is_hook = |name: &std::ffi::OsStr| !name.as_encoded_bytes().ends_with(b".sample");
            let hooks =
                names.iter().filter(|(name, kind)| *kind == PathKind::File && is_hook(name)).take(MAX_HOOKS);
            files.extend(hooks.map(|(name, _)| (Writer::Hook, directory.join(name))));
        }
        // An editor may open a directory around the project.
        let around = directory.ancestors().take_while(|above| self.context.home != *above);
        for tasks in around.map(|top| top.join(".vscode/tasks.json")).filter(|file| host.is_file(file)) {
            self.read_tasks(tasks);
        }
        files.extend(self.read_trusted_by_mise(host, &tops).into_iter().map(|file| (Writer::Direnv, file)));
        files.extend(self.that_run(host).into_iter().map(|file| (Writer::Project, file)));
        self.read_all(files);
    }

    /// Files at the top of the project that run or start something, other than those that are read by their own rules.
    fn that_run(&self, host: &CachedHost<'_>) -> Vec<PathBuf> {
        let is_own = |path: &str| path.starts_with(".git/") || HOOKS.contains(&path) || path == ".envrc";
        let runs = |row: &&ProjectReadOnly| row.tier == Tier::Runs && !is_own(row.path) && !row.is_pattern();
        let paths = PROJECT_READ_ONLY.iter().filter(runs).map(|row| self.context.project.join(row.path));
        let mut found = Vec::new();
        for path in paths.filter(|path| host.exists(path)) {
            let names = if host.is_file(&path) { Vec::new() } else { names_in(host, &path) };
            let files = names.iter().filter(|(_, kind)| *kind == PathKind::File).take(MAX_HOOKS);
            found.extend(files.map(|(name, _)| path.join(name)));
            found.extend(names.is_empty().then_some(path));
        }
        // Of tasks, those that start by themselves count.
        found.retain(|path| !path.ends_with(".vscode/tasks.json"));
        found
    }

    /// Each `.envrc` in a writable directory, or around the project, that the user allowed (`direnv allow`, direnv(1)).
    fn allowed_by_direnv(&self, host: &CachedHost<'_>) -> Vec<PathBuf> {
        let data = self.context.env.get("XDG_DATA_HOME").map(PathBuf::from);
        let known = data.unwrap_or_else(|| self.context.home.join(".local/share")).join("direnv/allow");
        let names = names_in(host, &known);
        let files = names
            .iter()
            .take(MAX_TRUSTED)
            .filter_map(|(name, _)| small_file::text(known.join(name), MAX_BYTES));
        let files = files.map(|text| PathBuf::from(text.trim_end()));
        let is_near = |file: &PathBuf| {
            let is_around = || file.parent().is_some_and(|above| self.context.project.starts_with(above));
            self.is_inside(file) || is_around()
        };
        files.filter(|file| is_near(file) && host.is_file(file)).collect()
    }

    /// Guards configurations of mise in directories that the user trusts (`mise trust`): mise does not ask again when one changes or
    /// another appears (its documentation, "Paranoid"). Returns the existing ones.
    fn read_trusted_by_mise(&mut self, host: &CachedHost<'_>, tops: &[PathBuf]) -> Vec<PathBuf> {
        let env = &self.context.env;
        let variable = |name: &str| env.get(name).map(PathBuf::from);
        let state = variable("MISE_STATE_DIR").or_else(|| Some(variable("XDG_STATE_HOME")?.join("mise")));
        let known =
            state.unwrap_or_else(|| self.context.home.join(".local/state/mise")).join("trusted-configs");
        let names = names_in(host, &known);
        let places = names
            .iter()
            .take(MAX_TRUSTED)
            .filter_map(|(name, _)| self.context.paths.canonical(&known.join(name)));
        let mut trusted: BTreeSet<PathBuf> = places
            .filter_map(|place| if place.is_dir() { Some(place) } else { place.parent().map(PathBuf::from) })
            .collect();
        trusted.retain(|place| self.is_inside(place) || tops.contains(place));
        let settings =
            if names.is_empty() { None } else { Some(self.context.home.join(".config/mise/config.toml")) };
        let settings = settings.and_then(|file| small_file::text(file, MAX_BYTES)).unwrap_or_default();
        let said = settings.split_once("trusted_config_paths").and_then(|(_, rest)| rest.split_once(']'));
        let said = said.map_or("", |(said, _)| said).split(['"', '\'']);
        let around = env.get("MISE_TRUSTED_CONFIG_PATHS").map_or("", String::as_str).split(':').chain(said);
        let of_home = |above: &str| above.strip_prefix("~/").map(|rest| self.context.home.join(rest));
        for above in around.map(|above| of_home(above).unwrap_or_else(|| PathBuf::from(above))) {
            trusted.extend(tops.iter().filter(|top| above.is_absolute() && top.starts_with(&above)).cloned());
        }
        let environments =
            env.get("MISE_ENV").map_or("", String::as_str).split(',').filter(|name| !name.is_empty());
        let of_environments: Vec<String> = environments
            .flat_map(|name| ["", "."].map(|dot| format!("{dot}mise.{name}")))
            .flat_map(|name| [format!("{name}.toml"), format!("{name}.local.toml")])
            .collect();
        let why = "mise obeys it at the next prompt, because you trust the directory";
        let mut found = Vec::new();
        for top in &trusted {
            for name in MISE_FILES.into_iter().chain(of_environments.iter().map(String::as_str)) {
                let file = top.join(name);
                self.add(&file, NamedKind::File, why);
                found.extend(host.is_file(&file).then_some(file));
            }
            MISE_DIRECTORIES.iter().for_each(|name| self.add(&top.join(name), NamedKind::Directory, why));
        }
        found
    }

    fn read_tasks(&mut self, file: PathBuf) {
        let Some(text) = small_file::text(&file, MAX_BYTES) else { return };
        let Ok(Value::Object(said)) = serde_json::from_str(&json::blank_comments(&text)) else { return };
        let tasks = said.get("tasks").and_then(Value::as_array).into_iter().flatten();
        let starts_itself = |task: &&Value| task["runOptions"]["runOn"] == "folderOpen";
        let why = format!("a task of {} that starts by itself names it", self.display_path(&file));
        let folder = file.ancestors().nth(2).unwrap_or(&file);
        for task in tasks.filter(starts_itself) {
            let member = |name: &str| task["linux"].get(name).unwrap_or(&task[name]);
            let place = |value: &Value| {
                let named = value.as_str().unwrap_or_default().trim_start_matches("${workspaceFolder}");
                folder.join(named.trim_start_matches('/'))
            };
            let mut reading = self.reading(Writer::Task, &place(&member("options")["cwd"]));
            let said = [command_words(member("command")), command_words(member("args"))].concat().join(" ");
            let line = said.replace("${workspaceFolder}", &folder.to_string_lossy());
            self.line(&mut reading, &line, &why);
            if task["type"] == "npm" {
                self.add(&place(&task["path"]).join("package.json"), NamedKind::Told, &why);
            }
        }
    }
}

/// Of a command or its arguments, each perhaps with how it is quoted.
fn command_words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(command_words).collect(),
        Value::Object(members) => members.get("value").map(command_words).unwrap_or_default(),
        _ => Vec::new(),
    }
}
