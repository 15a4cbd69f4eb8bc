//! Git inside knows who the user is, and how he likes it: a global configuration made of the harmless part of his own.
//! Nothing that starts a program is taken over: no helpers, hooks, filters, editors, or aliases of the shell.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::sandbox::git_config::{Entry, entries};

use super::Context;

/// Configurations that are read; git itself stops at ten that include each other.
const MOST_FILES: usize = 32;
/// Of one configuration or ignore file.
const MOST_BYTES: u64 = 256 << 10;

/// Sections of which every variable is taken.
const SECTIONS: &[&str] =
    &["advice", "color", "column", "fetch", "init", "log", "pull", "rebase", "rerere", "stash", "status"];

/// Single variables.
const VARIABLES: &[(&str, &str)] = &[
    ("blame", "date"),
    ("branch", "autosetuprebase"),
    ("branch", "sort"),
    ("commit", "cleanup"),
    ("commit", "status"),
    ("commit", "verbose"),
    ("core", "abbrev"),
    ("core", "autocrlf"),
    ("core", "eol"),
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
    ("submodule", "recurse"),
    ("tag", "sort"),
    ("user", "email"),
    ("user", "name"),
    ("user", "useconfigonly"),
    ("versionsort", "suffix"),
];

/// What is said where the user's own configuration would need what is not inside.
const OVERRIDES: &str = "\
[branch]
\tautoSetupMerge = false
[commit]
\tgpgSign = false
[tag]
\tgpgSign = false
[push]
\tgpgSign = false
[gc]
\tautoDetach = false
[maintenance]
\tautoDetach = false
";

/// The files of git's global configuration inside: path in the sandbox and content. `more` is said besides.
#[must_use]
pub fn files(context: &Context, more: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut reading = Reading::new(context, is_harmless);
    reading.all(context);
    let mut text = render(&reading.taken);
    text.push_str(OVERRIDES);
    text.push_str(more);
    let mut files = vec![(context.home.join(".gitconfig"), text.into_bytes())];
    let ignored = reading.ignored.unwrap_or_else(|| context.config.join("git/ignore"));
    if let Some(content) = bounded(&ignored) {
        files.push((context.home.join(".config/git/ignore"), content.into_bytes()));
    }
    files
}

/// What the user has signed, by his configuration, with a key of ssh: `commit`, `tag`.
#[must_use]
pub fn signed_by_ssh(context: &Context) -> Vec<&'static str> {
    let mut reading = Reading::new(context, |entry| {
        matches!(
            (entry.section.as_str(), entry.key.as_str()),
            ("gpg", "format") | ("commit" | "tag", "gpgsign")
        )
    });
    reading.all(context);
    let is = |section: &str, values: &[&str]| {
        let last = reading.taken.iter().rfind(|entry| entry.section == section && entry.subsection.is_none());
        last.is_some_and(|entry| {
            // A key without a value is true.
            let value = entry.value.as_deref().unwrap_or("true").to_ascii_lowercase();
            values.contains(&value.as_str())
        })
    };
    let signs = |section: &&str| is(section, &["true", "yes", "on", "1"]);
    ["commit", "tag"].into_iter().filter(|_| is("gpg", &["ssh"])).filter(signs).collect()
}

struct Reading<'a> {
    is_taken: fn(&Entry) -> bool,
    home: &'a Path,
    directory: &'a Path,
    taken: Vec<Entry>,
    /// `core.excludesFile`.
    ignored: Option<PathBuf>,
    seen: BTreeSet<PathBuf>,
}

impl<'a> Reading<'a> {
    fn new(context: &'a Context, is_taken: fn(&Entry) -> bool) -> Self {
        Self {
            is_taken,
            home: &context.home,
            directory: &context.directory,
            taken: Vec::new(),
            ignored: None,
            seen: BTreeSet::new(),
        }
    }

    fn all(&mut self, context: &Context) {
        for path in [context.config.join("git/config"), context.home.join(".gitconfig")] {
            self.read(&path);
        }
    }

    /// One configuration and what it includes, in git's order: later ones win.
    fn read(&mut self, path: &Path) {
        if self.seen.len() >= MOST_FILES || !self.seen.insert(path.to_owned()) {
            return;
        }
        let Some(text) = bounded(path) else { return };
        for entry in entries(&text) {
            match (entry.section.as_str(), entry.key.as_str()) {
                ("include", "path") => self.include(path, &entry),
                ("includeif", "path") if self.holds(path, entry.subsection.as_deref()) => {
                    self.include(path, &entry);
                }
                ("core", "excludesfile") => {
                    self.ignored = entry.value.as_deref().map(|value| self.named(path, value));
                }
                _ if (self.is_taken)(&entry) => self.taken.push(entry),
                _ => {}
            }
        }
    }

