//! Finds the file of a command on disk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use agentsh_base::real_paths::real_path;
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat};
use rustix::io::Errno;

use super::PinError;
use super::file::kind_name;

/// A command that was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Absolute, as found: links are still in it.
    pub path: PathBuf,
    /// Absolute, every link followed.
    pub real: PathBuf,
}

impl Found {
    /// Last part of the path as found, then of the file behind the links.
    pub fn names(&self) -> [&str; 2] {
        [file_name(&self.path), file_name(&self.real)]
    }
}

pub(super) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Searches like `execvp`, but ignores empty and relative entries of PATH: they would let the working directory, which belongs
/// to the project, decide what runs.
pub(super) fn command(word: &OsStr, cwd: &Path, path_env: &OsStr) -> Result<Found, PinError> {
    if word.as_bytes().contains(&b'/') {
        return executable(&absolute(cwd, Path::new(word)));
    }
    let mut refused = None;
    if !word.is_empty() {
        for directory in path_directories(path_env) {
            let path = directory.join(word);
            // Most directories of PATH do not contain it, which one call shows.
            if matches!(rustix::fs::lstat(&path), Err(Errno::NOENT | Errno::NOTDIR)) {
                continue;
            }
            match executable(&path) {
                Ok(found) => return Ok(found),
                // A directory that this user may not search contains no program for them: shells continue as well.
                Err(error) if error.is_absent() || matches!(error, PinError::Unreadable { .. }) => {}
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    Err(refused.unwrap_or_else(|| PinError::NotFound { program: word.to_string_lossy().into_owned() }))
}

pub(super) fn path_directories(path_env: &OsStr) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(path_env)
        .filter(|directory| directory.is_absolute())
        .collect::<Vec<_>>()
        .into_iter()
}

fn executable(path: &Path) -> Result<Found, PinError> {
    let (found, stat) = file_and_stat(path)?;
    let allowed = rustix::fs::accessat(CWD, &found.real, Access::EXEC_OK, AtFlags::EACCESS);
    if allowed.is_err() || stat.st_mode & 0o111 == 0 {
        return Err(PinError::NotExecutable { path: path.to_owned() });
    }
    Ok(found)
}

/// Files that the kernel generates: open descriptors, such as that of a process substitution, and its own tables. They cannot
/// be hashed in advance.
pub(super) fn is_made_up(word: &OsStr) -> bool {
    const PLACES: [&[u8]; 3] = [b"/dev/", b"/proc/", b"/sys/"];
    PLACES.iter().any(|place| word.as_encoded_bytes().starts_with(place))
}

/// A regular file behind any links.
pub(super) fn file(path: &Path) -> Result<Found, PinError> {
    file_and_stat(path).map(|(found, _)| found)
}

fn file_and_stat(path: &Path) -> Result<(Found, Stat), PinError> {
    let found = find_file(path)?;
    let stat = rustix::fs::lstat(&found.real).map_err(|source| PinError::io(path, source))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((found, stat)),
        other => Err(PinError::NotRegular { path: path.to_owned(), kind: kind_name(other) }),
    }
}

pub(super) fn directory(path: &Path) -> Option<PathBuf> {
    find_file(path).ok().map(|found| found.real).filter(|real| real.is_dir())
}

fn find_file(path: &Path) -> Result<Found, PinError> {
    let real = real_path(path).map_err(|source| PinError::io(path, source))?;
    Ok(Found { path: path.to_owned(), real })
}

/// Joins and removes `.`; `..` stays, because what it means depends on links.
pub(super) fn absolute(cwd: &Path, path: &Path) -> PathBuf {
    cwd.join(path).components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

/// Reads a small text file (package.json, pyvenv.cfg): at most `limit` bytes, None when it does not exist.
pub(super) fn text(path: &Path, limit: u64) -> Result<Option<String>, PinError> {
    use std::io::Read;
    if matches!(rustix::fs::lstat(path), Err(Errno::NOENT | Errno::NOTDIR)) {
        return Ok(None);
    }
    let real = match file(path) {
        Ok(found) => found.real,
        Err(error) if error.is_absent() => return Ok(None),
        Err(error) => return Err(error),
    };
    let bad = |why: &str| PinError::BadManifest { path: path.to_owned(), why: why.to_owned() };
    let mut bytes = Vec::new();
    super::file::open(&real)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|source| PinError::io(path, source))?;
    if bytes.len() as u64 > limit {
        return Err(bad("is too large for this kind of file"));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| bad("is not UTF-8"))
}

/// Directories inside `path`, sorted, with links followed; empty when there is none or it cannot be read.
pub(super) fn subdirectories(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.take(10_000).flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}
