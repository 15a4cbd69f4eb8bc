//! What a run left in commits, the index and stashes under names that run automatically. Guards protect the working tree alone, and
//! a later checkout writes these files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agentsh_base::{escape, small_file};
use agentsh_host::review::{GuardedPaths, guard_rules};
use agentsh_host::user_git::{Git, OBEYS_NOTHING};
use agentsh_host::{Context, Facts};
use agentsh_policy::builtin_paths;
use agentsh_store::Event;
use agentsh_store::words::GuardChange;

use super::Session;
use super::git_head::{Repository, is_id};

/// Refs that are looked at, as many as files of a project are.
const MAX_REFS: usize = 100_000;
/// Commits that are compared.
const MAX_COMPARED: usize = 20;
/// Names in one message.
const MAX_NAMES: usize = 10;
const MAX_REF_BYTES: u64 = 4 << 10;
const MAX_PACKED_BYTES: u64 = 16 << 20;
/// Of the names of one comparison.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// Of a repository without commits (gitglossary(7), `git hash-object -t tree /dev/null`).
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Reports the files of commits, the index and stashes that were written since the start of the session.
pub fn report_commits(session: &Session) {
    let Facts { context, id, head, .. } = &*session.facts;
    let Some((seconds, nanoseconds)) = id.0.get_timestamp().map(|time| time.to_unix()) else { return };
    let repository = session.live.teardown.repository.get_or_init(|| Repository::of(&context.project));
    let Some(repository) = repository else { return };
    for (path, detail) in found(context, repository, head.as_deref(), (seconds, i64::from(nanoseconds))) {
        session.record.note(&detail);
        let path = path.to_string_lossy().into_owned();
        let what = GuardChange::Instructions;
        session.record.journal.record(Event::GuardChanged { server_id: None, path, what, detail });
    }
}

/// What commits, the index and stashes that were written since a time would run after a checkout: the first file, and a sentence.
/// `start` is the commit before them. Git is asked only if there are some.
#[must_use]
pub fn found(
    context: &Context,
    repository: &Repository,
    start: Option<&str>,
    since: (u64, i64),
) -> Vec<(PathBuf, String)> {
    let Repository { own, common, head } = repository;
    // Nothing inside sets this time.
    let changed = |found: Metadata| (found.ctime().unsigned_abs(), found.ctime_nsec());
    let is_new = |path: &Path| path.symlink_metadata().is_ok_and(|found| changed(found) >= since);
    let start = start.unwrap_or(EMPTY_TREE);
    let (refs, mut unread) = new_refs(common, &is_new);
    let head = head.clone().map(|id| ("HEAD".to_owned(), id));
    let mut named = BTreeMap::new();
    for (name, id) in head.into_iter().chain(refs).filter(|(_, id)| id != start) {
        named.entry(id).or_insert(name);
    }
    unread += named.len().saturating_sub(MAX_COMPARED);
    let mut compared: Vec<(String, Vec<String>)> = Vec::new();
    for (id, name) in named.into_iter().take(MAX_COMPARED) {
        // Its third parent has the files that no commit had.
        let untracked = (name == "refs/stash").then(|| format!("{id}^3^{{tree}}"));
        let trees = untracked.map(|tree| vec!["diff-tree".to_owned(), "-r".into(), EMPTY_TREE.into(), tree]);
        compared.extend(trees.map(|words| (String::new(), words)));
        compared.push((name, vec!["diff-tree".to_owned(), "-r".into(), start.to_owned(), id]));
    }
    if is_new(&own.join("index")) {
        compared.push(("the index".to_owned(), ["diff-index", "--cached", start].map(str::to_owned).into()));
    }
    let Some(git) = (!compared.is_empty()).then(|| Git::find(context)).flatten() else { return Vec::new() };
    let guarded = GuardedPaths::of(&guard_rules(context));
    let mut told = BTreeMap::new();
    for (name, words) in compared {
        let options = ["--name-only", "-z"].map(str::to_owned);
        let words =
            OBEYS_NOTHING.split(' ').map(str::to_owned).chain(words).chain(options).chain(["--".to_owned()]);
        let words: Vec<OsString> = words.map(OsString::from).collect();
        match git.ask_for(&words, &context.project, MAX_ANSWER_BYTES) {
            Some(names) => {
                let names = String::from_utf8_lossy(&names);
                let run = runs_automatically(&names.split('\0').collect(), &guarded);
                let name = if name.is_empty() { "refs/stash".to_owned() } else { name };
                told.entry(run).or_insert(name);
            }
            // Most stashes have no third parent.
            None => unread += usize::from(!name.is_empty()),
        }
    }
    let project = &context.project;
    let told = told.into_iter().filter(|(run, _)| !run.is_empty());
    let mut found: Vec<_> = told
        .map(|(run, name)| (project.join(run.first().map_or("", String::as_str)), sentence(&name, &run)))
        .collect();
    if unread > 0 {
        let sentence = format!(
            "{unread} more new commits of this run were not searched for files that run automatically"
        );
        found.push((project.clone(), sentence));
    }
    found
}

