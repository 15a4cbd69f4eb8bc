//! The rules as this crate contains them: `patterns.json`, without reasons and examples, its phrases folded. A test writes it
//! from `policies/patterns/*.yaml`; reading those takes twenty times as long.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::finding::{Category, Severity};

#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    #[error("cannot read patterns: {0}")]
    Json(#[from] serde_json::Error),
    #[error("rule '{rule}' names '{concept}', which is not a concept")]
    NoConcept { rule: String, concept: String },
    #[error("rule '{0}' needs one of the keys `sequence`, `together` and `says`")]
    Empty(String),
}

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

/// The rules as people write them.
#[cfg(test)]
pub(super) mod written {
    use std::collections::BTreeMap;

    use agentsh_secrets::views;
    use serde::Deserialize;

    use super::{Compiled, Concepts, Rule};

    const FILES: [&str; 9] = [
        include_str!("../../patterns/concepts.yaml"),
        include_str!("../../patterns/roles.yaml"),
        include_str!("../../patterns/instructions.yaml"),
        include_str!("../../patterns/concealment.yaml"),
        include_str!("../../patterns/credentials.yaml"),
        include_str!("../../patterns/exfiltration.yaml"),
        include_str!("../../patterns/tools.yaml"),
        include_str!("../../patterns/recommendations.yaml"),
        include_str!("../../patterns/commands.yaml"),
    ];

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        concepts: BTreeMap<String, BTreeMap<String, Vec<String>>>,
        #[serde(default)]
        rules: Vec<Rule>,
    }

    pub fn read() -> Compiled {
        let mut concepts = Concepts::new();
        let mut rules: Vec<Rule> = Vec::new();
        for text in FILES {
            let file: File = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}"));
            for (name, languages) in file.concepts {
                // `x.abroad` is concept `x` in other languages, for rules that fit their word order.
                let is_abroad = |language: &String| !matches!(language.as_str(), "en" | "any" | "all");
                let abroad = languages.iter().filter(|(language, _)| is_abroad(language));
                let abroad: Vec<String> = abroad.flat_map(|(_, phrases)| phrases).cloned().collect();
                if !abroad.is_empty() {
                    concepts.entry(format!("{name}.abroad")).or_default().extend(abroad);
                }
                concepts.entry(name).or_default().extend(languages.into_values().flatten());
            }
            rules.extend(file.rules);
        }
        let included = concepts.clone();
        for phrases in concepts.values_mut() {
            let other = |phrase: &String| phrase.strip_prefix('@').and_then(|name| included.get(name));
            let more: Vec<String> = phrases.iter().filter_map(other).flatten().cloned().collect();
            phrases.retain(|phrase| !phrase.starts_with('@'));
            phrases.extend(more);
        }
        let all = concepts.values_mut().chain(rules.iter_mut().map(|rule| &mut rule.says));
        all.flatten().for_each(|phrase| *phrase = folded(phrase));
        Compiled { concepts, rules }
    }

    fn folded(phrase: &str) -> String {
        let small = phrase.to_lowercase();
        if small.is_ascii() { small } else { views::folded_view(&small).text.to_lowercase() }
    }
}
