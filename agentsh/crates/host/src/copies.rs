//! Copies of guarded files, to compare and to restore.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use agentsh_base::small_file;
use agentsh_sandbox::host::let_owner;
use agentsh_sandbox::mount_calls::open_without_links;

/// A larger file is known by its size and times alone.
const MAX_FILE: u64 = 1 << 20;
/// Entries of one directory that are kept.
const MAX_ENTRIES: usize = 4_000;
/// Names that are tried for what is set aside.
const MAX_NAMES: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Copy {
    Absent,
    /// A socket, like a stub, or something else without content.
    Special,
    Link(PathBuf),
    File {
        content: Vec<u8>,
        mode: u32,
    },
    /// Too large to be kept, or not readable.
    Unread {
        inode: u64,
        size: u64,
        changed: (i64, i64),
    },
    Directory(BTreeMap<PathBuf, Copy>),
    /// A parent is not a directory, for example a link: what is behind it is not examined. `as_is` is the parent as it is.
    Unreachable {
        there: PathBuf,
        as_is: Box<Copy>,
    },
}

impl Copy {
    /// A copy of what is at a path now; no link on the way is followed.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        Self::read(path, DirectoryEntry::of(path))
    }

    /// Like [`Self::of_own`], for many paths: consecutive ones in one directory open it only once.
    #[must_use]
    pub fn of_all<'p>(paths: impl Iterator<Item = &'p Path>) -> Vec<(PathBuf, Self)> {
        let mut last: Option<(&Path, Rc<OwnedFd>)> = None;
        let copy = |path: &'p Path| {
            let known = last.take().filter(|(above, _)| Some(*above) == path.parent());
            let entry = match known.zip(path.file_name()) {
                Some(((_, directory), name)) => Ok(DirectoryEntry { directory, name }),
                None => DirectoryEntry::of(path),
            };
            last = entry.as_ref().ok().and_then(|entry| Some((path.parent()?, Rc::clone(&entry.directory))));
            (path.to_owned(), Self::read(path, entry).without_unreachable())
        };
        paths.map(copy).collect()
    }

    fn read(path: &Path, entry: Result<DirectoryEntry<'_>, Errno>) -> Self {
        match entry {
            Ok(place) => Self::at(&place.path(), &mut { MAX_ENTRIES }),
            Err(Errno::NOENT) => Self::Absent,
            Err(_) => {
                let there = first_that_is_no_directory(path).unwrap_or(path);
                // One file: a link, or a file that names a repository.
                let as_is = Self::at(there, &mut 0);
                Self::Unreachable { there: there.to_owned(), as_is: Box::new(as_is) }
            }
        }
    }

    /// Like [`Self::of`], but a file that only a link leads to counts as absent.
    #[must_use]
    pub fn of_own(path: &Path) -> Self {
        Self::of(path).without_unreachable()
    }

    /// What a program finds at a path that follows links.
    #[must_use]
    pub fn behind_links(path: &Path) -> Self {
        path.canonicalize().map_or(Self::Absent, |real| Self::of_own(&real))
    }

    fn without_unreachable(self) -> Self {
        match self {
            Self::Unreachable { .. } => Self::Absent,
            copy => copy,
        }
    }

    fn at(path: &Path, budget: &mut usize) -> Self {
        let Ok(found) = fs::symlink_metadata(path) else { return Self::Absent };
        let kind = found.file_type();
        let unread = || Self::Unread {
            inode: found.ino(),
            size: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        };
        if kind.is_symlink() {
            return fs::read_link(path).map_or(Self::Absent, Self::Link);
        }
        if kind.is_dir() {
            let Ok(entries) = fs::read_dir(path) else { return unread() };
            let mut kept = BTreeMap::new();
            for entry in entries.flatten() {
                // Git's sample hooks run only under another name.
                if entry.file_name().as_encoded_bytes().ends_with(b".sample") {
                    continue;
                }
                let Some(rest) = budget.checked_sub(1) else { return unread() };
                *budget = rest;
                kept.insert(entry.file_name().into(), Self::at(&entry.path(), budget));
            }
            return Self::Directory(kept);
        }
        if !kind.is_file() {
            return Self::Special;
        }
        match read(path, found.len()) {
            Ok(content) => Self::File { content, mode: found.mode() & 0o7777 },
            Err(_) => unread(),
        }
    }

    /// Whether the path was missing, or had only a stub.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Absent | Self::Special => true,
            Self::Directory(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// Whether it has nothing but plain files of another copy. `may_be_cut`: a file that is only the beginning counts too.
    #[must_use]
    pub fn is_part_of(&self, other: &Self, may_be_cut: bool) -> bool {
        match (self, other) {
            (Self::File { content, .. }, Self::File { content: whole, .. }) => {
                content == whole || (may_be_cut && whole.starts_with(content))
            }
            (Self::Directory(entries), Self::Directory(others)) => entries.iter().all(|(name, entry)| {
                others.get(name).is_some_and(|other| entry.is_part_of(other, may_be_cut))
            }),
            _ => false,
        }
    }

    /// The text of a file.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::File { content, .. } => std::str::from_utf8(content).ok(),
            _ => None,
        }
    }

    /// Restores the path. Files are created again: a program that holds an old one open changes nothing.
    ///
    /// # Errors
    /// There is no copy, or it may not be put back.
    pub fn put_back(&self, path: &Path) -> io::Result<()> {
        let place = DirectoryEntry::of(path)?;
        let path = place.path();
        let stands = fs::symlink_metadata(&path);
        if stands.as_ref().is_ok_and(fs::Metadata::is_dir) {
            fs::remove_dir_all(&path)?;
        } else if stands.is_ok() && !matches!(self, Self::File { .. }) {
            fs::remove_file(&path)?;
        }
        self.make(&path)
    }

    /// Writes the content to a new file, so that a program that holds the old one open changes nothing. A concurrent change of
    /// the name stays.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn renew(&self, path: &Path) -> io::Result<()> {
        let place = DirectoryEntry::of(path).map_err(|_| io::ErrorKind::NotFound)?;
        self.renew_at(&place.path())
    }

    fn renew_at(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Absent | Self::Special | Self::Link(_) | Self::Unreachable { .. } => Ok(()),
            Self::File { content, mode } => exchange(path, content, *mode),
            Self::Unread { .. } => Err(io::Error::other("it is too large to compare")),
            Self::Directory(entries) => {
                entries.iter().try_for_each(|(name, entry)| entry.renew_at(&path.join(name)))
            }
        }
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Absent | Self::Special => Ok(()),
            Self::Link(to) => std::os::unix::fs::symlink(to, path),
            Self::File { content, mode } => write_anew(path, content, *mode),
            Self::Unread { .. } => Err(io::Error::other("it was too large to keep a copy")),
            Self::Unreachable { there, .. } => {
                Err(io::Error::other(format!("{} led elsewhere before", there.display())))
            }
            Self::Directory(entries) => {
                fs::create_dir(path)?;
                own_as_above(path)?;
                entries.iter().try_for_each(|(name, entry)| entry.make(&path.join(name)))
            }
        }
    }
}

