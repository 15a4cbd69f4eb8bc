//! Commits, read with the user's own git. Settings that make a repository show other commits are ignored.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agentsh_host::Context;
use agentsh_host::review;
use agentsh_host::user_git::{Git, OBEYS_NOTHING};
use agentsh_terminal::output::Failure;

/// Notes of commits that hold their receipts.
pub const NOTES: &str = "refs/notes/agentsh";
/// Size limit of one answer of git: a list of commits, a note, a file.
const MAX_BYTES: u64 = 64 << 20;

pub struct Repository {
    context: Context,
    directory: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub id: String,
    pub tree: String,
    /// When it was committed, in seconds since 1970; 0 where the commit says no such time.
    pub time: i64,
}

impl Repository {
    pub fn at(directory: &Path) -> Result<Self, Failure> {
        let (context, _) = Context::find_for_server().map_err(|error| Failure::Failed(error.to_string()))?;
        let directory = std::path::absolute(directory)?;
        Ok(Self { context, directory })
    }

    /// Whether there is one at all, which git may not be able to read.
    pub fn is_one(&self) -> bool {
        let is_there = |path: PathBuf| path.symlink_metadata().is_ok();
        self.directory.ancestors().any(|at| {
            is_there(at.join(".git"))
                || ["HEAD", "objects", "refs"].iter().all(|name| is_there(at.join(name)))
        })
    }

    pub fn commit(&self, rev: &str) -> Result<Commit, Failure> {
        // A range is no commit.
        let one = format!("{rev}^{{commit}}");
        let id =
            (!rev.starts_with('-')).then(|| self.ask(&["rev-parse", "--verify", "--quiet", &one])).flatten();
        let found = id.and_then(|id| self.list(&["--no-walk", id.trim()])?.pop());
        found.ok_or_else(|| {
            let place = self.directory.display();
            Failure::No(match self.is_one() {
                true if self.ask(&["rev-parse", "--git-dir"]).is_some() => {
                    format!("there is no commit '{rev}' in {place}")
                }
                true => {
                    format!("git does not read the repository of {place}: `git -C {place} status` says why")
                }
                false => format!("there is no repository in {place}"),
            })
        })
    }

    /// The commits after one, up to another one.
    pub fn commits_between(&self, before: &str, after: &str) -> Result<Vec<Commit>, Failure> {
        self.list_commits(&[after, &format!("^{before}")])
    }

    /// The commits that `left` reaches and `from` does not. Commits of `left` that no longer exist are skipped.
    pub fn commits_only_in(&self, left: &[String], from: [&str; 2]) -> Result<Vec<Commit>, Failure> {
        let from = from.map(|id| format!("^{id}"));
        let from = from.iter().map(String::as_str).chain(["--ignore-missing"]);
        self.list_commits(&from.chain(left.iter().map(String::as_str)).collect::<Vec<_>>())
    }

    fn list_commits(&self, revs: &[&str]) -> Result<Vec<Commit>, Failure> {
        self.list(revs).ok_or_else(|| {
            let (place, revs) = (self.directory.display(), revs.join(" "));
            Failure::Failed(format!("git does not list the commits {revs} in {place}"))
        })
    }

    /// The note that a commit has in [`NOTES`].
    pub fn note(&self, commit: &str) -> Option<String> {
        self.ask(&["notes", &format!("--ref={NOTES}"), "show", commit])
    }

    /// Writes the receipt in this file into the note of a commit, in place of another one.
    pub fn add_note(&self, commit: &str, file: &Path) -> Result<(), Failure> {
        let file = std::path::absolute(file)?.to_string_lossy().into_owned();
        let notes = format!("--ref={NOTES}");
        let words = ["notes", &notes, "add", "-f", "-F", &file, commit];
        let why = || Failure::Failed(format!("git does not write the note of {commit} in {NOTES}"));
        self.ask(&words).map(drop).ok_or_else(why)
    }

    /// SHA-256 of each file that differs between two commits; None: the later one does not have it.
    pub fn changed_files(&self, before: &str, commit: &str) -> Option<Vec<(String, Option<String>)>> {
        let names = self.differing_paths(&[before, commit])?;
        Some(names.into_iter().map(|name| (name.clone(), self.hash_in(commit, &name))).collect())
    }

    /// The files that a commit has otherwise than one of its parents.
    pub fn changed_by(&self, commit: &str) -> Option<Vec<String>> {
        self.differing_paths(&["--root", "-m", "--no-commit-id", commit])
    }

    fn differing_paths(&self, of: &[&str]) -> Option<Vec<String>> {
        let words = [&["diff-tree", "-r", "-z", "--no-renames", "--name-only"], of, &["--"]].concat();
        let names = self.ask(&words)?;
        Some(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// SHA-256 of a file in a commit; empty if the entry is not a readable file; None: the commit has no such entry.
    pub fn hash_in(&self, commit: &str, name: &str) -> Option<String> {
        if let Some(content) = self.answer(&["cat-file", "blob", &format!("{commit}:{name}")]) {
            return review::hash(content.as_slice()).ok();
        }
        let listed = self.ask(&["ls-tree", "--full-tree", "--name-only", commit, "--", name])?;
        (!listed.is_empty()).then(String::new)
    }

    /// SHA-256 of a file as it is in the working tree, or of where a link leads; None: there is none.
    pub fn hash_here(&self, name: &str) -> Option<String> {
        use std::os::unix::ffi::OsStrExt;
        let path = self.top_directory().join(name);
        match path.symlink_metadata().ok()?.file_type() {
            kind if kind.is_symlink() => review::hash(path.read_link().ok()?.as_os_str().as_bytes()).ok(),
            kind if kind.is_file() => review::hash(std::fs::File::open(path).ok()?).ok(),
            _ => Some(String::new()),
        }
    }

    /// The top directory of the project, to which the paths of a receipt are relative.
    pub fn top_directory(&self) -> &Path {
        let project = self.context.project.as_path();
        if project.is_dir() { project } else { &self.directory }
    }

    fn list(&self, revs: &[&str]) -> Option<Vec<Commit>> {
        let said = self.ask(&[&["rev-list", "--format=%H %T %ct"], revs, &["--"]].concat())?;
        let lines = said.lines().filter(|line| !line.starts_with("commit "));
        lines.map(read).collect()
    }

    fn ask(&self, words: &[&str]) -> Option<String> {
        String::from_utf8(self.answer(words)?).ok()
    }

    fn answer(&self, words: &[&str]) -> Option<Vec<u8>> {
        let git = Git::find(&self.context)?;
        let ask = |own: &[&str]| {
            let words = OBEYS_NOTHING.split(' ').chain(own.iter().chain(words).copied());
            let words: Vec<OsString> = words.map(OsString::from).collect();
            git.ask_for(&words, &self.directory, MAX_BYTES)
        };
        // A list of missing parents may name some that are there. In an honest one git stops at them.
        ask(&["--shallow-file", "/dev/null"]).or_else(|| ask(&[]))
    }
}

fn read(line: &str) -> Option<Commit> {
    let [id, tree, time] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    Some(Commit { id: id.to_owned(), tree: tree.to_owned(), time: time.parse().unwrap_or_default() })
}
