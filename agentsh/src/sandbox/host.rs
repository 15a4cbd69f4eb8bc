//! The one question that a layout asks of the machine: what stands at a path.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What the host says about a path, symlinks not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Directory,
    File,
    Symlink,
    /// Sockets, devices, pipes.
    Special,
}

/// Where the host is asked; a table in tests.
pub trait Host {
    fn look(&self, path: &Path) -> Option<Found>;
    /// Target of a symlink as written.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// Git repositories below a directory, without the directory itself; None when there was too much to look at.
    fn repositories(&self, directory: &Path) -> Option<Vec<PathBuf>>;
    /// Directories of submodules and linked working trees below a `.git`.
    fn modules(&self, git: &Path) -> Vec<PathBuf>;
}

/// The real host, with bounded effort.
pub struct RealHost;

/// Directory entries looked at in search of repositories: about 100 ms on a cold disk.
const MOST_ENTRIES: usize = 200_000;

impl Host for RealHost {
    fn look(&self, path: &Path) -> Option<Found> {
        let kind = std::fs::symlink_metadata(path).ok()?.file_type();
        Some(if kind.is_dir() {
            Found::Directory
        } else if kind.is_file() {
            Found::File
        } else if kind.is_symlink() {
            Found::Symlink
        } else {
            Found::Special
        })
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        std::fs::read_link(path).ok()
    }

    fn repositories(&self, directory: &Path) -> Option<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut open = vec![directory.to_owned()];
        let mut budget = MOST_ENTRIES;
        while let Some(current) = open.pop() {
            let Ok(entries) = std::fs::read_dir(&current) else { continue };
            for entry in entries.flatten() {
                budget = budget.checked_sub(1)?;
                let name = entry.file_name();
                if name == OsStr::new(".git") {
                    if current != directory {
                        found.push(current.clone());
                    }
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(entry.path());
                }
            }
        }
        // Outer repositories first: an inner one is mounted on top.
        found.sort();
        Some(found)
    }

    fn modules(&self, git: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![git.join("modules"), git.join("worktrees")];
        while let Some(current) = open.pop() {
            // Names of submodules may hold slashes, so that the directory of one may lie deeper.
            if current.join("HEAD").exists() {
                open.push(current.join("modules"));
                open.push(current.join("worktrees"));
                found.push(current);
                continue;
            }
            let entries = std::fs::read_dir(&current).into_iter().flatten().flatten();
            let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            open.extend(directories.map(|entry| entry.path()));
        }
        found.sort();
        found
    }
}