/// A directory that was reached without a link, and a name in it.
struct DirectoryEntry<'p> {
    directory: Rc<OwnedFd>,
    name: &'p OsStr,
}

impl<'p> DirectoryEntry<'p> {
    fn of(path: &'p Path) -> Result<Self, Errno> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
        let directory = open_without_links(above, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok(Self { directory: Rc::new(directory), name })
    }

    fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(self.name)
    }
}

/// The first link or file among the parents of a path. None: all of them are directories, or missing.
#[must_use]
pub fn no_directory_above(path: &Path) -> Option<PathBuf> {
    match DirectoryEntry::of(path) {
        Ok(_) | Err(Errno::NOENT) => None,
        Err(_) => first_that_is_no_directory(path).map(Path::to_owned),
    }
}

fn first_that_is_no_directory(path: &Path) -> Option<&Path> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    above.into_iter().find(|path| !path.symlink_metadata().is_ok_and(|found| found.is_dir()))
}

/// Removes the entry at a path. No link on the way is followed.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(path: &Path, is_directory: bool) -> io::Result<()> {
    let place = DirectoryEntry::of(path)?;
    if is_directory { fs::remove_dir_all(place.path()) } else { fs::remove_file(place.path()) }
}

/// Gives the owner of the directory around a path the right to change it. No link on the way is followed.
pub fn let_owner_write(path: &Path) {
    if let Ok(place) = DirectoryEntry::of(path) {
        let_owner(&place.path().with_file_name("."), 0o700);
    }
}

