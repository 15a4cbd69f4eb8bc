//! Repositories created during a run: sets aside what would run automatically.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::baseline::Baseline;
use super::git_obeys::{self, ObeyedFiles};
use super::new_repositories::is_repository_name;
use super::unreachable_repositories;
use agentsh_host::copies::{self, Copy, write_anew_without_links};
use agentsh_host::undo::SavedVersions;
use agentsh_policy::builtin_paths::{self, GIT_COMMON, GIT_OBEYED};
use agentsh_sandbox::git_config::{Entry, entries};
pub use agentsh_sandbox::host::is_bare;
use agentsh_sandbox::host::{
    Host, OWNER_READS, RealHost, Repositories, let_owner, normalised_path, repository_names,
};

/// What was disarmed in a repository.
#[derive(Debug, Default)]
pub struct DisarmOutcome {
    /// For a message.
    pub names: Vec<String>,
    /// Something stays that git obeys.
    pub is_incomplete: bool,
}

impl DisarmOutcome {
    fn note(&mut self, text: String, is_done: bool) {
        self.names.push(text);
        self.is_incomplete |= !is_done;
    }

    /// Like [`move_away`], told.
    pub fn set_aside(&mut self, path: &Path, copy: &Copy, aside: &SavedVersions) {
        match move_away(path, copy, aside) {
            Ok(None) => self.note(format!("{} removed", path.display()), true),
            Ok(Some(name)) => self.note(renamed_message(path, &name), true),
            Err(error) => self.note(not_removed(path, &error), false),
        }
    }

    /// Records what was removed from a rewritten file; one that cannot be rewritten is renamed.
    pub fn record_rewrite(&mut self, path: &Path, without: Vec<String>, result: std::io::Result<()>) {
        match result.map_err(|error| (error, copies::set_aside(path))) {
            Ok(()) => without.into_iter().for_each(|name| self.note(name, true)),
            Err((_, Ok(name))) => self.note(renamed_message(path, &name), true),
            Err((error, Err(_))) => self.note(not_removed(path, &error), false),
        }
    }
}

fn renamed_message(path: &Path, name: &Path) -> String {
    format!("{} is now called {}, and no copy of it is kept", path.display(), name.display())
}

/// Where to search for repositories, and what existed before.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    /// Writable directories; a working tree must lie in one.
    pub roots: &'a [PathBuf],
    pub baseline: &'a Baseline,
    pub host: &'a RealHost,
    /// Whether a program inside may still be writing what is found.
    pub is_live: bool,
}

impl Search<'_> {
    /// Whether something was created during the run, belongs to the user, and is in a writable directory.
    fn is_new(&self, path: &Path) -> bool {
        !self.baseline.existed_before(path) && is_in_one_of(path, self.roots)
    }

    /// Files by which a new repository sends git to a directory that was not there before the run and that this search does not
    /// reach, or that does not exist yet.
    fn leading_out(&self, entry: &Path) -> Vec<PathBuf> {
        let is_searched = |directory: &Path| {
            directory.is_dir()
                && (self.baseline.existed_before(directory) || is_in_one_of(directory, self.roots))
        };
        if entry.is_file() && self.host.git_directory(entry).is_some_and(|git| !is_searched(&git)) {
            return vec![entry.to_owned()];
        }
        let own = directories_of(entry, self.host).into_iter().filter(|directory| self.is_new(directory));
        let leads_out =
            |git: &PathBuf| self.host.common_directory(git).is_some_and(|common| !is_searched(&common));
        own.filter(leads_out).map(|git| git.join(GIT_COMMON)).collect()
    }

    /// What the user's git would take from the working tree of a new repository: hooks and programs that his own configuration
    /// names for every one, or that of a repository from before which it uses. A copy of the user's stays: git checks it out in each
    /// working tree. While the session lives, git may not have written all of it yet.
    fn in_working_tree(&self, entry: &Path) -> Vec<(PathBuf, Copy)> {
        let above = entry.parent().filter(|_| is_repository_name(entry));
        let bases = [Some(entry), above].into_iter().flatten();
        let git =
            self.host.git_directory(entry).filter(|_| entry.is_file()).unwrap_or_else(|| entry.to_owned());
        let uses: Vec<PathBuf> = self.host.common_directory(&git).into_iter().chain([git]).collect();
        let named = self.baseline.in_repository(&uses);
        let mut places: BTreeMap<(PathBuf, &Path), Vec<&Path>> = BTreeMap::new();
        for base in bases {
            for (named, users) in &named {
                places.entry((normalised_path(&base.join(named)), base)).or_default().extend(*users);
            }
        }
        let found = places.into_iter().filter_map(|((path, base), users)| {
            // Git follows a link, and nothing guards what it leads to.
            let on_the_way = path.ancestors().take_while(|above| above.starts_with(base) && *above != base);
            let link = on_the_way.filter(|above| above.is_symlink()).last();
            let is_written = match link.map(Path::parent) {
                Some(above) => above.is_some_and(|above| is_in_one_of(above, self.roots)),
                None => is_in_one_of(&path, self.roots),
            };
            if !is_written || entry.starts_with(&path) || self.baseline.is_guarded(&path) {
                return None;
            }
            let copy = Copy::behind_links(&path);
            let is_users =
                || users.iter().any(|users| copy.is_part_of(&Copy::behind_links(users), self.is_live));
            if copy.is_nothing() || is_users() {
                return None;
            }
            Some(link.map_or((path.clone(), copy), |link| (link.to_owned(), Copy::of_own(link))))
        });
        found.collect()
    }
}

