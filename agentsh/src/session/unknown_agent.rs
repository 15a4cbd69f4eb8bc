//! For an agent without an adapter: says, before it starts, which of its files and variables it does not see, and how to pass them.

use std::path::Path;

use agentsh_agents::Launch;
use agentsh_host::{Facts, Record};
use agentsh_pin::{Resolved, Role};
use agentsh_store::escape;

/// Limit of listed names.
const MAX_COUNT: usize = 8;
/// Ordinary programs: those that only start others, agentsh itself, language tools. They have no account with a model.
const ORDINARY: &[&str] = &[
    "agentsh", "bash", "bun", "cargo", "dash", "deno", "env", "fish", "git", "go", "gradle", "java", "just",
    "ksh", "make", "mise", "mvn", "node", "npm", "perl", "php", "pip", "pnpm", "poetry", "python", "python3",
    "pytest", "ruby", "rustc", "sh", "tmux", "tox", "uv", "yarn", "zsh",
];
/// Directories of distributions, which have no agents.
const OF_DISTRIBUTION: &[&str] = &["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/games"];
/// Parts of variable names for accounts or model URLs.
const ACCOUNTS: &[&str] = &["API_KEY", "TOKEN", "BASE_URL", "API_BASE", "API_HOST", "_MODEL"];

/// Reports variables and home files that the agent does not get.
pub fn report_unknown_agent(
    facts: &Facts,
    record: &Record,
    launch: &Launch,
    found: &Resolved,
    stripped: &[String],
) {
    let typed = launch.argv.first().map(String::as_str).unwrap_or_default();
    let Some(name) = Path::new(typed).file_name().and_then(|name| name.to_str()) else { return };
    if ORDINARY.contains(&name) {
        return;
    }
    let script = found.files.iter().find(|file| file.role == Role::Entry);
    let directory = script.map_or(&found.program, |script| &script.path).parent();
    if OF_DISTRIBUTION.iter().any(|place| directory == Some(Path::new(place))) {
        return;
    }
    // A script may be named after its language.
    let stem = name.split('.').next().unwrap_or(name);
    let shown = escape::line(stem).into_owned();
    let hidden = own_files(facts, stem);
    if !hidden.is_empty() {
        let options: Vec<String> = hidden.iter().map(|path| format!("--write {path}")).collect();
        record.announce(&escape::line(&format!(
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
        record.announce(&escape::line(&format!(
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
        // No command to paste, because it would pass every vendor's key.
        record.announce(&escape::line(&format!(
            "'{shown}' does not get {}; `--env NAME` passes the one that it needs",
            accounts.join(", ")
        )));
    }
}

/// Files in the home named after the program, where programs keep theirs.
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