/// Renames the entry at a path, so that no program uses it.
///
/// # Errors
/// When it cannot be renamed.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let place = DirectoryEntry::of(path)?;
    for number in 0..MAX_NAMES {
        let mut name = place.name.to_owned();
        name.push(".set-aside");
        if number > 0 {
            name.push(format!("-{number}"));
        }
        let renamed = rustix::fs::renameat_with(
            &*place.directory,
            place.name,
            &*place.directory,
            &name,
            RenameFlags::NOREPLACE,
        );
        match renamed {
            Ok(()) => return Ok(path.with_file_name(name)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Makes the directories above a path that are missing; through no link.
///
/// # Errors
/// When one cannot be made.
pub fn make_directories_above(path: &Path) -> io::Result<()> {
    let Some(above) = path.parent() else { return Ok(()) };
    match DirectoryEntry::of(path) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT) => make_directories_above(above)?,
        Err(error) => return Err(error.into()),
    }
    let place = DirectoryEntry::of(above)?;
    fs::create_dir(place.path())?;
    own_as_above(&place.path())
}

fn read(path: &Path, size: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let content = small_file::content_of(file, size, MAX_FILE + 1)?;
    if content.len() as u64 > MAX_FILE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(content) }
}

/// As [`write_anew`], through no link on the way.
///
/// # Errors
/// When that is not possible.
pub fn write_anew_without_links(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_anew(&DirectoryEntry::of(path)?.path(), content, mode)
}

/// Writes a file next to and renames it, as editors do.
pub fn write_anew(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.agentsh-{}", std::process::id()));
    let _ = fs::remove_file(&beside);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(content).and_then(|()| {
        own_as_above(&beside)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Replaces a file by a new one with the same content. If another program replaced the file meanwhile, its file is put
/// back.
fn exchange(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.agentsh-new-{}", std::process::id()));
    let _ = fs::remove_file(&new);
    write_anew(&new, content, mode)?;
    let swap = || rustix::fs::renameat_with(CWD, &new, CWD, path, RenameFlags::EXCHANGE);
    if let Err(error) = swap() {
        let _ = fs::remove_file(&new);
        return Err(error.into());
    }
    if !read(&new, content.len() as u64).is_ok_and(|found| found == content) {
        swap()?;
    }
    fs::remove_file(&new)
}

/// If root works in another user's project, new files belong to that user.
fn own_as_above(path: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let above = fs::metadata(path.parent().unwrap_or(path))?;
    std::os::unix::fs::lchown(path, Some(above.uid()), Some(above.gid()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn path_behind_a_symlink_does_not_count_as_absent() {
        let directory = tempfile::tempdir().unwrap();
        let above = directory.path().canonicalize().unwrap();
        let path = above.join("git/hooks/pre-commit");
        assert_eq!(Copy::of(&path), Copy::Absent);
        std::os::unix::fs::symlink("elsewhere", above.join("git")).unwrap();
        let linked = Copy::of(&path);
        assert!(!linked.is_nothing() && linked != Copy::Absent);
        assert_eq!(linked, Copy::of(&path), "the same link is not a change");
        assert_eq!(Copy::of_own(&path), Copy::Absent);
        assert_eq!(set_aside(&above.join("git")).unwrap(), above.join("git.set-aside"));
        make_directories_above(&path).unwrap();
        assert!(above.join("git/hooks").is_dir() && !path.exists());
        fs::write(above.join("git2"), "gitdir: elsewhere").unwrap();
        assert!(!Copy::of(&above.join("git2/hooks")).is_nothing());
    }
}
