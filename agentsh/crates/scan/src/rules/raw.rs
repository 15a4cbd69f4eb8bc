//! The format of rule files.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::finding::{Category, Severity};

#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    #[error("cannot read patterns: {0}")]
    Yaml(String),
    #[error("rule '{rule}' names '{concept}', which is not a concept")]
    NoConcept { rule: String, concept: String },
    #[error("rule '{0}' needs one of the keys `sequence`, `together` and `says`")]
    Empty(String),
    #[error("duplicate rule '{0}'")]
    Twice(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    concepts: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    rules: Vec<Rule>,
}

/// One rule. Weights are points: 30 alert, 60 block.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    pub why: String,
    pub category: Category,
    pub severity: Severity,
    #[serde(default)]
    pub definition: u32,
    #[serde(default)]
    pub output: u32,
    #[serde(default)]
    pub outbound: u32,
    /// Concepts in order: `ignore prior <40> rules`. A number is the maximum distance in bytes.
    #[serde(default)]
    pub sequence: Vec<String>,
    /// Concepts in any order: `ignore prior rules <60>`. The number is the maximum span in bytes.
    #[serde(default)]
    pub together: Vec<String>,
    /// Phrases.
    #[serde(default)]
    pub says: Vec<String>,
    /// Only in capitals.
    #[serde(default)]
    pub capitals: bool,
    /// Source code contains it harmlessly.
    #[serde(default)]
    pub of_source: bool,
    pub yes: Vec<String>,
    pub no: Vec<String>,
}

type Concepts = BTreeMap<String, Vec<String>>;

pub(super) fn read(files: &[&str]) -> Result<(Concepts, Vec<Rule>), PatternError> {
    let mut concepts = Concepts::new();
    let mut rules: Vec<Rule> = Vec::new();
    for text in files {
        let file: File =
            serde_saphyr::from_str(text).map_err(|error| PatternError::Yaml(error.to_string()))?;
        for (name, languages) in file.concepts {
            // `x.abroad` is concept `x` in other languages, for rules that fit their word order.
            let abroad =
                languages.iter().filter(|(language, _)| !matches!(language.as_str(), "en" | "any" | "all"));
            let abroad: Vec<String> = abroad.flat_map(|(_, phrases)| phrases).cloned().collect();
            if !abroad.is_empty() {
                concepts.entry(format!("{name}.abroad")).or_default().extend(abroad);
            }
            concepts.entry(name).or_default().extend(languages.into_values().flatten());
        }
        for rule in file.rules {
            if rules.iter().any(|other| other.id == rule.id) {
                return Err(PatternError::Twice(rule.id));
            }
            rules.push(rule);
        }
    }
    let included = concepts.clone();
    for phrases in concepts.values_mut() {
        let other = |phrase: &String| phrase.strip_prefix('@').and_then(|name| included.get(name));
        let more: Vec<String> = phrases.iter().filter_map(other).flatten().cloned().collect();
        phrases.retain(|phrase| !phrase.starts_with('@'));
        phrases.extend(more);
    }
    Ok((concepts, rules))
}
