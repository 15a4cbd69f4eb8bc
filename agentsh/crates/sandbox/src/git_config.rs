//! Paths that a git configuration names: hooks, included files, the working tree.
//!
//! Parses the format of `git-config(1)`. Where git would report an error, parsing continues, so that too much is
//! guarded rather than too little.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::Chars;

/// Paths as written, unquoted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitConfig {
    /// `core.hooksPath`, and `init.templateDir`, from which git copies hooks.
    pub hooks: Vec<String>,
    /// `include.path` and every `includeIf.*.path`, whether or not its condition holds.
    pub includes: Vec<String>,
    /// `core.worktree`.
    pub worktrees: Vec<String>,
    /// Programs that git starts without being asked: `core.fsmonitor`, filters and drivers that attributes name,
    /// helpers.
    pub programs: Vec<String>,
    /// Values of all other keys that may be commands.
    pub commands: Vec<String>,
}

/// One variable as written, unquoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// In lower case.
    pub section: String,
    /// In quotes in `[section "sub"]`, or after the dot in `[section.sub]`.
    pub subsection: Option<String>,
    /// In lower case.
    pub key: String,
    /// None: a key without a value, which git reads as true.
    pub value: Option<String>,
}

#[must_use]
pub fn parse(text: &str) -> GitConfig {
    let mut found = GitConfig::default();
    entries(text).into_iter().for_each(|entry| found.add(entry));
    found
}

impl GitConfig {
    /// Paths of hooks and programs relative to each repository's working tree.
    #[must_use]
    pub fn relative(&self) -> BTreeSet<PathBuf> {
        self.paths().filter(|path| !path.starts_with(['/', '~'])).map(PathBuf::from).collect()
    }

    /// Paths of hooks and programs, as written.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let programs = self.programs.iter().filter_map(|command| program_of(command));
        let started = self.commands.iter().flat_map(|command| started_by(command));
        self.hooks.iter().map(String::as_str).chain(programs).chain(started)
    }

    /// Adds one variable.
    pub fn add(&mut self, entry: Entry) {
        let places = match (entry.section.as_str(), entry.key.as_str()) {
            ("core", "hookspath") | ("init", "templatedir") => &mut self.hooks,
            ("core", "worktree") => &mut self.worktrees,
            ("core", "fsmonitor") if entry.is_bool() => return,
            ("include" | "includeif", "path") => &mut self.includes,
            _ if entry.is_harmless() => return,
            // Other words of an alias are names of branches, too.
            ("alias", _) => {
                let command = entry.value.unwrap_or_default();
                let shell = command.strip_prefix('!');
                let first = shell.and_then(|command| command.split_whitespace().next());
                self.programs.extend(first.map(str::to_owned));
                // A git command runs none of its words but those of its options.
                if shell.is_some() || command.split_whitespace().any(may_name_program) {
                    self.commands.push(command);
                }
                return;
            }
            _ if entry.names_program() => &mut self.programs,
            _ => &mut self.commands,
        };
        places.extend(entry.value.filter(|value| !value.is_empty()));
    }
}

/// The file that a command runs: its first word with a slash, behind variables, options, and an interpreter of PATH.
#[must_use]
pub fn program_of(command: &str) -> Option<&str> {
    let mut words = command.split(|letter: char| letter.is_whitespace() || "!\"';&|()".contains(letter));
    words.find(|word| word.contains('/') && !word.contains('=') && !word.starts_with('-'))
}

/// Words of shells behind which another command stands, and programs that start the file behind them.
const BEFORE_COMMANDS: [&str; 17] = [
    "do", "else", "env", "exec", "if", "then", "while", "bash", "bun", "dash", "deno", "node", "perl",
    "python", "python3", "ruby", "sh",
];

/// The files that a value starts if it is a command of a shell: the first words of its parts. Arguments are data.
pub fn started_by(command: &str) -> impl Iterator<Item = &str> {
    command.split([';', '&', '|', '(', ')', '{', '}', '\n', '`']).filter_map(|part| {
        let mut words = part.split_whitespace().map(|word| word.trim_matches(['"', '\'', '!']));
        let is_before = |word: &&str| {
            word.is_empty() || word.starts_with('-') || word.contains('=') || BEFORE_COMMANDS.contains(word)
        };
        words.find(|word| !is_before(word)).filter(|word| word.contains('/') && !word.contains("://"))
    })
}

