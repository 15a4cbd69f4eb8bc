//! `filesystem`: what can be read, written, and never seen.

use super::prelude::*;
use crate::path;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filesystem {
    pub read: List<String>,
    pub write: List<String>,
    pub deny: List<String>,
    pub unmask: List<String>,
    /// True: `guard: all`.
    pub guard: Option<Ruled<bool>>,
}

/// Whether files that only instruct or configure are guarded like those that run automatically.
const GUARDS: [(&str, bool); 2] = [("all", true), ("programs", false)];

const FILESYSTEM: &[Key] = keys! {
    /// Paths that can be read, with everything below. `~` is the home, a path that does not start with `/` or `~` is
    /// relative to the project. `/usr`, `/bin`, `/lib*`, `/opt` and a few files of `/etc` can always be read.
    "read": Kind::List(&Kind::Text),
        default: "the agent: nothing more than it may write; a server: the project",
        example: "[~/src/library]";
    /// Paths that can be read and written. What runs automatically later, such as `.git/hooks`, stays read-only.
    "write": Kind::List(&Kind::Text), default: "the agent: the project; a server: nothing",
        example: "[\".\", ~/notes]";
    /// Paths and patterns (`*`, `?`, `**`) that are never visible.
    "deny": Kind::List(&Kind::Text), default: "nothing",
        merge: "adds, and wins over every `read` and `write`", example: "[\"**/.env\", \"secrets/**\"]";
    /// Built-in masks (`~/.ssh`) and read-only files (`.envrc`) to lift, by name.
    "unmask": Kind::List(&Kind::Text), default: "nothing", example: "[.envrc]";
    /// Which files of a writable directory are read-only: those that run automatically outside, or also those that
    /// instruct an agent or configure a tool (`CLAUDE.md`, `.npmrc`).
    "guard": Kind::Word(&["programs", "all"]), default: "programs", example: "all";
};

impl Section<ProcessPolicy> for Filesystem {
    const KEYS: &'static [Key] = keys! {
        /// Which files of this machine are visible. All others are not.
        "filesystem": Kind::Map(FILESYSTEM);
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(files) = reader.within(fields, "filesystem", FILESYSTEM) else { return Self::default() };
        Self {
            read: reader.adding(files.find("read"), path_pattern),
            write: reader.adding(files.find("write"), writable_pattern),
            deny: reader.adding(files.find("deny"), denied_pattern),
            unmask: reader.adding(files.find("unmask"), path_pattern),
            guard: reader.word(files.find("guard"), &GUARDS),
        }
    }

    fn merge(&self, below: &mut ProcessPolicy) {
        let files = &mut below.filesystem;
        merge_list(&self.read, &mut files.read);
        merge_list(&self.write, &mut files.write);
        merge_list(&self.deny, &mut files.deny);
        merge_list(&self.unmask, &mut files.unmask);
        merge_key(&self.guard, &mut files.guard_all);
    }

    /// Giving up the right to write keeps the right to read, unless that is listed too.
    fn narrow(&self, base: &mut ProcessPolicy, narrowing: &mut Narrowing<'_>) {
        let base = &mut base.filesystem;
        let readable: Vec<Ruled<String>> = base.read.iter().chain(&base.write).cloned().collect();
        let possible = |narrowing: &Narrowing<'_>, with_read: bool| -> Vec<Ruled<String>> {
            let of = |profile: &ProcessPolicy| {
                let read = if with_read { profile.filesystem.read.clone() } else { Vec::new() };
                read.into_iter().chain(profile.filesystem.write.clone())
            };
            narrowing.possible.iter().flat_map(of).collect()
        };
        let (may_read, may_write) = (possible(narrowing, true), possible(narrowing, false));
        let read = covered_paths(narrowing, &self.read, &readable, &may_read, "be read");
        let write = covered_paths(narrowing, &self.write, &base.write, &may_write, "be written");
        for entry in self.unmask.iter().flat_map(|list| &list.value) {
            if !base.unmask.iter().any(|outer| outer.value == entry.value) {
                narrowing.refuse(&entry.rule, format!("`{}` cannot be unmasked here", entry.value));
            }
        }
        match &self.guard {
            Some(guard) if guard.value => base.guard_all = Some(guard.clone()),
            Some(guard) if base.guard_all.as_ref().is_some_and(|outer| outer.value) => {
                narrowing.refuse(&guard.rule, "`guard: all` is in force and cannot be lifted here");
            }
            _ => {}
        }
        if let Some(list) = &self.unmask {
            let given = |entry: &&Ruled<String>| base.unmask.iter().any(|outer| outer.value == entry.value);
            base.unmask = list.value.iter().filter(given).cloned().collect();
        }
        match (&self.read, &self.write) {
            (Some(_), _) => base.read = read,
            (None, Some(_)) => base.read = readable,
            (None, None) => {}
        }
        if self.write.is_some() {
            base.write = write;
        }
        base.deny.extend(self.deny.iter().flat_map(|list| list.value.iter().cloned()));
    }

    fn describe(policy: &ProcessPolicy, name: &str, lines: &mut Lines) {
        let files = &policy.filesystem;
        lines.list(&format!("{name}.filesystem.read"), &files.read, Clone::clone);
        lines.list(&format!("{name}.filesystem.write"), &files.write, Clone::clone);
        lines.list(&format!("{name}.filesystem.deny"), &files.deny, Clone::clone);
        lines.list(&format!("{name}.filesystem.unmask"), &files.unmask, Clone::clone);
        let word = |guard: &bool| if *guard { "all" } else { "programs" };
        lines.list(&format!("{name}.filesystem.guard"), &files.guard_all, word);
    }

    /// An `unmask` that names nothing built in is most likely misspelt.
    fn warn(policy: &ProcessPolicy, warnings: &mut Vec<Ruled<String>>) {
        let useless = policy.filesystem.unmask.iter().filter(|entry| !path::lifts_something(&entry.value));
        warnings.extend(useless.map(|entry| Ruled {
            value: format!("`{}` is not masked or read-only: this lifts nothing", entry.value),
            rule: entry.rule.clone(),
        }));
    }
}

