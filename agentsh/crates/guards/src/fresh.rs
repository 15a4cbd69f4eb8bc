//! Repositories that came into being during a run: what in them runs by itself is set aside at the end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::baseline::Baseline;
use super::deep;
use super::newcomers::is_repository_name;
use agentsh_host::copies::{Copy, write_anew};
use agentsh_host::undo::SavedVersions;
use agentsh_policy::builtin_paths::{self, GIT_OBEYED};
use agentsh_sandbox::git_config::{Entry, entries};
pub use agentsh_sandbox::host::is_bare;
use agentsh_sandbox::host::{Host, RealHost, plain, repository_names};

/// Where repositories are looked for, and what was there before.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// What may be written; a working tree must lie in one of them.
    pub roots: &'a [PathBuf],
    pub baseline: &'a Baseline,
    pub host: &'a RealHost,
}

impl Search<'_> {
    /// Whether something was not there before the run and is none of somebody else's, and lies where the sandbox may write.
    fn is_new(&self, path: &Path) -> bool {
        !self.baseline.holds(path) && is_in_one_of(path, self.roots)
    }

    /// What the user's git would take from the working tree of a new repository: hooks and programs that his own configuration
    /// names for every one.
    fn in_working_tree(&self, entry: &Path) -> Vec<(PathBuf, Copy)> {
        let above = entry.parent().filter(|_| is_repository_name(entry));
        let bases = [Some(entry), above].into_iter().flatten();
        let places =
            bases.flat_map(|base| self.baseline.in_repositories().map(|named| plain(&base.join(named))));
        let places: BTreeSet<PathBuf> = places.collect();
        let is_new = |path: &PathBuf| {
            !entry.starts_with(path) && !self.baseline.is_guarded(path) && is_in_one_of(path, self.roots)
        };
        let found = places.into_iter().filter(is_new).map(|path| (path.clone(), Copy::of_own(&path)));
        found.filter(|(_, copy)| !copy.is_nothing()).collect()
    }
}

/// Whether a path lies in one of these directories. Whoever put a link on the way would lead us elsewhere.
pub fn is_in_one_of(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root) && !is_behind_link(path, root))
}

/// Whether a link stands between a directory of the host and something below it.
fn is_behind_link(path: &Path, root: &Path) -> bool {
    path.ancestors().take_while(|above| *above != root && above.starts_with(root)).any(Path::is_symlink)
}

/// Every directory in which git keeps a repository, below these ones, and directories that could not be looked through.
#[must_use]
pub fn repositories(directories: &[PathBuf], host: &RealHost) -> (BTreeSet<PathBuf>, Vec<PathBuf>) {
    let (mut found, mut closed) = (BTreeSet::new(), Vec::new());
    for directory in directories {
        let looked = host.repositories(directory);
        // What nobody may list may be there all the same.
        let is_listed = !looked.is_cut && !looked.closed.contains(directory);
        let unlisted = repository_names().filter(|_| !is_listed).map(|name| directory.join(name));
        closed.extend(looked.closed);
        let entries = looked.found.into_iter().chain(looked.own).chain(unlisted);
        for entry in entries.filter(|entry| entry.symlink_metadata().is_ok()) {
            let git = host.git_directory(&entry).unwrap_or_else(|| entry.clone());
            found.extend(host.modules(&git).into_iter().flat_map(|modules| modules.directories));
            found.insert(git);
            found.insert(entry);
        }
    }
    found.retain(|path| directories.iter().any(|directory| path.starts_with(directory)));
    (found, closed)
}

