//! Documented sections that are not implemented: checked like all others, so that a documented file loads and a
//! misspelt one does not, and reported as not enforced.

use super::prelude::*;
use crate::diagnostic::one_of;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnenforcedKeys {
    /// Unless they are switched off anyway.
    pub asked: Vec<RuleRef>,
}

/// Checks one section; true when it asks for something.
type Check = fn(&mut Reader<'_>, &Here<'_>) -> bool;

const SECTIONS: [(&str, Check); 1] = [("allowed_transports", allowed_transports)];

impl Section<McpPolicy> for UnenforcedKeys {
    const KEYS: &'static [Key] = keys! {
        /// Ways to reach servers. Read and checked; this version does not enforce it.
        "allowed_transports": Kind::Whole(&Kind::Word(&["stdio", "http", "sse"])), default: "all",
            example: "[stdio]";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let mut asked = Vec::new();
        for (key, check) in SECTIONS {
            if let Some(here) = fields.find(key)
                && check(reader, &here)
            {
                asked.push(reader.rule(&here));
            }
        }
        Self { asked }
    }

    fn merge(&self, below: &mut McpPolicy) {
        below.not_enforced.extend(self.asked.iter().cloned());
    }

    fn narrow(&self, base: &mut McpPolicy, _: &mut Narrowing<'_>) {
        self.merge(base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        for rule in &policy.not_enforced {
            lines.add(&format!("{name}.not_enforced"), &rule.id, rule);
        }
    }
}

fn allowed_transports(reader: &mut Reader<'_>, here: &Here<'_>) -> bool {
    let words = ["stdio", "http", "sse"];
    let list = reader.list(Some(here.clone()), |reader, here| {
        let word = reader.text(here)?;
        if !words.contains(&word.as_str()) {
            reader.problem(here, "unknown transport", format!("write {}", one_of(&words)));
        }
        Some(word)
    });
    list.is_none_or(|list| !list.value.is_empty())
}
