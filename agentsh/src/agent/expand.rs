//! Variables inside configuration values, as each agent understands them.

use std::collections::{BTreeMap, BTreeSet};

/// What was looked up while a server's values were expanded.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    pub(super) used: BTreeSet<String>,
    pub(super) missing: BTreeSet<String>,
}

/// Claude Code's form: `${NAME}` and `${NAME:-default}`. A variable that is not set and has no default stays as
/// it is written; a value is never expanded twice.
pub(super) fn braces(text: &str, env: &BTreeMap<String, String>, lookups: &mut Lookups) -> String {
    replace(text, |after| {
        let name_length =
            after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let (name, rest) = after.split_at(name_length);
        if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let (default, tail) = match rest.strip_prefix(":-") {
            Some(rest) => rest.split_once('}').map(|(default, tail)| (Some(default), tail))?,
            None => (None, rest.strip_prefix('}')?),
        };
        lookups.used.insert(name.to_owned());
        let value = env.get(name).map(String::as_str).or(default);
        if value.is_none() {
            lookups.missing.insert(name.to_owned());
        }
        Some((value?.to_owned(), tail))
    })
}

/// The editors' form: `${env:NAME}` and a few names of directories; an unset variable is empty, as there.
pub(super) fn editor(
    text: &str,
    env: &BTreeMap<String, String>,
    directories: &BTreeMap<&str, String>,
    lookups: &mut Lookups,
) -> String {
    replace(text, |after| {
        let length = after.find(['}', '$'])?;
        let (inside, rest) = after.split_at(length);
        let tail = rest.strip_prefix('}')?;
        match inside.strip_prefix("env:") {
            Some(name) => {
                lookups.used.insert(name.to_owned());
                Some((env.get(name).cloned().unwrap_or_default(), tail))
            }
            None => Some((directories.get(inside)?.clone(), tail)),
        }
    })
}

/// Replaces every `${...}` for which `value` knows one. `value` gets what follows the `${`, and returns the
/// replacement and what follows the closing brace; it looks no further than the next brace, so that a hostile
/// text costs linear time.
fn replace(text: &str, mut value: impl FnMut(&str) -> Option<(String, &str)>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        result.push_str(before);
        match value(after) {
            Some((replacement, tail)) => {
                result.push_str(&replacement);
                rest = tail;
            }
            None => {
                result.push_str("${");
                rest = after;
            }
        }
    }
    result.push_str(rest);
    result
}
