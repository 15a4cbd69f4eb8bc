//! The pinned programs of each server, the last refused state, and small text files for showing differences.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::Connection;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::database::{Offloaded, offload};
use super::record::text_of;
pub use super::words::TrustedBy;
use super::{StoreError, database, pin_rows};
use crate::types::ServerId;

/// Text files beyond these sizes, in bytes, are pinned by hash only.
pub const MAX_TEXT_BYTES: usize = 256 * 1024;
pub const MAX_TEXTS_BYTES: usize = 4 * 1024 * 1024;

/// Contents of text files by the hex SHA-256 of their bytes.
pub type Texts = BTreeMap<String, Vec<u8>>;

/// The files that a server would run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PinState {
    pub server_id: ServerId,
    /// Path of the project that configures the server, or of the directory of a program that the user started without a
    /// name for it; empty for a server of the user's own configuration.
    pub scope: String,
    /// Absolute path of the program.
    pub program: String,
    /// The resolved program in words: package and version, or the file.
    pub identity: String,
    /// Over everything in `manifest`.
    pub digest: String,
    /// Hex SHA-256 by path.
    pub manifest: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pin {
    #[serde(flatten)]
    pub state: PinState,
    pub trusted_at: String,
    pub trusted_by: TrustedBy,
}

/// The last state of a server that was refused because it is not the pinned one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    #[serde(flatten)]
    pub state: PinState,
    pub seen_at: String,
}

/// Opens its own connection when it is first needed: a run without servers never pays for it.
#[derive(Debug)]
pub struct PinStore {
    state_dir: PathBuf,
    connection: Mutex<Option<Offloaded>>,
}

