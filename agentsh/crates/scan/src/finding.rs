//! What a scan says: findings, what was taken out or hidden, and one scored verdict.

use std::ops::Range;

pub use agentsh_dlp::Severity;
use serde::{Deserialize, Serialize};

/// Characters of context on each side of a finding.
const CONTEXT: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Category {
    HiddenInstructions,
    CredentialTheft,
    Exfiltration,
    ShellInjection,
    PathTraversal,
    InstructionOverride,
    CrossToolManipulation,
    FileExfiltration,
    HiddenCharacters,
    SchemaIntegrity,
    RecommendationPoisoning,
    ToolInvocation,
    HiddenContent,
    PrivateKey,
    Custom,
}

/// What should become of the text. The order is that of strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    #[default]
    Allow,
    Alert,
    Block,
}

/// One detection. `start..end` are bytes of the string at `pointer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: String,
    pub category: Category,
    pub severity: Severity,
    /// JSON pointer of the string, relative to what was scanned.
    pub pointer: String,
    pub start: usize,
    pub end: usize,
    /// The text itself with at most 50 characters on each side, secrets replaced.
    pub context: String,
}

/// A secret, or something personal. Its value stands nowhere in a [`Scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redaction {
    /// As in the tag: `EMAIL` for `[REDACTED EMAIL]`.
    pub kind: &'static str,
    pub pointer: String,
    pub start: usize,
    pub end: usize,
}

/// Something that is shown to no reader and was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// `ansi`, or the technique by which HTML was hidden.
    pub kind: &'static str,
    pub pointer: String,
    pub bytes: usize,
}

/// The string at `pointer` as it should be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    pub pointer: String,
    pub text: String,
}

/// The answer of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub verdict: Action,
    /// 0 to 100.
    pub score: u32,
    /// Empty when the verdict is to allow: one weak sign alone is no news.
    pub findings: Vec<Finding>,
    pub redactions: Vec<Redaction>,
    pub removals: Vec<Removal>,
    /// Strings without what was removed, and with tags in place of secrets.
    pub rewrites: Vec<Rewrite>,
}

impl Action {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Alert => "alert",
            Self::Block => "block",
        }
    }
}

impl Scan {
    /// The most severe finding.
    #[must_use]
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Nothing was found, hidden or removed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.redactions.is_empty() && self.removals.is_empty()
    }
}

/// The neighbourhood of a place in a text: at most 50 characters on each side, control characters shown as spaces, secrets
/// replaced.
#[must_use]
pub fn around(text: &str, place: &Range<usize>) -> String {
    context(text, place, &crate::secrets::redactions("", &crate::secrets::find(text)))
}

/// The neighbourhood of a place in a text, cut at characters, control characters shown as spaces. Secrets that reach
/// into it are replaced.
pub(crate) fn context(text: &str, place: &Range<usize>, secrets: &[Redaction]) -> String {
    const MAX_LENGTH: usize = 160;
    let start = before(text, place.start, CONTEXT);
    let end = after(text, place.end.min(place.start + MAX_LENGTH).max(place.start), CONTEXT);
    let mut shown = String::new();
    let mut at = start;
    for secret in secrets.iter().filter(|secret| secret.start < end && secret.end > start) {
        if secret.start > at {
            shown.push_str(text.get(at..secret.start).unwrap_or_default());
        }
        shown.push_str("[REDACTED ");
        shown.push_str(secret.kind);
        shown.push(']');
        at = at.max(secret.end);
    }
    shown.push_str(text.get(at..end).unwrap_or_default());
    shown.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

fn before(text: &str, at: usize, characters: usize) -> usize {
    let at = text.floor_char_boundary(at);
    text[..at].char_indices().rev().take(characters).last().map_or(at, |(start, _)| start)
}

fn after(text: &str, at: usize, characters: usize) -> usize {
    let at = text.ceil_char_boundary(at);
    text[at..].char_indices().nth(characters).map_or(text.len(), |(length, _)| at + length)
}
