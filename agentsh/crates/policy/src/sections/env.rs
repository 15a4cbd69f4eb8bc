//! `env_allow`, `env_deny`, `env_inherit`: which variables are passed on.

use super::prelude::*;
use crate::glob;
use crate::model::EnvPolicy;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Env {
    pub allow: List<String>,
    pub deny: List<String>,
    /// True: `env_inherit: all`.
    pub inherit: Option<Ruled<bool>>,
}

impl Section<ProcessPolicy> for Env {
    #[expect(clippy::needless_update, reason = "one key differs in every field from the usual")]
    const KEYS: &'static [Key] = keys! {
        /// Names and patterns of variables that are passed on. A name that ends like a secret's (`_TOKEN`, `_KEY`) and
        /// one that decides what programs load (`LD_PRELOAD`, `NODE_OPTIONS`) are passed only if their full name is
        /// listed.
        "env_allow": Kind::List(&Kind::Text), also: &["allowed_env"],
            default: "only PATH, HOME, USER, SHELL, TERM, LANG, TMPDIR and XDG_RUNTIME_DIR",
            example: "[\"CI_*\", GITHUB_TOKEN]";
        /// Names and patterns that are not passed on. If `env_allow` is empty, every other variable is passed; an
        /// `env_allow` in the same place takes precedence.
        "env_deny": Kind::List(&Kind::Text), also: &["denied_env"], default: "nothing",
            merge: "adds, and wins over every `env_allow` of the layers below", example: "[\"AWS_*\"]";
        /// `all` passes what no list names, except variables that decide what programs load.
        "env_inherit": Kind::Word(&["all", "none"]), default: "none", example: "all";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        Self {
            allow: names(reader, fields, &["env_allow", "allowed_env"]),
            deny: names(reader, fields, &["env_deny", "denied_env"]),
            inherit: reader.word(fields.find("env_inherit"), &[("all", true), ("none", false)]),
        }
    }

    fn merge(&self, below: &mut ProcessPolicy) {
        let env = &mut below.env;
        let is_written = |list: &List<String>| list.as_ref().is_some_and(|list| !list.value.is_empty());
        if let Some(list) = &self.allow {
            if list.replaces {
                *env = EnvPolicy { never: std::mem::take(&mut env.never), ..EnvPolicy::default() };
            }
            env.allow.extend(list.value.iter().cloned());
        }
        if let Some(list) = &self.deny {
            if list.replaces {
                env.deny.clear();
                env.never.clear();
            }
            // The first list decides that the rest passes; over an allow list it removes.
            let is_first = env.allow.is_empty() && !env.others && !list.value.is_empty();
            env.others |= is_first;
            // Of two lists in one place the allow list takes precedence.
            let taken = if env.others || is_written(&self.allow) { &mut env.deny } else { &mut env.never };
            taken.extend(list.value.iter().cloned());
        }
        if let Some(inherit) = &self.inherit
            && !is_written(&self.allow)
            && !is_written(&self.deny)
        {
            env.others = inherit.value;
            env.inherit_rule = Some(inherit.rule.clone());
        }
    }

    fn narrow(&self, base: &mut ProcessPolicy, narrowing: &mut Narrowing<'_>) {
        let base = &mut base.env;
        if let Some(inherit) = &self.inherit {
            if inherit.value && !base.others {
                narrowing.refuse(&inherit.rule, "this file would pass on the environment");
            }
            base.others &= inherit.value;
            base.inherit_rule = Some(inherit.rule.clone());
        }
        if let Some(list) = &self.allow {
            for entry in &list.value {
                let possible = narrowing.possible.iter().any(|profile| covered(&profile.env, &entry.value));
                if !possible && !covered(base, &entry.value) {
                    let message = format!("this file would pass on `{}`", entry.value);
                    narrowing.refuse(&entry.rule, message);
                }
            }
            let left = list.value.iter().filter(|entry| covered(base, &entry.value)).cloned().collect();
            if base.others {
                base.never.append(&mut base.deny);
            }
            base.allow = left;
            base.deny.clear();
            // An empty list is a list: nothing but the standard variables is left.
            base.others = false;
        }
        base.never.extend(self.deny.iter().flat_map(|list| list.value.iter().cloned()));
    }

    fn describe(policy: &ProcessPolicy, name: &str, lines: &mut Lines) {
        let env = &policy.env;
        lines.list(&format!("{name}.env_allow"), &env.allow, Clone::clone);
        lines.list(&format!("{name}.env_deny"), &env.deny, Clone::clone);
        lines.list(&format!("{name}.env_never"), &env.never, Clone::clone);
        if let Some(rule) = env.inherit_rule.as_ref().filter(|_| env.others) {
            lines.add(&format!("{name}.env_inherit"), "all", rule);
        }
    }
}

/// Whether listing `entry` passes nothing that is not passed anyway.
fn covered(base: &EnvPolicy, entry: &str) -> bool {
    if glob::is_literal(entry) {
        return base.decide(entry, "agent").pass;
    }
    // A glob never passes loader variables, and secrets only where everything passes.
    base.others || base.allow.iter().any(|outer| glob::covers(&outer.value, entry))
}

/// A list of names of variables under one of several spellings of its key.
fn names(reader: &mut Reader<'_>, fields: &Fields<'_>, spellings: &[&str]) -> List<String> {
    let found: Vec<Here<'_>> = spellings.iter().filter_map(|key| fields.find(key)).collect();
    if let [_, second, ..] = found.as_slice() {
        let help = format!("`{}` means the same; keep one of them", spellings.first().unwrap_or(&""));
        reader.problem(second, "this list is given twice", help);
    }
    reader.adding(found.into_iter().next(), variable)
}

pub fn variable(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let name = reader.text(here)?;
    if name.contains('=') || name.contains(char::is_whitespace) {
        let help = "write only the name; values belong in a server's `env:` map";
        return reader.fault(here, "this is not the name of a variable", help);
    }
    Some(name)
}