/// Whether a path is in one of these directories. A link in the path could lead elsewhere.
pub fn is_in_one_of(path: &Path, roots: &[PathBuf]) -> bool {
    let is_below = |root: &Path| path.starts_with(root) && !is_behind_link(path, root);
    roots.iter().any(|root| is_below(root) || root.canonicalize().is_ok_and(|root| is_below(&root)))
}

/// Whether a link is between a root and a path.
fn is_behind_link(path: &Path, root: &Path) -> bool {
    path.ancestors().take_while(|above| *above != root && above.starts_with(root)).any(Path::is_symlink)
}

/// Every directory in which git keeps a repository, below these ones, and what else was found.
#[must_use]
pub fn repositories(
    directories: &[PathBuf],
    baseline: &Baseline,
    host: &RealHost,
) -> (BTreeSet<PathBuf>, Repositories) {
    let (mut found, mut beside) = (BTreeSet::new(), Repositories::default());
    for directory in directories {
        let looked = host.repositories(directory);
        // An unlisted repository may still exist.
        let is_listed = !looked.is_cut && !looked.closed.contains(directory);
        let unlisted = repository_names().filter(|_| !is_listed).map(|name| directory.join(name));
        beside.closed.extend(looked.closed);
        beside.links.extend(looked.links);
        beside.obeyed_in.extend(looked.obeyed_in);
        let entries = looked.found.into_iter().chain(looked.own).chain(unlisted);
        let entries = entries.filter(|entry| !baseline.is_refused(entry));
        for entry in entries {
            let is_directory = match entry.symlink_metadata() {
                Ok(found) => found.is_dir(),
                Err(error) => {
                    let is_closed = error.kind() == std::io::ErrorKind::PermissionDenied;
                    let around = entry.parent().filter(|_| is_closed);
                    beside.closed.extend(around.map(Path::to_owned));
                    continue;
                }
            };
            let named = (!is_directory).then(|| host.git_directory(&entry)).flatten();
            let git = named.unwrap_or_else(|| entry.clone());
            found.extend(host.modules(&git).into_iter().flat_map(|modules| modules.directories));
            found.insert(git);
            found.insert(entry);
        }
    }
    found.retain(|path| directories.iter().any(|directory| path.starts_with(directory)));
    (found, beside)
}