impl PinStore {
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self { state_dir: state_dir.to_owned(), connection: Mutex::new(None) }
    }

    /// The pin of a server, if it has one.
    ///
    /// # Errors
    /// When the store cannot be read; the caller then treats the server as changed.
    pub async fn load(&self, server: &ServerId, scope: &str) -> Result<Option<Pin>, StoreError> {
        let (server, scope) = (server.0.clone(), scope.to_owned());
        let pins = self.ask(move |open| pin_rows::pins(open, Some(&server), Some(&scope))).await?;
        Ok(pins.into_iter().next())
    }

    /// Every pin, by server and scope.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self) -> Result<Vec<Pin>, StoreError> {
        self.ask(|open| pin_rows::pins(open, None, None)).await
    }

    /// The pins of one server, by scope.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn of_server(&self, server: &ServerId) -> Result<Vec<Pin>, StoreError> {
        let server = server.0.clone();
        self.ask(move |open| pin_rows::pins(open, Some(&server), None)).await
    }

    /// The refused states, of one server or of all, by server and scope.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn candidates(&self, server: Option<&ServerId>) -> Result<Vec<Candidate>, StoreError> {
        let server = server.map(|server| server.0.clone());
        self.ask(move |open| pin_rows::candidates(open, server.as_deref(), None)).await
    }

    /// Makes `state` the pin of its server and forgets its candidate. Of `texts`, what is too big, not UTF-8 or not
    /// named by the manifest is left out.
    ///
    /// # Errors
    /// When it is not on disk.
    pub async fn trust(&self, state: &PinState, texts: &Texts, by: TrustedBy) -> Result<Pin, StoreError> {
        let pin = Pin { state: state.clone(), trusted_at: text_of(Timestamp::now()), trusted_by: by };
        let texts = storable(state, texts);
        self.ask(move |open| pin_rows::write_pin(open, &pin, &texts).map(|()| pin)).await
    }

    /// Stores `state` as the last refused one, for [`PinStore::trust_candidate`] and for `pins diff`.
    ///
    /// # Errors
    /// When it is not on disk.
    pub async fn refuse(&self, state: &PinState, texts: &Texts) -> Result<(), StoreError> {
        let candidate = Candidate { state: state.clone(), seen_at: text_of(Timestamp::now()) };
        let texts = storable(state, texts);
        self.ask(move |open| pin_rows::write_candidate(open, &candidate, &texts)).await
    }

    /// Makes the refused state of a server its pin. With `digest`, only when it is that one.
    ///
    /// # Errors
    /// When there is no candidate, when it is another one, or when the pin cannot be written.
    pub async fn trust_candidate(
        &self,
        server: &ServerId,
        scope: &str,
        digest: Option<&str>,
    ) -> Result<Pin, StoreError> {
        let (server, scope) = (server.0.clone(), scope.to_owned());
        let digest = digest.map(str::to_owned);
        self.ask(move |open| {
            let found = pin_rows::candidates(open, Some(&server), Some(&scope))?;
            let candidate =
                found.into_iter().next().ok_or_else(|| StoreError::NoCandidate(server.clone()))?;
            if let Some(asked) =
                digest.filter(|asked| without_algorithm(asked) != without_algorithm(&candidate.state.digest))
            {
                return Err(StoreError::OtherDigest { server, found: candidate.state.digest, asked });
            }
            let pin = Pin {
                state: candidate.state,
                trusted_at: text_of(Timestamp::now()),
                trusted_by: TrustedBy::User,
            };
            pin_rows::write_pin(open, &pin, &[])?;
            Ok(pin)
        })
        .await
    }

    /// Forgets pins and candidates, of one server (in one scope) or of all. Gives back how many pins there were.
    ///
    /// # Errors
    /// When they are not gone from the disk.
    pub async fn reset(&self, server: Option<&ServerId>, scope: Option<&str>) -> Result<u64, StoreError> {
        let (server, scope) = (server.map(|server| server.0.clone()), scope.map(str::to_owned));
        self.ask(move |open| pin_rows::remove(open, server.as_deref(), scope.as_deref())).await
    }

    /// The content of a text file, by the hex SHA-256 of its bytes, if it is kept.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn text(&self, hash: &str) -> Result<Option<String>, StoreError> {
        let hash = without_algorithm(hash).to_owned();
        self.ask(move |open| pin_rows::text(open, &hash)).await
    }

    /// Closes the connection. The last one to close folds the write-ahead log into the database; left to the end of
    /// the process it would be read again at every start.
    pub async fn close(&self) {
        let connection = self.connection.lock().await.take();
        // Everything that was promised is on disk already.
        let _ = offload(move || {
            drop(connection);
            Ok(())
        })
        .await;
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = {
            let mut guard = self.connection.lock().await;
            match &*guard {
                Some(connection) => connection.clone(),
                None => {
                    let state_dir = self.state_dir.clone();
                    let opened = offload(move || database::open_writer(&state_dir)).await?;
                    guard.insert(Offloaded::new(opened)).clone()
                }
            }
        };
        connection.run(work).await
    }
}

