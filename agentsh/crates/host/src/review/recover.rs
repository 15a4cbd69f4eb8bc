//! After a kill: completes every file of an interrupted apply, old or new.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, RenameFlags};

use super::apply::{Applier, error_text, rename, set_mode, stamp_of};
use super::directory_handle::{Kind, Stamp, hash};
use super::hard_links::{UnlinkedName, remove};
use super::journal::{About, AppliedChange, Line, Mark, Run, Staged};

impl Applier<'_> {
    /// After a kill: completes or reverts each file. Returns what stays open.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn finish_interrupted(&self, run: &mut Run) -> io::Result<Vec<(PathBuf, String)>> {
        let mut open = Vec::new();
        let about = run.unfinished_steps();
        for one in &about {
            let line = match self.settle_one(run, one) {
                Ok((true, left)) => {
                    let now = self.project.stamp(&one.path)?;
                    let About { number, path, old: was, merged, .. } = one.clone();
                    Line::Done(AppliedChange { number, path, was, now, merged, left })
                }
                Ok((false, left)) => Line::Dropped { number: one.number, left },
                Err(error) => {
                    open.push((one.path.clone(), error_text(&error)));
                    continue;
                }
            };
            run.write(vec![line], false)?;
        }
        for Staged { number, path } in run.staged() {
            if about.iter().all(|one| one.number != number)
                && let left @ Some(_) = self.remove_temporary(&path, run.number, number)
            {
                run.write(vec![Line::Dropped { number, left }], false)?;
            }
        }
        // If a power failure loses a line, the next recovery finds the same again.
        run.write(Vec::new(), true)?;
        Ok(open)
    }

    /// Whether it is done. If so, the temporary file is removed; other names that it has are returned.
    fn settle_one(&self, run: &Run, about: &About) -> io::Result<(bool, Option<UnlinkedName>)> {
        let Ok((parent, name)) = self.project.parent(&about.path) else { return Ok((false, None)) };
        let temporary = self.temporary(run.number, about.number);
        let beside = stamp_of(parent.as_fd(), &temporary)?;
        let there = self.project.stamp(&about.path)?;
        let has_mark = |name: &OsStr| -> io::Result<bool> {
            let Some(mark) = &about.new else { return Ok(false) };
            has_new_version(parent.as_fd(), name, mark)
        };
        let drop_it = || remove(&parent, &temporary);
        let is_old =
            |found: &Stamp| about.old.as_ref().is_some_and(|old| old.is_unchanged_but_for_its_name(found));
        match (&about.new, &beside) {
            // Made, and without its name: one that is there now was made by somebody else.
            (Some(mark), Some(_)) if mark.kind == Kind::Directory => Ok((false, drop_it()?)),
            (Some(mark), None) if mark.kind == Kind::Directory => {
                if there.is_none_or(|found| found.kind != Kind::Directory) {
                    return Ok((false, None));
                }
                // An existing one may not have its mode yet.
                set_mode(&parent, name, mark.mode)?;
                Ok((true, None))
            }
            // No temporary file: the step never began, or was finished.
            (Some(_), None) => Ok((has_mark(name)?, None)),
            (None, None) => Ok((there.is_none(), None)),
            // The temporary file is the new version.
            (Some(_), Some(_)) if has_mark(&temporary)? => Ok((false, drop_it()?)),
            // The temporary file is the old version, and is kept.
            (Some(_), Some(found)) if is_old(found) => {
                let done = has_mark(name)?;
                Ok((done, drop_it()?))
            }
            (None, Some(found)) if is_old(found) => Ok((true, drop_it()?)),
            // The file was changed in the moment before: it is restored.
            (Some(_), Some(_)) => {
                if has_mark(name)? {
                    rename(&parent, &temporary, &parent, name, RenameFlags::EXCHANGE)?;
                    return Ok((false, drop_it()?));
                }
                Err(kept_beside(&temporary))
            }
            (None, Some(_)) if there.is_none() => {
                rename(&parent, &temporary, &parent, name, RenameFlags::NOREPLACE)?;
                Ok((false, None))
            }
            (None, Some(_)) => Err(kept_beside(&temporary)),
        }
    }
}

fn kept_beside(name: &OsStr) -> io::Error {
    io::Error::other(format!(
        "it was changed outside twice in the meantime; the other version is {}",
        name.display()
    ))
}

/// Whether a name has the new version according to the journal.
fn has_new_version(parent: BorrowedFd<'_>, name: &OsStr, mark: &Mark) -> io::Result<bool> {
    let Some(found) = stamp_of(parent, name)? else { return Ok(false) };
    if found.kind != mark.kind || (mark.kind == Kind::File && found.given_mode() != mark.mode) {
        return Ok(false);
    }
    let found = match mark.kind {
        Kind::Link => hash(rustix::fs::readlinkat(parent, name, Vec::new())?.as_bytes())?,
        _ => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            hash(File::from(rustix::fs::openat(parent, name, flags, Mode::empty())?))?
        }
    };
    Ok(found == mark.hash)
}
