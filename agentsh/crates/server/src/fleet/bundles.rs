//! Policy bundles from a directory. They are signed, so anybody may download them.

use std::path::Path;

use crate::fleet::refusal::Refusal;
use agentsh_fleet::keys;

/// Longest bundle, in bytes.
const MAX_COUNT: u64 = 16 << 20;

/// The bytes of a bundle, and a word that changes with them.
pub(crate) async fn read(directory: &Path, name: &str) -> Result<(Vec<u8>, String), Refusal> {
    const MISSING: Refusal = Refusal::Missing("no such bundle");
    let is_name = (1..=100).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !is_name {
        return Err(MISSING);
    }
    let path = directory.join(name);
    // Nothing but a file of this directory: a link could lead anywhere.
    let found = tokio::fs::symlink_metadata(&path).await.map_err(|_| MISSING)?;
    if !found.is_file() {
        return Err(MISSING);
    }
    if found.len() > MAX_COUNT {
        return Err(Refusal::TooLong(format!("the bundle is larger than {MAX_COUNT} bytes")));
    }
    let bytes = tokio::fs::read(&path).await.map_err(|_| MISSING)?;
    let tag = format!("\"{}\"", keys::digest(&bytes));
    Ok((bytes, tag))
}