fn without_algorithm(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

fn storable(state: &PinState, texts: &Texts) -> Vec<(String, Vec<u8>)> {
    let named: std::collections::BTreeSet<&str> =
        state.manifest.values().map(|hash| without_algorithm(hash)).collect();
    let mut room = MAX_TEXTS_BYTES;
    let mut kept = Vec::new();
    for (hash, content) in texts {
        let fits = content.len() <= MAX_TEXT_BYTES.min(room);
        if fits
            && named.contains(without_algorithm(hash))
            && std::str::from_utf8(content).is_ok()
            && is_hash(content, without_algorithm(hash))
        {
            room -= content.len();
            kept.push((without_algorithm(hash).to_owned(), content.clone()));
        }
    }
    kept
}

fn is_hash(content: &[u8], hex: &str) -> bool {
    let digest = Sha256::digest(content);
    hex.len() == 64
        && digest
            .iter()
            .enumerate()
            .all(|(at, byte)| hex.get(2 * at..2 * at + 2) == Some(&format!("{byte:02x}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn hex(content: &[u8]) -> String {
        agentsh_base::hex(&Sha256::digest(content))
    }

    fn state(server: &str, content: &str) -> (PinState, Texts) {
        let hash = hex(content.as_bytes());
        let state = PinState {
            server_id: ServerId(server.to_owned()),
            scope: String::new(),
            program: "/usr/bin/node".to_owned(),
            identity: "pkg@1.0.0".to_owned(),
            digest: format!("sha256:{}", hex(hash.as_bytes())),
            manifest: BTreeMap::from([("/opt/pkg/index.js".to_owned(), format!("sha256:{hash}"))]),
        };
        (state, BTreeMap::from([(hash, content.as_bytes().to_vec())]))
    }

    #[tokio::test]
    async fn pin_round_trips_and_scopes_are_separate() {
        let dir = tempfile::tempdir().unwrap();
        let store = PinStore::new(dir.path());
        let (state, texts) = state("fs", "one");
        let pin = store.trust(&state, &texts, TrustedBy::FirstUse).await.unwrap();
        let again = PinStore::new(dir.path());
        assert_eq!(again.load(&state.server_id, "").await.unwrap(), Some(pin.clone()));
        assert_eq!(again.load(&state.server_id, "/project").await.unwrap(), None);
        assert_eq!(again.list().await.unwrap(), [pin]);
        let hash = state.manifest.values().next().unwrap();
        assert_eq!(again.text(hash).await.unwrap().as_deref(), Some("one"));
    }

    #[tokio::test]
    async fn candidate_is_trusted_only_if_it_is_the_one_shown() {
        let dir = tempfile::tempdir().unwrap();
        let store = PinStore::new(dir.path());
        let (old, old_texts) = state("fs", "one");
        let (new, new_texts) = state("fs", "two");
        store.trust(&old, &old_texts, TrustedBy::FirstUse).await.unwrap();
        let id = &old.server_id;
        assert!(matches!(store.trust_candidate(id, "", None).await, Err(StoreError::NoCandidate(_))));
        store.refuse(&new, &new_texts).await.unwrap();
        assert_eq!(store.load(id, "").await.unwrap().unwrap().state, old);
        assert!(matches!(
            store.trust_candidate(id, "", Some("sha256:0")).await,
            Err(StoreError::OtherDigest { .. })
        ));
        let pin = store.trust_candidate(id, "", Some(&new.digest)).await.unwrap();
        assert_eq!((&pin.state, pin.trusted_by), (&new, TrustedBy::User));
        assert_eq!(store.candidates(None).await.unwrap(), []);
        assert_eq!(store.text(old.manifest.values().next().unwrap()).await.unwrap(), None);
        assert_eq!(store.text(new.manifest.values().next().unwrap()).await.unwrap().as_deref(), Some("two"));
    }

    #[tokio::test]
    async fn pinned_texts_are_kept_only_if_small_and_matching() {
        let dir = tempfile::tempdir().unwrap();
        let store = PinStore::new(dir.path());
        let (mut state, mut texts) = state("fs", "one");
        let (big, binary) = (vec![b'a'; MAX_TEXT_BYTES + 1], vec![0xff; 10]);
        for (name, content) in [("big", &big), ("binary", &binary)] {
            state.manifest.insert(name.to_owned(), hex(content));
            texts.insert(hex(content), content.clone());
        }
        state.manifest.insert("lie".to_owned(), hex(b"lie"));
        texts.insert(hex(b"lie"), b"something else".to_vec());
        texts.insert(hex(b"stranger"), b"stranger".to_vec());
        store.trust(&state, &texts, TrustedBy::User).await.unwrap();
        for content in [big.as_slice(), &binary, b"lie", b"stranger"] {
            assert_eq!(store.text(&hex(content)).await.unwrap(), None);
        }
        assert!(store.text(&hex(b"one")).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn pin_reset_removes_one_or_all() {
        let dir = tempfile::tempdir().unwrap();
        let store = PinStore::new(dir.path());
        for name in ["a", "b", "c"] {
            let (state, texts) = state(name, name);
            store.trust(&state, &texts, TrustedBy::User).await.unwrap();
        }
        assert_eq!(store.reset(Some(&ServerId("a".to_owned())), None).await.unwrap(), 1);
        assert_eq!(store.reset(Some(&ServerId("a".to_owned())), None).await.unwrap(), 0);
        assert_eq!(store.text(&hex(b"a")).await.unwrap(), None);
        assert_eq!(store.reset(None, None).await.unwrap(), 2);
    }
}