fn sentence(name: &str, run: &[String]) -> String {
    let shown: Vec<_> = run.iter().take(MAX_NAMES).map(|path| escape::line(path)).collect();
    let more = run.len() - shown.len();
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    format!(
        "{} changes files that run automatically: {}{more}; look at them before you check it out",
        escape::line(name),
        shown.join(", ")
    )
}

/// Refs that were written, with the objects that they name, and how many were not looked at.
fn new_refs(common: &Path, is_new: &dyn Fn(&Path) -> bool) -> (Vec<(String, String)>, usize) {
    let mut found = Vec::new();
    let mut open = vec![common.join("refs")];
    let (mut rest, mut unread) = (MAX_REFS, 0);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Some(left) = rest.checked_sub(1) else {
                unread += 1;
                continue;
            };
            rest = left;
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                _ if is_new(&path) => {
                    let id = small_file::text(&path, MAX_REF_BYTES).map(|id| id.trim().to_owned());
                    found.extend(id.map(|id| (name_of(common, &path), id)));
                }
                _ => {}
            }
        }
    }
    let packed = common.join("packed-refs");
    if is_new(&packed) {
        let text = small_file::text(&packed, MAX_PACKED_BYTES);
        unread += usize::from(text.is_none());
        let text = text.unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        found.extend(lines.map(|(id, name)| (name.to_owned(), id.to_owned())));
    }
    found.retain(|(_, id)| is_id(id));
    (found, unread)
}

fn name_of(common: &Path, path: &Path) -> String {
    path.strip_prefix(common).unwrap_or(path).display().to_string()
}

/// Those of these names that are guarded in a working tree, and repositories among them: git obeys one that it enters.
fn runs_automatically(names: &BTreeSet<&str>, guarded: &GuardedPaths) -> Vec<String> {
    let is_guarded = |path: &Path| {
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        (0..parts.len()).filter(|start| builtin_paths::is_known(parts[*start])).any(|start| {
            let ends = start + 1..=parts.len().min(start + 3);
            ends.into_iter().any(|end| builtin_paths::guarded(&parts[start..end].join("/"), false).is_some())
        })
    };
    let is_bare = |path: &Path| {
        let beside = |name: &str| path.with_file_name(name);
        let is_there = |path: PathBuf| path.to_str().is_some_and(|path| names.contains(path));
        path.ends_with("HEAD") && (is_there(beside("config")) || is_there(beside(builtin_paths::GIT_COMMON)))
    };
    let run = names.iter().map(|name| (name, Path::new(name)));
    let run = run.filter(|(_, path)| guarded.hold(path) || is_guarded(path) || is_bare(path));
    run.map(|(name, _)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_run_automatically_are_those_of_the_table_and_bare_repositories() {
        let names =
            [".husky/pre-commit", "a/.vscode/tasks.json", "src/main.rs", "d/HEAD", "d/config", "HEAD", ""];
        let run = runs_automatically(&names.into_iter().collect(), &GuardedPaths::default());
        assert_eq!(run, [".husky/pre-commit", "a/.vscode/tasks.json", "d/HEAD"]);
    }
}
