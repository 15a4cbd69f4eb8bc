//! Commits, as the user's own git says. What stands in a repository about other objects (replacements) counts for nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::super::output::Failure;
use crate::session::Context;
use agentsh_host::user_git::Git;

/// Notes of commits that hold their receipts.
pub const NOTES: &str = "refs/notes/agentsh";

pub struct Repository {
    context: Context,
    directory: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub id: String,
    pub tree: String,
    /// When it was committed, in seconds since 1970.
    pub time: i64,
}

impl Repository {
    pub fn at(directory: &Path) -> Result<Self, Failure> {
        let (context, _) = Context::find_for_server().map_err(|error| Failure::Failed(error.to_string()))?;
        let directory = std::path::absolute(directory)?;
        Ok(Self { context, directory })
    }

    /// Whether there is one at all.
    pub fn is_one(&self) -> bool {
        self.ask(&["rev-parse", "--git-dir"]).is_some()
    }

    pub fn commit(&self, rev: &str) -> Result<Commit, Failure> {
        let found = match rev.starts_with('-') {
            true => None,
            false => self.list(&["--no-walk", rev]).and_then(|list| list.into_iter().next()),
        };
        found
            .ok_or_else(|| Failure::No(format!("there is no commit '{rev}' in {}", self.directory.display())))
    }

    /// Those that came behind one, up to another one.
    pub fn between(&self, before: &str, after: &str) -> Result<Vec<Commit>, Failure> {
        let revs = [after, &format!("^{before}")];
        self.list(&revs).ok_or_else(|| {
            let place = self.directory.display();
            Failure::Failed(format!("git does not list the commits up to {after} in {place}"))
        })
    }

    /// The note that a commit has in [`NOTES`].
    pub fn note(&self, commit: &str) -> Option<String> {
        self.ask(&["notes", &format!("--ref={NOTES}"), "show", commit])
    }

    fn list(&self, revs: &[&str]) -> Option<Vec<Commit>> {
        let said = self.ask(&[&["rev-list", "--format=%H %T %ct"], revs, &["--"]].concat())?;
        let lines = said.lines().filter(|line| !line.starts_with("commit "));
        lines.map(read).collect()
    }

    fn ask(&self, words: &[&str]) -> Option<String> {
        let words: Vec<OsString> =
            ["--no-replace-objects"].iter().chain(words).map(|word| OsString::from(*word)).collect();
        String::from_utf8(Git::find(&self.context)?.ask(&words, &self.directory)?).ok()
    }
}

fn read(line: &str) -> Option<Commit> {
    let [id, tree, time] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    Some(Commit { id: id.to_owned(), tree: tree.to_owned(), time: time.parse().ok()? })
}
