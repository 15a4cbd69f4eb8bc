//! Versions of files that a session set aside, and how a person restores them: `agentsh undo FILE`.
//!
//! One directory for each session that needed it, below the records: an index of lines, and one file for each version.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::copies::{Copy, make_directories_above};

/// Sessions of which versions are kept.
const MAX_SESSIONS: usize = 50;

/// Files that one session keeps versions of: an agent can make hooks without end.
const MAX_VERSIONS: usize = 2_000;

/// The versions that one session saves.
#[derive(Clone, Debug)]
pub struct SavedVersions {
    directory: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    path: Vec<u8>,
    /// Name of the file with the content; None: nothing was there.
    content: Option<String>,
    mode: u32,
    /// What the user had there: restored rather than what a sandbox wrote later.
    #[serde(default)]
    is_users: bool,
}

/// The mode of a link, whose content is its target.
const LINK: u32 = 0o120_777;

impl SavedVersions {
    #[must_use]
    pub fn new(state: &Path, session: &str) -> Self {
        Self { directory: state.join("undo").join(session) }
    }

    /// Keeps a version. Directories are kept file by file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, path: &Path, copy: &Copy) -> io::Result<()> {
        self.keep_as(path, copy, false)
    }

    /// Keeps what the user had there, which `agentsh undo` restores rather than later versions.
    ///
    /// # Errors
    /// When it cannot be written, or was not read.
    pub fn keep_users(&self, path: &Path, copy: &Copy) -> io::Result<()> {
        self.keep_as(path, copy, true)
    }

    fn keep_as(&self, path: &Path, copy: &Copy, is_users: bool) -> io::Result<()> {
        let line = |content, mode| self.line(path, content, mode, is_users);
        match copy {
            Copy::Directory(entries) => {
                entries.iter().try_for_each(|(name, entry)| self.keep_as(&path.join(name), entry, is_users))
            }
            Copy::File { content, mode } => line(Some(content), *mode),
            Copy::Link(to) => line(Some(to.as_os_str().as_bytes()), LINK),
            Copy::Absent => line(None, 0),
            Copy::Special => Ok(()),
            Copy::Unread { .. } => Err(io::Error::other("it is too large to be kept, or not readable")),
            Copy::Unreachable { there, .. } => {
                Err(io::Error::other(format!("{} is not a directory", there.display())))
            }
        }
    }

    fn line(&self, path: &Path, content: Option<&[u8]>, mode: u32, is_users: bool) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let number = fs::read_dir(&self.directory)?.count();
        if number >= MAX_VERSIONS {
            return Err(io::Error::other("too many versions of files were set aside in this session"));
        }
        let name = content.map(|_| format!("{number}-{}", std::process::id()));
        if let (Some(content), Some(name)) = (content, &name) {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(self.directory.join(name))?;
            file.write_all(content)?;
        }
        let line = Line { path: path.as_os_str().as_bytes().to_vec(), content: name, mode, is_users };
        let text = serde_json::to_string(&line).map_err(io::Error::other)? + "\n";
        let mut index = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.directory.join("index"))?;
        index.write_all(text.as_bytes())
    }
}

/// Restores the newest saved version of a file, and saves the current one: doing it twice changes nothing. Returns what was
/// done; None if no session knows the file.
///
/// # Errors
/// When it cannot be read or written.
pub fn undo(state: &Path, path: &Path) -> io::Result<Option<String>> {
    for directory in sessions(state) {
        let text = fs::read_to_string(directory.join("index")).unwrap_or_default();
        let lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let of_path = lines.filter(|line| line.path == path.as_os_str().as_bytes());
        let mut lines: Vec<Line> = of_path.collect();
        // The newest of the user's, or else of all.
        lines.sort_by_key(|line| !line.is_users);
        let Some(line) = lines.into_iter().next() else { continue };
        let wanted = match &line.content {
            Some(name) => {
                let content = fs::read(directory.join(name))?;
                match line.mode {
                    LINK => Copy::Link(OsString::from_vec(content).into()),
                    mode => Copy::File { content, mode },
                }
            }
            None => Copy::Absent,
        };
        let session = SavedVersions { directory: directory.clone() };
        session.keep_as(path, &Copy::of(path), line.is_users)?;
        make_directories_above(path)?;
        wanted.put_back(path)?;
        let id = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Ok(Some(match line.content {
            Some(_) => format!("restored {} to the version that session {id} kept", path.display()),
            None => format!("removed {}: it did not exist before session {id}", path.display()),
        }));
    }
    Ok(None)
}

/// The files below a directory of which the newest session that knows one keeps a version.
#[must_use]
pub fn kept_below(state: &Path, directory: &Path) -> BTreeSet<PathBuf> {
    let below = |line: Line| {
        let path = PathBuf::from(OsString::from_vec(line.path));
        (path.starts_with(directory) && path != directory).then_some(path)
    };
    let of_session = |session: PathBuf| -> BTreeSet<PathBuf> {
        let text = fs::read_to_string(session.join("index")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter_map(below).collect()
    };
    sessions(state).into_iter().map(of_session).find(|kept| !kept.is_empty()).unwrap_or_default()
}

/// Newest first.
fn sessions(state: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(state.join("undo")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    // Identities of sessions begin with the time.
    found.sort();
    found.reverse();
    found
}

/// Removes what the oldest sessions kept.
pub fn forget_old(state: &Path) {
    for directory in sessions(state).into_iter().skip(MAX_SESSIONS) {
        let _ = fs::remove_dir_all(directory);
    }
}

/// A path from a command line, made absolute from the working directory.
#[must_use]
pub fn absolute(written: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let path = agentsh_sandbox::host::normalised_path(&here.join(written));
    // The real path, with the links above it followed.
    match (path.parent().and_then(|above| above.canonicalize().ok()), path.file_name()) {
        (Some(above), Some(name)) => above.join(name),
        _ => path,
    }
}
