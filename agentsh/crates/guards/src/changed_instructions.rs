//! Instruction and configuration files: writable, and reported after the run.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agentsh_base::types::FileKey;
use agentsh_base::{escape, listing};
use agentsh_host::copies::Copy;
use agentsh_policy::builtin_paths::{self, GIT_OBEYS, RUN_FROM, WhenChanged};
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::{Host, PathKind, RealHost, repository_names};
use agentsh_sandbox::layout::instructing;
use agentsh_sandbox::spec::LOADS_VARIABLES;

use super::baseline::Baseline;
use super::difference;

/// Lines of a change that are shown.
const MAX_LINES: usize = 6;
const MAX_COLUMNS: usize = 120;
/// New names that are in no table are reported in one line.
const MAX_NAMES: usize = 20;
/// Files of one directory that are compared one by one.
const MAX_ENTRIES: usize = 200;
const UNKNOWN: &str = "agentsh does not know which programs read these";

/// Files, with the reason why they matter.
pub type Instructions = BTreeMap<PathBuf, (Copy, Cow<'static, str>)>;

/// The instructions in these directories and repositories.
#[must_use]
pub fn instructions(directories: &BTreeSet<PathBuf>, baseline: &Baseline, host: &RealHost) -> Instructions {
    let host = CachedHost::new(host);
    directories.iter().for_each(|directory| host.read(directory));
    let told = || GIT_OBEYS.iter().filter(|(_, when, _)| *when == WhenChanged::Told);
    let of_git = baseline.repositories().flat_map(|git| told().map(|(name, _, why)| (git.join(name), *why)));
    let of_git = of_git.filter(|(path, _)| path.symlink_metadata().is_ok());
    let found = directories.iter().flat_map(|directory| instructing(directory, &host));
    let found = found.map(|(path, why)| (path.clone(), (Copy::of_own(&path), why.into())));
    // Git follows links.
    let of_git = of_git.map(|(path, why)| (path.clone(), (Copy::of(&path), why.into())));
    let unknown = baseline.worked_in().flat_map(|top| unknown(top, &host));
    let unknown = unknown.map(|path| (path, (Copy::Special, UNKNOWN.into())));
    let named = baseline
        .named_writable_files()
        .map(|(path, why)| (path.clone(), (Copy::of_own(path), why.clone().into())));
    unknown.chain(named).chain(found).chain(of_git).collect()
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
                && host.path_kind(&path) == Some(PathKind::Directory)
        };
        for directory in RUN_FROM.into_iter().filter(is_open).map(|below| top.join(name).join(below)) {
            found.extend(names(&directory).into_iter().map(|(name, _)| directory.join(name)));
        }
        found.extend((!builtin_paths::is_known(name)).then(|| top.join(name)));
    }
    found
}

/// Files with names of the tables of both tiers, in directories below the tops, each with a key that shows a change.
pub type Nested = BTreeMap<PathBuf, FileKey>;

#[must_use]
pub fn nested_instructions(directories: &[PathBuf], host: &dyn Host) -> Nested {
    let mut found = Nested::new();
    for directory in directories {
        for (name, _) in host.names(directory).unwrap_or_default() {
            let rows = name.to_str().into_iter().flat_map(builtin_paths::rows_of);
            for (path, _) in
                rows.filter(|(path, _)| repository_names().all(|git| !Path::new(path).starts_with(git)))
            {
                keys(&directory.join(path), &mut { MAX_ENTRIES }, &mut found);
            }
        }
    }
    found
}

/// Adds the key of a file, or of the files in a directory; for a large directory, its own key.
fn keys(path: &Path, budget: &mut usize, into: &mut Nested) {
    let Ok(found) = path.symlink_metadata() else { return };
    let names = if found.is_dir() { listing::paths(path).unwrap_or_default() } else { Vec::new() };
    match budget.checked_sub(names.len()) {
        Some(rest) if found.is_dir() => {
            *budget = rest;
            names.iter().for_each(|path| keys(path, budget, into));
        }
        _ => drop(into.insert(path.to_owned(), FileKey::from(&found))),
    }
}

/// New and changed files below the tops, in one line.
#[must_use]
pub fn changed_below(before: &Nested, now: &Nested) -> Option<GuardedChange> {
    let changed = now.iter().filter(|(path, key)| before.get(*path) != Some(key)).map(|(path, _)| path);
    in_one_line(
        "new or changed during the run, and obeyed by programs or agents in its directory",
        changed.collect(),
    )
}

fn in_one_line(what: &str, paths: Vec<&PathBuf>) -> Option<GuardedChange> {
    let first = paths.first()?.to_path_buf();
    let names = paths.iter().take(MAX_NAMES).map(|path| path.display().to_string());
    let names: Vec<String> = names.map(|name| escape::line(&name).into_owned()).collect();
    let more = paths.len() - names.len();
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    let text = format!("{what}: {}{more}", names.join(", "));
    Some(GuardedChange { path: first, before: Copy::Special, text })
}

/// One changed, created or removed file.
pub struct GuardedChange {
    pub path: PathBuf,
    pub before: Copy,
    /// For a person.
    pub text: String,
}

#[must_use]
pub fn compare(before: &Instructions, now: &Instructions) -> Vec<GuardedChange> {
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
        let text = |side: Option<&(&Copy, &str)>| {
            side.and_then(|(copy, _)| copy.text()).unwrap_or_default().to_owned()
        };
        let difference = if why.ends_with(LOADS_VARIABLES) { variables } else { diff };
        let diff = difference(&text(was), &text(is));
        let shown = path.display().to_string();
        changed.push(GuardedChange {
            path: path.clone(),
            before: was.map_or(Copy::Absent, |(copy, _)| (*copy).clone()),
            text: format!(
                "{what} during the run ({why}): {}; `agentsh undo` restores it{diff}",
                escape::line(&shown)
            ),
        });
    }
    changed.extend(in_one_line(&format!("new during the run ({UNKNOWN})"), unknown));
    changed
}

/// Directories as the files in them.
fn flatten<'c>(path: &Path, copy: &'c Copy, why: &'c str, into: &mut BTreeMap<PathBuf, (&'c Copy, &'c str)>) {
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

/// The variables whose lines differ: values may be secret.
fn variables(before: &str, now: &str) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<String>>();
    let (before, now) = (lines(before), lines(now));
    let names: BTreeSet<&str> = before
        .symmetric_difference(&now)
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim().trim_start_matches("export ")))
        .collect();
    let is_name = |name: &&&str| name.bytes().all(|sign| sign.is_ascii_alphanumeric() || sign == b'_');
    let names: Vec<&str> = names.iter().filter(is_name).take(MAX_NAMES).copied().collect();
    if names.is_empty() { String::new() } else { format!("\n    {}", names.join(", ")) }
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
