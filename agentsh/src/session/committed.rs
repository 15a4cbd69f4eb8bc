//! What a run left in commits, the index and stashes under names that run automatically. Guards protect the working tree alone, and
//! a later checkout writes these files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agentsh_base::{escape, small_file};
use agentsh_host::user_git::{Git, OBEYS_NOTHING};
use agentsh_policy::builtin_paths;
use agentsh_store::Event;
use agentsh_store::words::GuardChange;

use super::Session;
use super::git_head::{Repository, is_id};

/// Refs that are looked at, and commits that are compared.
const MAX_REFS: usize = 1_000;
const MAX_COMPARED: usize = 20;
/// Names in one message.
const MAX_NAMES: usize = 10;
const MAX_REF_BYTES: u64 = 4 << 10;
const MAX_PACKED_BYTES: u64 = 16 << 20;
/// Of the names of one comparison.
const MAX_ANSWER_BYTES: u64 = 16 << 20;
/// Of a repository without commits (gitglossary(7), `git hash-object -t tree /dev/null`).
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Tells what commits, the index and stashes that were written since the start bring.
pub fn tell(session: &Session) {
    let context = &session.facts.context;
    let Some(Repository { own, common, head }) = Repository::of(&context.project) else { return };
    let Some((seconds, nanoseconds)) = session.facts.id.0.get_timestamp().map(|time| time.to_unix()) else {
        return;
    };
    // Nothing inside sets this time.
    let changed = |found: Metadata| (found.ctime().unsigned_abs(), found.ctime_nsec());
    let since = (seconds, i64::from(nanoseconds));
    let is_new = |path: &Path| path.symlink_metadata().is_ok_and(|found| changed(found) >= since);
    let start = session.facts.head.as_deref().unwrap_or(EMPTY_TREE);
    let mut compared: BTreeMap<String, (String, &[&str])> = BTreeMap::new();
    let head = head.map(|id| ("HEAD".to_owned(), id));
    for (name, id) in head.into_iter().chain(new_refs(&common, &is_new)).filter(|(_, id)| id != start) {
        compared.entry(id).or_insert((name, &["diff-tree", "-r"]));
    }
    let unread = compared.len().saturating_sub(MAX_COMPARED);
    let mut compared: Vec<_> = compared.into_iter().take(MAX_COMPARED).collect();
    if is_new(&own.join("index")) {
        compared.push((String::new(), ("the index".to_owned(), &["diff-index", "--cached"])));
    }
    let Some(git) = (!compared.is_empty()).then(|| Git::find(context)).flatten() else { return };
    let mut told = BTreeSet::new();
    for (id, (name, verb)) in compared {
        let revs = [start, &id].into_iter().filter(|rev| !rev.is_empty());
        let words = OBEYS_NOTHING.split(' ').chain(verb.iter().copied()).chain(["--name-only", "-z"]);
        let words: Vec<OsString> = words.chain(revs).chain(["--"]).map(OsString::from).collect();
        let Some(names) = git.ask_for(&words, &context.project, MAX_ANSWER_BYTES) else { continue };
        let names = String::from_utf8_lossy(&names);
        let run = runs_automatically(&names.split('\0').collect());
        if !run.is_empty() && told.insert(run.clone()) {
            say(session, &name, &run);
        }
    }
    if unread > 0 {
        session.record.note(&format!(
            "{unread} more new commits of this run were not looked at for files that run automatically"
        ));
    }
}

fn say(session: &Session, name: &str, run: &[String]) {
    let shown: Vec<_> = run.iter().take(MAX_NAMES).map(|path| escape::line(path)).collect();
    let more = run.len() - shown.len();
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    let detail = format!(
        "{} changes files that run automatically: {}{more}; look at them before you check it out",
        escape::line(name),
        shown.join(", ")
    );
    session.record.note(&detail);
    let path = session.facts.context.project.join(run.first().map_or("", String::as_str));
    let path = path.to_string_lossy().into_owned();
    let what = GuardChange::Instructions;
    session.record.journal.record(Event::GuardChanged { server_id: None, path, what, detail });
}

/// Refs that were written, with the objects that they name.
fn new_refs(common: &Path, is_new: &dyn Fn(&Path) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![common.join("refs")];
    let mut rest = MAX_REFS;
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten().take(rest) {
            rest -= 1;
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
        let text = small_file::text(&packed, MAX_PACKED_BYTES).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' ')).take(rest);
        found.extend(lines.map(|(id, name)| (name.to_owned(), id.to_owned())));
    }
    found.retain(|(_, id)| is_id(id));
    found
}

fn name_of(common: &Path, path: &Path) -> String {
    path.strip_prefix(common).unwrap_or(path).display().to_string()
}

/// Those of these names that are guarded in a working tree, and repositories among them: git obeys one that it enters.
fn runs_automatically(names: &BTreeSet<&str>) -> Vec<String> {
    let is_guarded = |path: &Path| {
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        (0..parts.len()).any(|start| {
            let ends = start + 1..=parts.len().min(start + 3);
            ends.into_iter().any(|end| builtin_paths::guarded(&parts[start..end].join("/"), false).is_some())
        })
    };
    let is_bare = |path: &Path| {
        let beside = |name: &str| path.with_file_name(name);
        let is_there = |path: PathBuf| path.to_str().is_some_and(|path| names.contains(path));
        path.ends_with("HEAD") && (is_there(beside("config")) || is_there(beside(builtin_paths::GIT_COMMON)))
    };
    let run = names.iter().filter(|name| is_guarded(Path::new(name)) || is_bare(Path::new(name)));
    run.map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_run_automatically_are_those_of_the_table_and_bare_repositories() {
        let names =
            [".husky/pre-commit", "a/.vscode/tasks.json", "src/main.rs", "d/HEAD", "d/config", "HEAD", ""];
        let run = runs_automatically(&names.into_iter().collect());
        assert_eq!(run, [".husky/pre-commit", "a/.vscode/tasks.json", "d/HEAD"]);
    }
}
