//! What runs by itself in the project and names other files of it: direnv's `.envrc`, tasks that an editor starts when it opens the
//! folder, and hooks of git, which somebody's own act starts.

use std::path::{Path, PathBuf};

use serde_json::Value;

use agentsh_agents::json;
use agentsh_base::small_file;
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::{Host, PathKind};
use agentsh_sandbox::spec::NamedKind;

use super::NamedFiles;
use super::mentions::Writer;

const HOOKS: [&str; 3] = [".git/hooks", ".husky", ".githooks"];
/// Files of mise's configuration (its documentation, "Configuration").
const MISE: [&str; 10] = [
    "mise.toml",
    "mise.local.toml",
    ".mise.toml",
    ".mise.local.toml",
    "mise/config.toml",
    "mise/config.local.toml",
    ".mise/config.toml",
    ".config/mise.toml",
    ".config/mise/config.toml",
    ".config/mise/conf.d",
];
const MAX_TRUSTED: usize = 1_000;
/// Of one directory.
const MAX_HOOKS: usize = 100;
const MAX_BYTES: u64 = 1 << 20;

impl NamedFiles<'_> {
    pub(super) fn read_project(&mut self, host: &CachedHost<'_>) {
        let (project, directory) = (&self.context.project, &self.context.directory);
        let tops = directory.ancestors().take_while(|above| above.starts_with(project));
        let tops: Vec<PathBuf> =
            tops.filter(|top| *top != project).chain([project.as_path()]).map(PathBuf::from).collect();
        let files = tops.iter().map(|top| top.join(".envrc")).filter(|file| host.is_file(file));
        let mut files: Vec<_> = files.map(|file| (Writer::Direnv, file)).collect();
        for directory in HOOKS.map(|directory| project.join(directory)) {
            let names = host.exists(&directory).then(|| host.names(&directory)).flatten().unwrap_or_default();
            let is_hook = |name: &std::ffi::OsStr| !name.as_encoded_bytes().ends_with(b".sample");
            let hooks =
                names.iter().filter(|(name, kind)| *kind == PathKind::File && is_hook(name)).take(MAX_HOOKS);
            files.extend(hooks.map(|(name, _)| (Writer::Hook, directory.join(name))));
        }
        for tasks in tops.iter().map(|top| top.join(".vscode/tasks.json")).filter(|file| host.is_file(file)) {
            self.read_tasks(tasks);
        }
        let trusted: Vec<_> = tops.iter().filter(|top| self.is_trusted_by_mise(host, top)).collect();
        for file in trusted.iter().flat_map(|top| MISE.map(|name| top.join(name))) {
            let why = "mise obeys it at the next prompt, because you trust the directory";
            self.add(&file, NamedKind::File, why);
            files.extend(host.is_file(&file).then_some((Writer::Direnv, file)));
        }
        self.read_all(files);
    }

    /// Whether `mise trust` was said of it or a file in it: mise does not ask again when a file changes or another appears (its
    /// documentation, "Paranoid").
    fn is_trusted_by_mise(&self, host: &CachedHost<'_>, top: &Path) -> bool {
        let variable = |name: &str| self.context.env.get(name).map(PathBuf::from);
        let state = variable("MISE_STATE_DIR").or_else(|| Some(variable("XDG_STATE_HOME")?.join("mise")));
        let known =
            state.unwrap_or_else(|| self.context.home.join(".local/state/mise")).join("trusted-configs");
        let names = host.exists(&known).then(|| host.names(&known)).flatten().unwrap_or_default();
        let places = names
            .iter()
            .take(MAX_TRUSTED)
            .filter_map(|(name, _)| self.context.paths.canonical(&known.join(name)));
        let around =
            self.context.env.get("MISE_TRUSTED_CONFIG_PATHS").map(String::as_str).unwrap_or_default();
        around.split(':').any(|above| above.starts_with('/') && top.starts_with(above))
            || places.into_iter().any(|place| place == top || place.parent() == Some(top))
    }

    fn read_tasks(&mut self, file: PathBuf) {
        let Some(text) = small_file::text(&file, MAX_BYTES) else { return };
        let Ok(Value::Object(said)) = serde_json::from_str(&json::plain(&text)) else { return };
        let tasks = said.get("tasks").and_then(Value::as_array).into_iter().flatten();
        let starts_itself = |task: &&Value| task["runOptions"]["runOn"] == "folderOpen";
        let why = format!("a task of {} that starts by itself names it", self.shown(&file));
        let folder = file.ancestors().nth(2).unwrap_or(&file);
        for task in tasks.filter(starts_itself) {
            let member = |name: &str| task["linux"].get(name).unwrap_or(&task[name]);
            let place = |value: &Value| {
                let named = value.as_str().unwrap_or_default().trim_start_matches("${workspaceFolder}");
                folder.join(named.trim_start_matches('/'))
            };
            let mut reading = self.reading(Writer::Task, &place(&member("options")["cwd"]));
            let said = [words(member("command")), words(member("args"))].concat().join(" ");
            let line = said.replace("${workspaceFolder}", &folder.to_string_lossy());
            self.line(&mut reading, &line, &why);
            if task["type"] == "npm" {
                self.add(&place(&task["path"]).join("package.json"), NamedKind::Told, &why);
            }
        }
    }
}

/// Of a command or its arguments, each perhaps with how it is quoted.
fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().flat_map(words).collect(),
        Value::Object(members) => members.get("value").map(words).unwrap_or_default(),
        _ => Vec::new(),
    }
}
