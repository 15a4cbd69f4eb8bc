//! What a registry vouched for last, by server: counts where the registry cannot be asked, and says under which name a server
//! stands, which it cannot change by calling itself something else.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::copies::write_anew;

/// Beside the journal, which no sandbox reaches.
const NAME: &str = "vouched.json";
/// Longest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;
/// Servers that are remembered.
const MOST: usize = 4_096;

/// The last answer about one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vouched {
    /// How the server calls itself.
    pub name: String,
    pub hash: String,
}

/// One server of one project, at one registry.
#[must_use]
pub fn key(registry: &str, project: &Path, server: &str) -> String {
    serde_json::json!([registry, project.to_string_lossy(), server]).to_string()
}

/// The last answer. A file that cannot be read is no answer.
#[must_use]
pub fn find(state: &Path, key: &str) -> Option<Vouched> {
    read(&file(state)).remove(key)
}

/// Remembers an answer.
///
/// # Errors
/// When it is not on disk.
pub fn keep(state: &Path, key: &str, vouched: &Vouched) -> std::io::Result<()> {
    let file = file(state);
    let mut all = read(&file);
    if all.get(key) == Some(vouched) {
        return Ok(());
    }
    while all.len() >= MOST && !all.contains_key(key) {
        all.pop_first();
    }
    all.insert(key.to_owned(), vouched.clone());
    write_anew(&file, &serde_json::to_vec(&all)?, 0o600)
}

fn file(state: &Path) -> PathBuf {
    state.join(NAME)
}

fn read(file: &Path) -> BTreeMap<String, Vouched> {
    let mut text = Vec::new();
    let Ok(open) = fs::File::open(file) else { return BTreeMap::new() };
    let Ok(_) = open.take(MAX_BYTES).read_to_end(&mut text) else { return BTreeMap::new() };
    serde_json::from_slice(&text).unwrap_or_default()
}
