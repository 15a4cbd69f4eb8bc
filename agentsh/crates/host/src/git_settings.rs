//! Settings of git, and which of them start nothing and contain no secret.

use std::path::PathBuf;

use agentsh_policy::builtin_paths::GIT_IGNORE;
use agentsh_sandbox::git_config::Entry;
use serde::{Deserialize, Serialize};

/// The origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// A configuration of the machine or of the user.
    File(PathBuf),
    /// `GIT_CONFIG_COUNT` and its like.
    Environment,
}

/// The settings of one git, in its order.
pub type Settings = Vec<(Scope, Setting)>;

/// One variable, as git understands it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// In lower case.
    pub section: String,
    pub subsection: Option<Vec<u8>>,
    /// In lower case.
    pub key: String,
    /// None: a key without value, which git reads as true. Any bytes: names are written in many encodings.
    pub value: Option<Vec<u8>>,
}

/// Variables that are taken besides those that start nothing wherever they stand ([`Entry::is_harmless`]).
const VARIABLES: &[(&str, &str)] = &[
    // A directory: git runs what it sees of it inside, as it does of a repository's own.
    ("core", "hookspath"),
    // Its words may begin with `-`.
    ("core", "whitespace"),
    ("safe", "directory"),
];

/// Variables that start nothing, and are left out: they need keys that are not inside.
const LEFT_OUT: &[(&str, &str)] =
    &[("log", "showsignature"), ("merge", "verifysignatures"), ("user", "signingkey")];

/// Settings of `core` that name a file, and the file of the user's configuration that git reads without them.
pub const NAMED_FILES: [(&str, &str); 2] =
    [("attributesfile", "git/attributes"), ("excludesfile", GIT_IGNORE)];

/// Whether a setting names one of [`NAMED_FILES`]: which one.
#[must_use]
pub fn named_file(setting: &Setting) -> Option<&'static str> {
    let of_core = NAMED_FILES.iter().filter(|_| setting.section == "core");
    of_core.map(|(key, _)| *key).find(|key| *key == setting.key)
}

#[must_use]
pub fn is_harmless(setting: &Setting) -> bool {
    let (section, key) = (setting.section.as_str(), setting.key.as_str());
    let value = setting.value.as_deref().unwrap_or_default();
    match section {
        // An alias that begins so is a command of the shell.
        "alias" => !value.trim_ascii_start().starts_with(b"!") && !has_password(value),
        // They run inside, and git reports a missing required one. Without them `git add` of a git-lfs file would add its
        // content. Drivers decide what a merge contains.
        "filter" => true,
        "merge" if setting.subsection.is_some() => matches!(key, "driver" | "name" | "recursive"),
        "diff" if setting.subsection.is_some() => matches!(key, "binary" | "wordregex" | "xfuncname"),
        // With a name or password in it, it would be a credential.
        "url" => {
            matches!(key, "insteadof" | "pushinsteadof")
                && setting.subsection.as_deref().is_some_and(|url| !without_git_user(url).contains(&b'@'))
                && !has_password(value)
        }
        _ => {
            VARIABLES.contains(&(section, key))
                || (!LEFT_OUT.contains(&(section, key)) && is_preference(setting))
        }
    }
}

/// Whether a value may contain a password: an address with a user, or a header.
fn has_password(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value).to_ascii_lowercase();
    text.contains("extraheader") || (text.contains("://") && text.contains('@') && !text.contains("://git@"))
}

/// The address of a forge without the user name that all of its users have.
fn without_git_user(url: &[u8]) -> &[u8] {
    let rest = url.strip_prefix(b"ssh://").unwrap_or(url);
    rest.strip_prefix(b"git@").unwrap_or(rest)
}

/// Whether it starts nothing, and names no file outside and no address, which may contain a password.
fn is_preference(setting: &Setting) -> bool {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let entry = Entry {
        section: setting.section.clone(),
        subsection: setting.subsection.as_ref().map(text),
        key: setting.key.clone(),
        value: setting.value.as_ref().map(text),
    };
    let has_password = has_password(setting.value.as_deref().unwrap_or_default());
    let is_of_home = entry.value.as_deref().is_some_and(|value| value.starts_with('~'));
    named_file(setting).is_none()
        && !is_of_home
        && !has_password
        && !entry.names_address()
        && entry.is_harmless()
}
