//! Applies changes to the project, one file at a time and each in one step.
//!
//! For every batch: the old files are copied aside and the new ones are written next to their places. Once both are on disk,
//! the journal names the next step. Then each new file is exchanged with the old one, and the old one is compared once
//! more: if somebody changed it meanwhile, it is put back. At whatever moment the process is killed, each file is
//! complete, old or new, and [`super::recover`] knows which.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::directory_handle::{DirectoryHandle, Kind, Stamp, hash};
use super::hard_links::{Names, UnlinkedName, remove};
use super::journal::{About, AppliedChange, Line, Mark, Merged, Run, Staged};

/// The size of a batch, whose files are open together.
pub const BATCH: usize = 64;
/// Threads that wait for a disk: a file system syncs several files together in little more than the time of one.
const SYNCING: usize = 16;

/// Why something is not applied that is in the layer otherwise than it was shown.
pub(super) const NOT_SHOWN: &str = "it changed after `agentsh review` showed it: review it again";

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    pub path: PathBuf,
    /// The expected state of the project.
    pub expected: Option<Stamp>,
    /// The new state; None: removed.
    pub new: Option<(Stamp, Content)>,
    /// For the journal.
    pub merged: Option<Merged>,
    /// In the layer it is another name of this file.
    pub same: Option<PathBuf>,
    /// What a person was shown for this path: nothing else may be applied. The outer None: nothing was shown.
    pub shown: Option<Option<Mark>>,
}

/// Where the content of something new is.
#[derive(Clone, Debug)]
pub enum Content {
    /// Under this name in the source.
    At(PathBuf),
    Text(String),
}

/// The outcome of the steps.
#[derive(Debug, Default)]
pub struct Outcome {
    pub applied: Vec<PathBuf>,
    pub conflicts: Vec<(PathBuf, String)>,
}

pub struct Applier<'a> {
    pub project: &'a DirectoryHandle,
    /// Where new content comes from.
    pub source: &'a DirectoryHandle,
    /// The session's name, for names of temporary files.
    pub name: String,
    pub names: Names,
}

/// Everything for one step is on disk.
struct ReadyStep {
    number: u32,
    step: Step,
    new: Option<Mark>,
}

