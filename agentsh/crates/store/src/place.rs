//! Where the store lies, and who may look at it.

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

/// Makes the directory (0700) and the database file (0600), or takes away what others may do to existing ones.
/// SQLite gives its `-wal` and `-shm` files the mode of the database.
pub(crate) fn prepare(state_dir: &Path) -> Result<(), StoreError> {
    let failed =
        |error: io::Error| StoreError::StateDir { path: state_dir.to_owned(), message: error.to_string() };
    if !state_dir.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(failed)?;
    }
    close_to_others(state_dir).map_err(failed)?;
    let file = database_file(state_dir);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => close_to_others(&file).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

/// Whether the disk of a file has less room than a new store takes.
pub(crate) fn has_no_room(file: &Path) -> bool {
    const NEEDED: u64 = 256 << 10;
    let found = rustix::fs::statvfs(file.parent().unwrap_or(file));
    found.is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < NEEDED)
}

fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    File::open(path)?.set_permissions(Permissions::from_mode(mode & 0o700))
}

/// Which file stands at a path. SQLite keeps writing into a file that was unlinked and calls it success.
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
    fn new_and_existing_places_are_closed_to_others() {
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
