//! The hash chain of one session, and the columns that are copied from a body.

use std::borrow::Cow;

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Hashed in front of everything, so that no other use of SHA-256 can give the same input.
const DOMAIN: &[u8] = b"agentsh event 1";

/// The previous hash of the first session in an empty database.
pub(crate) const ZERO: [u8; 32] = [0; 32];

/// SHA-256 over the parts, each behind its length as eight bytes: no two different rows give the same input.
pub(crate) fn hash(prev: &[u8], session: &str, seq: u64, time: &str, body: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in [DOMAIN, prev, session.as_bytes(), &seq.to_be_bytes(), time.as_bytes(), body.as_bytes()] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// The fields of a body that have a column of their own. The same function fills the columns and checks them.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Columns<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub server_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub tool_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub action: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub severity: Option<Cow<'a, str>>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(body: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(body)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn chain_hash_separates_its_parts() {
        let base = hash(&ZERO, "s", 1, "t", "body");
        assert_ne!(base, hash(&ZERO, "st", 1, "", "body"));
        assert_ne!(base, hash(&ZERO, "s", 1, "tb", "ody"));
        assert_ne!(base, hash(&ZERO, "s", 2, "t", "body"));
        assert_ne!(base, hash(&base, "s", 1, "t", "body"));
    }

    #[test]
    fn columns_are_read_from_the_body_escapes_included() {
        let columns =
            Columns::of(r#"{"type":"x","n":{"server_id":"no"},"server_id":"a\nb","action":null}"#).unwrap();
        assert_eq!((&*columns.kind, columns.server_id.as_deref()), ("x", Some("a\nb")));
        assert_eq!((columns.tool_name, columns.action), (None, None));
        assert!(Columns::of("[]").is_err());
    }
}
