//! `filesystem`: what can be read, written, and never seen.

use super::prelude::*;
use crate::path;

/// Whether files that only instruct or configure are guarded like those that run automatically.
const GUARDS: [(&str, bool); 2] = [("all", true), ("programs", false)];

table! {
    /// Paths as written: `~`, `.` and globs are expanded when the plan is made.
    struct FilesystemPolicy;

    /// Paths that can be read, with everything below. `~` is the home, a path that does not start with `/` or `~` is
    /// relative to the project. `/usr`, `/bin`, `/lib*`, `/opt` and a few files of `/etc` can always be read.
    pub read: Entries<String> = Kind::List(&Kind::Text),
        default: "the agent: nothing more than it may write; a server: the project",
        example: "[~/src/library]" => read path_pattern;
    /// Paths that can be read and written. What runs automatically later, such as `.git/hooks`, stays read-only.
    pub write: Entries<String> = Kind::List(&Kind::Text), default: "the agent: the project; a server: nothing",
        example: "[\".\", ~/notes]" => read writable_pattern;
    /// Paths and patterns (`*`, `?`, `**`) that are never visible.
    pub deny: Entries<String> = Kind::List(&Kind::Text), default: "nothing",
        merge: "adds, and wins over every `read` and `write`", example: "[\"**/.env\", \"secrets/**\"]"
        => read denied_pattern;
    /// Built-in masks (`~/.ssh`) and read-only files (`.envrc`) to lift, by name.
    pub unmask: Entries<String> = Kind::List(&Kind::Text), default: "nothing", example: "[.envrc]"
        => read path_pattern;
    /// Which files of a writable directory are read-only: those that run automatically outside, or also those that
    /// instruct an agent or configure a tool (`CLAUDE.md`, `.npmrc`).
    pub guard: One<bool> = Kind::Word(&["programs", "all"]), default: "programs", example: "all"
        => words GUARDS;
}

impl Section<ProcessPolicy> for FilesystemPolicy {
    const KEYS: &'static [Key] = keys! {
        /// Which files of this machine are visible. All others are not.
        "filesystem": Kind::Map(Self::TABLE);
    };

    in_table! { ProcessPolicy (filesystem): read merge describe }

    /// Giving up the right to write keeps the right to read, unless that is listed too.
    fn narrow(&self, base: &mut ProcessPolicy, narrowing: &mut Narrowing<'_>) {
        let base = &mut base.filesystem;
        let possible = narrowing.possible.iter().map(|profile| &profile.filesystem);
        let may_write: Vec<_> = possible.clone().flat_map(|files| &files.write).cloned().collect();
        let may_read: Vec<_> = possible.flat_map(|files| &files.read).chain(&may_write).cloned().collect();
        let covered = |base: &[Ruled<String>], own: &String| {
            let inner = path::written(own);
            base.iter().any(|outer| path::covers_pattern(&path::written(&outer.value), &inner))
        };
        let mut readable = base.read.clone();
        readable.add(&base.write);
        let message = |own: &String| format!("this file would allow `{own}` to be read");
        readable.narrow_within(&self.read, |own| covered(&may_read, own), narrowing, covered, message);
        let message = |own: &String| format!("this file would allow `{own}` to be written");
        base.write.narrow_within(&self.write, |own| covered(&may_write, own), narrowing, covered, message);
        if self.read.is_written() || self.write.is_written() {
            base.read = readable;
        }
        let same = |base: &[Ruled<String>], own: &String| base.iter().any(|outer| outer.value == *own);
        base.unmask.narrow(&self.unmask, narrowing, same, |own| format!("`{own}` cannot be unmasked here"));
        match &self.guard {
            Some(guard) if guard.value => base.guard = Some(guard.clone()),
            Some(guard) if in_force(&base.guard, false) => {
                narrowing.refuse(&guard.rule, "`guard: all` is in force and cannot be lifted here");
            }
            _ => {}
        }
        base.deny.add(&self.deny);
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
