//! `exec`: which programs may be executed.

use super::path_pattern;
use super::prelude::*;
use crate::{glob, path};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exec {
    pub allow: List<String>,
}

const EXEC: &[Key] = keys! {
    /// The only programs that may be executed, by absolute path or pattern.
    "allow": Kind::List(&Kind::Text), default: "every program that can be read",
        example: "[\"/usr/**\", \"**/target/debug/*\"]";
};

impl Section<ProcessPolicy> for Exec {
    const KEYS: &'static [Key] = keys! {
        /// What may be executed.
        "exec": Kind::Map(EXEC);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(exec) = reader.within(fields, "exec", EXEC) else { return Self::default() };
        let allow = reader.adding(exec.find("allow"), exec_pattern);
        if let Some(list) = allow.as_ref().filter(|list| list.value.is_empty()) {
            let help = "name the programs, or remove the key to allow every program that can be seen";
            reader.problem_of_rule(&list.rule, "an empty list would let nothing run", help);
        }
        Self { allow }
    }

    fn merge(&self, below: &mut ProcessPolicy) {
        merge_list(&self.allow, &mut below.exec.allow);
    }

    fn narrow(&self, base: &mut ProcessPolicy, narrowing: &mut Narrowing<'_>) {
        let Some(list) = &self.allow else { return };
        let base = &mut base.exec.allow;
        for entry in &list.value {
            let inner = path::written(&entry.value);
            let covered = base.is_empty()
                || base.iter().any(|outer| {
                    outer.value == entry.value
                        || (!glob::is_literal(&outer.value)
                            && glob::is_literal(&entry.value)
                            && path::is(&path::written(&outer.value), &inner))
                });
            if !covered {
                narrowing.refuse(&entry.rule, format!("this file would allow executing `{}`", entry.value));
            }
        }
        base.clone_from(&list.value);
    }

    fn describe(policy: &ProcessPolicy, name: &str, lines: &mut Lines) {
        lines.list(&format!("{name}.exec.allow"), &policy.exec.allow, Clone::clone);
    }
}

fn exec_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = path_pattern(reader, here)?;
    if text.starts_with(['/', '~']) || text.starts_with("./") || text.starts_with("**") {
        return Some(text);
    }
    let help = format!("write `/usr/bin/{text}`, or `**/{text}` for that name anywhere");
    reader.fault(here, "a program is named by its absolute path", help)
}