    fn include(&mut self, from: &Path, entry: &Entry) {
        if let Some(value) = &entry.value {
            self.read(&self.named(from, value));
        }
    }

    fn named(&self, from: &Path, value: &str) -> PathBuf {
        match value.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => from.parent().unwrap_or(self.home).join(value),
        }
    }

    /// `gitdir:` conditions on a directory above where git is started; other conditions do not hold.
    fn holds(&self, from: &Path, condition: Option<&str>) -> bool {
        let Some(pattern) = condition.and_then(|condition| condition.strip_prefix("gitdir:")) else {
            return false;
        };
        let pattern = pattern.trim_end_matches("**").trim_end_matches('/').trim_end_matches("/.git");
        if pattern.is_empty() || pattern.contains(['*', '?', '[']) {
            return false;
        }
        let place = match pattern.strip_prefix("./") {
            Some(rest) => from.parent().unwrap_or(self.home).join(rest),
            None => self.named(Path::new("/"), pattern),
        };
        let place = place.canonicalize().unwrap_or(place);
        self.directory.starts_with(place)
    }
}

fn is_harmless(entry: &Entry) -> bool {
    let (section, key) = (entry.section.as_str(), entry.key.as_str());
    let value = entry.value.as_deref().unwrap_or_default();
    match section {
        // An alias that begins so is a command of the shell.
        "alias" => !value.trim_start().starts_with('!'),
        // With a name or password in it, it would be a credential.
        "url" => key == "insteadof" && entry.subsection.as_deref().is_some_and(|url| !url.contains('@')),
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

fn render(entries: &[Entry]) -> String {
    let mut text = String::new();
    for Entry { section, subsection, key, value } in entries {
        match subsection {
            None => text += &format!("[{section}]\n"),
            Some(sub) => text += &format!("[{section} \"{}\"]\n", escaped(sub)),
        }
        match value {
            None => text += &format!("\t{key}\n"),
            Some(value) => text += &format!("\t{key} = \"{}\"\n", escaped(value)),
        }
    }
    text
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn bounded(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= MOST_BYTES).then(|| std::fs::read_to_string(path).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> String {
        render(&entries(text).into_iter().filter(is_harmless).collect::<Vec<_>>())
    }

    #[test]
    fn who_the_user_is_and_how_he_likes_it() {
        assert_eq!(
            taken("[user]\nname = A \"B\"\nemail=a@b.example\n[alias]\nst = status -sb\n[pull] rebase\n"),
            "[user]\n\tname = \"A B\"\n[user]\n\temail = \"a@b.example\"\n[alias]\n\tst = \"status -sb\"\n\
             [pull]\n\trebase\n"
        );
        assert_eq!(
            taken("[url \"https://git.example/\"]\ninsteadOf = \"g:\"\n"),
            "[url \"https://git.example/\"]\n\tinsteadof = \"g:\"\n"
        );
    }

    #[test]
    fn nothing_that_starts_a_program_or_opens_a_door() {
        for text in [
            "[alias]\nx = !sh -c id",
            "[alias]\nx = \" !id\"",
            "[core]\neditor = vi\nhooksPath = h\nfsmonitor = x\npager = less\nsshCommand = x\naskPass = x",
            "[credential]\nhelper = store",
            "[credential \"https://h\"]\nhelper = !x",
            "[filter \"lfs\"]\nclean = git-lfs clean",
            "[diff \"x\"]\ntextconv = x",
            "[diff]\nexternal = x",
            "[merge \"x\"]\ndriver = x",
            "[gpg]\nprogram = x",
            "[gpg \"ssh\"]\ndefaultKeyCommand = x",
            "[user]\nsigningKey = x",
            "[init]\ntemplateDir = x",
            "[http]\nproxy = http://u:p@h",
            "[url \"https://token@git.example/\"]\ninsteadOf = g:",
            "[protocol \"ext\"]\nallow = always",
            "[sendemail]\nsmtpPass = x",
            "[include]\npath = x",
        ] {
            assert_eq!(taken(text), "", "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_the_same() {
        let text = "[alias]\n\tx = \"log --format=\\\"%h\\\\n\\\"\"\n";
        let first = entries(text);
        assert_eq!(entries(&render(&first)), first);
    }
}
