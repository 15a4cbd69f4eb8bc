//! The project of a directory as Claude Code sees it: its repository, and for a linked worktree the main one.

use std::path::{Path, PathBuf};

use crate::read;

/// Longest pointer file of git that is read.
const POINTER_BYTES: u64 = 4096;

/// The main checkout of the repository of a directory; the directory itself if there is none, or if a `.git` file names a
/// repository that does not know it.
pub(super) fn main_checkout(cwd: &Path) -> PathBuf {
    let Some(root) = cwd.ancestors().find(|directory| directory.join(".git").symlink_metadata().is_ok())
    else {
        return cwd.to_owned();
    };
    let file = root.join(".git");
    if file.is_dir() {
        return root.to_owned();
    }
    match pointed_to(root, &file) {
        // A submodule, or a repository whose directory is elsewhere, is separate.
        Some(git) if worktree_of(&git).is_none() => root.to_owned(),
        Some(git) => match worktree_of(&git) {
            Some(main) if names_worktree(&git, &file) => main,
            _ => cwd.to_owned(),
        },
        None => cwd.to_owned(),
    }
}

/// The directory that a `.git` file names, with links and `..` resolved.
fn pointed_to(root: &Path, file: &Path) -> Option<PathBuf> {
    let text = read::text(file, POINTER_BYTES).ok().flatten()?;
    let pointer = root.join(text.strip_prefix("gitdir:")?.trim());
    std::fs::canonicalize(pointer).ok()
}

/// The main checkout, when a directory is where git keeps a linked worktree: `MAIN/.git/worktrees/NAME`.
fn worktree_of(git: &Path) -> Option<PathBuf> {
    let all = git.parent().filter(|all| all.file_name().is_some_and(|name| name == "worktrees"))?;
    let common = all.parent().filter(|common| common.file_name().is_some_and(|name| name == ".git"))?;
    common.parent().map(Path::to_owned)
}

/// Whether git has recorded this worktree there. The reverse reference alone can be forged in a clone.
fn names_worktree(git: &Path, file: &Path) -> bool {
    let Ok(Some(text)) = read::text(&git.join("gitdir"), POINTER_BYTES) else { return false };
    let back = std::fs::canonicalize(git.join(text.trim()));
    back.is_ok_and(|back| std::fs::canonicalize(file).is_ok_and(|file| file == back))
}