/// The name as in git's own commands.
impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { section, subsection, key, value } = self;
        let below = subsection.as_ref().map_or(String::new(), |below| format!("{below}."));
        let value = value.as_ref().map_or(String::new(), |value| format!(" = {value}"));
        write!(f, "{section}.{below}{key}{value}")
    }
}

/// Numbers, words and truth values of `core`.
const CORE: &str = "abbrev autocrlf bare bigfilethreshold checkstat commentchar commentstring commitgraph compression createobject \
    deltabasecachelimit eol filemode fscache fsmonitorhookversion fsync fsyncmethod fsyncobjectfiles hidedotfiles ignorecase \
    ignorestat logallrefupdates longpaths loosecompression maxtreedepth multipackindex packedgitlimit packedgitwindowsize \
    packedrefstimeout precomposeunicode preloadindex protecthfs protectntfs quotepath repositoryformatversion safecrlf \
    sharedrepository sparsecheckout sparsecheckoutcone splitindex symlinks trustctime unsetenvvars untrackedcache \
    usereplacerefs warnambiguousrefs whitespace";
/// Formats, patterns and names; all keys of a section if none is listed. None is a program.
const ANY_VALUE: &[(&str, &str)] = &[
    ("advice", ""),
    ("blame", ""),
    ("checkout", ""),
    ("color", ""),
    ("column", ""),
    ("grep", ""),
    ("i18n", ""),
    ("log", ""),
    ("notes", ""),
    ("pack", ""),
    ("pretty", ""),
    ("showbranch", ""),
    ("stash", ""),
    ("status", ""),
    ("versionsort", ""),
    ("worktree", ""),
    ("commit", "cleanup gpgsign status template verbose"),
    (
        "format",
        "attach coverletter encodeemailheaders forceinbodyfrom from noprefix notes numbered pretty signoff subjectprefix suffix \
     thread usebase",
    ),
    (
        "fetch",
        "all fsckobjects negotiationalgorithm output parallel prune prunetags recursesubmodules showforcedupdates unpacklimit \
     writecommitgraph",
    ),
    (
        "push",
        "autosetupremote default followtags gpgsign negotiate pushoption recursesubmodules usebitmaps useforceifincludes",
    ),
    ("tag", "forcesignannotated gpgsign sort"),
    ("trailer", "ifexists ifmissing key separators where"),
    ("transfer", "advertisesid credentialsinurl fsckobjects hiderefs unpacklimit"),
];
/// Sections whose other keys are numbers, words or dates.
const SECTION_EXCEPTIONS: &[(&str, &str)] = &[
    ("gc", "recentobjectshook"),
    ("receive", "certnonceseed procreceiverefs"),
    ("uploadpack", "packobjectshook"),
];
/// Numbers, words and truth values.
const WORDS: &[(&str, &str)] = &[
    ("am", "keepcr threeway"),
    ("apply", "ignorewhitespace whitespace"),
    ("clone", "defaultremotename filtersubmodules rejectshallow"),
    ("commitgraph", ""),
    (
        "diff",
        "algorithm autorefreshindex colormoved colormovedws context dirstat ignoresubmodules indentheuristic interhunkcontext \
     mnemonicprefix noprefix relative renamelimit renames statgraphwidth statnamewidth submodule suppressblankempty \
     wserrorhighlight",
    ),
    ("difftool", "prompt trustexitcode"),
    ("feature", ""),
    ("gpg", "format mintrustlevel"),
    ("help", "autocorrect"),
    ("http", "lowspeedlimit lowspeedtime maxrequests minsessions postbuffer version"),
    ("index", "recordendofindexentries recordoffsettable skiphash sparse threads version"),
    ("interactive", "singlekey"),
    ("maintenance", "auto autodetach enabled schedule strategy"),
    (
        "merge",
        "autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff log renamelimit renames renormalize stat \
     verbosity verifysignatures",
    ),
    ("mergetool", "hideresolved keepbackup keeptemporaries prompt trustexitcode writetotemp"),
    ("protocol", "version"),
    ("pull", "autostash ff rebase"),
    (
        "rebase",
        "abbreviatecommands autosquash autostash backend forkpoint missingcommitscheck rebasemerges reschedulefailedexec stat \
     updaterefs",
    ),
    ("repack", ""),
    ("rerere", ""),
];
/// Git commands that only read, with any options.
const READING: &str = "blame cherry diff log show status";
/// Read-only git commands and common alias targets: with options without a value they run nothing.
const ALIASED: &str = "add blame branch checkout cherry commit diff fetch log pull push reflog restore show stash status switch";

