//! A server's description of a tool, as the inventory has it.

use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::policy::risk::{Names, Risk, risk};

/// Longest title, in characters.
const MAX_TITLE: usize = 256;
/// Longest annotations, in bytes of their JSON; longer ones are left out.
const MAX_ANNOTATIONS: usize = 4096;

/// A tool as it was listed last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedTool {
    /// `sha256:` over the canonical definition.
    pub hash: String,
    pub risk: Risk,
    pub title: Option<String>,
    /// Unchanged, as the server sends them.
    pub annotations: Option<serde_json::Value>,
}

impl ListedTool {
    #[must_use]
    pub fn of(definition: &Json<'_>, hash: &str, names: Names) -> Self {
        let annotations = definition.member("annotations");
        let title = definition.member("title").or(annotations.and_then(|all| all.member("title")));
        Self {
            hash: hash.to_owned(),
            risk: risk(definition, names),
            title: title.and_then(Json::as_text).map(|title| title.chars().take(MAX_TITLE).collect()),
            annotations: annotations.filter(|all| all.length() <= MAX_ANNOTATIONS).map(Json::to_value),
        }
    }
}
