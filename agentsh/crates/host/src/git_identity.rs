//! The user's git identity and preferences: a copy of the harmless part of the configuration, file by file. git itself
//! lists the settings of each file; conditional includes stay, so that git inside decides for each repository as
//! outside. Settings that start programs are left out (helpers, hooks, editors, shell aliases), except filters, which
//! decide what a commit contains.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use agentsh_base::{escape, small_file};
use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_sandbox::spec::{Contribution, EnvChange, Feature, File};

use super::git_settings::{NAMED_FILES, Scope, Setting, is_harmless, named_file};
use super::user_git::{Git, MAX_BYTES};
use super::{Context, repositories};

/// Files that are read; git itself stops at ten that include each other.
const MAX_FILES: usize = 32;
const UNKNOWN: &str = "git inside does not know your name and settings";
const REMEDY: &str = "`--read ~/.gitconfig` shows the file itself";

const UNSIGNED: &str = "git inside does not sign commits and tags (commit.gpgSign, tag.gpgSign), because your keys stay outside; \
     to sign with an ssh key: `agent: {ssh: {keys: [~/.ssh/KEY], sign: [git]}}` in your policy";

/// Settings that replace those of the user which need files that are not inside.
const OVERRIDES: &str = "\
[commit]
\tgpgSign = false
[tag]
\tgpgSign = false
\tforceSignAnnotated = false
[push]
\tgpgSign = false
[gc]
\tautoDetach = false
[maintenance]
\tautoDetach = false
";

/// Variables that git prefers to its configuration; the last one where that has no address.
const IDENTITY: [&str; 5] =
    ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"];

/// The files of root have another owner inside: git would take each for changed, there and outside after it.
const OTHER_OWNER: &str = "[core]\n\tcheckStat = minimal\n";

/// The files of git's global configuration inside. `is_signed`: git has a key there.
#[must_use]
pub fn contribution(context: &Context, is_signed: bool) -> Contribution {
    let mut part = Contribution::new(Feature::GitIdentity);
    let git = Git::find(context);
    let top = git.as_ref().map(Git::outer_settings);
    if matches!(top, Some(None)) {
        let why = "`git config --list` fails, as you see outside, or git is older than 2.26";
        part.notices.push(format!("{UNKNOWN}: {why}; {REMEDY}"));
    }
    let mut copy = Copy {
        git: git.as_ref(),
        home: &context.home,
        places: BTreeMap::new(),
        files: Vec::new(),
        named: BTreeSet::new(),
        signed: BTreeSet::new(),
    };
    let mut text = Vec::new();
    let mut said = Vec::new();
    for (scope, setting) in top.flatten().unwrap_or_default() {
        match scope {
            Scope::File(origin) => copy.take(&origin, &setting, &mut text),
            Scope::Environment => said.push(setting),
        }
    }
    let (said, left) = in_environment(&said);
    part.environment.extend(said);
    if !left.is_empty() {
        part.notices.push(format!(
            "git inside does not have {} of your variables (GIT_CONFIG_*): only settings that start no program, name no file \
             outside and hold no secret are taken over",
            left.join(", ")
        ));
    }
    // Only the user writes an include into the project's configuration: it is guarded, and what appears is set aside.
    let (includes, beside) = repositories::includes(context);
    for value in includes {
        let path = config_path(&context.home, beside, value.as_bytes());
        if let Some(git) = &git
            && path.starts_with(&context.home)
            && !path.starts_with(&context.project)
            && path.is_file()
            && !copy.files.iter().any(|(known, _)| *known == path)
        {
            let mut text = Vec::new();
            git.file(&path).iter().for_each(|setting| copy.take(&path, setting, &mut text));
            copy.files.push((path, text));
        }
    }
    if !copy.signed.is_empty() && !is_signed {
        part.notices.push(UNSIGNED.to_owned());
    }
    text.extend(OVERRIDES.as_bytes());
    if context.idmaps.is_some() {
        text.extend(OTHER_OWNER.as_bytes());
    }
    let mut files = copy.files;
    files.push((context.home.join(GLOBAL), text));
    for (key, usual) in NAMED_FILES {
        let named = git.as_ref().filter(|_| copy.named.contains(key));
        let named = named.and_then(|git| git.effective_value(&context.directory, "core", key));
        let file = named.map_or_else(
            || context.config.join(usual),
            |value| config_path(&context.home, &context.home, &value),
        );
        if let Some(content) = read_bounded(&file) {
            files.push((context.home.join(".config").join(usual), content));
        }
    }
    part.files = files.into_iter().map(|(path, content)| File::new(path, content, MODE)).collect();
    let of_caller = |name: &str| Some((name.to_owned(), context.env.get(name)?.clone()));
    part.setting(IDENTITY.into_iter().filter_map(of_caller))
}