/// The final check, when nothing runs inside: all new repositories, with what was set aside in each, and directories with names that
/// are obeyed.
#[must_use]
pub fn disarm_all(
    roots: &[PathBuf],
    baseline: &Baseline,
    aside: &SavedVersions,
) -> (Vec<(PathBuf, DisarmOutcome)>, Vec<PathBuf>) {
    let host = RealHost::unlimited(roots);
    let search = Search { roots, baseline, host: &host, is_live: false };
    let (repositories, beside) = repositories(roots, baseline, &host);
    let Repositories { mut closed, links, obeyed_in, .. } = beside;
    let is_new = |entry: &PathBuf| holds_something(entry, &host) || runs_by_itself(entry, search);
    let mut found = Vec::new();
    for entry in repositories {
        open_up(&entry);
        let known = baseline.obeyed_git_files(&entry);
        let is_new = known.is_none() && is_new(&entry);
        let mut done = if is_new { disarm(&entry, search, aside) } else { DisarmOutcome::default() };
        if !entry.is_symlink() {
            let none = ObeyedFiles::new();
            git_obeys::set_aside_new(&entry, known.unwrap_or(&none), roots, aside, &mut done);
        }
        if is_new || !done.names.is_empty() {
            found.push((entry, done));
        }
    }
    for link in links.into_iter().filter(|link| baseline.is_private(link)) {
        let mut done = DisarmOutcome::default();
        done.set_aside(&link, &Copy::of_own(&link), aside);
        found.push((link, done));
    }
    closed.sort();
    closed.dedup();
    for directory in closed.into_iter().filter(|directory| !baseline.is_refused(directory)) {
        let mut renamed = Vec::new();
        let result = unreachable_repositories::rename_repositories(
            &directory,
            &|entry| baseline.existed_before(entry),
            &mut renamed,
        );
        let told = |text: String, is_done: bool| DisarmOutcome { names: vec![text], is_incomplete: !is_done };
        let named = |path| (path, told("it was renamed so that nothing runs it".to_owned(), true));
        found.extend(renamed.into_iter().map(named));
        if let Err(error) = result {
            let what =
                format!("could not be searched completely ({error}): remove it before you use git in it");
            found.push((directory, told(what, false)));
        }
    }
    (found, obeyed_in)
}

/// Opens to its owner what another system obeys. What he may not enter is not nothing: a later `chmod` opens it.
fn open_up(entry: &Path) {
    let mut others = builtin_paths::OTHER_REPOSITORIES.iter();
    let files = others.find(|(name, _)| entry.ends_with(name)).into_iter().flat_map(|(_, files)| *files);
    files.for_each(|name| open_on_the_way(entry, Path::new(name)));
}

/// Opens to its owner what is between a directory and a path in it.
pub fn open_on_the_way(directory: &Path, below: &Path) {
    let mut path = directory.to_owned();
    for part in below {
        path.push(part);
        if !let_owner(&path, OWNER_READS) {
            return;
        }
    }
}

/// Whether a version control system would read something in a new repository.
fn holds_something(entry: &Path, host: &RealHost) -> bool {
    let names = ["HEAD", "config", "hooks", "requires", "repo", "store", "prefs"];
    let has_some =
        |directory: &PathBuf| names.iter().any(|name| directory.join(name).try_exists().unwrap_or(true));
    directories_of(entry, host).iter().any(has_some)
}

/// Directories of an entry such as `.git`: its target, common directory and submodules.
#[must_use]
pub fn directories_of(entry: &Path, host: &RealHost) -> BTreeSet<PathBuf> {
    let Ok(found) = entry.symlink_metadata() else { return BTreeSet::new() };
    let named = || host.git_directory(entry).filter(|git| git.is_dir());
    let Some(git) = found.is_dir().then(|| entry.to_owned()).or_else(named) else { return BTreeSet::new() };
    let modules = host.modules(&git).into_iter().flat_map(|modules| modules.directories);
    let own: BTreeSet<PathBuf> = modules.chain([git.clone()]).collect();
    let common: Vec<PathBuf> = own.iter().filter_map(|git| host.common_directory(git)).collect();
    own.into_iter().chain(common).collect()
}

/// The harmless lines of a configuration, and the others. None if it is not plain text.
type SplitConfiguration = Option<(Vec<Entry>, Vec<Entry>)>;

