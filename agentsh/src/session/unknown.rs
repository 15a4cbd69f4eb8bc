//! An agent that agentsh knows nothing of may miss its account, its settings or its history: it is said which, and how to
//! show them. A program that has nothing of that kind, such as a shell, is not commented on.

use std::path::Path;

use crate::agent::Launch;
use crate::store::escape;

use super::Session;

/// Named one by one.
const MOST: usize = 8;
/// What is started for what it starts itself, and agentsh, which plays the agent of its demonstration.
const SHELLS: &[&str] = &["agentsh", "bash", "dash", "env", "fish", "ksh", "make", "sh", "tmux", "zsh"];
/// Parts of the names of variables that hold an account, or say where the model is.
const ACCOUNTS: &[&str] = &["API_KEY", "TOKEN", "BASE_URL", "API_BASE", "API_HOST", "_MODEL"];

/// Says what was taken from the agent's environment and what of its home it does not see.
pub fn tell(session: &Session, launch: &Launch, stripped: &[String]) {
    let program = launch.argv.first().map(String::as_str).unwrap_or_default();
    let Some(name) = Path::new(program).file_name().and_then(|name| name.to_str()) else { return };
    if SHELLS.contains(&name) {
        return;
    }
    // A script may be called by what it is written in.
    let stem = name.split('.').next().unwrap_or(name);
    let prefix: String = stem
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' })
        .chain(['_'])
        .collect();
    let matters = |variable: &&String| {
        variable.starts_with(&prefix) || ACCOUNTS.iter().any(|part| variable.contains(part))
    };
    let variables: Vec<&str> = stripped.iter().filter(matters).map(String::as_str).collect();
    let hidden = own_files(session, stem);
    let shown = escape::line(stem).into_owned();
    if !variables.is_empty() {
        let options: Vec<String> = variables.iter().take(MOST).map(|name| format!("--env {name}")).collect();
        let rest = stripped.len() - variables.len().min(MOST);
        let more = if rest > 0 { format!(", and {rest} others (`agentsh report`)") } else { String::new() };
        session.note(&escape::line(&format!(
            "agentsh has no adapter for '{shown}': not passed from your environment: {}{more}; to pass them: `{}`",
            variables.iter().take(MOST).copied().collect::<Vec<_>>().join(", "),
            options.join(" ")
        )));
    }
    if !hidden.is_empty() {
        let options: Vec<String> = hidden.iter().map(|path| format!("--write {path}")).collect();
        session.note(&escape::line(&format!(
            "agentsh has no adapter for '{shown}': hidden in your home: {}; to show them: `{}`",
            hidden.join(", "),
            options.join(" ")
        )));
    }
}

/// What stands in the home under the name of the program, in the places where programs keep their own.
fn own_files(session: &Session, name: &str) -> Vec<String> {
    const LEAST: usize = 3;
    if name.len() < LEAST || name.contains(char::is_whitespace) {
        return Vec::new();
    }
    let places = [
        format!(".{name}"),
        format!(".{name}.json"),
        format!(".config/{name}"),
        format!(".local/share/{name}"),
        format!(".local/state/{name}"),
    ];
    let paths = session.paths();
    let is_hidden = |place: &String| {
        let path = session.context.home.join(place);
        let filesystem = &session.policy.agent.filesystem;
        path.symlink_metadata().is_ok()
            && !filesystem.may_read(&path, &paths)
            && !filesystem.may_write(&path, &paths)
    };
    places.into_iter().filter(is_hidden).map(|place| format!("~/{place}")).collect()
}