/// Variables for the harmless settings of the caller's, which prevail over every file, and the names of the others.
fn in_environment(said: &[Setting]) -> (Vec<EnvChange>, Vec<String>) {
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    for setting in said {
        let Setting { section, subsection, key, value } = setting;
        let middle = subsection.iter().map(|subsection| format!("{}.", String::from_utf8_lossy(subsection)));
        let value = std::str::from_utf8(value.as_deref().unwrap_or(b"true"));
        match value {
            Ok(value) if is_harmless(setting) => {
                let name = format!("{section}.{}{key}", middle.collect::<String>());
                taken.extend([("KEY", name), ("VALUE", value.to_owned())]);
            }
            // What stands between may be an address with a password.
            _ => left.push(escape::line(&format!("{section}.{key}")).into_owned()),
        }
    }
    if taken.is_empty() {
        return (Vec::new(), left);
    }
    let count = ("GIT_CONFIG_COUNT".to_owned(), (taken.len() / 2).to_string());
    let each = taken.into_iter().enumerate();
    let each = each.map(|(index, (what, value))| (format!("GIT_CONFIG_{what}_{}", index / 2), value));
    // A policy that passes the variables prevails.
    let changes = each.chain([count]).map(|(name, value)| EnvChange::Default(name, value));
    (changes.collect(), left)
}

const GLOBAL: &str = ".gitconfig";
/// The mode of the generated files.
const MODE: u32 = 0o644;

/// Additional lines of another feature for git's global configuration.
#[must_use]
pub fn append_lines(context: &Context, text: String) -> Option<File> {
    (!text.is_empty()).then(|| File::appended(context.home.join(GLOBAL), text, MODE))
}

/// The objects that git signs with an ssh key according to the user's configuration: `commit`, `tag`.
#[must_use]
pub fn signed_by_ssh(context: &Context) -> Vec<&'static str> {
    let Some(git) = Git::find(context) else { return Vec::new() };
    let value = |section: &str, key: &str| git.effective_value(&context.directory, section, key);
    if !value("gpg", "format").is_some_and(|format| format.eq_ignore_ascii_case(b"ssh")) {
        return Vec::new();
    }
    let is_signed = |section: &&str| value(section, "gpgsign").is_some_and(|value| is_true(&value));
    ["commit", "tag"].into_iter().filter(is_signed).collect()
}

/// As git reads it; a key without a value is true.
fn is_true(value: &[u8]) -> bool {
    ["true", "yes", "on", "1", ""].iter().any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
}

/// The harmless part of configurations that include each other.
struct Copy<'a> {
    git: Option<&'a Git<'a>>,
    home: &'a Path,
    /// Where each file is inside.
    places: BTreeMap<PathBuf, PathBuf>,
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Those of [`NAMED_FILES`] that they name.
    named: BTreeSet<&'static str>,
    /// `commit` and `tag`, where the last setting asks for signatures.
    signed: BTreeSet<String>,
}

impl Copy<'_> {
    fn take(&mut self, origin: &Path, setting: &Setting, text: &mut Vec<u8>) {
        let is_include = matches!(setting.section.as_str(), "include" | "includeif") && setting.key == "path";
        self.named.extend(named_file(setting));
        let is_signing = matches!(setting.section.as_str(), "commit" | "tag") && setting.key == "gpgsign";
        if is_signing && is_true(setting.value.as_deref().unwrap_or_default()) {
            self.signed.insert(setting.section.clone());
        } else if is_signing {
            self.signed.remove(&setting.section);
        }
        if !is_include {
            if is_harmless(setting) {
                render(setting, text);
            }
            return;
        }
        let beside = origin.parent().unwrap_or(self.home);
        let Some(value) = &setting.value else { return };
        let Some(inside) = self.copy_included(&config_path(self.home, beside, value)) else { return };
        let mut setting = Setting { value: Some(inside.into_os_string().into_vec()), ..setting.clone() };
        if let Some(condition) = &mut setting.subsection {
            *condition = anchored(condition, beside);
        }
        render(&setting, text);
    }

    /// The copy of a file. None: there are too many.
    fn copy_included(&mut self, path: &Path) -> Option<PathBuf> {
        if let Some(known) = self.places.get(path) {
            return Some(known.clone());
        }
        let git = self.git.filter(|_| self.places.len() < MAX_FILES)?;
        let inside = Path::new(OWN_DIRECTORY).join(format!("gitconfig-{}", self.places.len()));
        self.places.insert(path.to_owned(), inside.clone());
        let mut text = Vec::new();
        for setting in git.file(path) {
            self.take(path, &setting, &mut text);
        }
        self.files.push((inside.clone(), text));
        Some(inside)
    }
}

/// A condition relative to the configuration file, whose copy is elsewhere.
fn anchored(condition: &[u8], beside: &Path) -> Vec<u8> {
    for kind in [b"gitdir:".as_slice(), b"gitdir/i:"] {
        if let Some(place) = condition.strip_prefix(kind).and_then(|rest| rest.strip_prefix(b"./")) {
            return [kind, beside.as_os_str().as_bytes(), b"/", place].concat();
        }
    }
    condition.to_vec()
}

