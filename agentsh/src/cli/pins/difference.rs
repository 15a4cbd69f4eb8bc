//! The difference between a server's pin and the refused state.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use similar::TextDiff;

use agentsh_base::types::ServerId;
use agentsh_store::{Candidate, PinStore, escape};
use agentsh_terminal::output::Failure;

/// The comparison of two hostile files must end.
const DIFF_TIME: Duration = Duration::from_millis(500);

/// Lines shown of the difference of one file.
const DIFF_LINES: usize = 400;

/// From the pinned state to the refused one. Without a pin everything is added.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    server_id: ServerId,
    scope: String,
    program: String,
    pinned_program: Option<String>,
    identity: String,
    pinned_identity: Option<String>,
    digest: String,
    pinned_digest: Option<String>,
    refused_at: String,
    changed: Vec<ChangedFile>,
    added: BTreeMap<String, String>,
    removed: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct ChangedFile {
    path: String,
    pinned_hash: String,
    hash: String,
    /// Unified; null when the content of either side is not kept.
    diff: Option<String>,
}

impl Difference {
    /// # Errors
    /// When the pins cannot be read.
    pub async fn of(store: &PinStore, candidate: Candidate) -> Result<Self, Failure> {
        let new = candidate.state;
        let old = store.load(&new.server_id, &new.scope).await?.map(|pin| pin.state);
        let nothing = BTreeMap::new();
        let pinned = old.as_ref().map_or(&nothing, |old| &old.manifest);
        let mut changed = Vec::new();
        for (path, hash) in &new.manifest {
            if let Some(pinned_hash) = pinned.get(path).filter(|pinned_hash| *pinned_hash != hash) {
                let diff = match (store.text(pinned_hash).await?, store.text(hash).await?) {
                    (Some(before), Some(after)) => Some(unified(path, &before, &after)),
                    _ => None,
                };
                let (pinned_hash, hash) = (pinned_hash.clone(), hash.clone());
                changed.push(ChangedFile { path: path.clone(), pinned_hash, hash, diff });
            }
        }
        let only_in = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
            let missing = one.iter().filter(|(path, _)| !other.contains_key(*path));
            missing.map(|(path, hash)| (path.clone(), hash.clone())).collect()
        };
        Ok(Self {
            added: only_in(&new.manifest, pinned),
            removed: only_in(pinned, &new.manifest),
            changed,
            pinned_program: old.as_ref().map(|old| old.program.clone()),
            pinned_identity: old.as_ref().map(|old| old.identity.clone()),
            pinned_digest: old.map(|old| old.digest),
            server_id: new.server_id,
            scope: new.scope,
            program: new.program,
            identity: new.identity,
            digest: new.digest,
            refused_at: candidate.seen_at,
        })
    }

    /// # Errors
    /// When it cannot be written.
    pub fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let line = |text: &str| escape::line(text).into_owned();
        let pinned = |text: &Option<String>| text.as_deref().map_or("nothing".to_owned(), line);
        let scope = if self.scope.is_empty() { "the user's configuration" } else { &self.scope };
        writeln!(out, "server    {} of {}", line(&self.server_id.0), line(scope))?;
        writeln!(out, "program   {} (pinned: {})", line(&self.program), pinned(&self.pinned_program))?;
        writeln!(out, "identity  {} (pinned: {})", line(&self.identity), pinned(&self.pinned_identity))?;
        writeln!(out, "digest    {} (pinned: {})", line(&self.digest), pinned(&self.pinned_digest))?;
        writeln!(out, "refused   {}", line(&self.refused_at))?;
        for (word, files) in [("added", &self.added), ("removed", &self.removed)] {
            for (path, hash) in files {
                writeln!(out, "{word:<9} {} {}", line(path), line(hash))?;
            }
        }
        for file in &self.changed {
            writeln!(
                out,
                "changed   {} {} (pinned: {})",
                line(&file.path),
                line(&file.hash),
                line(&file.pinned_hash)
            )?;
            match &file.diff {
                Some(diff) => {
                    for text in diff.lines() {
                        writeln!(out, "    {}", line(text))?;
                    }
                }
                None => writeln!(
                    out,
                    "    (content not kept: it is binary, or larger than what is kept of a server)"
                )?,
            }
        }
        writeln!(
            out,
            "accept    agentsh mcp pins trust --server {} --hash {}",
            line(&self.server_id.0),
            line(&self.digest)
        )?;
        Ok(())
    }
}

pub(super) fn unified(path: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(before, after);
    let text = diff.unified_diff().header(&format!("{path} (pinned)"), path).to_string();
    let lines = text.lines().count();
    if lines <= DIFF_LINES {
        return text;
    }
    let kept: Vec<&str> = text.lines().take(DIFF_LINES).collect();
    format!("{}\n… {} more lines\n", kept.join("\n"), lines - DIFF_LINES)
}
