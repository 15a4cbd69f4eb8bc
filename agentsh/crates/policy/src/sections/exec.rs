//! `exec`: which programs may be executed.

use super::path_pattern;
use super::prelude::*;
use crate::{glob, path};

table! {
    /// Globs over absolute paths of programs that may be executed. Empty means all that can be seen.
    struct ExecPolicy;

    /// The only programs that may be executed, by absolute path or pattern.
    pub allow: Entries<String> = Kind::List(&Kind::Text), default: "every program that can be read",
        example: "[\"/usr/**\", \"**/target/debug/*\"]" => whole allow;
}

impl Section<ProcessPolicy> for ExecPolicy {
    const KEYS: &'static [Key] = keys! {
        /// What may be executed.
        "exec": Kind::Map(Self::TABLE);
    };

    in_table! { ProcessPolicy (exec): read merge describe }

    fn narrow(&self, base: &mut ProcessPolicy, narrowing: &mut Narrowing<'_>) {
        let covered = |base: &[Ruled<String>], own: &String| {
            let inner = path::written(own);
            base.is_empty()
                || base.iter().any(|outer| {
                    outer.value == *own
                        || (!glob::is_literal(&outer.value)
                            && glob::is_literal(own)
                            && path::is(&path::written(&outer.value), &inner))
                })
        };
        let message = |own: &String| format!("this file would allow executing `{own}`");
        base.exec.allow.narrow(&self.allow, narrowing, covered, message);
    }
}

fn allow(reader: &mut Reader<'_>, here: Option<Here<'_>>) -> Entries<String> {
    let allow = reader.adding(here, exec_pattern);
    if let Some(list) = allow.as_ref().filter(|list| list.value.is_empty()) {
        let help = "name the programs, or remove the key to allow every program that can be seen";
        reader.problem_of_rule(&list.rule, "an empty list would let nothing run", help);
    }
    allow.into()
}

fn exec_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = path_pattern(reader, here)?;
    if text.starts_with(['/', '~']) || text.starts_with("./") || text.starts_with("**") {
        return Some(text);
    }
    let help = format!("write `/usr/bin/{text}`, or `**/{text}` for that name anywhere");
    reader.fault(here, "a program is named by its absolute path", help)
}