/// A path as a configuration writes it.
fn config_path(home: &Path, beside: &Path, value: &[u8]) -> PathBuf {
    match value.strip_prefix(b"~/") {
        Some(rest) => home.join(OsStr::from_bytes(rest)),
        None => beside.join(OsStr::from_bytes(value)),
    }
}

fn render(setting: &Setting, text: &mut Vec<u8>) {
    let Setting { section, subsection, key, value } = setting;
    text.extend(format!("[{section}").bytes());
    if let Some(subsection) = subsection {
        text.extend([b" \"".as_slice(), &escape_value(subsection), b"\""].concat());
    }
    text.extend(format!("]\n\t{key}").bytes());
    if let Some(value) = value {
        text.extend([b" = \"".as_slice(), &escape_value(value), b"\""].concat());
    }
    text.push(b'\n');
}

fn escape_value(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for byte in value {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            _ => out.push(*byte),
        }
    }
    out
}

fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    small_file::read(path, MAX_BYTES).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_git::setting_of;

    /// The settings as git prints them with `-z`.
    fn taken(said: &[&[u8]]) -> Vec<u8> {
        let mut text = Vec::new();
        for setting in said.iter().filter_map(|said| setting_of(said)).filter(is_harmless) {
            render(&setting, &mut text);
        }
        text
    }

    #[test]
    fn git_identity_keeps_name_and_preferences_in_any_encoding() {
        assert_eq!(
            taken(&[
                b"user.name\nJ\xf6rg \"B\"",
                b"alias.st\nstatus -sb",
                b"pull.rebase",
                b"safe.directory\n*"
            ]),
            b"[user]\n\tname = \"J\xf6rg \\\"B\\\"\"\n[alias]\n\tst = \"status -sb\"\n[pull]\n\trebase\n\
              [safe]\n\tdirectory = \"*\"\n"
        );
        assert_eq!(
            taken(&[b"url.https://git.example/.insteadof\ng:"]),
            b"[url \"https://git.example/\"]\n\tinsteadof = \"g:\"\n"
        );
        for said in [
            "author.name\nx",
            "blame.ignorerevsfile\n.git-blame-ignore-revs",
            "core.whitespace\n-trailing-space",
            "gc.auto\n0",
            "pretty.one\n%h %s",
            "trailer.sign.key\nSigned-off-by",
            "url.git@git.example:.pushinsteadof\nhttps://git.example/",
        ] {
            assert!(!taken(&[said.as_bytes()]).is_empty(), "{said}");
        }
    }

    #[test]
    fn git_identity_leaves_out_programs_and_credentials() {
        for said in [
            "alias.x\n!sh -c id",
            "alias.x\n !id",
            "core.editor\nvi",
            "core.fsmonitor\nx",
            "core.pager\nless",
            "core.sshcommand\nx",
            "core.askpass\nx",
            "credential.helper\nstore",
            "credential.https://h.helper\n!x",
            "diff.x.textconv\nx",
            "diff.external\nx",
            "gpg.program\nx",
            "gpg.ssh.defaultkeycommand\nx",
            "user.signingkey\nx",
            "init.templatedir\nx",
            "http.proxy\nhttp://u:p@h",
            "url.https://token@git.example/.insteadof\ng:",
            "protocol.ext.allow\nalways",
            "sendemail.smtppass\nx",
            "remote.x.url\nhttps://u:p@h/x",
            "lfs.url\nhttps://u:p@h/x",
            "commit.template\n~/template",
            "commit.template\n/etc/template",
        ] {
            assert_eq!(taken(&[said.as_bytes()]), b"", "{said}");
        }
    }

    #[test]
    fn git_settings_of_variables_are_taken_if_they_are_harmless() {
        let said = [
            b"user.name\nAda".as_slice(),
            b"url.https://u:p@h/.insteadof\ng:",
            b"core.pager\nless",
            b"safe.directory",
        ];
        let said: Vec<Setting> = said.into_iter().filter_map(setting_of).collect();
        let (taken, left) = in_environment(&said);
        assert_eq!(left, ["url.insteadof", "core.pager"]);
        let set =
            |name: &str, value: &str| EnvChange::Default(format!("GIT_CONFIG_{name}"), value.to_owned());
        let expected = [
            set("KEY_0", "user.name"),
            set("VALUE_0", "Ada"),
            set("KEY_1", "safe.directory"),
            set("VALUE_1", "true"),
            set("COUNT", "2"),
        ];
        assert!(taken == expected);
        assert!(in_environment(&said[1..3]).0.is_empty());
    }

    #[test]
    fn git_config_condition_relative_to_its_file_keeps_its_target() {
        assert_eq!(anchored(b"gitdir:./work/", Path::new("/home/u")), b"gitdir:/home/u/work/");
        for same in ["gitdir:~/work/", "onbranch:main", "hasconfig:remote.*.url:https://h/**"] {
            assert_eq!(anchored(same.as_bytes(), Path::new("/home/u")), same.as_bytes());
        }
    }
}