fn has_word(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

fn is_word(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte))
        && !value.starts_with('-')
}

fn is_address(value: &str) -> bool {
    !value.starts_with('-') && !value.contains("::") && !value.contains("://-")
}

/// Whether a word of a git command is an option whose value git may run: `-c KEY=VALUE`, `rebase -x`, `--upload-pack`.
fn may_name_program(word: &str) -> bool {
    ["-c", "-x"].contains(&word)
        || word.starts_with("--")
            && ["exec", "pack", "config", "extcmd", "tool"].iter().any(|part| word.contains(part))
}

/// An alias that only abbreviates a git command. An option with a value may be a command or a path.
fn is_plain_alias(value: &str) -> bool {
    let mut words = value.split(' ').filter(|word| !word.is_empty());
    let is_option = |word: &str| {
        word.starts_with('-')
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !["--ext-diff", "--textconv"].contains(&word)
            && !word.contains("exec")
            && !word.contains("pack")
            && !word.contains("gpg")
    };
    words.next().is_some_and(|command| has_word(ALIASED, command)) && words.all(is_option)
}

impl Entry {
    /// Whether git runs nothing because of it, and uses no other place for what it runs or writes. By key and value,
    /// from git-config(1) and git-lfs-config(5); unknown keys are not harmless. For `core.worktree`, where files are
    /// written, ask [`Entry::worktree`] first.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        let value = self.value.as_deref().unwrap_or_default();
        let is_address = || is_address(value);
        let is = |words: &[&str]| words.contains(&value.to_ascii_lowercase().as_str());
        let is_bool = || self.is_bool();
        let is_plain = || !value.is_empty() && is_word(value);
        let key = self.key.as_str();
        match self.section.as_str() {
            "core" => match key {
                "hookspath" => is(&["/dev/null"]),
                "fsmonitor" => is_bool(),
                "excludesfile" | "notesref" => true,
                _ => has_word(CORE, key) && (is_bool() || value.split(',').all(is_word)),
            },
            "remote" => match key {
                "url" | "pushurl" => is_address(),
                // `push` and `mirror` say which branches `git push` overwrites and deletes.
                "fetch" | "tagopt" | "prune" | "promisor" | "partialclonefilter" => true,
                "mirror" => is(&["false", "no", "off", "0"]),
                "pushdefault" => is_address(),
                _ => false,
            },
            // A remote may be a URL instead of a name.
            "branch" if matches!(key, "remote" | "pushremote") => is_address(),
            // Merge strategies are program names. git ignores what editors and forges store for a branch.
            "branch" => key != "mergeoptions",
            "submodule" => match key {
                "url" => is_address(),
                "update" => is(&["checkout", "rebase", "merge", "none"]),
                "active"
                | "branch"
                | "path"
                | "recurse"
                | "ignore"
                | "fetchjobs"
                | "fetchrecursesubmodules"
                | "propagatebranches"
                | "shallow" => true,
                _ => false,
            },
            "user" | "author" | "committer" => {
                matches!(key, "name" | "email" | "signingkey" | "useconfigonly")
            }
            "extensions" if key == "partialclone" => is_address(),
            "extensions" => matches!(key, "objectformat" | "refstorage" | "worktreeconfig"),
            // A template directory contains hooks.
            "init" => {
                matches!(key, "defaultbranch" | "defaultobjectformat" | "defaultrefformat") && is_plain()
            }
            "alias" => is_plain_alias(value),
            section => {
                let of_section = |(name, keys): &&(&str, &str)| {
                    *name == section && (keys.is_empty() || has_word(keys, key))
                };
                let others = |(name, keys): &&(&str, &str)| *name == section && !has_word(keys, key);
                (ANY_VALUE.iter().any(|row| of_section(&row))
                    || SECTION_EXCEPTIONS.iter().any(|row| others(&row)))
                    && !value.starts_with(['/', '!'])
                    || WORDS.iter().any(|row| of_section(&row))
                        && (is_bool() || value.split(',').all(is_word))
                    || section == "lfs" && self.is_harmless_of_lfs()
            }
        }
    }

    /// Whether it is harmless also where an agent wrote it: it makes no command of the user do more than he types, and switches
    /// none of his hooks off.
    #[must_use]
    pub fn may_come_from_agent(&self) -> bool {
        let value = self.value.as_deref().unwrap_or_default();
        self.is_harmless()
            && match (self.section.as_str(), self.key.as_str()) {
                ("alias", _) => value.split(' ').next().is_some_and(|command| has_word(READING, command)),
                ("core", "hookspath") => false,
                _ => true,
            }
    }

    /// Whether git sends to this place, or fetches from it.
    #[must_use]
    pub fn names_address(&self) -> bool {
        let is_address = self.value.as_deref().is_some_and(|value| value.contains([':', '/']));
        let keys = ["partialclone", "pushdefault", "pushremote", "pushurl", "remote", "url"];
        is_address && keys.contains(&self.key.as_str())
    }

    /// Whether it makes git send to another remote than before, by name.
    #[must_use]
    pub fn names_other_remote(&self, before: &[Self]) -> bool {
        let is_same = |old: &Self| {
            (&old.section, &old.subsection, &old.key) == (&self.section, &self.subsection, &self.key)
        };
        match self.key.as_str() {
            "pushdefault" | "pushremote" => true,
            "remote" => self.section == "branch" && before.iter().any(is_same),
            _ => false,
        }
    }

    /// From git-lfs-config(5).
    fn is_harmless_of_lfs(&self) -> bool {
        let value = self.value.as_deref().unwrap_or_default();
        match self.key.as_str() {
            "url" | "pushurl" => is_address(value),
            "access" => ["none", "basic", "negotiate", "ntlm"].contains(&value.to_ascii_lowercase().as_str()),
            "locksverify" | "allowincompletepush" | "fetchrecentalways" => self.is_bool(),
            "repositoryformatversion" => !value.is_empty() && is_word(value),
            _ => false,
        }
    }

    /// Whether its value is a command, from git-config(1) and gitattributes(5).
    fn names_program(&self) -> bool {
        matches!(
            (self.section.as_str(), self.key.as_str()),
            ("core", "fsmonitor" | "sshcommand" | "gitproxy" | "editor" | "pager" | "askpass")
                | ("filter", "clean" | "smudge" | "process")
                | ("diff", "command" | "textconv" | "external")
                | ("merge", "driver")
                | ("sequence", "editor")
                | ("interactive", "difffilter")
                | ("credential", "helper")
                | ("gpg", "program" | "defaultkeycommand")
                | ("lfs", "clean" | "smudge" | "path")
        )
    }

    fn is_bool(&self) -> bool {
        const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "0", "1", ""];
        // None: a key without value, which is true.
        self.value.as_deref().is_none_or(|value| WORDS.contains(&value.to_ascii_lowercase().as_str()))
    }

    /// The working tree that the configuration names.
    #[must_use]
    pub fn worktree(&self) -> Option<&str> {
        (self.section == "core" && self.key == "worktree").then(|| self.value.as_deref().unwrap_or_default())
    }
}

