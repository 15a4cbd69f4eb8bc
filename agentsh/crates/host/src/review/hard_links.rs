//! Files with several names (hard links). Adding or removing one name changes the stamp of all others; if an apply did
//! that, the file was not changed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::directory_handle::{Kind, Stamp};
use super::journal::{Line, Run};

/// A file that lost a name and has others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlinkedName {
    pub inode: u64,
    pub changed_ns: i64,
}

/// For each file, when an apply last changed a name of it.
#[derive(Debug, Default)]
pub struct Names(RefCell<BTreeMap<u64, i64>>);

impl Names {
    #[must_use]
    pub fn of(runs: &[Run]) -> Self {
        let names = Self::default();
        runs.iter().flat_map(|run| &run.lines).for_each(|line| names.follow(line));
        names
    }

    pub fn follow(&self, line: &Line) {
        match line {
            Line::Done(done) => {
                self.note(done.left);
                let file = done.now.as_ref().filter(|now| now.kind == Kind::File);
                self.note(file.map(|now| UnlinkedName { inode: now.inode, changed_ns: now.changed_ns }));
            }
            Line::Dropped { left, .. } => self.note(*left),
            Line::Begin(_) | Line::Stage(_) | Line::About(_) | Line::End => {}
        }
    }

    pub fn note(&self, left: Option<UnlinkedName>) {
        if let Some(UnlinkedName { inode, changed_ns }) = left {
            self.0.borrow_mut().insert(inode, changed_ns);
        }
    }

    /// Whether it is unchanged, except for other names that an apply added or removed.
    #[must_use]
    pub fn is_unchanged(&self, was: &Stamp, now: &Stamp) -> bool {
        let is_ours = || self.0.borrow().get(&now.inode) == Some(&now.changed_ns);
        was.is_unchanged(now) || was.is_unchanged_but_for_its_name(now) && is_ours()
    }
}

/// Removes a name, which need not be there; an empty directory too.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(parent: impl AsFd, name: &OsStr) -> io::Result<Option<UnlinkedName>> {
    let parent = parent.as_fd();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(Errno::ISDIR) => {
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    }
    let stat = rustix::fs::fstat(&found)?;
    let Stamp { kind, inode, changed_ns, .. } = Stamp::of(&stat);
    Ok((kind == Kind::File && stat.st_nlink > 0).then_some(UnlinkedName { inode, changed_ns }))
}
