//! Settings of git, and which of them start nothing and contain no secret.

use std::path::PathBuf;

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

/// Sections of which every variable is taken.
const SECTIONS: &[&str] =
    &["advice", "color", "column", "fetch", "init", "log", "pull", "rebase", "rerere", "stash", "status"];

/// Single variables.
const VARIABLES: &[(&str, &str)] = &[
    ("blame", "date"),
    ("branch", "autosetupmerge"),
    ("branch", "autosetuprebase"),
    ("branch", "sort"),
    ("commit", "cleanup"),
    ("commit", "status"),
    ("commit", "verbose"),
    ("core", "abbrev"),
    ("core", "autocrlf"),
    ("core", "eol"),
    // A directory: git runs what it sees of it inside, as it does of a repository's own.
    ("core", "hookspath"),
    ("core", "precomposeunicode"),
    ("core", "quotepath"),
    ("core", "safecrlf"),
    ("core", "whitespace"),
    ("diff", "algorithm"),
    ("diff", "colormoved"),
    ("diff", "context"),
    ("diff", "indentheuristic"),
    ("diff", "mnemonicprefix"),
    ("diff", "noprefix"),
    ("diff", "renamelimit"),
    ("diff", "renames"),
    ("diff", "submodule"),
    ("feature", "manyfiles"),
    ("format", "pretty"),
    ("grep", "linenumber"),
    ("help", "autocorrect"),
    ("i18n", "commitencoding"),
    ("i18n", "logoutputencoding"),
    ("merge", "conflictstyle"),
    ("merge", "ff"),
    ("merge", "log"),
    ("merge", "renames"),
    ("push", "autosetupremote"),
    ("push", "default"),
    ("push", "followtags"),
    ("safe", "directory"),
    ("submodule", "recurse"),
    ("tag", "sort"),
    ("user", "email"),
    ("user", "name"),
    ("user", "useconfigonly"),
    ("versionsort", "suffix"),
];

/// Settings of `core` that name a file, and the file of the user's configuration that git reads without them.
pub const NAMED_FILES: [(&str, &str); 2] =
    [("attributesfile", "git/attributes"), ("excludesfile", "git/ignore")];

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
        "alias" => !value.trim_ascii_start().starts_with(b"!"),
        // They run inside, and git reports a missing required one. Without them `git add` of a git-lfs file would add its
        // content.
        "filter" => true,
        // With a name or password in it, it would be a credential.
        "url" => key == "insteadof" && setting.subsection.as_deref().is_some_and(|url| !url.contains(&b'@')),
        _ => {
            SECTIONS.contains(&section) && !runs_a_program(section, key)
                || VARIABLES.contains(&(section, key))
        }
    }
}

fn runs_a_program(section: &str, key: &str) -> bool {
    matches!(
        (section, key),
        ("init", "templatedir") | ("rebase", "instructionformat") | ("log", "showsignature")
    )
}
