//! What runs by itself in the project and names other files of it: direnv's `.envrc`, tasks that an editor starts when it opens the
//! folder, and hooks of git, which somebody's own act starts.

use std::path::PathBuf;

use serde_json::Value;

use agentsh_agents::json;
use agentsh_base::small_file;
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::{Host, PathKind};
use agentsh_sandbox::spec::NamedKind;

use super::NamedFiles;
use super::mentions::Writer;

const HOOKS: [&str; 3] = [".git/hooks", ".husky", ".githooks"];
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
        self.read_all(files);
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
