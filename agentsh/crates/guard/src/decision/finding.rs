//! What a check found in a subject.

pub use agentsh_dlp::Severity;

use crate::json::Json;
use crate::types::ToolId;
use crate::verdict::Verdict;

/// One detection, and the outcome that it would cause alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    /// The kind of text. None: a data flow or a destination.
    pub category: Option<String>,
    /// Stable code of the detector that found it.
    pub detector: String,
    pub severity: Severity,
    /// The tool that returned the data.
    pub source: Option<ToolId>,
    /// The destination of the data, if it is known.
    pub destination: Option<String>,
    /// The surrounding text: redacted, at most 50 characters on each side.
    pub context: String,
    /// JSON pointer into what was judged; `tool` for the tool's name.
    pub pointer: String,
    /// Decodings that led to it, outermost first.
    pub decoded: Vec<&'static str>,
    /// The policy's description of the pattern that found it.
    pub description: Option<String>,
    /// The finding as a clause for the caller.
    pub what: String,
    /// The lines of policy that would let it pass; empty where the remedy of the verdict says all.
    pub ways: String,
}

impl Finding {
    /// One without a source, a destination and a place.
    #[must_use]
    pub fn new(
        verdict: Verdict,
        category: Option<&str>,
        detector: &str,
        severity: Severity,
        what: String,
    ) -> Self {
        Self {
            verdict,
            category: category.map(str::to_owned),
            detector: detector.to_owned(),
            severity,
            source: None,
            destination: None,
            context: String::new(),
            pointer: String::new(),
            decoded: Vec::new(),
            description: None,
            what,
            ways: String::new(),
        }
    }

    /// The finding, and the policy lines that would allow it.
    #[must_use]
    pub fn with_remedies(&self) -> String {
        if self.ways.is_empty() { self.what.clone() } else { format!("{}; {}", self.what, self.ways) }
    }
}

/// A string that is to be replaced before the subject is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Path from the judged value down to the string: the index of the item or member at each level.
    pub path: Vec<usize>,
    /// The text as it is spelled between quotes in JSON.
    pub spelled: String,
}

impl Rewrite {
    /// Puts each text at its position. Texts without such a position are left out.
    pub fn apply<'a>(rewrites: &'a [Self], value: &mut Json<'a>) {
        for rewrite in rewrites {
            let place = rewrite.path.iter().try_fold(&mut *value, |value, at| match value {
                Json::Array(items) => items.get_mut(*at),
                Json::Object(members) => members.get_mut(*at).map(|(_, value)| value),
                _ => None,
            });
            if let Some(Json::String(raw)) = place {
                *raw = &rewrite.spelled;
            }
        }
    }
}
