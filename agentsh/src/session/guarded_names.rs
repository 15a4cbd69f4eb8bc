//! Renames over guarded names. The kernel would refuse them as busy, whatever they say; here they are decided: git's own
//! configuration may say more that runs nothing, and the session writes it. Everything else is refused, and told (decision 580).
//!
//! The mount over the name stays where it is, so that whoever changes a path while it is read gains nothing: what goes on meets
//! the mount. What is written is what was judged, read once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::copies::Copy;
use super::undo::Aside;
use super::{Session, missing_files, refused_files, why};
use crate::policy::Question;
use crate::policy::builtin_paths::OTHER_REPOSITORIES;
use crate::sandbox::git_config::{entries, is_plain, not_harmless};
use crate::sandbox::layout::Layout;
use crate::sandbox::mount_calls::open_without_links;
use crate::sandbox::placeholders;
use crate::sandbox::plan::{Access, Kind, NodeContent, Source};
use crate::sandbox::seccomp::listener::{Listener, Refused};
use crate::sandbox::seccomp::{MissingFile, Renamed};
use crate::store::words::GuardChange;
use crate::store::{Event, escape, redact};
use crate::types::ServerId;

/// Of a configuration.
const MAX_BYTES: u64 = 256 << 10;
/// Different ones of a sandbox that are on record.
const MAX_DIFFERENT: usize = 200;
/// Told as they fall; the record has the others.
const MAX_SHOWN: usize = 5;
/// Variables that one message names, and the letters of each.
const MAX_NAMED: usize = 4;
const MAX_LETTERS: usize = 120;

/// What is guarded in one sandbox from its start, as files of the host.
#[derive(Debug, Default)]
pub struct Guarded {
    files: BTreeSet<PathBuf>,
    /// Their last parts: most renames are about no such name.
    names: BTreeSet<OsString>,
    repositories: BTreeSet<PathBuf>,
    told: RefCell<BTreeSet<String>>,
    /// Of which the version of before is kept.
    kept: RefCell<BTreeSet<PathBuf>>,
    /// Done, and its caller had stopped waiting: it asks once more.
    unheard: RefCell<Option<(u32, PathBuf, PathBuf)>>,
}