fn configurations(directory: &Path, roots: &[PathBuf]) -> Vec<(PathBuf, Copy, SplitConfiguration)> {
    let paths = ["config", "config.worktree"].map(|name| directory.join(name));
    let is_harmless = |entry: &Entry| match entry.worktree() {
        Some(named) => is_inside(&directory.join(named), roots),
        None => entry.may_come_from_agent(),
    };
    let read = |path: PathBuf| {
        let copy = Copy::of_own(&path);
        // Git reads a value up to a NUL.
        let text = copy.text().filter(|text| !text.contains('\0'));
        let parted = text.map(|text| entries(text).into_iter().partition(is_harmless));
        // A socket is a stub; a pipe would hold up every git that reads it.
        let is_pipe = || path.symlink_metadata().is_ok_and(|found| found.file_type().is_fifo());
        let is_there = match copy {
            Copy::Absent => false,
            Copy::Special => is_pipe(),
            _ => true,
        };
        is_there.then_some((path, copy, parted))
    };
    paths.into_iter().filter_map(read).collect()
}

/// Whether a path is in one of these directories, as written and resolved.
fn is_inside(path: &Path, roots: &[PathBuf]) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| normalised_path(path));
    let is_below = |path: &Path| roots.iter().any(|root| path.starts_with(root));
    is_below(&normalised_path(path))
        && (is_below(&real)
            || roots.iter().any(|root| root.canonicalize().is_ok_and(|root| real.starts_with(root))))
}

/// Files of other version control systems that name programs.
fn of_other_system(entry: &Path, baseline: &Baseline) -> Vec<(PathBuf, Copy)> {
    let mut others = builtin_paths::OTHER_REPOSITORIES.iter();
    let files = others.find(|(name, _)| entry.file_name() == Some(name.as_ref())).map(|(_, files)| *files);
    let says_more = |copy: &Copy| match copy {
        Copy::Absent | Copy::Special => false,
        copy => !copy.text().is_some_and(says_paths_alone),
    };
    // On the way may be a file or a link where the program wants a directory.
    let found_at = |path: PathBuf| match Copy::of(&path) {
        Copy::Unreachable { there, as_is } => (there, *as_is),
        copy => (path, copy),
    };
    // A workspace of Jujutsu names the repository that it shares.
    let is_known = |(path, copy): &(PathBuf, Copy)| {
        let named =
            copy.text().filter(|_| path.ends_with(".jj/repo")).map(|text| entry.join(text.trim_end()));
        let shared = named.and_then(|named| named.canonicalize().ok());
        shared.is_some_and(|shared| shared.parent().is_some_and(|jj| baseline.existed_before(jj)))
    };
    let files = files.into_iter().flatten().map(|name| entry.join(name));
    files.map(found_at).filter(|found| says_more(&found.1) && !is_known(found)).collect()
}

/// Whether a configuration of Mercurial (`hg help config`) says something in the section `paths` alone. Git's reader knows neither its
/// continued lines nor its directives.
fn says_paths_alone(text: &str) -> bool {
    let is_path = |(name, value): (&str, &str)| {
        let is_plain = !name.starts_with([' ', '\t', '%', '[']) && !value.contains(['|', '!', '\\']);
        is_plain && !value.trim().starts_with('-')
    };
    let mut section = "";
    // Mercurial ends a line at a carriage return too.
    text.split(['\n', '\r']).map(str::trim_end).all(|line| {
        let is_header = line.starts_with('[') && line.ends_with(']');
        if is_header {
            section = line;
        }
        is_header
            || line.is_empty()
            || line.starts_with(['#', ';'])
            || section == "[paths]" && line.split_once('=').is_some_and(is_path)
    })
}

/// Directories of a repository in which every file counts.
fn run_from(directory: &Path) -> impl Iterator<Item = PathBuf> {
    ["hooks"].into_iter().chain(GIT_OBEYED.1).map(|name| directory.join(name))
}

