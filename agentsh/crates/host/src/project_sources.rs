//! Network rights that project files may give: a remote of the repository, a module in a lock file.
//!
//! An agent writes such files. What they say counts as it stood when agentsh first ran in the project, kept by hash outside of
//! every sandbox; what came later is opened once the user agrees to it (`agentsh run --agree`).

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::Context;

/// Longest list that is read: 65 bytes are one source.
const MAX_BYTES: u64 = 4 << 20;
/// New sources that are told one by one.
const MAX_TOLD: usize = 5;

/// What the user has agreed to, by being there first or by word.
pub struct ApprovedSources {
    project: String,
    hashes: BTreeSet<String>,
}

impl ApprovedSources {
    /// What is known of this project. Nothing, where no run was here before.
    #[must_use]
    pub fn load(context: &Context) -> Self {
        Self { project: project(context), hashes: read(context).unwrap_or_default() }
    }

    #[must_use]
    pub fn holds(&self, kind: &str, source: &str) -> bool {
        self.hashes.contains(&hash(&self.project, kind, source))
    }
}

/// Takes note of what files of the project name, before a run: everything where it is the first one or the user agrees. Gives
/// what is new otherwise, one line for the user each.
///
/// # Errors
/// When the list cannot be written: nothing new is opened then.
pub fn note(context: &Context, sources: &[(&str, String)], agree: bool) -> std::io::Result<Vec<String>> {
    let before = read(context);
    let is_first = before.is_none();
    let mut hashes = before.unwrap_or_default();
    let project = project(context);
    let new: Vec<&(&str, String)> =
        sources.iter().filter(|(kind, source)| !hashes.contains(&hash(&project, kind, source))).collect();
    if new.is_empty() && !is_first {
        return Ok(Vec::new());
    }
    if is_first || agree {
        hashes.extend(new.iter().map(|(kind, source)| hash(&project, kind, source)));
        write(context, &hashes)?;
        return Ok(Vec::new());
    }
    let mut lines: Vec<String> = new
        .iter()
        .take(MAX_TOLD)
        .map(|(kind, source)| {
            let source = agentsh_store::escape::line(source);
            format!("{kind} '{source}' is new in this project and stays blocked; to allow it: `agentsh run --agree`")
        })
        .collect();
    if new.len() > MAX_TOLD {
        lines.push(format!("{} more sources of the project are new and stay blocked", new.len() - MAX_TOLD));
    }
    Ok(lines)
}

fn place(context: &Context) -> PathBuf {
    context.state.join("sources").join(project(context))
}

fn project(context: &Context) -> String {
    agentsh_base::hex(&Sha256::digest(context.project.as_os_str().as_encoded_bytes()))
}

fn hash(project: &str, kind: &str, source: &str) -> String {
    let mut hash = Sha256::new();
    for part in [project, kind, source] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    agentsh_base::hex(&hash.finalize())
}

/// None where no run was here before. A list that cannot be read holds nothing.
fn read(context: &Context) -> Option<BTreeSet<String>> {
    let file = match std::fs::File::open(place(context)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some(BTreeSet::new()),
    };
    let mut text = String::new();
    let read = file.take(MAX_BYTES).read_to_string(&mut text);
    Some(if read.is_ok() { text.lines().map(str::to_owned).collect() } else { BTreeSet::new() })
}

/// In one step: half a list must not pass for a whole one.
fn write(context: &Context, hashes: &BTreeSet<String>) -> std::io::Result<()> {
    let text: String = hashes.iter().flat_map(|hash| [hash.as_str(), "\n"]).collect();
    agentsh_base::small_file::replace(&place(context), text.as_bytes())
}