/// Why a rename is not done.
enum Refusal {
    /// Not about a guarded file, or not as far as can be seen: the kernel answers.
    Not,
    /// In words.
    Because(String),
    Failed(Errno),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::Failed(error)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Failed(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl Guarded {
    #[must_use]
    pub fn of(layout: &Layout) -> Self {
        let files = layout.guards.iter().filter(|mount| {
            let is_itself = |source: &Source| {
                matches!(source, Source::Path { path, .. } if *path == mount.target)
            };
            matches!(&mount.what, NodeContent::Bind { source, access: Access::ReadOnly, kind: Kind::File } if is_itself(source))
        });
        let files: BTreeSet<PathBuf> = files.map(|mount| mount.target.clone()).collect();
        let names = files.iter().filter_map(|path| path.file_name()).map(OsStr::to_owned).collect();
        Self { files, names, repositories: layout.repositories.iter().cloned().collect(), ..Self::default() }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Answers a call that renames. False: it is another call.
    pub fn answer(
        &self,
        listener: &Listener,
        heard: &Refused,
        session: &Session,
        server: Option<&ServerId>,
    ) -> bool {
        let matters = |to: &MissingFile| to.path.file_name().is_some_and(|name| self.names.contains(name));
        let Some(renamed) = listener.renamed(heard, matters) else { return false };
        let places = renamed.and_then(|Renamed { from, to }| {
            let to = missing_files::absolute(heard.pid, &to).filter(|to| self.files.contains(to))?;
            Some((missing_files::absolute(heard.pid, &from)?, to))
        });
        let Some((from, to)) = places else {
            listener.go_on(heard);
            return true;
        };
        let again = (heard.pid, from, to);
        if self.unheard.take().as_ref() == Some(&again) && !again.1.exists() {
            let _ = listener.done(heard, Ok(()));
            return true;
        }
        let (_, from, to) = &again;
        let outcome = match self.rename(session, heard.pid, from, to) {
            Ok(text) => {
                if let Some(text) = text {
                    self.tell(session, server, to, GuardChange::Written, text);
                }
                Ok(())
            }
            Err(Refusal::Not) => {
                listener.go_on(heard);
                return true;
            }
            Err(Refusal::Because(text)) => {
                self.refused(session, server, to, &text);
                Err(Errno::ACCESS)
            }
            Err(Refusal::Failed(error)) => Err(error),
        };
        if listener.done(heard, outcome).is_err() && outcome.is_ok() {
            self.unheard.replace(Some(again));
        }
        true
    }

    /// Does it. Gives what it changed, in words.
    fn rename(&self, session: &Session, pid: u32, from: &Path, to: &Path) -> Result<Option<String>, Refusal> {
        let (Some(above), Some(name), Some(beside)) = (to.parent(), to.file_name(), from.file_name()) else {
            return Err(Refusal::Not);
        };
        if from.parent() != Some(above) || self.files.contains(from) {
            return Err(Refusal::Not);
        }
        let directory = open_without_links(above, OFlags::PATH | OFlags::DIRECTORY)?;
        // The caller's paths are those of the host where nothing else is mounted there.
        let inside = Path::new("/proc").join(pid.to_string()).join("root");
        let inside = rustix::fs::stat(inside.join(above.strip_prefix("/").unwrap_or(above)))?;
        let outside = rustix::fs::fstat(&directory)?;
        if (inside.st_dev, inside.st_ino) != (outside.st_dev, outside.st_ino) {
            return Err(Refusal::Not);
        }
        let (new_file, new) = open(&directory, beside, OFlags::RDONLY)?;
        if !self.is_git_config(above, name) || placeholders::is_stand_in(&session.facts.context.state, to) {
            return Err(Refusal::Because(String::new()));
        }
        // Git holds this one while it writes, and whoever else writes waits for it.
        if beside.as_encoded_bytes() != [name.as_encoded_bytes(), b".lock"].concat() {
            return Err(Refusal::Because("only changes by git itself are considered".to_owned()));
        }
        let (file, old) = match open(&directory, name, OFlags::RDWR) {
            // The repository was moved, and this is another one.
            Err(Refusal::Failed(Errno::NOENT)) => return Err(Refusal::Not),
            opened => opened?,
        };
        let owner = |file: &File| rustix::fs::fstat(file).map(|found| found.st_uid);
        if owner(&new_file)? != owner(&file)? {
            return Err(Refusal::Because("the new file belongs to another user".to_owned()));
        }
        let (Ok(old_text), Ok(new_text)) = (std::str::from_utf8(&old), std::str::from_utf8(&new)) else {
            return Err(Refusal::Because("it is not UTF-8, so it cannot be compared".to_owned()));
        };
        if !is_plain(new_text) {
            let why = "it has lines that git itself would not write, so it cannot be compared";
            return Err(Refusal::Because(why.to_owned()));
        }
        if let Some(differ) = not_harmless(old_text, new_text) {
            return Err(Refusal::Because(format!("it would say {}", listed(differ))));
        }
        let mut text = None;
        if old != new {
            let mode = rustix::fs::fstat(&file)?.st_mode & 0o7777;
            if !self.kept.borrow().contains(to) {
                let aside = Aside::new(&session.facts.context.state, &session.facts.id.to_string());
                let keep = aside.keep(to, &Copy::File { content: old.clone(), mode });
                keep.map_err(|error| Refusal::Because(format!("cannot keep what is there: {error}")))?;
                self.kept.borrow_mut().insert(to.to_owned());
            }
            write_in_place(&file, &old, &new)?;
            text = Some(format!(
                "{} was changed inside; the change runs nothing: {}; `agentsh undo {}` restores it",
                to.display(),
                changed(old_text, new_text),
                to.display()
            ));
        }
        let still = rustix::fs::statat(&directory, beside, AtFlags::SYMLINK_NOFOLLOW)?;
        let read = rustix::fs::fstat(&new_file)?;
        if (still.st_dev, still.st_ino) == (read.st_dev, read.st_ino) {
            rustix::fs::unlinkat(&directory, beside, AtFlags::empty())?;
        }
        Ok(text)
    }

    /// Whether git reads it as the configuration of a repository that was there at the start. A file of that name elsewhere may
    /// be anything.
    fn is_git_config(&self, above: &Path, name: &OsStr) -> bool {
        let is_other = OTHER_REPOSITORIES.iter().any(|(other, _)| above.file_name() == Some(other.as_ref()));
        (name == "config" || name == "config.worktree") && self.repositories.contains(above) && !is_other
    }

    fn refused(&self, session: &Session, server: Option<&ServerId>, path: &Path, detail: &str) {
        let answer = why::ask(session, server, &Question::Write(path.to_string_lossy().into_owned()));
        let context = &session.facts.context;
        let shown = path.strip_prefix(&context.project).unwrap_or(path);
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        let is_offered = !refused_files::is_never_offered(path, &context.home, &context.state);
        let offered = answer.change.as_ref().filter(|_| is_offered);
        let change = offered
            .map_or(String::new(), |change| format!("; to allow it: {}", session.facts.remedy(change)));
        let text = format!(
            "refused to change {}{detail}: {}, by {}; change it outside{change}",
            shown.display(),
            answer.text,
            answer.rule
        );
        if let Some(change) = offered {
            session.live.wanted.add(&session.facts, change);
        }
        self.tell(session, server, path, GuardChange::Refused, text);
    }

    /// Once. What was written is on record; what was refused is shown as well.
    fn tell(
        &self,
        session: &Session,
        server: Option<&ServerId>,
        path: &Path,
        what: GuardChange,
        text: String,
    ) {
        let mut told = self.told.borrow_mut();
        if told.len() >= MAX_DIFFERENT || !told.insert(text.clone()) {
            return;
        }
        if what == GuardChange::Refused && told.len() <= MAX_SHOWN {
            session.record.note(&escape::line(&text));
        }
        session.record.journal.record(Event::GuardChanged {
            server_id: server.cloned(),
            path: path.to_string_lossy().into_owned(),
            what,
            detail: redact::text(&text),
        });
    }
}

/// A regular file, with all that it holds.
fn open(directory: &OwnedFd, name: &OsStr, access: OFlags) -> Result<(File, Vec<u8>), Refusal> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory.as_fd(), name, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(Refusal::Not);
    }
    let mut content = Vec::new();
    (&file).take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(Refusal::Because("it is too large to compare".to_owned()));
    }
    Ok((file, content))
}