/// Lines that may run something and were added or removed; None: none. Order counts, since the last value wins.
#[must_use]
pub fn not_harmless(before: &str, now: &str) -> Option<Vec<String>> {
    let of = |text: &str| -> Vec<Entry> {
        entries(text).into_iter().filter(|entry| !entry.may_come_from_agent()).collect()
    };
    let (before, now) = (of(before), of(now));
    if before == now {
        return None;
    }
    let added = now.iter().filter(|entry| !before.contains(entry)).map(Entry::to_string);
    let gone = before.iter().filter(|entry| !now.contains(entry)).map(|entry| format!("no {entry}"));
    let differ: Vec<String> = added.chain(gone).collect();
    Some(if differ.is_empty() { vec!["the order of what it names".to_owned()] } else { differ })
}

/// Whether every parser reads the text in the same way, as git itself writes it: one header or variable per line, no
/// continuation lines.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    !text.chars().any(|letter| letter.is_control() && !matches!(letter, '\n' | '\t'))
        && text.split('\n').all(is_plain_line)
}

fn is_plain_line(line: &str) -> bool {
    let line = line.trim_matches([' ', '\t']);
    let is_comment = |rest: &str| rest.is_empty() || rest.starts_with(['#', ';']);
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || sign == '-';
    if is_comment(line) {
        return true;
    }
    if let Some(header) = line.strip_prefix('[') {
        let rest = header.trim_start_matches(is_sign);
        let rest = match rest.trim_start_matches(' ').strip_prefix('"') {
            Some(sub) if rest.starts_with(' ') => behind_quotes(sub),
            _ => Some(rest),
        };
        let rest = rest.and_then(|rest| rest.strip_prefix(']'));
        return header.starts_with(is_sign) && rest.is_some_and(|rest| is_comment(rest.trim_start()));
    }
    let rest = line.trim_start_matches(is_sign).trim_start_matches([' ', '\t']);
    let value = match rest.strip_prefix('=') {
        _ if !line.starts_with(|first: char| first.is_ascii_alphabetic()) => return false,
        None => return rest.is_empty(),
        Some(value) => value,
    };
    let (mut quoted, mut letters) = (false, value.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '"' => quoted = !quoted,
            '\\' if !letters.next().is_some_and(|escaped| "ntb\"\\".contains(escaped)) => return false,
            '#' | ';' if !quoted => return true,
            _ => {}
        }
    }
    !quoted
}

