//! Instruction and configuration files: writable, and reported after the run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agentsh_host::copies::Copy;
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::RealHost;
use agentsh_sandbox::layout::instructing;

use super::difference;

/// Lines of a change that are shown.
const MAX_LINES: usize = 6;
const MAX_COLUMNS: usize = 120;

/// Files in these directories, with the reason why they matter.
#[must_use]
pub fn instructions(
    directories: &BTreeSet<PathBuf>,
    host: &RealHost,
) -> BTreeMap<PathBuf, (Copy, &'static str)> {
    let host = CachedHost::new(host);
    directories.iter().for_each(|directory| host.read(directory));
    let found = directories.iter().flat_map(|directory| instructing(directory, &host));
    found.map(|(path, why)| (path.clone(), (Copy::of_own(&path), why))).collect()
}

/// One changed, created or removed file.
pub struct GuardedChange {
    pub path: PathBuf,
    pub before: Copy,
    /// For a person.
    pub text: String,
}

#[must_use]
pub fn compare(
    before: &BTreeMap<PathBuf, (Copy, &'static str)>,
    now: &BTreeMap<PathBuf, (Copy, &'static str)>,
) -> Vec<GuardedChange> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    for (map, flat) in [(before, &mut old), (now, &mut new)] {
        for (path, (copy, why)) in map {
            flatten(path, copy, why, flat);
        }
    }
    let paths: std::collections::BTreeSet<&PathBuf> = old.keys().chain(new.keys()).collect();
    let mut changed = Vec::new();
    for path in paths {
        let (was, is) = (old.get(path), new.get(path));
        if was.map(|(copy, _)| *copy) == is.map(|(copy, _)| *copy) {
            continue;
        }
        let why = was.or(is).map_or("", |(_, why)| *why);
        let what = match (was, is) {
            (None, _) => "new",
            (_, None) => "removed",
            _ => "changed",
        };
        let text = |side: Option<&(&Copy, &'static str)>| {
            side.and_then(|(copy, _)| copy.text()).unwrap_or_default().to_owned()
        };
        let diff = diff(&text(was), &text(is));
        changed.push(GuardedChange {
            path: path.clone(),
            before: was.map_or(Copy::Absent, |(copy, _)| (*copy).clone()),
            text: format!(
                "{what} during the run ({why}): {}; `agentsh undo` takes it back{diff}",
                path.display()
            ),
        });
    }
    changed
}

/// Directories as the files in them.
fn flatten<'c>(
    path: &Path,
    copy: &'c Copy,
    why: &'static str,
    into: &mut BTreeMap<PathBuf, (&'c Copy, &'static str)>,
) {
    match copy {
        Copy::Directory(entries) => {
            for (name, entry) in entries {
                flatten(&path.join(name), entry, why, into);
            }
        }
        Copy::Absent => {}
        copy => drop(into.insert(path.to_owned(), (copy, why))),
    }
}

/// The first lines that differ.
fn diff(before: &str, now: &str) -> String {
    let lines = difference::lines(before, now, MAX_COLUMNS);
    let mut shown: String = lines.iter().take(MAX_LINES).map(|line| format!("\n    {line}")).collect();
    if lines.len() > MAX_LINES {
        shown.push_str(&format!("\n    … and {} more lines", lines.len() - MAX_LINES));
    }
    shown
}
