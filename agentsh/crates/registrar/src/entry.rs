//! The log: one entry for each change, chained by SHA-256. Anybody who stores the last digest notices when older
//! entries are rewritten.

use agentsh_base::json;
use agentsh_registry::{canonical, hex};
use serde::Serialize;

/// `previous` of the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Who did what, when, to which interface, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// 1, 2, 3, …
    pub seq: i64,
    pub at: String,
    /// The operator's name, or `anyone`.
    pub actor: String,
    /// `registered`, `superseded`, `revoked`, `asked`, `approved`, `rejected`, `expired`.
    pub action: String,
    pub name: String,
    pub hash: String,
    /// The reason that was given, or the number of the approval.
    pub detail: String,
    /// The digest of the entry before.
    pub previous: String,
}

impl Entry {
    /// SHA-256 over the canonical JSON (names sorted, ASCII) of the entry without its digest.
    #[must_use]
    pub fn digest(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        let tree = json::read(text.as_bytes());
        hex(tree.map(|tree| canonical(&tree)).unwrap_or_default().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_entry_hash_covers_every_member() {
        let entry = Entry {
            seq: 1,
            at: "t".into(),
            actor: "a".into(),
            action: "registered".into(),
            name: "n\u{e9}".into(),
            hash: "h".into(),
            detail: String::new(),
            previous: GENESIS.into(),
        };
        let digest = entry.digest();
        assert_eq!(digest.len(), 64);
        assert_ne!(digest, Entry { detail: "x".into(), ..entry.clone() }.digest());
        assert_ne!(digest, Entry { seq: 2, ..entry }.digest());
    }
}
