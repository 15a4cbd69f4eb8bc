//! The result of a scan: findings, what was removed or hidden, and one scored verdict.

use std::ops::Range;

use agentsh_base::words;

pub use agentsh_dlp::Severity;
use serde::{Deserialize, Serialize};

/// Characters of context around a finding.
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

words! {
    /// The reaction to the text, from lenient to strict.
    #[derive(Default, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Action {
        #[default]
        Allow = "allow",
        Alert = "alert",
        Block = "block",
    }
}

/// One finding. `start..end` are bytes of the string at `pointer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: String,
    pub category: Category,
    pub severity: Severity,
    /// JSON pointer of the string, relative to the scanned value.
    pub pointer: String,
    pub start: usize,
    pub end: usize,
    /// The text with at most 50 characters of context, secrets replaced.
    pub context: String,
}

/// A secret or personal value, which is nowhere in a [`Scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redaction {
    /// The tag: `EMAIL` for `[REDACTED EMAIL]`.
    pub kind: &'static str,
    pub pointer: String,
    pub start: usize,
    pub end: usize,
}

/// Invisible content that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// `ansi`, or the HTML hiding technique.
    pub kind: &'static str,
    pub pointer: String,
    pub bytes: usize,
}

/// The string at `pointer` to forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    pub pointer: String,
    pub text: String,
}

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub verdict: Action,
    /// 0 to 100.
    pub score: u32,
    /// Empty if allowed: one weak sign is not reported.
    pub findings: Vec<Finding>,
    pub redactions: Vec<Redaction>,
    pub removals: Vec<Removal>,
    /// Strings without removed content, and with tags for secrets.
    pub rewrites: Vec<Rewrite>,
}

impl Scan {
    /// The highest severity.
    #[must_use]
    pub fn severity(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// The context of a place: at most 50 characters on each side, control characters as spaces, secrets replaced.
#[must_use]
pub fn redacted_context(text: &str, place: &Range<usize>) -> String {
    context(text, place, &crate::secrets::redactions("", &agentsh_secrets::certain::find_in_views(text)))
}

/// The context of a place, control characters as spaces, overlapping secrets replaced.
pub(crate) fn context(text: &str, place: &Range<usize>, secrets: &[Redaction]) -> String {
    const MAX_LENGTH: usize = 160;
    let start = position_before(text, place.start, CONTEXT);
    let end = position_after(text, place.end.min(place.start + MAX_LENGTH).max(place.start), CONTEXT);
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

fn position_before(text: &str, at: usize, characters: usize) -> usize {
    let at = text.floor_char_boundary(at);
    text[..at].char_indices().rev().take(characters).last().map_or(at, |(start, _)| start)
}

fn position_after(text: &str, at: usize, characters: usize) -> usize {
    let at = text.ceil_char_boundary(at);
    text[at..].char_indices().nth(characters).map_or(text.len(), |(length, _)| at + length)
}
