//! Deny lists of packages and hosts. An entry counts once for each person who signed it.

use jiff::Timestamp;
use minisign_verify::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

use super::Package;
use super::read::Document;

/// The only format there is.
pub const FORMAT: &str = "agentsh-deny/1";
const LINES: usize = 4;
/// Maximum number of signatures of one list that are checked.
const MAX_SIGNATURES: usize = 100;
const MAX_ENTRIES: usize = 100_000;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    pub format: String,
    pub name: String,
    /// Counts up; an older one is refused.
    pub version: u64,
    #[serde(default)]
    pub issued: Option<Timestamp>,
    pub expires: Timestamp,
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub struct Signed {
    pub text: Vec<u8>,
    /// Minisign signatures, one after the other.
    pub signatures: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// `npm:NAME` or `pypi:NAME`.
    #[serde(default)]
    pub package: Option<String>,
    /// None: all.
    #[serde(default)]
    pub versions: Option<Vec<String>>,
    /// The host of a remote server.
    #[serde(default)]
    pub host: Option<String>,
    pub reason: String,
    #[serde(default)]
    pub severity: Option<String>,
}

impl List {
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let list: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if list.format != FORMAT {
            return Err(format!("its format is not {FORMAT}"));
        }
        if list.entries.len() > MAX_ENTRIES {
            return Err(format!("it has more than {MAX_ENTRIES} entries"));
        }
        for entry in &list.entries {
            if entry.subject().is_none() {
                return Err(
                    "an entry names neither one package (`npm:NAME`, `pypi:NAME`) nor one host".to_owned()
                );
            }
        }
        Ok(list)
    }
}

impl Entry {
    /// `npm:NAME`, `pypi:NAME`, `host:NAME`; None if it names no subject, or two.
    #[must_use]
    pub fn subject(&self) -> Option<String> {
        match (&self.package, &self.host) {
            (Some(package), None) => {
                let probe = Package::parse(&format!("{package}@0"))?;
                Some(format!("{}:{}", probe.ecosystem.as_str(), probe.name))
            }
            (None, Some(host)) if !host.is_empty() => {
                Some(format!("host:{}", host.trim_end_matches('.').to_ascii_lowercase()))
            }
            _ => None,
        }
    }

    /// Whether it is about this version; a host has none.
    #[must_use]
    pub fn covers(&self, package: Option<&Package>) -> bool {
        match (&self.versions, package) {
            (Some(versions), Some(package)) => versions.iter().any(|version| {
                *version == package.version
                    || package.ecosystem.compare(version, &package.version).is_some_and(|order| order.is_eq())
            }),
            _ => true,
        }
    }
}

/// The signers of a document: by the signatures next to it in its archive, otherwise `whole`, the signers of its file.
#[must_use]
pub fn signed_by<'k>(document: &Document, whole: &[&'k String], keys: &'k [String]) -> Vec<&'k String> {
    match document {
        Document::Deny(_, Some(signed)) => signers(&signed.text, &signed.signatures, keys),
        _ => whole.to_vec(),
    }
}

/// The keys, of these, whose holders signed the text. `signatures` has one signature of minisign after the other.
#[must_use]
pub fn signers<'k>(text: &[u8], signatures: &str, keys: &'k [String]) -> Vec<&'k String> {
    let lines: Vec<&str> = signatures.lines().filter(|line| !line.trim().is_empty()).collect();
    let signatures: Vec<Signature> = lines
        .chunks(LINES)
        .take(MAX_SIGNATURES)
        .filter_map(|lines| Signature::decode(&lines.join("\n")).ok())
        .collect();
    let signed = |key: &&String| {
        let Ok(key) = PublicKey::from_base64(key) else { return false };
        signatures.iter().any(|signature| key.verify(text, signature, false).is_ok())
    };
    keys.iter().filter(signed).collect()
}
