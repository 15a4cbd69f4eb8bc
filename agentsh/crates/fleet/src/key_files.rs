//! The files of a host's key and a person's credential, readable only for their owner.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A host that is enrolled, or about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    pub url: String,
    /// Empty until the server has answered.
    pub host: String,
    pub name: String,
    /// For [`crate::keys::HostKey::read`].
    pub key: String,
}

/// The credential of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginFile {
    pub url: String,
    pub name: String,
    pub role: String,
    pub credential: String,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot use '{path}': {error}")]
    Io { path: String, error: io::Error },
    #[error("'{0}' can be read by others: chmod 600")]
    Open(String),
    #[error("'{path}' is not a valid file of agentsh: {why}")]
    Wrong { path: String, why: String },
}

#[must_use]
pub fn host_file(state_dir: &Path) -> PathBuf {
    state_dir.join("fleet/host.json")
}

#[must_use]
pub fn login_file(state_dir: &Path) -> PathBuf {
    state_dir.join("fleet/login.json")
}

/// This host, where it is enrolled and its file can be read.
#[must_use]
pub fn enrolled_host(state_dir: &Path) -> Option<HostFile> {
    let file: Option<HostFile> = read(&host_file(state_dir)).ok()?;
    file.filter(|file| !file.host.is_empty())
}

/// Says when the whole journal was last compared.
#[must_use]
pub fn compared_file(state_dir: &Path) -> PathBuf {
    state_dir.join("fleet/compared")
}

/// Says when the organisation's bundle was last fetched.
#[must_use]
pub fn fetched_file(state_dir: &Path) -> PathBuf {
    state_dir.join("fleet/fetched")
}

/// None: there is no such file.
///
/// # Errors
/// A file that others may read, or that cannot be read.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, KeyFileError> {
    let shown = path.display().to_string();
    let failed = |error| KeyFileError::Io { path: shown.clone(), error };
    match fs::metadata(path) {
        Ok(found) if found.mode() & 0o077 != 0 => return Err(KeyFileError::Open(shown)),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    }
    let text = fs::read(path).map_err(failed)?;
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| KeyFileError::Wrong { path: shown.clone(), why: error.to_string() })
}

/// Puts a file (0600) in place of the one before, as a whole.
///
/// # Errors
/// When it cannot be written.
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), KeyFileError> {
    let failed = |error| KeyFileError::Io { path: path.display().to_string(), error };
    let text = serde_json::to_vec_pretty(value).map_err(|error| failed(error.into()))?;
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    }
    let beside = path.with_extension("new");
    // Left behind by a killed process.
    let _may_be_none = fs::remove_file(&beside);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}

/// Held by the one process that forwards; None while another one holds it.
///
/// # Errors
/// When the file cannot be made.
pub fn lock(state_dir: &Path) -> Result<Option<File>, KeyFileError> {
    let path = state_dir.join("fleet/forward.lock");
    let failed = |error: io::Error| KeyFileError::Io { path: path.display().to_string(), error };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(failed(error.into())),
    }
}
