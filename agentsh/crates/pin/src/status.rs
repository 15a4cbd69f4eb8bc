//! Compares the current state with the pin, and decides by the policy.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Resolved;
use super::file::hex;
use crate::policy::{OnChange, Pinning};

/// The stored state: enough to recognise the same bytes and to name the changed ones.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PinnedState {
    pub digest: String,
    /// Absolute path that is executed.
    pub program: String,
    /// `TREE/relative/path`, or the absolute path of a file outside every tree, to its fingerprint.
    pub manifest: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Match,
    NotPinned,
    Mismatch(Change),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub expected: String,
    pub actual: String,
    /// All changed files, in the order of their paths.
    pub changed: Vec<FileChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Absolute if the directory is still known.
    pub path: PathBuf,
    pub kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Changed,
    Added,
    Removed,
}

/// The launcher's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Proceed,
    PinAndProceed,
    ProceedWithAlert,
    Refuse,
}

/// `pinned` is what the store holds for this server, None when it never ran.
#[must_use]
pub fn compare(pinned: Option<&PinnedState>, resolved: &Resolved) -> Status {
    let Some(pinned) = pinned else { return Status::NotPinned };
    let now = resolved.manifest();
    if pinned.digest == resolved.digest && pinned.manifest == now {
        return Status::Match;
    }
    let mut changed = Vec::new();
    let mut add = |label: &str, kind| changed.push(FileChange { path: resolved.path_of_label(label), kind });
    for (label, fingerprint) in &pinned.manifest {
        match now.get(label) {
            None => add(label, ChangeKind::Removed),
            Some(other) if other != fingerprint => add(label, ChangeKind::Changed),
            Some(_) => {}
        }
    }
    now.keys()
        .filter(|label| !pinned.manifest.contains_key(*label))
        .for_each(|label| add(label, ChangeKind::Added));
    changed.sort_by(|a, b| a.path.cmp(&b.path));
    Status::Mismatch(Change { expected: pinned.digest.clone(), actual: resolved.digest.clone(), changed })
}

/// The documented table: a match proceeds; the first sight is pinned under `auto_trust_first` and treated as a
/// change otherwise; a change is what `on_change` says.
#[must_use]
pub fn decide(status: &Status, pinning: &Pinning) -> Action {
    if !pinning.enabled || !pinning.pin_binary {
        return Action::Proceed;
    }
    match (status, pinning.on_change) {
        (Status::Match, _) => Action::Proceed,
        (Status::NotPinned, _) if pinning.auto_trust_first => Action::PinAndProceed,
        (Status::NotPinned | Status::Mismatch(_), OnChange::Block | OnChange::Ask) => Action::Refuse,
        (Status::NotPinned | Status::Mismatch(_), OnChange::Alert) => Action::ProceedWithAlert,
        (Status::NotPinned | Status::Mismatch(_), OnChange::Allow) => Action::Proceed,
    }
}

impl Resolved {
    #[must_use]
    pub fn state(&self) -> PinnedState {
        PinnedState {
            digest: self.digest.clone(),
            program: self.program.display().to_string(),
            manifest: self.manifest(),
        }
    }

    /// Files outside every tree are named by their absolute path: their place is part of what was agreed to.
    fn manifest(&self) -> BTreeMap<String, String> {
        let mut manifest = BTreeMap::new();
        for file in &self.files {
            let label = self.label(&file.path);
            manifest.insert(label, hex(&file.sha256));
        }
        for tree in &self.trees {
            for (path, entry) in &tree.manifest {
                manifest.insert(tree_label(&tree.name, path), entry.clone());
            }
        }
        if let Some(inline) = &self.inline {
            manifest.insert(INLINE.to_owned(), hex(&Sha256::digest(inline).into()));
        }
        manifest
    }

    fn label(&self, path: &Path) -> String {
        let inside = self.trees.iter().find_map(|tree| {
            let relative = path.strip_prefix(&tree.root).ok()?;
            Some(tree_label(&tree.name, relative))
        });
        inside.unwrap_or_else(|| text(path))
    }

    /// The inverse of `label`.
    fn path_of_label(&self, label: &str) -> PathBuf {
        let tree = self
            .trees
            .iter()
            .filter_map(|tree| Some((tree, label.strip_prefix(tree.name.as_str())?.strip_prefix(":/")?)));
        tree.max_by_key(|(tree, _)| tree.name.len())
            .map_or_else(|| PathBuf::from(label), |(tree, relative)| tree.root.join(relative))
    }

    /// Over the launcher's kind and the manifest, each field preceded by its length.
    pub(super) fn compute_digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(b"agentsh pin 1");
        field(self.launcher.name().as_bytes());
        for (label, fingerprint) in self.manifest() {
            field(label.as_bytes());
            field(fingerprint.as_bytes());
        }
        hex(&hash.finalize().into())
    }
}

/// The name in a manifest for program text from the command line.
const INLINE: &str = "(program text on the command line)";

fn tree_label(tree: &str, relative: &Path) -> String {
    format!("{tree}:/{}", text(relative))
}

/// Bytes that are not UTF-8 are escaped, and so is the backslash: two paths are never one text.
fn text(path: &Path) -> String {
    match path.to_str() {
        Some(text) if !text.contains('\\') => text.to_owned(),
        _ => path.as_os_str().as_bytes().escape_ascii().to_string(),
    }
}