/// Whether something in a new repository would run automatically.
#[must_use]
pub fn runs_by_itself(entry: &Path, search: Search<'_>) -> bool {
    if entry.is_symlink()
        || !search.leading_out(entry).is_empty()
        || !of_other_system(entry, search.baseline).is_empty()
        || !search.in_working_tree(entry).is_empty()
    {
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

/// Sets aside what would run automatically in a new repository.
pub fn disarm(entry: &Path, search: Search<'_>, aside: &SavedVersions) -> DisarmOutcome {
    let mut done = DisarmOutcome::default();
    if entry.is_symlink() {
        done.set_aside(entry, &Copy::of_own(entry), aside);
    }
    let leading_out = search.leading_out(entry).into_iter().map(|path| (path.clone(), Copy::of_own(&path)));
    let others = of_other_system(entry, search.baseline).into_iter().chain(search.in_working_tree(entry));
    for (path, copy) in leading_out.chain(others) {
        done.set_aside(&path, &copy, aside);
    }
    for directory in directories_of(entry, search.host).iter().filter(|directory| search.is_new(directory)) {
        for (path, copy, parted) in configurations(directory, search.roots) {
            let Some((harmless, others)) = parted else {
                done.set_aside(&path, &copy, aside);
                continue;
            };
            if others.is_empty() {
                continue;
            }
            let keys: BTreeSet<String> =
                others.iter().map(|entry| format!("{}.{}", entry.section, entry.key)).collect();
            // A file that cannot be kept is removed anyway.
            let is_kept = aside.keep(&path, &copy).is_ok();
            let keys: Vec<String> = keys.into_iter().take(5).collect();
            let lost = if is_kept { "" } else { ", and not kept" };
            copies::let_owner_write(&path);
            let without = format!("{} without {}{lost}", path.display(), keys.join(", "));
            done.record_rewrite(
                &path,
                vec![without],
                write_anew_without_links(&path, config_text(&harmless).as_bytes(), 0o644),
            );
        }
        for path in run_from(directory).chain([directory.join(GIT_OBEYED.0)]) {
            match Copy::of_own(&path) {
                Copy::Directory(entries) => {
                    for (name, copy) in entries {
                        done.set_aside(&path.join(name), &copy, aside);
                    }
                }
                Copy::Absent => {}
                other => done.set_aside(&path, &other, aside),
            }
        }
    }
    done
}

/// Replaces the configurations of a new repository, so that a process with an open descriptor writes to no file.
pub fn renew(entry: &Path, search: Search<'_>) {
    for directory in directories_of(entry, search.host).iter().filter(|directory| search.is_new(directory)) {
        for path in ["config", "config.worktree"].map(|name| directory.join(name)) {
            let _ = Copy::of_own(&path).renew(&path);
        }
    }
}

/// Removes an entry after a copy was kept. If that is impossible (too large, disk full), it is renamed, so that no
/// program runs it.
///
/// # Errors
/// When it stays as it is.
pub fn move_away(path: &Path, copy: &Copy, aside: &SavedVersions) -> std::io::Result<Option<PathBuf>> {
    copies::let_owner_write(path);
    let is_kept = !matches!(copy, Copy::Unread { .. }) && aside.keep(path, copy).is_ok();
    let is_removed = is_kept
        // Directories in it may be closed to their owner.
        && copies::remove(path, matches!(copy, Copy::Directory(_))).is_ok();
    if is_removed { Ok(None) } else { copies::set_aside(path).map(Some) }
}

fn not_removed(path: &Path, error: &std::io::Error) -> String {
    format!("{} could not be removed ({error}): remove it before you use git there", path.display())
}

/// A configuration with only these entries.
fn config_text(entries: &[Entry]) -> String {
    let quoted =
        |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    let line = |entry: &Entry| {
        let below = entry.subsection.as_deref().map_or(String::new(), |below| format!(" {}", quoted(below)));
        let value = entry.value.as_deref().map_or(String::new(), |value| format!(" = {}", quoted(value)));
        format!("[{}{below}]\n\t{}{value}\n", entry.section, entry.key)
    };
    entries.iter().map(line).collect()
}

/// Whether a configuration adds only harmless entries.
#[must_use]
pub fn adds_only_harmless(before: &str, now: &str) -> bool {
    let known = entries(before);
    // A working tree may have been named before.
    entries(now).iter().all(|entry| entry.may_come_from_agent() || known.contains(entry))
}