/// The last look, when nothing runs inside any more: every repository that was not there before, with what was set aside in it.
#[must_use]
pub fn disarm_all(
    roots: &[PathBuf],
    baseline: &Baseline,
    aside: &SavedVersions,
) -> Vec<(PathBuf, Vec<String>)> {
    let host = RealHost::unlimited();
    let search = Search { roots, baseline, host: &host };
    let (repositories, mut closed) = repositories(roots, &host);
    let is_new =
        |entry: &PathBuf| !baseline.holds(entry) && (entry.is_symlink() || holds_something(entry, &host));
    let mut found: Vec<_> = repositories
        .into_iter()
        .filter(is_new)
        .map(|entry| {
            let done = disarm(&entry, search, aside);
            (entry, done)
        })
        .collect();
    closed.sort();
    closed.dedup();
    for directory in closed.into_iter().filter(|directory| !baseline.is_refused(directory)) {
        let mut renamed = Vec::new();
        let result = deep::rename_repositories(&directory, &|entry| baseline.holds(entry), &mut renamed);
        let named = |path: PathBuf| (path, vec!["it was renamed so that nothing runs it".to_owned()]);
        found.extend(renamed.into_iter().map(named));
        if let Err(error) = result {
            let what =
                format!("could not be searched completely ({error}): remove it before you use git in it");
            found.push((directory, vec![what]));
        }
    }
    found
}

/// Whether git, or another system, would look for something in a new repository.
fn holds_something(entry: &Path, host: &RealHost) -> bool {
    let names = ["HEAD", "config", "hooks", "requires", "repo", "store", "prefs"];
    let has_some = |directory: &PathBuf| names.iter().any(|name| directory.join(name).exists());
    directories_of(entry, host).iter().any(has_some)
}

/// What belongs to an entry such as `.git`: the directory that it is or names, what that shares, and its submodules.
#[must_use]
pub fn directories_of(entry: &Path, host: &RealHost) -> BTreeSet<PathBuf> {
    let Ok(found) = entry.symlink_metadata() else { return BTreeSet::new() };
    let git = if found.is_dir() { Some(entry.to_owned()) } else { host.git_directory(entry) };
    let Some(git) = git.filter(|git| git.is_dir()) else { return BTreeSet::new() };
    let modules = host.modules(&git).into_iter().flat_map(|modules| modules.directories);
    modules.chain(host.common_directory(&git)).chain([git.clone()]).collect()
}

/// What a configuration says: what is harmless, and the rest. None where it is not a plain text.
type SplitConfiguration = Option<(Vec<Entry>, Vec<Entry>)>;

fn configurations(directory: &Path, roots: &[PathBuf]) -> Vec<(PathBuf, Copy, SplitConfiguration)> {
    let paths = ["config", "config.worktree"].map(|name| directory.join(name));
    let is_harmless = |entry: &Entry| match entry.worktree() {
        Some(named) => is_inside(&directory.join(named), roots),
        None => entry.is_harmless(),
    };
    let read = |path: PathBuf| {
        let copy = Copy::of_own(&path);
        let parted = copy.text().map(|text| entries(text).into_iter().partition(is_harmless));
        (!matches!(copy, Copy::Absent | Copy::Special)).then_some((path, copy, parted))
    };
    paths.into_iter().filter_map(read).collect()
}

/// Whether a path leads into one of these directories, by its letters and by the links on its way.
fn is_inside(path: &Path, roots: &[PathBuf]) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| plain(path));
    let is_below = |path: &Path| roots.iter().any(|root| path.starts_with(root));
    is_below(&plain(path))
        && (is_below(&real)
            || roots.iter().any(|root| root.canonicalize().is_ok_and(|root| real.starts_with(root))))
}

/// Files of other systems that say more than where a repository came from.
fn of_other_system(entry: &Path) -> Vec<(PathBuf, Copy)> {
    let mut others = builtin_paths::OTHER_REPOSITORIES.iter();
    let files = others.find(|(name, _)| entry.file_name() == Some(name.as_ref())).map(|(_, files)| *files);
    let says_more = |copy: &Copy| match copy {
        Copy::Absent | Copy::Special => false,
        copy => copy.text().is_none_or(|text| {
            !entries(text).iter().all(|entry| {
                let value = entry.value.as_deref().unwrap_or_default();
                entry.section == "paths" && !value.contains(['|', '!']) && !value.starts_with('-')
            })
        }),
    };
    let files = files.into_iter().flatten().map(|name| entry.join(name));
    files.map(|path| (path.clone(), Copy::of_own(&path))).filter(|(_, copy)| says_more(copy)).collect()
}

