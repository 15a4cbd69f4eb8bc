//! The rules as this crate contains them: `patterns.json`, without reasons and examples, its phrases folded. A test writes it
//! from `policies/patterns/*.yaml`; reading those takes twenty times as long.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::finding::{Category, Severity};

pub type Concepts = BTreeMap<String, Vec<String>>;

/// All rules, and the phrases of each concept.
#[derive(Debug, Deserialize, Serialize)]
pub struct Compiled {
    pub concepts: Concepts,
    pub rules: Vec<Rule>,
}

/// One rule. Weights are points: 30 alert, 60 block.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    #[cfg(test)]
    #[serde(default, skip_serializing)]
    pub why: String,
    pub category: Category,
    pub severity: Severity,
    #[serde(default, skip_serializing_if = "is_default")]
    pub definition: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub output: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub outbound: u32,
    /// Concepts in order: `ignore prior <40> rules`. A number is the maximum distance in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sequence: Vec<String>,
    /// Concepts in any order: `ignore prior rules <60>`. The number is the maximum span in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub together: Vec<String>,
    /// Phrases.
    #[serde(default, skip_serializing_if = "is_default")]
    pub says: Vec<String>,
    /// Only in capitals.
    #[serde(default, skip_serializing_if = "is_default")]
    pub capitals: bool,
    /// Source code contains it harmlessly.
    #[serde(default, skip_serializing_if = "is_default")]
    pub of_source: bool,
    #[cfg(test)]
    #[serde(default, skip_serializing)]
    pub yes: Vec<String>,
    #[cfg(test)]
    #[serde(default, skip_serializing)]
    pub no: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