impl Applier<'_> {
    /// # Errors
    /// When the journal cannot be written: only steps that are in it are carried out.
    pub fn apply(&self, run: &mut Run, steps: Vec<Step>) -> io::Result<Outcome> {
        let old = DirectoryHandle::open(&run.earlier_versions())?;
        let mut outcome = Outcome::default();
        let mut number = 0;
        for batch in batches(steps) {
            let numbered: Vec<(u32, Step)> = batch
                .into_iter()
                .map(|step| {
                    number += 1;
                    (number, step)
                })
                .collect();
            let staged =
                numbered.iter().map(|(number, step)| Staged { number: *number, path: step.path.clone() });
            run.write(vec![Line::Stage(staged.collect())], false)?;
            let (mut ready, mut open) = (Vec::new(), Vec::new());
            for (number, step) in numbered {
                let staged =
                    self.stage(run.number, number, &step, &old, &mut open).and_then(|new| {
                        match step.shown.as_ref().is_none_or(|shown| *shown == new) {
                            true => Ok(new),
                            false => Err(io::Error::other(NOT_SHOWN)),
                        }
                    });
                match staged {
                    Ok(new) => ready.push(ReadyStep { number, step, new }),
                    Err(error) => {
                        let left = self.remove_temporary(&step.path, run.number, number);
                        self.names.note(left);
                        run.write(vec![Line::Dropped { number, left }], false)?;
                        outcome.conflicts.push((step.path, error_text(&error)));
                    }
                }
            }
            sync(&open)?;
            old.root().and_then(|root| Ok(rustix::fs::fsync(root)?))?;
            let about = ready.iter().map(|ready| {
                Line::About(About {
                    number: ready.number,
                    path: ready.step.path.clone(),
                    old: ready.step.expected.clone(),
                    new: ready.new.clone(),
                    merged: ready.step.merged.clone(),
                })
            });
            run.write(about.collect(), true)?;
            let mut directories: BTreeSet<PathBuf> = BTreeSet::new();
            for ReadyStep { number, step, .. } in ready {
                let line = match self.commit(run.number, number, &step) {
                    Ok((now, left)) => {
                        directories.extend(step.path.parent().map(Path::to_owned));
                        outcome.applied.push(step.path.clone());
                        let Step { path, expected: was, merged, .. } = step;
                        Line::Done(AppliedChange { number, path, was, now, merged, left })
                    }
                    Err(error) => {
                        let left = self.remove_temporary(&step.path, run.number, number);
                        outcome.conflicts.push((step.path, error_text(&error)));
                        Line::Dropped { number, left }
                    }
                };
                self.names.follow(&line);
                run.write(vec![line], false)?;
            }
            for directory in directories {
                // It may have been removed with its content.
                if let Ok((directory, _)) = self.project.parent(&directory.join("name")) {
                    rustix::fs::fsync(directory)?;
                }
            }
        }
        run.write(vec![Line::End], true)?;
        Ok(outcome)
    }

    /// Copies the old file aside, and writes the new one next to its place.
    fn stage(
        &self,
        run: u32,
        number: u32,
        step: &Step,
        old: &DirectoryHandle,
        open: &mut Vec<File>,
    ) -> io::Result<Option<Mark>> {
        self.must_be(&step.path, step.expected.as_ref())?;
        if let Some((stamp, _)) = step.new.as_ref().filter(|_| makes_directory(step)) {
            return Ok(Some(Mark { kind: stamp.kind, mode: stamp.given_mode(), hash: String::new() }));
        }
        let (parent, _) = self.project.parent(&step.path)?;
        let name = number.to_string();
        let aside = old.root()?;
        match step.expected.as_ref().map(|stamp| stamp.kind) {
            Some(Kind::File) => {
                let mut from = self.project.file(&step.path)?;
                let mut to = create(aside.as_fd(), OsStr::new(&name))?;
                copy_file(&mut from, &mut to)?;
                open.push(to);
                self.must_be(&step.path, step.expected.as_ref())?;
            }
            Some(Kind::Link) => {
                rustix::fs::symlinkat(self.project.link(&step.path)?, &aside, &name)?;
            }
            _ => {}
        }
        let Some((stamp, content)) = &step.new else { return Ok(None) };
        let mode = stamp.given_mode();
        let temporary = self.temporary(run, number);
        // If it cannot be linked to the other name, it becomes a separate file.
        if let Ok(Some(hash)) = self.link(step, stamp, parent.as_fd(), &temporary) {
            return Ok(Some(Mark { kind: stamp.kind, mode, hash }));
        }
        let hash = match (stamp.kind, content) {
            (Kind::File, content) => {
                let mut to = create(parent.as_fd(), &temporary)?;
                let hash = match content {
                    Content::At(place) => self.copy_from_source(place, &mut to)?,
                    Content::Text(text) => copy(&mut text.as_bytes(), &mut to)?,
                };
                self.give_to_owner(&to, parent.as_fd(), &step.path)?;
                rustix::fs::fchmod(&to, Mode::from_raw_mode(mode))?;
                open.push(to);
                hash
            }
            (Kind::Link, Content::At(place)) => {
                let to = self.source.link(place)?;
                rustix::fs::symlinkat(&to, &parent, &temporary)?;
                self.give_name_to_owner(parent.as_fd(), &temporary)?;
                hash(to.as_bytes())?
            }
            (Kind::Link | Kind::Directory | Kind::Whiteout | Kind::Special | Kind::Closed, _) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        Ok(Some(Mark { kind: stamp.kind, mode, hash }))
    }

    /// Gives a file of the project, which holds what the step is to put there, one more name.
    fn link(
        &self,
        step: &Step,
        stamp: &Stamp,
        parent: BorrowedFd<'_>,
        temporary: &OsStr,
    ) -> io::Result<Option<String>> {
        let Some((same, (_, Content::At(place)))) = step.same.as_ref().zip(step.new.as_ref()) else {
            return Ok(None);
        };
        let there = self.project.file(same)?;
        let found = Stamp::of(&rustix::fs::fstat(&there)?);
        if found.mode != stamp.given_mode() || found.size != stamp.size {
            return Ok(None);
        }
        let hashed = hash(there)?;
        if hash(self.source.file(place)?)? != hashed {
            return Ok(None);
        }
        let (above, name) = self.project.parent(same)?;
        rustix::fs::linkat(above, name, parent, temporary, AtFlags::empty())?;
        let is_it = stamp_of(parent, temporary)?.is_some_and(|linked| linked.inode == found.inode);
        if !is_it {
            self.names.note(remove(parent, temporary)?);
        }
        Ok(is_it.then_some(hashed))
    }

    fn copy_from_source(&self, place: &Path, to: &mut File) -> io::Result<String> {
        let mut from = self.source.file(place)?;
        let before = Stamp::of(&rustix::fs::fstat(&from)?);
        let hash = copy_file(&mut from, to)?;
        match Stamp::of(&rustix::fs::fstat(&from)?) == before {
            true => Ok(hash),
            false => Err(io::Error::other("it is being written inside; apply it again")),
        }
    }

    /// The one step that changes the project. Returns the new state of the path, and other names of the former file.
    fn commit(
        &self,
        run: u32,
        number: u32,
        step: &Step,
    ) -> io::Result<(Option<Stamp>, Option<UnlinkedName>)> {
        let mut left = None;
        let (parent, name) = self.project.parent(&step.path)?;
        self.must_be(&step.path, step.expected.as_ref())?;
        let temporary = self.temporary(run, number);
        let is_directory = |stamp: &Stamp| stamp.kind == Kind::Directory;
        match (&step.expected, &step.new) {
            (None, None) => {}
            (Some(old), Some((new, _))) if is_directory(old) && is_directory(new) => {
                set_mode(&parent, name, new.given_mode())?;
            }
            (None, Some((new, _))) if is_directory(new) => {
                // Whole before it has its name.
                rustix::fs::mkdirat(&parent, &temporary, Mode::from_raw_mode(0o700)).map_err(existing)?;
                self.give_name_to_owner(parent.as_fd(), &temporary)?;
                set_mode(&parent, &temporary, new.given_mode())?;
                rename(&parent, &temporary, &parent, name, RenameFlags::NOREPLACE)?;
            }
            (None, Some(_)) => rename(&parent, &temporary, &parent, name, RenameFlags::NOREPLACE)?,
            (Some(old), None) if is_directory(old) => {
                rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(|error| match error {
                    Errno::NOTEMPTY | Errno::EXIST => {
                        io::Error::other("it contains files that are not part of the layer")
                    }
                    error => error.into(),
                })?;
            }
            (Some(old), None) => {
                rename(&parent, name, &parent, &temporary, RenameFlags::NOREPLACE)?;
                if !is_still(parent.as_fd(), &temporary, old)? {
                    rename(&parent, &temporary, &parent, name, RenameFlags::NOREPLACE)?;
                    return Err(changed_outside());
                }
                left = remove(&parent, &temporary)?;
            }
            (Some(old), Some((new, _))) if is_directory(old) || is_directory(new) => {
                return Err(changed_outside());
            }
            (Some(old), Some(_)) => {
                rename(&parent, &temporary, &parent, name, RenameFlags::EXCHANGE)?;
                if !is_still(parent.as_fd(), &temporary, old)? {
                    rename(&parent, &temporary, &parent, name, RenameFlags::EXCHANGE)?;
                    return Err(changed_outside());
                }
                left = remove(&parent, &temporary)?;
            }
        }
        Ok((self.project.stamp(&step.path)?, left))
    }

    fn must_be(&self, path: &Path, expected: Option<&Stamp>) -> io::Result<()> {
        let there = self.project.stamp(path)?;
        let is_it = match (expected, &there) {
            (None, None) => true,
            (Some(expected), Some(there)) => self.names.is_unchanged(expected, there),
            _ => false,
        };
        if is_it { Ok(()) } else { Err(changed_outside()) }
    }

    pub(super) fn temporary(&self, run: u32, number: u32) -> OsString {
        format!(".agentsh-{}-{run}-{number}", self.name).into()
    }

    pub(super) fn remove_temporary(&self, path: &Path, run: u32, number: u32) -> Option<UnlinkedName> {
        let (parent, _) = self.project.parent(path).ok()?;
        // It may never have been made.
        remove(&parent, &self.temporary(run, number)).ok()?
    }

    /// If root works in another user's project, a new file belongs to that user, and an existing one keeps its owner.
    fn give_to_owner(&self, file: &File, parent: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default();
        let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .or_else(|_| rustix::fs::fstat(parent))?;
        Ok(rustix::fs::fchown(file, Some(Uid::from_raw(found.st_uid)), Some(Gid::from_raw(found.st_gid)))?)
    }

    fn give_name_to_owner(&self, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let above = rustix::fs::fstat(parent)?;
        let (uid, gid) = (Uid::from_raw(above.st_uid), Gid::from_raw(above.st_gid));
        Ok(rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Returns when all are on disk.
fn sync(files: &[File]) -> io::Result<()> {
    let share = files.len().div_ceil(SYNCING).max(1);
    let all = |files: &[File]| files.iter().try_for_each(File::sync_all);
    std::thread::scope(|scope| {
        let mut waiting = Vec::new();
        for files in files.chunks(share) {
            match std::thread::Builder::new().spawn_scoped(scope, move || all(files)) {
                Ok(one) => waiting.push(one),
                // No thread is available: one after the other.
                Err(_) => all(files)?,
            }
        }
        waiting.into_iter().try_for_each(|one| {
            one.join().unwrap_or_else(|_| Err(io::Error::other("a thread that waits for the disk ended")))
        })
    })
}

fn makes_directory(step: &Step) -> bool {
    step.new.as_ref().is_some_and(|(stamp, _)| stamp.kind == Kind::Directory)
}

/// Splits steps into batches that can be written next to their places before any is applied: nothing in a directory that the
/// batch itself creates, and no path twice.
fn batches(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let mut batches: Vec<Vec<Step>> = Vec::new();
    let (mut touched, mut made): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) = Default::default();
    for step in steps {
        let waits = touched.contains(&step.path)
            || step.same.as_ref().is_some_and(|same| touched.contains(same))
            || !makes_directory(&step) && step.path.ancestors().any(|above| made.contains(above));
        let is_full = batches.last().is_none_or(|batch| batch.len() >= BATCH);
        if waits || is_full {
            batches.push(Vec::new());
            touched.clear();
            made.clear();
        }
        touched.insert(step.path.clone());
        if makes_directory(&step) {
            made.insert(step.path.clone());
        }
        if let Some(batch) = batches.last_mut() {
            batch.push(step);
        }
    }
    batches
}

/// Sets the mode of a directory. Inherited bits stay.
pub(super) fn set_mode(parent: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let inherited = rustix::fs::fstat(&directory)?.st_mode & 0o2000;
    Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode | inherited))?)
}

