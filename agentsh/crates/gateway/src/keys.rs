//! Client keys: 256 random bits, stored as SHA-256.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

pub(crate) use agentsh_base::random::hex as random_hex;
use agentsh_base::users_files;
use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What the file is.
pub const KEYS: &str = "the gateway's list of keys";
/// Prefix of every key, for secret scanners.
pub const PREFIX: &str = "agw_";

/// The key file: data of each key, by hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    #[serde(default)]
    pub keys: BTreeMap<String, Key>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Shown in events.
    pub name: String,
    /// Its endpoints; all if empty.
    #[serde(default)]
    pub endpoints: Vec<String>,
    pub created: Timestamp,
    #[serde(default)]
    pub expires: Option<Timestamp>,
    #[serde(default)]
    pub revoked: Option<Timestamp>,
    /// Its networks; all if empty. The configuration's `allow_from` applies too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_from: Vec<IpNet>,
}

/// Why a key is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("unknown key")]
    Unknown,
    #[error("the key has expired")]
    Expired,
    #[error("the key was revoked")]
    Revoked,
}

impl Keys {
    /// A missing file has no keys.
    ///
    /// # Errors
    /// When the file cannot be read or parsed.
    pub fn load(file: &Path) -> io::Result<Self> {
        let bytes = match std::fs::read(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                users_files::note(file, KEYS);
                return Ok(Self::default());
            }
            bytes => bytes?,
        };
        users_files::judged(file, KEYS, &bytes).map_err(io::Error::other)?;
        serde_json::from_slice(&bytes).map_err(io::Error::from)
    }

    /// Replaces the file, readable only by its owner, and gives what it holds.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn save(&self, file: &Path) -> io::Result<Vec<u8>> {
        let temporary = file.with_extension("new");
        let mut out = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        let mut content = serde_json::to_vec_pretty(self)?;
        content.push(b'\n');
        out.write_all(&content)?;
        out.sync_all()?;
        std::fs::rename(&temporary, file)?;
        Ok(content)
    }

    /// Creates a key and returns it, this once.
    ///
    /// # Errors
    /// The system gives no random numbers, or a valid key already has this name.
    pub fn create(&mut self, key: Key, now: Timestamp) -> io::Result<String> {
        if self.keys.values().any(|known| known.name == key.name && known.state(now).is_ok()) {
            let why = format!("the key '{}' already exists: revoke it first", key.name);
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let text = format!("{PREFIX}{}", random_hex::<32>()?);
        self.keys.insert(hash(&text), key);
        Ok(text)
    }

    /// Revokes all keys with this name; returns how many.
    pub fn revoke(&mut self, name: &str, now: Timestamp) -> usize {
        let open = self.keys.values_mut().filter(|key| key.name == name && key.revoked.is_none());
        open.map(|key| key.revoked = Some(now)).count()
    }

    /// Finds a client's key by its hash, so that timing reveals nothing.
    ///
    /// # Errors
    /// An unknown, expired or revoked key.
    pub fn find(&self, shown: &str, now: Timestamp) -> Result<(&str, &Key), KeyError> {
        let (hash, key) = self.keys.get_key_value(&hash(shown)).ok_or(KeyError::Unknown)?;
        key.state(now).map(|()| (hash.as_str(), key))
    }
}

impl Key {
    /// # Errors
    /// An expired or revoked key.
    pub fn state(&self, now: Timestamp) -> Result<(), KeyError> {
        if self.revoked.is_some() {
            return Err(KeyError::Revoked);
        }
        if self.expires.is_some_and(|end| end <= now) {
            return Err(KeyError::Expired);
        }
        Ok(())
    }

    #[must_use]
    pub fn opens(&self, endpoint: &str) -> bool {
        self.endpoints.is_empty() || self.endpoints.iter().any(|open| open == endpoint)
    }
}

pub fn hash(key: &str) -> String {
    agentsh_base::hex(&Sha256::digest(key.as_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn key(name: &str) -> Key {
        Key {
            name: name.into(),
            endpoints: vec!["fs".into()],
            created: Timestamp::UNIX_EPOCH,
            expires: None,
            revoked: None,
            allow_from: Vec::new(),
        }
    }

    #[test]
    fn gateway_key_is_valid_until_revoked_or_expired() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys.json");
        let (now, later) = (Timestamp::from_second(10).unwrap(), Timestamp::from_second(20).unwrap());
        let mut keys = Keys::load(&file).unwrap();
        let laptop = keys.create(key("laptop"), now).unwrap();
        let ci = keys.create(Key { expires: Some(later), ..key("ci") }, now).unwrap();
        assert!(keys.create(key("laptop"), now).is_err());
        keys.save(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains(&laptop) && text.contains("laptop"));
        let mut keys = Keys::load(&file).unwrap();
        assert!(
            keys.find(&laptop, now).unwrap().1.opens("fs") && !keys.find(&laptop, now).unwrap().1.opens("gh")
        );
        assert_eq!(keys.find(&ci, later).unwrap_err(), KeyError::Expired);
        assert_eq!(keys.find("agw_0", now).unwrap_err(), KeyError::Unknown);
        assert_eq!(keys.revoke("laptop", now), 1);
        assert_eq!(keys.find(&laptop, now).unwrap_err(), KeyError::Revoked);
        assert_eq!(keys.revoke("laptop", now), 0);
    }
}