/// The text after the name of a subsection.
fn behind_quotes(text: &str) -> Option<&str> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return text.get(at + 1..),
            '\\' if !letters.next().is_some_and(|(_, escaped)| matches!(escaped, '"' | '\\')) => return None,
            _ => {}
        }
    }
    None
}

/// Every variable, in its order.
#[must_use]
pub fn entries(text: &str) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut section = String::new();
    let mut subsection = None;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '#' | ';' => drop(letters.find(|letter| *letter == '\n')),
            '[' => (section, subsection) = header(&mut letters),
            letter if letter.is_whitespace() => {}
            letter => {
                let (key, is_last) = key(letter, &mut letters);
                let value = (!is_last).then(|| value(&mut letters));
                found.push(Entry { section: section.clone(), subsection: subsection.clone(), key, value });
            }
        }
    }
    found
}

/// After the `[` of `[name]`, `[name "sub"]` or `[name.sub]`, up to its end or the line's: the name and subsection.
fn header(letters: &mut Chars<'_>) -> (String, Option<String>) {
    let mut name = String::new();
    let mut sub = None::<String>;
    let mut is_name = true;
    let mut quoted = false;
    let mut escaped = false;
    for letter in letters.by_ref() {
        match letter {
            '\n' => break,
            ']' if !quoted => return (name, sub),
            '"' if !escaped => quoted = !quoted,
            // A backslash in front of a letter is dropped.
            '\\' if quoted && !escaped => {}
            letter if quoted => sub.get_or_insert_default().push(letter),
            letter if !is_name && !letter.is_whitespace() => {
                sub.get_or_insert_default().push(letter.to_ascii_lowercase());
            }
            _ => {}
        }
        escaped = quoted && letter == '\\' && !escaped;
        is_name &= !letter.is_whitespace() && !matches!(letter, '.' | '"');
        if is_name {
            name.push(letter.to_ascii_lowercase());
        }
    }
    (String::new(), None)
}

