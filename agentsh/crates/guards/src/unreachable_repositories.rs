//! Repositories that cannot be reached by a path: nested too deeply, or below an unreadable directory. Found by
//! descriptors, and disarmed by renaming.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};

use super::new_repositories::is_repository_name;
use agentsh_policy::builtin_paths::{GIT_BARE, GIT_COMMON};

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory on the path of the walk.
struct Level {
    identity: (u64, u64),
    /// Subdirectories still to visit.
    open: Vec<OsString>,
    /// The mode to restore.
    mode: Option<Mode>,
}

/// Renames all repositories below a directory, at any depth, except those that `was_there` knows. Call when nothing
/// runs inside.
///
/// # Errors
/// When a directory cannot be read, or is moved in the meantime; earlier renames stay.
pub fn rename_repositories(
    top: &Path,
    was_there: &dyn Fn(&Path) -> bool,
    renamed: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let (mut current, mode) = open(CWD, top.as_os_str())?;
    let mut path = top.to_owned();
    let mut levels = vec![enter(&current, mode, &path, was_there, renamed)?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.open.pop() {
            let (next, mode) = open(&current, &name)?;
            path.push(&name);
            levels.push(enter(&next, mode, &path, was_there, renamed)?);
            current = next;
            continue;
        }
        if let Some(mode) = level.mode {
            rustix::fs::fchmod(&current, mode)?;
        }
        levels.pop();
        path.pop();
        if let Some(above) = levels.last() {
            current = rustix::fs::openat(&current, "..", DIRECTORY, Mode::empty())?;
            if identity(&current)? != above.identity {
                return Err(io::Error::other("directories were moved in the meantime"));
            }
        }
    }
    Ok(())
}

/// Opens a directory, also one that its owner may not list or change, and returns its original mode.
fn open(above: impl std::os::fd::AsFd, name: &OsStr) -> io::Result<(OwnedFd, Option<Mode>)> {
    let mode = |found: rustix::fs::Stat| Mode::from_raw_mode(found.st_mode);
    let open = || rustix::fs::openat(&above, name, DIRECTORY, Mode::empty());
    match open() {
        Err(rustix::io::Errno::ACCESS) => {
            let mode = mode(rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?);
            rustix::fs::chmodat(&above, name, mode | Mode::RWXU, AtFlags::empty())?;
            Ok((open()?, Some(mode)))
        }
        opened => {
            let opened = opened?;
            let mode = mode(rustix::fs::fstat(&opened)?);
            let is_closed = !mode.contains(Mode::RWXU);
            // A directory of another user stays closed.
            let is_opened = is_closed && rustix::fs::fchmod(&opened, mode | Mode::RWXU).is_ok();
            Ok((opened, is_opened.then_some(mode)))
        }
    }
}

fn identity(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let found = rustix::fs::fstat(directory)?;
    Ok((found.st_dev, found.st_ino))
}

/// Renames repositories in a directory, and lists its subdirectories.
fn enter(
    directory: &OwnedFd,
    mode: Option<Mode>,
    path: &Path,
    was_there: &dyn Fn(&Path) -> bool,
    renamed: &mut Vec<PathBuf>,
) -> io::Result<Level> {
    let mut level = Level { identity: identity(directory)?, open: Vec::new(), mode };
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        if name == "." || name == ".." {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Unknown => {
                let found = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(found.st_mode) == FileType::Directory
            }
            kind => kind == FileType::Directory,
        };
        if is_directory && !is_repository_name(Path::new(&name)) {
            level.open.push(name.clone());
        }
        names.push(name);
    }
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    // git needs HEAD to recognise a repository.
    let is_bare =
        has("HEAD") && (GIT_BARE.iter().all(|part| has(part)) || has(GIT_COMMON)) && !was_there(path);
    let is_new = |name: &&OsString| match is_repository_name(Path::new(name)) {
        true => !was_there(&path.join(name)),
        false => is_bare && *name == "HEAD",
    };
    for name in names.iter().filter(is_new) {
        let mut aside = name.clone();
        aside.push(format!(".set-aside-{}", uuid::Uuid::now_v7().simple()));
        rustix::fs::renameat_with(directory, name, directory, &aside, RenameFlags::NOREPLACE)?;
        renamed.push(path.join(name));
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    /// Makes directories in each other and gives the last.
    fn chain(top: &Path, count: usize) -> OwnedFd {
        let mut at = open(CWD, top.as_os_str()).unwrap().0;
        for _ in 0..count {
            rustix::fs::mkdirat(&at, "a-directory-in-a-directory", Mode::RWXU).unwrap();
            at = open(&at, OsStr::new("a-directory-in-a-directory")).unwrap().0;
        }
        at
    }

    #[test]
    fn repositories_past_path_max_get_another_name() {
        let place = tempfile::tempdir().unwrap();
        let end = chain(place.path(), 400);
        let is_there = |name: &str| rustix::fs::statat(&end, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        for name in [".git", "objects", "refs", ".hg"] {
            rustix::fs::mkdirat(&end, name, Mode::RWXU).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        drop(rustix::fs::openat(&end, "HEAD", flags, Mode::RWXU).unwrap());
        let mut renamed = Vec::new();
        rename_repositories(place.path(), &|_| true, &mut renamed).unwrap();
        assert!(renamed.is_empty(), "they were there before");
        rename_repositories(place.path(), &|_| false, &mut renamed).unwrap();
        assert_eq!(renamed.len(), 3, "{renamed:?}");
        assert!(renamed.iter().all(|path| path.as_os_str().len() > 4096));
        assert!(!is_there(".git") && !is_there(".hg") && !is_there("HEAD"));
        assert!(is_there("objects") && is_there("refs"));
        rename_repositories(place.path(), &|_| false, &mut renamed).unwrap();
        assert_eq!(renamed.len(), 3, "nothing is left");
    }
}
