//! Instruction and configuration files: writable, and reported after the run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agentsh_base::escape;
use agentsh_host::copies::Copy;
use agentsh_policy::builtin_paths::{self, GIT_OBEYS, RUN_FROM, WhenChanged};
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::{Host, PathKind, RealHost, repository_names};
use agentsh_sandbox::layout::instructing;

use super::baseline::Baseline;
use super::difference;

/// Lines of a change that are shown.
const MAX_LINES: usize = 6;
const MAX_COLUMNS: usize = 120;
/// New names that no table knows are told in one line.
const MAX_NAMES: usize = 20;
const UNKNOWN: &str = "some program may obey it";

/// Files in these directories and repositories, with the reason why they matter.
#[must_use]
pub fn instructions(
    directories: &BTreeSet<PathBuf>,
    baseline: &Baseline,
    host: &RealHost,
) -> BTreeMap<PathBuf, (Copy, &'static str)> {
    let host = CachedHost::new(host);
    directories.iter().for_each(|directory| host.read(directory));
    let told = || GIT_OBEYS.iter().filter(|(_, when, _)| *when == WhenChanged::Told);
    let of_git = baseline.repositories().flat_map(|git| told().map(|(name, _, why)| (git.join(name), *why)));
    let of_git = of_git.filter(|(path, _)| path.symlink_metadata().is_ok());
    let found = directories.iter().flat_map(|directory| instructing(directory, &host));
    let found = found.map(|(path, why)| (path.clone(), (Copy::of_own(&path), why)));
    // Git follows links.
    let of_git = of_git.map(|(path, why)| (path.clone(), (Copy::of(&path), why)));
    let unknown = baseline.worked_in().flat_map(|top| unknown(top, &host));
    let unknown = unknown.map(|path| (path, (Copy::Special, UNKNOWN)));
    unknown.chain(found).chain(of_git).collect()
}

/// Dotted names at the top of a directory that no table knows, and what is in directories of hooks and extensions below one.
fn unknown(top: &Path, host: &dyn Host) -> Vec<PathBuf> {
    let names = |directory: &Path| host.names(directory).unwrap_or_default();
    let mut found = Vec::new();
    for (name, kind) in names(top) {
        let Some(name) = name.to_str().filter(|name| name.starts_with('.')) else { continue };
        if repository_names().any(|known| name == known) || builtin_paths::guarded(name, true).is_some() {
            continue;
        }
        let is_open = |below: &&'static str| {
            let path = top.join(name).join(below);
            kind == PathKind::Directory
                && builtin_paths::guarded(&format!("{name}/{below}"), true).is_none()
                && host.look(&path) == Some(PathKind::Directory)
        };
        for directory in RUN_FROM.into_iter().filter(is_open).map(|below| top.join(name).join(below)) {
            found.extend(names(&directory).into_iter().map(|(name, _)| directory.join(name)));
        }
        found.extend((!builtin_paths::is_known(name)).then(|| top.join(name)));
    }
    found
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
    let (mut changed, mut unknown) = (Vec::new(), Vec::new());
    for path in paths {
        let (was, is) = (old.get(path), new.get(path));
        if was.map(|(copy, _)| *copy) == is.map(|(copy, _)| *copy) {
            continue;
        }
        let why = was.or(is).map_or("", |(_, why)| *why);
        if why == UNKNOWN {
            unknown.extend(was.is_none().then_some(path));
            continue;
        }
        let what = match (was, is) {
            (None, _) => "new",
            (_, None) => "removed",
            _ => "changed",
        };
        let text = |side: Option<&(&Copy, &'static str)>| {
            side.and_then(|(copy, _)| copy.text()).unwrap_or_default().to_owned()
        };
        let diff = diff(&text(was), &text(is));
        let shown = path.display().to_string();
        changed.push(GuardedChange {
            path: path.clone(),
            before: was.map_or(Copy::Absent, |(copy, _)| (*copy).clone()),
            text: format!(
                "{what} during the run ({why}): {}; `agentsh undo` takes it back{diff}",
                escape::line(&shown)
            ),
        });
    }
    if let Some(first) = unknown.first() {
        let names = unknown.iter().take(MAX_NAMES).map(|path| path.display().to_string());
        let names: Vec<String> = names.map(|name| escape::line(&name).into_owned()).collect();
        let more = unknown.len() - names.len();
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        let text = format!("new during the run ({UNKNOWN}): {}{more}", names.join(", "));
        changed.push(GuardedChange { path: first.to_path_buf(), before: Copy::Special, text });
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
