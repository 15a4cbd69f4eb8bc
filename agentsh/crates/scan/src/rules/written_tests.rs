//! The rules as people write them, in `policies/patterns/*.yaml`.

use std::collections::BTreeMap;

use agentsh_secrets::views;
use serde::Deserialize;

use super::raw::{Compiled, Concepts, Rule};

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
