//! Consent to a file of a project, bound to path and content: after a change the user is asked again.

use std::collections::BTreeSet;
use std::path::Path;

use agentsh_base::remedy::typed;
use sha2::{Digest, Sha256};

/// The key of one file with one content in the list of agreements.
#[must_use]
pub fn key(path: &Path, content: &str) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut hash = Sha256::new();
    hash.update(path.as_os_str().as_encoded_bytes());
    hash.update([0]);
    hash.update(content);
    agentsh_base::hex(&hash.finalize())
}

pub(super) fn is_agreed(agreed: &BTreeSet<String>, path: &Path, content: &str) -> bool {
    !agreed.is_empty() && agreed.contains(&key(path, content))
}

/// The words that agree to a file.
#[must_use]
pub fn command(path: &Path) -> String {
    let path = path.to_string_lossy();
    format!("agentsh mcp approve {}", typed(&path).unwrap_or("FILE".into()))
}
