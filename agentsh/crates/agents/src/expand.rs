//! Variables in configuration values, by the rules of each agent.

use std::collections::{BTreeMap, BTreeSet};

/// The variables that were looked up while a server's values were expanded.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    pub(super) used: BTreeSet<String>,
    pub(super) missing: BTreeSet<String>,
    /// The file came with the project, and the user has not agreed to it: what is not in every environment anyway
    /// counts as not set.
    pub(super) withhold: bool,
    pub(super) withheld: BTreeSet<String>,
}

impl Lookups {
    /// The value of a variable, as far as the declaration may have it.
    pub(super) fn value<'e>(&mut self, name: &str, env: &'e BTreeMap<String, String>) -> Option<&'e str> {
        self.used.insert(name.to_owned());
        let value = env.get(name)?;
        if !self.withhold || IN_EVERY_ENVIRONMENT.contains(&name) {
            return Some(value);
        }
        self.withheld.insert(name.to_owned());
        None
    }
}

/// Variables that say nothing about the user's accounts, and that every server has.
const IN_EVERY_ENVIRONMENT: &[&str] =
    &["HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"];

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
        let value = lookups.value(name, env).or(default);
        let value = if lookups.withheld.contains(name) { value.or(Some("")) } else { value };
        if value.is_none() {
            lookups.missing.insert(name.to_owned());
        }
        Some((value?.to_owned(), tail))
    })
}

/// A value that the session alone uses, in the same form.
///
/// # Errors
/// The name of a variable that is not set and has no default: half a credential is useless.
pub fn expand_in_session(text: &str, env: &BTreeMap<String, String>) -> Result<String, String> {
    let mut lookups = Lookups::default();
    let value = braces(text, env, &mut lookups);
    lookups.missing.into_iter().next().map_or(Ok(value), Err)
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
            Some(name) => Some((lookups.value(name, env).unwrap_or_default().to_owned(), tail)),
            None => Some((directories.get(inside)?.clone(), tail)),
        }
    })
}

/// Gemini CLI's form: `$NAME`, `${NAME}` and `${NAME:-default}`; what is not set stays as it is written.
pub(super) fn shell(text: &str, env: &BTreeMap<String, String>, lookups: &mut Lookups) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        let length = after.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let (name, tail) = after.split_at(length);
        rest = after;
        if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
            // A brace is for the other reader, which leaves alone what it does not know.
            result.push('$');
            continue;
        }
        match lookups.value(name, env) {
            Some(value) => result.push_str(value),
            None if lookups.withheld.contains(name) => {}
            None => {
                lookups.missing.insert(name.to_owned());
                result.push('$');
                result.push_str(name);
            }
        }
        rest = tail;
    }
    result.push_str(rest);
    if text.contains("${") { braces(text, env, lookups) } else { result }
}

/// OpenCode's form: `{env:NAME}`; an unset variable is empty, as there.
pub(super) fn curly(text: &str, env: &BTreeMap<String, String>, lookups: &mut Lookups) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{env:") {
        result.push_str(before);
        let Some((name, tail)) = after.split_once('}') else {
            result.push_str("{env:");
            rest = after;
            continue;
        };
        result.push_str(lookups.value(name, env).unwrap_or_default());
        rest = tail;
    }
    result.push_str(rest);
    result
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