pub(super) fn stamp_of(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Stamp>> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Stamp::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_still(parent: BorrowedFd<'_>, name: &OsStr, old: &Stamp) -> io::Result<bool> {
    Ok(stamp_of(parent, name)?.is_some_and(|found| old.is_unchanged_but_for_its_name(&found)))
}

pub(super) fn rename(
    from: &OwnedFd,
    old: &OsStr,
    to: &OwnedFd,
    new: &OsStr,
    flags: RenameFlags,
) -> io::Result<()> {
    rustix::fs::renameat_with(from, old, to, new, flags).map_err(existing)
}

fn existing(error: Errno) -> io::Error {
    match error {
        Errno::EXIST | Errno::NOENT => changed_outside(),
        error => error.into(),
    }
}

fn changed_outside() -> io::Error {
    io::Error::other("it was changed outside in the meantime")
}

pub(super) fn error_text(error: &io::Error) -> String {
    error.to_string()
}

fn create(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?))
}

/// Like [`copy`]; holes stay holes.
fn copy_file(from: &mut File, to: &mut File) -> io::Result<String> {
    use rustix::fs::SeekFrom;
    let (mut hash, mut at) = (Sha256::new(), 0_u64);
    let size = from.metadata()?.len();
    while at < size {
        let data = match rustix::fs::seek(&*from, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => size,
            // A file system that knows nothing of holes has none.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        io::copy(&mut io::repeat(0).take(data.saturating_sub(at)), &mut Hashing(&mut hash))?;
        if data >= size {
            break;
        }
        let hole = rustix::fs::seek(&*from, SeekFrom::Hole(data)).unwrap_or(size);
        rustix::fs::seek(&*from, SeekFrom::Start(data))?;
        rustix::fs::seek(&*to, SeekFrom::Start(data))?;
        let copied = copy_to(&mut from.take(hole.saturating_sub(data)), to, &mut hash)?;
        at = data.saturating_add(copied);
        if copied == 0 {
            break;
        }
    }
    // A hole at the end, or a file that has become shorter: its stamp will differ.
    to.set_len(size)?;
    Ok(agentsh_base::hex(&hash.finalize()))
}

struct Hashing<'h>(&'h mut Sha256);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives the hash of what was copied.
fn copy(from: &mut impl Read, to: &mut File) -> io::Result<String> {
    let mut hash = Sha256::new();
    copy_to(from, to, &mut hash)?;
    Ok(agentsh_base::hex(&hash.finalize()))
}

fn copy_to(from: &mut impl Read, to: &mut File, hash: &mut Sha256) -> io::Result<u64> {
    let mut copied = 0_u64;
    let mut buffer = vec![0_u8; 128 << 10];
    loop {
        let length = from.read(&mut buffer)?;
        let read = buffer.get(..length).unwrap_or_default();
        if read.is_empty() {
            break;
        }
        hash.update(read);
        to.write_all(read)?;
        copied = copied.saturating_add(read.len() as u64);
    }
    Ok(copied)
}
