//! Vulnerability advisories about MCP servers, for the session and `agentsh advisories`.
//!
//! [`read`] recognises the formats ([`osv`], [`kev`], [`deny`], [`status`]; [`archive`] holds many records), and
//! [`database`] stores the records and finds those about a server by package, host or name. No network access.

pub mod archive;
mod cvss;
pub mod database;
pub mod deny;
mod import;
pub mod kev;
mod list;
pub mod osv;
mod package;
pub mod read;
mod source;
pub mod status;

pub use agentsh_policy as policy;

pub use database::{Database, DatabaseError, StoredSource, TrustedSigners};
pub use import::Import;
pub use package::{Ecosystem, Package};
pub use source::Source;

use policy::{AdvisoryKind, Severity};

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advisory {
    pub kind: AdvisoryKind,
    /// The id in its source.
    pub id: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// `npm:NAME@VERSION`, a host or a service.
    pub subject: String,
    pub severity: Severity,
    /// Untrusted text: it has to be escaped when shown.
    pub summary: String,
    /// The first fixed version.
    pub fixed: Option<String>,
}

/// Longest text that is copied from a record, in characters.
const MAX_SUMMARY: usize = 200;

/// The first line, as far as it is shown.
fn shorten(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(MAX_SUMMARY).collect()
}

/// A level as records write it.
fn level(word: &str) -> Option<Severity> {
    match word.to_ascii_lowercase().as_str() {
        "low" => Some(Severity::Low),
        "moderate" | "medium" => Some(Severity::Medium),
        "high" => Some(Severity::High),
        "critical" => Some(Severity::Critical),
        _ => None,
    }
}
