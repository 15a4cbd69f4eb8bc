//! One file for each login, readable only for the user. On a desktop its secret store holds the tokens, and the file
//! the rest.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use agentsh_login::grant::Grant;

use super::keyring::Keyring;
use crate::credentials::private;
use agentsh_host::Context;
use agentsh_host::copies::write_anew;

/// Below the state directory.
const DIRECTORY: &str = "logins";

/// Checks whether a file is still the one that was read.
pub type Stamp = (u64, u64, i64, i64);

#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
    keyring: Option<Keyring>,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    grant: Grant,
    /// The secrets of the grant are empty here, and are in the desktop's store.
    #[serde(default)]
    in_keyring: bool,
}

/// The secret part of a grant.
#[derive(Serialize, Deserialize)]
struct Secrets {
    access_token: String,
    refresh_token: Option<String>,
    client_secret: Option<String>,
}

impl Secrets {
    /// Takes them out of a grant. That there is a refresh token can still be seen.
    fn of(grant: &mut Grant) -> Self {
        Self {
            access_token: std::mem::take(&mut grant.access_token),
            refresh_token: grant.refresh_token.as_mut().map(std::mem::take),
            client_secret: grant.client.secret.take(),
        }
    }

    fn put_back(self, grant: &mut Grant) {
        grant.access_token = self.access_token;
        grant.refresh_token = self.refresh_token;
        grant.client.secret = self.client_secret;
    }
}

impl Store {
    /// For what is not a secret.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self { directory: state.join(DIRECTORY), keyring: None }
    }

    #[must_use]
    pub fn of(context: &Context) -> Self {
        Self { keyring: Keyring::of(context), ..Self::new(&context.state) }
    }

    fn file(&self, url: &str, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", name(url)))
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
    /// A grant exists but cannot be used, for example because other users can read it.
    pub fn find(&self, url: &str) -> Result<Option<Grant>, String> {
        let path = self.file(url, "json");
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let Entry { mut grant, in_keyring } = read(&path)?;
        // The file must be about this URL.
        if grant.url != url {
            return Ok(None);
        }
        if in_keyring {
            let gone = "its tokens are in the desktop's secret store, which is not available";
            let keyring = self.keyring.as_ref().ok_or_else(|| gone.to_owned())?;
            let text = keyring.find(&name(url))?;
            let secrets: Secrets = serde_json::from_str(text.trim()).map_err(|_| {
                "the entry in the desktop's secret store is not a login; `agentsh logout` removes it"
                    .to_owned()
            })?;
            secrets.put_back(&mut grant);
        }
        Ok(Some(grant))
    }

    /// All logins, without what is in the desktop's store, and why one cannot be read.
    #[must_use]
    pub fn all(&self) -> Vec<Result<Grant, String>> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        let mut all: Vec<_> = paths.iter().map(|path| read(path).map(|entry| entry.grant)).collect();
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

    /// Keeps a login, in place of an earlier one to the same server: its tokens where they were, or, if it is the first, in the
    /// desktop's store if that takes them. Gives whether they are there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, grant: &Grant, is_renewed: bool, _lock: &File) -> io::Result<bool> {
        let path = self.file(&grant.url, "json");
        let stay = is_renewed && read(&path).is_ok_and(|entry| !entry.in_keyring);
        let mut entry = Entry { grant: grant.clone(), in_keyring: false };
        if let Some(keyring) = self.keyring.as_ref().filter(|_| !stay) {
            let secrets = Secrets::of(&mut entry.grant);
            let text = serde_json::to_string(&secrets).map_err(io::Error::from)?;
            let label = format!("agentsh: login to {}", grant.url);
            entry.in_keyring = keyring.store(&name(&grant.url), &label, &text).is_ok();
            if !entry.in_keyring {
                secrets.put_back(&mut entry.grant);
            }
        }
        let text = serde_json::to_vec_pretty(&entry).map_err(io::Error::from)?;
        write_anew(&path, &text, 0o600).map(|()| entry.in_keyring)
    }

    /// Forgets a login. False: there was none.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, url: &str, _lock: &File) -> io::Result<bool> {
        let in_keyring = read(&self.file(url, "json")).is_ok_and(|entry| entry.in_keyring);
        if let Some(keyring) = self.keyring.as_ref().filter(|_| in_keyring) {
            keyring.forget(&name(url)).map_err(io::Error::other)?;
        }
        match fs::remove_file(self.file(url, "json")) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The name of a login in file names and in the desktop's store.
fn name(url: &str) -> String {
    agentsh_base::hex(Sha256::digest(url.as_bytes()).iter().take(16))
}

fn read(path: &Path) -> Result<Entry, String> {
    let text = private(path)?;
    serde_json::from_str(&text)
        .map_err(|error| format!("{}:{}: this is not a login; remove the file", path.display(), error.line()))
}
