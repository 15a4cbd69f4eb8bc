//! A permanent answer: writes the narrowest policy line for it.

use std::io;
use std::path::Path;

use agentsh_policy::APPROVED_FILE;

use super::Item;

const FILE_HEADER: &str = "# Approved permanently, by `agentsh approvals approve --always` or in `agentsh ui`. Remove an entry to be asked again.
sandbox:
  mcp:
    approved:
";

/// The place of hosts, at the beginning of the file.
const HOSTS: &str = "agent:\n  network:\n    allow:\n";

/// The file of approved hosts with one more host.
fn with_host(before: &str, line: &str) -> String {
    let entry = format!("{HOSTS}      {line}\n");
    if before.contains(HOSTS) {
        return before.replacen(HOSTS, &entry, 1);
    }
    let calls = "sandbox:\n  mcp:\n    approved:\n";
    // A list that is empty is not written.
    match before.split_once(calls) {
        Some((head, rest)) if rest.trim().is_empty() => format!("{head}{entry}"),
        Some((head, rest)) => format!("{head}{entry}{calls}{rest}"),
        None => format!("{before}{entry}"),
    }
}

/// The narrowest line that answers this question; empty where none does.
#[must_use]
pub fn lasting_line(item: &Item, any_arguments: bool) -> String {
    // JSON is YAML, and quotes what has to be quoted.
    let text = |text: &str| serde_json::Value::String(text.to_owned()).to_string();
    if let Some(host) = &item.host {
        return format!("- {}", text(host));
    }
    if item.login.is_some() || item.path.is_some() {
        return String::new();
    }
    if let (Some(interface), Some(changed)) = (&item.interface, &item.changed) {
        let name = if changed.name.is_empty() { String::new() } else { format!(" {}", text(&changed.name)) };
        return format!("the pin of {}{name}: {interface}", changed.kind.as_str());
    }
    let tool = if item.from.is_some() { "*" } else { &item.name };
    let mut entry = format!("server: {}, tool: {}", text(&item.server), text(tool));
    if let Some(from) = &item.from {
        entry.push_str(&format!(", from: {}", text(from)));
    }
    if !any_arguments && (item.from.is_none() || item.is_copy) {
        entry.push_str(&format!(", arguments: {}", text(&item.arguments_hash)));
    }
    if let Some(interface) = item.interface.as_ref().filter(|_| item.from.is_none()) {
        entry.push_str(&format!(", interface: {}", text(interface)));
    }
    format!("- {{{entry}}}")
}

/// Adds that line to the user's policy, and returns it. The session itself writes pins.
///
/// # Errors
/// When it is not on disk, or when the file says something else than approvals.
pub fn remember(config_home: &Path, item: &Item, any_arguments: bool) -> Result<String, String> {
    if item.login.is_some() {
        return Err("a login is kept anyway and no policy rule can grant it; approve it once".to_owned());
    }
    if item.path.is_some() {
        return Err(
            "an answer about a file is bound to its content; approve it once or for the session".to_owned()
        );
    }
    if item.changed.is_some() {
        return Ok(format!("written by the session: {}", lasting_line(item, any_arguments)));
    }
    let failed = |error: io::Error| format!("cannot save it: {error}");
    let directory = config_home.join("agentsh");
    let file = directory.join(APPROVED_FILE);
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => FILE_HEADER.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    let end = if before.ends_with('\n') { "" } else { "\n" };
    let section = if before.contains("    approved:\n") { "" } else { "sandbox:\n  mcp:\n    approved:\n" };
    let line = lasting_line(item, any_arguments);
    let after = match &item.host {
        Some(_) => with_host(&before, &line),
        None => format!("{before}{end}{section}      {line}\n"),
    };
    // If another program wrote something invalid into it, nothing is approved.
    agentsh_policy::parse(&file.display().to_string(), &after).map_err(|error| error.render())?;
    std::fs::create_dir_all(&directory).map_err(failed)?;
    // Written next to it and then renamed, so that no partial policy exists.
    let beside = directory.join(format!(".{APPROVED_FILE}.{}", std::process::id()));
    std::fs::write(&beside, after).and_then(|()| std::fs::rename(&beside, &file)).map_err(failed)?;
    Ok(format!("written to {}: {line}", file.display()))
}