/// The entries that `base` covers. One that `possible` covers is not a mistake.
fn covered_paths(
    narrowing: &mut Narrowing<'_>,
    list: &List<String>,
    base: &[Ruled<String>],
    possible: &[Ruled<String>],
    what: &str,
) -> Vec<Ruled<String>> {
    let covered = |by: &[Ruled<String>], entry: &Ruled<String>| {
        let inner = path::written(&entry.value);
        by.iter().any(|outer| path::covers_pattern(&path::written(&outer.value), &inner))
    };
    let entries = || list.iter().flat_map(|list| &list.value);
    for entry in entries() {
        if !covered(base, entry) && !covered(possible, entry) {
            narrowing.refuse(&entry.rule, format!("this file would allow `{}` to {what}", entry.value));
        }
    }
    entries().filter(|entry| covered(base, entry)).cloned().collect()
}

pub fn path_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = reader.text(here)?;
    match path::check(&text) {
        Ok(()) => Some(text),
        Err(why) => reader.fault(here, why, None),
    }
}

/// A pattern that includes the home is refused: missing files of it cannot be guarded (keys, programs and files that run at
/// the next login).
pub fn writable_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = path_pattern(reader, here)?;
    if !path::is_whole_home(&text) {
        return Some(text);
    }
    let help = "name the directories in it that may change, such as `~/notes`";
    reader.fault(here, format!("`{text}` contains the whole home directory, which is never writable"), help)
}

/// A pattern that means less than it looks like would deny nothing.
pub fn denied_pattern(reader: &mut Reader<'_>, here: &Here<'_>) -> Option<String> {
    let text = path_pattern(reader, here)?;
    let Some(sign) = text.chars().find(|sign| matches!(sign, '[' | ']' | '{' | '}')) else {
        return Some(text);
    };
    reader.fault(
        here,
        format!("`{sign}` is not a wildcard here, so that this would deny next to nothing"),
        "write one line for each, with `*`, `?` and `**`; a `?` in a name also matches itself",
    )
}
