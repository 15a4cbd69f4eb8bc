//! Repositories that came into being during a run: what in them runs by itself is set aside at the end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sandbox::git_config::{Entry, entries};
use crate::sandbox::host::{Host, RealHost};
use crate::session::copies::{Copy, write_anew};
use crate::session::undo::Aside;

/// Every directory in which git keeps a repository, below these ones.
#[must_use]
pub fn repositories(directories: &[PathBuf], host: &RealHost) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for directory in directories {
        let entries = host.repositories(directory).found.into_iter().chain([directory.join(".git")]);
        for entry in entries.filter(|entry| entry.symlink_metadata().is_ok()) {
            let git = host.git_directory(&entry).unwrap_or_else(|| entry.clone());
            found.extend(host.modules(&git).into_iter().flat_map(|modules| modules.directories));
            found.insert(git);
            found.insert(entry);
        }
    }
    found.retain(|path| directories.iter().any(|directory| path.starts_with(directory)));
    found
}

/// Sets aside what would run by itself in a new repository. Gives what that was, for a message.
pub fn disarm(git: &Path, aside: &Aside) -> Vec<String> {
    let mut done = Vec::new();
    for name in ["config", "config.worktree"] {
        let path = git.join(name);
        let copy = Copy::of(&path);
        let Some(text) = copy.text() else { continue };
        let (harmless, others): (Vec<Entry>, Vec<Entry>) =
            entries(text).into_iter().partition(Entry::is_harmless);
        if others.is_empty() {
            continue;
        }
        let keys: BTreeSet<String> =
            others.iter().map(|entry| format!("{}.{}", entry.section, entry.key)).collect();
        let kept =
            aside.keep(&path, &copy).and_then(|()| write_anew(&path, written(&harmless).as_bytes(), 0o644));
        if kept.is_ok() {
            let keys: Vec<String> = keys.into_iter().take(5).collect();
            done.push(format!("{} without {}", path.display(), keys.join(", ")));
        }
    }
    let hooks = git.join("hooks");
    if let Copy::Directory(entries) = Copy::of(&hooks) {
        for (name, copy) in entries {
            let path = hooks.join(name);
            let moved = aside.keep(&path, &copy).and_then(|()| match &copy {
                Copy::Directory(_) => fs::remove_dir_all(&path),
                _ => fs::remove_file(&path),
            });
            if moved.is_ok() {
                done.push(format!("{} removed", path.display()));
            }
        }
    } else if !matches!(Copy::of(&hooks), Copy::Absent) && fs::remove_file(&hooks).is_ok() {
        done.push(format!("{} removed", hooks.display()));
    }
    done
}

/// A configuration that says this and nothing else.
fn written(entries: &[Entry]) -> String {
    let quoted =
        |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let line = |entry: &Entry| {
        let below = entry.subsection.as_deref().map_or(String::new(), |below| format!(" {}", quoted(below)));
        let value = entry.value.as_deref().map_or(String::new(), |value| format!(" = {}", quoted(value)));
        format!("[{}{below}]\n\t{}{value}\n", entry.section, entry.key)
    };
    entries.iter().map(line).collect()
}

/// Whether a configuration says nothing that could run but what it said before.
#[must_use]
pub fn adds_only_harmless(before: &str, now: &str) -> bool {
    let known = entries(before);
    entries(now).iter().all(|entry| entry.is_harmless() || known.contains(entry))
}
