//! The environment of one process: what the policy passes and features change.

use std::collections::BTreeMap;

use super::{Contribution, EnvChange};
use crate::policy::{EnvPolicy, glob};

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Filtered {
    pub passed: BTreeMap<String, String>,
    /// Names only.
    pub stripped: Vec<String>,
}

/// The variables that the policy passes. `section`: where a changing rule would be.
pub(super) fn filter(policy: &EnvPolicy, inherited: &BTreeMap<String, String>, section: &str) -> Filtered {
    let mut filtered = Filtered::default();
    for (name, value) in inherited {
        if policy.decide(name, section).pass {
            filtered.passed.insert(name.clone(), value.clone());
        } else {
            filtered.stripped.push(name.clone());
        }
    }
    filtered
}

/// Applies changes in order of precedence.
pub(super) fn apply(
    mut filtered: Filtered,
    policy: &EnvPolicy,
    inherited: &BTreeMap<String, String>,
    parts: &[&Contribution],
) -> Filtered {
    let env = &mut filtered.passed;
    for change in parts.iter().flat_map(|part| &part.environment) {
        match change {
            EnvChange::Pass(pattern) => filtered.stripped.retain(|name| {
                let passes = glob::matches(pattern, name);
                if let (true, Some(value)) = (passes, inherited.get(name)) {
                    env.insert(name.clone(), value.clone());
                }
                !passes
            }),
            EnvChange::Default(name, _) if policy.denies(name) => {}
            EnvChange::Default(name, value) => {
                env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            EnvChange::Set(name, value) => {
                env.insert(name.clone(), value.clone());
            }
            EnvChange::Replace(name, value) => {
                if let Some(now) = env.get_mut(name) {
                    now.clone_from(value);
                }
            }
            EnvChange::ReplaceInherited(name, value) => {
                if env.get(name).is_none_or(|now| inherited.get(name) == Some(now)) {
                    env.insert(name.clone(), value.clone());
                }
            }
            EnvChange::Scrub { secret, placeholder } => {
                for value in env.values_mut().filter(|value| value.contains(secret.as_str())) {
                    *value = value.replace(secret.as_str(), placeholder);
                }
            }
        }
    }
    // A feature sets it instead, perhaps to another value.
    let Filtered { passed, stripped } = &mut filtered;
    stripped.retain(|name| !passed.contains_key(name));
    filtered
}