/// In the file that is mounted inside, so that the guard stays. Whoever reads meanwhile finds the beginning of the old text or of
/// the new one, and never parts of both.
fn write_in_place(file: &File, old: &[u8], new: &[u8]) -> io::Result<()> {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let whole = new.get(..same).and_then(|same| same.iter().rposition(|byte| *byte == b'\n'));
    let kept = whole.map_or(0, |at| at + 1);
    let write = |text: &[u8]| {
        file.set_len(kept as u64)?;
        file.write_all_at(text.get(kept..).unwrap_or_default(), kept as u64)
    };
    write(new).inspect_err(|_| {
        // A full disk: what was there has had room.
        let _ = write(old);
    })
}

/// The variables that came and went.
fn changed(before: &str, now: &str) -> String {
    let (before, now) = (entries(before), entries(now));
    let added = now.iter().filter(|entry| !before.contains(entry)).map(ToString::to_string);
    let gone = before.iter().filter(|entry| !now.contains(entry)).map(|entry| format!("no {entry}"));
    listed(added.chain(gone).collect())
}

fn listed(words: Vec<String>) -> String {
    let more = words.len().saturating_sub(MAX_NAMED);
    let shown = words.into_iter().take(MAX_NAMED).map(|word| {
        let mut letters = word.chars();
        let mut shown: String = letters.by_ref().take(MAX_LETTERS).collect();
        if letters.next().is_some() {
            shown.push('…');
        }
        shown
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn it_is_written_in_place() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("config");
        for (old, new) in [
            ("", "[a]\n\tb = c\n"),
            ("[a]\n\tb = c\n", "[a]\n\tb = c\n[d]\n"),
            ("[a]\n\tb = c\n[d]\n", "[a]\n\tb = x\n"),
            ("[a]\n", ""),
            ("no end", "no ending"),
        ] {
            std::fs::write(&path, old).unwrap();
            let file = File::options().read(true).write(true).open(&path).unwrap();
            write_in_place(&file, old.as_bytes(), new.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), new);
        }
    }

    #[test]
    fn a_message_is_bounded() {
        let words: Vec<String> = (0..9).map(|number| format!("{number}{}", "x".repeat(500))).collect();
        let text = listed(words);
        assert!(text.len() < 600 && text.ends_with(" and 5 more"), "{text}");
    }
}
