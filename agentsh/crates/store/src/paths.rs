//! Location and permissions of the store.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::StoreError;

/// `$XDG_STATE_HOME/agentsh`, or `~/.local/state/agentsh`. A relative XDG_STATE_HOME is ignored, as the XDG
/// specification says.
///
/// # Errors
/// [`StoreError::NoHome`] when neither variable is an absolute path.
pub fn state_dir() -> Result<PathBuf, StoreError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("agentsh"))
        .ok_or(StoreError::NoHome)
}

/// Whether anything was ever kept there.
#[must_use]
pub fn exists(state_dir: &Path) -> bool {
    database_file(state_dir).exists()
}

pub(crate) fn database_file(state_dir: &Path) -> PathBuf {
    state_dir.join("agentsh.db")
}

/// Makes the directory (0700) and the database file (0600), or removes the access of others to existing ones. SQLite
/// gives its `-wal` and `-shm` files the mode of the database.
pub(crate) fn prepare(state_dir: &Path) -> Result<(), StoreError> {
    let failed =
        |error: io::Error| StoreError::StateDir { path: state_dir.to_owned(), message: error.to_string() };
    if !close_to_others(state_dir).map_err(failed)?.is_some_and(|found| found.is_dir()) {
        DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(failed)?;
        close_to_others(state_dir).map_err(failed)?;
    }
    let file = database_file(state_dir);
    if close_to_others(&file).map_err(failed)?.is_some() {
        return Ok(());
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ => close_to_others(&file).map(drop).map_err(failed),
    }
}

/// The log that SQLite writes before the database.
pub(crate) fn log_file(database: &Path) -> PathBuf {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// Whether a loss of power never shows an older state of a file's length together with newer content: file systems with a log
/// of their metadata, or that never overwrite.
pub(crate) fn keeps_order(file: &Path) -> bool {
    const KEEPING: [u64; 8] = [
        0xEF53,      // ext4; ext2, which has no such log, shares the number
        0x5846_5342, // xfs
        0x9123_683E, // btrfs
        0xF2F5_2010, // f2fs
        0x2FC1_2FC1, // zfs
        0xCA45_1A4E, // bcachefs
        0x0102_1994, // tmpfs
        0x794C_7630, // overlayfs, which lies on one of them
    ];
    rustix::fs::statfs(file)
        .is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| KEEPING.contains(&kind)))
}

/// Whether the disk of a file has less room than a new store takes.
pub(crate) fn has_no_room(file: &Path) -> bool {
    const NEEDED: u64 = 256 << 10;
    let found = rustix::fs::statvfs(file.parent().unwrap_or(file));
    found.is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < NEEDED)
}

/// The metadata of the path; None: it does not exist.
fn close_to_others(path: &Path) -> io::Result<Option<fs::Metadata>> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let mode = found.permissions().mode();
    if mode & 0o077 != 0 {
        File::open(path)?.set_permissions(Permissions::from_mode(mode & 0o700))?;
    }
    Ok(Some(found))
}

/// The identity of the file at a path. SQLite keeps writing to an unlinked file and reports success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(Option<(u64, u64)>);

impl Identity {
    pub(crate) fn of(path: &Path) -> Self {
        Self(fs::metadata(path).ok().map(|found| (found.dev(), found.ino())))
    }

    pub(crate) fn exists(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn state_directories_are_closed_to_other_users() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("deep/agentsh");
        prepare(&state).unwrap();
        assert_eq!((mode(&state), mode(&database_file(&state))), (0o700, 0o600));
        fs::set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(database_file(&state), Permissions::from_mode(0o644)).unwrap();
        prepare(&state).unwrap();
        assert_eq!((mode(&state), mode(&database_file(&state))), (0o700, 0o600));
    }

    #[test]
    fn a_file_in_the_way_is_an_error_that_names_it() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("agentsh");
        fs::write(&state, "").unwrap();
        let error = prepare(&state).unwrap_err().to_string();
        assert!(error.contains("agentsh"), "{error}");
    }
}
