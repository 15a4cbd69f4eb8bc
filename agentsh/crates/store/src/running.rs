//! Running sessions: each holds a lock on a file, which ends with its process.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::types::SessionId;

/// Marks a session as running until it is dropped.
#[derive(Debug)]
pub struct RunningMark {
    /// Holds the lock.
    _file: File,
    path: PathBuf,
}

impl RunningMark {
    /// # Errors
    /// When the file cannot be made or locked.
    pub fn set(state_dir: &Path, session: SessionId) -> io::Result<Self> {
        let directory = directory(state_dir);
        let path = directory.join(session.to_string());
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        loop {
            let file = match open() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
                    open()?
                }
                file => file?,
            };
            flock(&file, FlockOperation::LockExclusive)?;
            // Another process may have removed it in between as a leftover.
            let (held, named) = (file.metadata()?, fs::metadata(&path));
            if named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())) {
                return Ok(Self { _file: file, path });
            }
        }
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        // The file may stay: its lock says that the session has ended.
        let _may_be_gone = fs::remove_file(&self.path);
    }
}

/// Whether a session runs now. Unknown counts as no.
#[must_use]
pub fn is_running(state_dir: &Path, session: SessionId) -> bool {
    let path = directory(state_dir).join(session.to_string());
    let Ok(file) = File::open(&path) else { return false };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => true,
        // Left behind by a session that was killed.
        Ok(()) => {
            let _may_be_gone = fs::remove_file(&path);
            false
        }
        Err(_) => false,
    }
}

/// The sessions that run, in the order of their ids, which is that of their beginnings.
#[must_use]
pub fn running(state_dir: &Path) -> Vec<SessionId> {
    let entries = fs::read_dir(directory(state_dir)).into_iter().flatten().flatten();
    let mut found: Vec<SessionId> = entries
        .filter_map(|entry| Some(SessionId(entry.file_name().to_str()?.parse().ok()?)))
        .filter(|session| is_running(state_dir, *session))
        .collect();
    found.sort_unstable();
    found
}

fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join("running")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn session_counts_as_running_while_its_lock_is_held() {
        let state = tempfile::tempdir().unwrap();
        let session = SessionId(uuid::Uuid::from_u128(7));
        assert!(!is_running(state.path(), session));
        let mark = RunningMark::set(state.path(), session).unwrap();
        assert_eq!((is_running(state.path(), session), running(state.path())), (true, vec![session]));
        drop(mark);
        assert_eq!((is_running(state.path(), session), running(state.path())), (false, vec![]));
        // Killed: the file exists, and no process holds it.
        let path = directory(state.path()).join(session.to_string());
        fs::write(&path, "").unwrap();
        assert!(!is_running(state.path(), session) && !path.exists());
    }
}
