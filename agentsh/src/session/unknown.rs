//! An agent that agentsh knows nothing of may miss its account, its settings or its history: it is said which, and how to
//! show them. A program that has nothing of that kind, such as a shell, is not commented on.

use std::path::{Path, PathBuf};

use agentsh_agents::Launch;
use agentsh_host::{Facts, Record};
use agentsh_store::escape;

/// Named one by one.
const MAX_COUNT: usize = 8;
/// What is started for what it starts itself, agentsh, which plays the agent of its demonstration, and tools of languages:
/// wherever they were installed, they have no account with a model.
const ORDINARY: &[&str] = &[
    "agentsh", "bash", "bun", "cargo", "dash", "deno", "env", "fish", "go", "gradle", "java", "just", "ksh",
    "make", "mise", "mvn", "node", "npm", "perl", "php", "pip", "pnpm", "poetry", "python", "python3",
    "pytest", "ruby", "rustc", "sh", "tmux", "tox", "uv", "yarn", "zsh",
];
/// Where distributions put programs: what is an agent comes from elsewhere.
const OF_DISTRIBUTION: &[&str] = &["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/games"];
/// Parts of the names of variables that hold an account, or say where the model is.
const ACCOUNTS: &[&str] = &["API_KEY", "TOKEN", "BASE_URL", "API_BASE", "API_HOST", "_MODEL"];

/// Says what was taken from the agent's environment and what of its home it does not see.
pub fn tell(facts: &Facts, record: &Record, launch: &Launch, stripped: &[String]) {
    let typed = launch.argv.first().map(String::as_str).unwrap_or_default();
    let Some(name) = Path::new(typed).file_name().and_then(|name| name.to_str()) else { return };
    if ORDINARY.contains(&name) {
        return;
    }
    let directory = directory_of(facts, typed);
    if OF_DISTRIBUTION.iter().any(|place| directory.as_deref() == Some(Path::new(place))) {
        return;
    }
    // A script may be called by what it is written in.
    let stem = name.split('.').next().unwrap_or(name);
    let shown = escape::line(stem).into_owned();
    let hidden = own_files(facts, stem);
    if !hidden.is_empty() {
        let options: Vec<String> = hidden.iter().map(|path| format!("--write {path}")).collect();
        record.note(&escape::line(&format!(
            "'{shown}' keeps its own files in {}, which it does not see: add `{}`",
            hidden.join(", "),
            options.join(" ")
        )));
    }
    let prefix: String = stem
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' })
        .chain(['_'])
        .collect();
    let own: Vec<&str> = stripped.iter().filter(|one| one.starts_with(&prefix)).map(String::as_str).collect();
    if !own.is_empty() {
        let options: Vec<String> = own.iter().take(MAX_COUNT).map(|name| format!("--env {name}")).collect();
        record.note(&escape::line(&format!(
            "'{shown}' does not get its own variables {}: add `{}`",
            own.iter().take(MAX_COUNT).copied().collect::<Vec<_>>().join(", "),
            options.join(" ")
        )));
    }
    let is_account =
        |one: &&String| !one.starts_with(&prefix) && ACCOUNTS.iter().any(|part| one.contains(part));
    let accounts: Vec<&str> =
        stripped.iter().filter(is_account).take(MAX_COUNT).map(String::as_str).collect();
    if !accounts.is_empty() {
        // No line that could be pasted: with it, every vendor's key would be the program's.
        record.note(&escape::line(&format!(
            "'{shown}' does not get {}; `--env NAME` passes the one that it needs",
            accounts.join(", ")
        )));
    }
}

/// Where a command lies, with links followed.
fn directory_of(facts: &Facts, typed: &str) -> Option<PathBuf> {
    let context = &facts.context;
    let on_path = || {
        let path = context.env.get("PATH")?;
        std::env::split_paths(path).map(|directory| directory.join(typed)).find(|file| file.is_file())
    };
    let file = if typed.contains('/') { context.directory.join(typed) } else { on_path()? };
    file.canonicalize().ok()?.parent().map(Path::to_owned)
}

/// What stands in the home under the name of the program, in the places where programs keep their own.
fn own_files(facts: &Facts, name: &str) -> Vec<String> {
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Vec::new();
    }
    let places = [
        format!(".{name}"),
        format!(".{name}.json"),
        format!(".config/{name}"),
        format!(".local/share/{name}"),
        format!(".local/state/{name}"),
    ];
    let paths = facts.paths();
    let is_hidden = |place: &String| {
        let path = facts.context.home.join(place);
        let filesystem = &facts.policy.agent.filesystem;
        path.symlink_metadata().is_ok()
            && !filesystem.may_read(&path, &paths)
            && !filesystem.may_write(&path, &paths)
    };
    places.into_iter().filter(is_hidden).map(|place| format!("~/{place}")).collect()
}
