//! An answer for good: the narrowest line of policy that gives it.

use std::io;
use std::path::{Path, PathBuf};

use crate::policy::{self, APPROVED_FILE};

use super::Item;

const HEAD: &str = "# What was approved for good, by `agentsh approvals approve --always` or on the page of `agentsh ui`. Take a line out \
    to be asked again.
sandbox:
  mcp:
    approved:
";

/// The narrowest line that answers this question.
#[must_use]
pub fn lasting_line(item: &Item, any_arguments: bool) -> String {
    // JSON is YAML, and quotes what has to be quoted.
    let text = |text: &str| serde_json::Value::String(text.to_owned()).to_string();
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

/// Adds that line to the user's policy, and gives the file and the line.
///
/// # Errors
/// When it is not on disk, or when the file says something else than approvals.
pub fn remember(config_home: &Path, item: &Item, any_arguments: bool) -> Result<(PathBuf, String), String> {
    let failed = |error: io::Error| format!("cannot write it down: {error}");
    let directory = config_home.join("agentsh");
    let file = directory.join(APPROVED_FILE);
    let line = lasting_line(item, any_arguments);
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => HEAD.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    let end = if before.ends_with('\n') { "" } else { "\n" };
    let after = format!("{before}{end}      {line}\n");
    // Somebody may have written something else into it: then nothing is approved.
    policy::parse(&file.display().to_string(), &after).map_err(|error| error.render())?;
    std::fs::create_dir_all(&directory).map_err(failed)?;
    // Never half a policy: beside it, then in its place.
    let beside = directory.join(format!(".{APPROVED_FILE}.{}", std::process::id()));
    std::fs::write(&beside, after).and_then(|()| std::fs::rename(&beside, &file)).map_err(failed)?;
    Ok((file, line))
}
