//! One file for each server that the user is logged in to, readable for him alone.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::login::grant::Grant;

use super::super::copies::write_anew;
use super::super::credentials::private;

/// Below the state directory.
const DIRECTORY: &str = "logins";

/// Tells whether a file is still the one that was read.
pub type Stamp = (u64, u64, i64, i64);

#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self { directory: state.join(DIRECTORY) }
    }

    fn file(&self, url: &str, ending: &str) -> PathBuf {
        let hash = Sha256::digest(url.as_bytes());
        let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(format!("{name}.{ending}"))
    }

    /// None when there is no such file.
    #[must_use]
    pub fn stamp(&self, url: &str) -> Option<Stamp> {
        let found = fs::metadata(self.file(url, "json")).ok()?;
        Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    }

    /// The login to the server at this address.
    ///
    /// # Errors
    /// When there is one that cannot be used, such as one that others can read.
    pub fn find(&self, url: &str) -> Result<Option<Grant>, String> {
        let path = self.file(url, "json");
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        // What was found under this name must be about it.
        read(&path).map(|grant| Some(grant).filter(|grant| grant.url == url))
    }

    /// All logins, and why one cannot be read.
    #[must_use]
    pub fn all(&self) -> Vec<Result<Grant, String>> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        let mut all: Vec<_> = paths.iter().map(|path| read(path)).collect();
        all.sort_by_key(|one| one.as_ref().map(|grant| (grant.name.clone(), grant.url.clone())).ok());
        all
    }

    /// Waits until nobody else changes this login. Held until the file is dropped.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn lock(&self, url: &str) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let path = self.file(url, "lock");
        let file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Keeps a login, in place of an earlier one to the same server.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, grant: &Grant, _lock: &File) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(grant).map_err(io::Error::from)?;
        write_anew(&self.file(&grant.url, "json"), &text, 0o600)
    }

    /// Forgets a login. False: there was none.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, url: &str, _lock: &File) -> io::Result<bool> {
        match fs::remove_file(self.file(url, "json")) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn read(path: &Path) -> Result<Grant, String> {
    let text = private(path)?;
    serde_json::from_str(&text)
        .map_err(|error| format!("{}:{}: this is no login; remove the file", path.display(), error.line()))
}