/// Directories of a repository of which every entry counts.
fn run_from(directory: &Path) -> impl Iterator<Item = PathBuf> {
    ["hooks"].into_iter().chain(GIT_OBEYED.1).map(|name| directory.join(name))
}

/// Whether something in a new repository would run by itself.
#[must_use]
pub fn is_armed(entry: &Path, search: Search<'_>) -> bool {
    if entry.is_symlink() || !of_other_system(entry).is_empty() || !search.in_working_tree(entry).is_empty() {
        return true;
    }
    directories_of(entry, search.host).iter().filter(|directory| search.is_new(directory)).any(|directory| {
        let says_more =
            |parted: Option<(Vec<Entry>, Vec<Entry>)>| parted.is_none_or(|(_, others)| !others.is_empty());
        configurations(directory, search.roots).into_iter().any(|(_, _, parted)| says_more(parted))
            || run_from(directory).any(|directory| !Copy::of_own(&directory).is_nothing())
            || directory.join(GIT_OBEYED.0).symlink_metadata().is_ok()
    })
}

/// Sets aside what would run by itself in a new repository, in the directories of it that are ours. Gives what that was,
/// for a message.
pub fn disarm(entry: &Path, search: Search<'_>, aside: &SavedVersions) -> Vec<String> {
    let mut done = Vec::new();
    if entry.is_symlink() {
        move_away(entry, &Copy::of_own(entry), aside, &mut done);
    }
    for (path, copy) in of_other_system(entry).into_iter().chain(search.in_working_tree(entry)) {
        move_away(&path, &copy, aside, &mut done);
    }
    for directory in directories_of(entry, search.host).iter().filter(|directory| search.is_new(directory)) {
        for (path, copy, parted) in configurations(directory, search.roots) {
            let Some((harmless, others)) = parted else {
                move_away(&path, &copy, aside, &mut done);
                continue;
            };
            if others.is_empty() {
                continue;
            }
            let keys: BTreeSet<String> =
                others.iter().map(|entry| format!("{}.{}", entry.section, entry.key)).collect();
            // What cannot be kept is lost, and runs nothing all the same.
            let is_kept = aside.keep(&path, &copy).is_ok();
            let written = write_anew(&path, written(&harmless).as_bytes(), 0o644);
            if written.is_ok() {
                let keys: Vec<String> = keys.into_iter().take(5).collect();
                let lost = if is_kept { "" } else { ", and not kept" };
                done.push(format!("{} without {}{lost}", path.display(), keys.join(", ")));
            }
        }
        for path in run_from(directory).chain([directory.join(GIT_OBEYED.0)]) {
            match Copy::of_own(&path) {
                Copy::Directory(entries) => {
                    for (name, copy) in entries {
                        move_away(&path.join(name), &copy, aside, &mut done);
                    }
                }
                Copy::Absent => {}
                other => move_away(&path, &other, aside, &mut done),
            }
        }
    }
    done
}

/// Makes the configurations of a new repository anew: who has one open, and goes on writing when it is guarded, writes to no file.
pub fn renew(entry: &Path, search: Search<'_>) {
    for directory in directories_of(entry, search.host).iter().filter(|directory| search.is_new(directory)) {
        for path in ["config", "config.worktree"].map(|name| directory.join(name)) {
            let _ = Copy::of_own(&path).renew(&path);
        }
    }
}

/// Removes what was kept; what is too large for that gets another name, under which nothing runs it.
pub fn move_away(path: &Path, copy: &Copy, aside: &SavedVersions, done: &mut Vec<String>) {
    let renamed = || {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".set-aside");
        fs::rename(path, path.with_file_name(name))
    };
    let removed = match copy {
        Copy::Unread { .. } => renamed(),
        _ if aside.keep(path, copy).is_err() => renamed(),
        Copy::Directory(_) => fs::remove_dir_all(path),
        _ => fs::remove_file(path),
    };
    if removed.is_ok() {
        done.push(format!("{} removed", path.display()));
    }
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
    // A working tree may have been named before.
    entries(now).iter().all(|entry| entry.is_harmless() || known.contains(entry))
}
