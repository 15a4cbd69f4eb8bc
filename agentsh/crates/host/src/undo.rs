//! Versions of files that a session set aside, and how a person restores them: `agentsh undo FILE`.
//!
//! One directory for each session that needed it, below the records: an index of lines, and one file for each version.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::copies::Copy;

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
}

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
        match copy {
            Copy::Directory(entries) => {
                entries.iter().try_for_each(|(name, entry)| self.keep(&path.join(name), entry))
            }
            Copy::File { content, mode } => self.line(path, Some(content), *mode),
            Copy::Absent => self.line(path, None, 0),
            _ => Ok(()),
        }
    }

    fn line(&self, path: &Path, content: Option<&[u8]>, mode: u32) -> io::Result<()> {
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
        let line = Line { path: path.as_os_str().as_bytes().to_vec(), content: name, mode };
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
        let Some(line) = lines.into_iter().find(|line| line.path == path.as_os_str().as_bytes()) else {
            continue;
        };
        let wanted = match &line.content {
            Some(name) => Copy::File { content: fs::read(directory.join(name))?, mode: line.mode },
            None => Copy::Absent,
        };
        let session = SavedVersions { directory: directory.clone() };
        session.keep(path, &Copy::of(path))?;
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        wanted.put_back(path)?;
        let id = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Ok(Some(match line.content {
            Some(_) => format!("restored {} to the version that session {id} kept", path.display()),
            None => format!("removed {}: it did not exist before session {id}", path.display()),
        }));
    }
    Ok(None)
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
    let path = agentsh_sandbox::host::plain(&here.join(written));
    // The real path, with the links above it followed.
    match (path.parent().and_then(|above| above.canonicalize().ok()), path.file_name()) {
        (Some(above), Some(name)) => above.join(name),
        _ => path,
    }
}