/// Up to the `=`, or the end of the line: then it is the last of it.
fn key(first: char, letters: &mut Chars<'_>) -> (String, bool) {
    let mut key = String::from(first.to_ascii_lowercase());
    for letter in letters.by_ref() {
        match letter {
            '\n' => return (key, true),
            '=' => return (key.trim_end().to_owned(), false),
            other => key.push(other.to_ascii_lowercase()),
        }
    }
    (key, true)
}

/// Up to the end of the line or a comment, unquoted, without unquoted blanks at the ends. A backslash at the end of a
/// line continues it, except in a comment.
fn value(letters: &mut Chars<'_>) -> String {
    let mut out = String::new();
    // Length up to the last letter that is not a blank, or was quoted.
    let mut kept = 0;
    let mut quoted = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => break,
            '#' | ';' if !quoted => {
                letters.find(|letter| *letter == '\n');
                break;
            }
            '"' => {
                quoted = !quoted;
                kept = out.len();
            }
            '\\' => {
                match letters.next() {
                    Some('\n') | None => {}
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('b') => out.push('\u{8}'),
                    Some(other) => out.push(other),
                }
                kept = out.len();
            }
            blank if blank.is_whitespace() && !quoted => {
                if !out.is_empty() {
                    out.push(blank);
                }
            }
            other => {
                out.push(other);
                kept = out.len();
            }
        }
    }
    out.truncate(kept);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hooks(text: &str) -> Vec<String> {
        parse(text).hooks
    }

    #[test]
    fn command_of_any_key_starts_the_first_word_of_each_part() {
        let started = |command: &'static str| started_by(command).collect::<Vec<_>>();
        assert_eq!(started("./tools/x $LOCAL"), ["./tools/x"]);
        assert_eq!(started("!f() { A=b sh -e ./tools/x a/b; }; f | t/y"), ["./tools/x", "t/y"]);
        assert_eq!(started("if t/a; then \"t/b\"; fi && cat notes/todo"), ["t/a", "t/b"]);
        assert!(started("!cat notes/todo").is_empty() && started("https://a.example/b").is_empty());
    }

    #[test]
    fn git_config_hook_settings_are_found_in_any_spelling() {
        for text in [
            "[core]\n\thooksPath = .githooks\n",
            "[core] hooksPath=.githooks",
            "[CORE]\r\nHOOKSPATH\t=\t.githooks ; comment\r\n",
            "\u{feff}[core]\nhookspath = \".githooks\" # comment",
            "[a \"]\\\"\"] x = 1\n[core] [core] hooksPath = .git\"hooks\"",
            "[core]\nhooksPath = \\\n.githooks",
            "[core]\nhooksPath = .git\\\nhooks\nother = 1",
            "[core]\nhooksPath = .git\\\r\nhooks",
            "[core]\n# comment \\\nhooksPath = .githooks",
            "[core]\nother = 1 ; comment \\\nhooksPath = .githooks",
            "[core]\nother\nhooksPath = .githooks",
            "[core]\n[broken\n[core]hooksPath = .githooks",
        ] {
            assert_eq!(hooks(text), [".githooks"], "{text:?}");
        }
        assert_eq!(hooks("[core]\nhooksPath = a\nhooksPath = b"), ["a", "b"]);
        assert_eq!(hooks("[core]\nhooksPath = \" a # b \"  "), [" a # b "]);
        // Blanks before a quote or the end of a continued line are kept.
        assert_eq!(hooks("[core]\nhooksPath = a \"\" \nhooksPath = a \\\n"), ["a ", "a "]);
    }

    #[test]
    fn git_config_other_sections_and_comments_are_ignored() {
        for text in [
            "hooksPath = a",
            "[other]\nhooksPath = a",
            "[core]\n# hooksPath = a",
            "[core]\n; hooksPath = a",
            "[core]\nhooksPath",
            "[core]\nhooksPath =",
            "[core\nhooksPath = a",
            "[core]\nother = \\\nhooksPath = a",
            "[core]\n[other \"[core]\"]\nhooksPath = a",
            "",
        ] {
            assert_eq!(hooks(text), Vec::<String>::new(), "{text:?}");
        }
    }

    #[test]
    fn git_config_variables_belong_to_their_section() {
        let text = "[user]\nname = A B\n[includeIf \"gitdir:~/w\\\\x/\"]\npath = w\n[alias]\nst\n[Branch.Main]\nrebase = \"a \"b\n";
        let shown: Vec<String> = entries(text)
            .into_iter()
            .map(|entry| format!("{}|{:?}|{}|{:?}", entry.section, entry.subsection, entry.key, entry.value))
            .collect();
        assert_eq!(
            shown,
            [
                r#"user|None|name|Some("A B")"#,
                r#"includeif|Some("gitdir:~/w\\x/")|path|Some("w")"#,
                "alias|None|st|None",
                r#"branch|Some("main")|rebase|Some("a b")"#
            ]
        );
    }

    #[test]
    fn git_config_subsections_and_harmless_settings_are_read() {
        let found =
            entries("[remote \"a \\\"b\"]\nurl = https://x\n[Branch.main]\nMerge = refs/heads/main\n");
        assert!(found.iter().all(Entry::is_harmless));
        for text in [
            "[lfs]\nurl = https://x/info/lfs\nrepositoryformatversion = 0",
            "[lfs \"https://x/info/lfs\"]\naccess = basic\nlocksverify = true",
            "[submodule \"a\"]\nurl = ../a\nactive = true\nupdate = checkout",
            "[init]\ndefaultBranch = main",
            "[core]\nbare\nfilemode = true\nautocrlf = input",
            "[extensions]\nworktreeConfig = true",
            "[index]\nsparse = false\nversion = 4",
            "[log]\ndate = iso\n[commit]\ngpgsign = false\n[http]\npostBuffer = 1\n[blame]\nignoreRevsFile = x",
            "[remote]\npushDefault = o\n[branch \"a\"]\nvscode-merge-base = origin/main\n[core]\nfsmonitor = false",
            "[core]\nhooksPath = /dev/null\n[receive]\ndenyCurrentBranch = ignore\n[tag]\nsort = -version:refname",
            "[alias]\nst = status -sb\nlg = log --oneline --graph\nci = commit",
            "[gc]\nauto = 0\n[rerere]\nenabled\n[merge]\nconflictStyle = zdiff3\n[diff]\nalgorithm = patience",
        ] {
            assert!(entries(text).iter().all(Entry::is_harmless), "{text}");
        }
        for text in [
            "[core]\nfsmonitor = x",
            "[core]\nhooksPath = x",
            "[remote \"a\"]\nurl = ext::sh -c x",
            "[remote \"a\"]\nuploadpack = x",
            "[include]\npath = x",
            "[submodule \"a\"]\nupdate = !x",
            "[filter \"lfs\"]\nclean = x",
            "[lfs \"extension.x\"]\nclean = x",
            "[lfs \"customtransfer.x\"]\npath = x",
            "[lfs]\nstandalonetransferagent = x",
            "[lfs]\nurl = ssh://-oProxyCommand=x/y",
            "[init]\ntemplateDir = tmpl",
            "[pull]\ntwohead = x",
            "[core]\nworktree = ../../..",
            "[core]\nbare = !x",
            "[rebase]\ninstructionFormat = x",
            "[diff]\nexternal = x",
            "[diff \"x\"]\ntextconv = x",
            "[merge \"x\"]\ndriver = x",
            "[merge]\ntool = x",
            "[gc]\nrecentObjectsHook = x",
            "[alias]\nst = !x",
            "[alias]\nst = rebase -x make",
            "[alias]\nst = -c core.fsmonitor=x status",
            "[alias]\nst = log --exec-path=x",
            "[alias]\nst = diff --ext-diff",
            "[branch \"a\"]\nmergeOptions = -sx",
            "[http]\nproxy = x",
            "[receive]\nprocReceiveRefs = x",
            "[gpg]\nprogram = x",
            "[uploadpack]\npackObjectsHook = x",
        ] {
            assert!(!entries(text).iter().any(Entry::is_harmless), "{text}");
        }
    }

    #[test]
    fn an_agent_may_not_change_what_commands_of_the_user_do() {
        for text in
            ["[alias]\nst = push --all --force", "[alias]\nst = checkout", "[core]\nhooksPath = /dev/null"]
        {
            assert!(entries(text).iter().all(Entry::is_harmless), "{text}");
            assert!(!entries(text).iter().any(Entry::may_come_from_agent), "{text}");
        }
        assert!(entries("[alias]\nst = status -sb").iter().all(Entry::may_come_from_agent));
        let before = entries("[branch \"m\"]\nremote = origin");
        for (text, is_other) in [
            ("[branch \"m\"]\nremote = public", true),
            ("[branch \"n\"]\nremote = public", false),
            ("[branch \"n\"]\npushRemote = public", true),
            ("[remote]\npushDefault = public", true),
        ] {
            assert_eq!(entries(text)[0].names_other_remote(&before), is_other, "{text}");
        }
    }

    #[test]
    fn hooks_and_programs_that_count_from_each_working_tree() {
        let text = "[core]\nhooksPath = .hooks\nfsmonitor = ./tools/monitor --x\nexcludesFile = a/b\n[filter \"f\"]\nclean =                     sh tools/clean %f\nsmudge = cat\n[alias]\nx = !tools/x\ny = log a/b\n[diff]\nexternal = \"FOO=1 ./d\"\n                    [init]\ntemplateDir = ~/t\n";
        let expected = [".hooks", "./d", "./tools/monitor", "tools/clean", "tools/x"].map(PathBuf::from);
        assert_eq!(parse(text).relative(), BTreeSet::from(expected));
    }

    #[test]
    fn git_config_as_git_writes_it_is_plain() {
        for text in [
            "",
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
            "[branch \"a \\\"b\\\\\"]\n\tremote = origin\n\tmerge = refs/heads/main # here\n",
            "# words\n; words\n\n[user]\n\tname = \"A \\\"B\\\" C\" \n\temail = a@b ; x \\\n[alias] # old\n\tst\n",
        ] {
            assert!(is_plain(text), "{text:?}");
        }
        for text in [
            "[core] hooksPath = x",
            "[user]\nname = a\\\n[core]\nhooksPath = x",
            "[user]\nname = \"a\n[core]\nhooksPath = x\"",
            "[user]\r[core]\rhooksPath = x",
            "[user]\nname = a\\x",
            "[user \"a]\nname = b",
            "[user \"a\\n\"]\nname = b",
            "[user.a]\nname = b",
            "[user]\nname # = b",
            "[user]\n\u{a0}name = b",
            "[user]\nname = a\0b",
            "[]\nname = b",
            "\u{feff}[user]\nname = b",
        ] {
            assert!(!is_plain(text), "{text:?}");
        }
    }

    #[test]
    fn changes_of_settings_that_run_programs_are_not_harmless() {
        let before = "[core]\n\thooksPath = a\n\teditor = e\n[user]\n\tname = A\n";
        assert_eq!(not_harmless(before, &before.replace("= A", "= B")), None);
        assert_eq!(not_harmless(before, &format!("[remote \"x\"]\n\turl = https://x\n{before}")), None);
        let said = |now: &str| not_harmless(before, now).unwrap_or_default().join(", ");
        assert_eq!(said(&before.replace("= a", "= b")), "core.hookspath = b, no core.hookspath = a");
        assert_eq!(said(""), "no core.hookspath = a, no core.editor = e");
        assert_eq!(said(&format!("{before}[core]\n\thooksPath = a\n")), "the order of what it names");
        assert_eq!(said(&format!("{before}[alias \"X\"]\n\tcommand = !x\n")), "alias.X.command = !x");
        assert_eq!(said(&format!("{before}[branch \"m\"]\n\tremote = ext::x\n")), "branch.m.remote = ext::x");
    }

    #[test]
    fn git_config_includes_and_working_trees_are_read() {
        let found = parse(
            "[include]\npath = ../shared\n[includeIf \"gitdir:~/x/\"]\npath = ~/work\n[core]\nworktree = ../../sub\n\
             [submodule \"x\"]\npath = sub\n",
        );
        assert_eq!(found.includes, ["../shared", "~/work"]);
        assert_eq!(found.worktrees, ["../../sub"]);
    }
}
