//! The one question that a layout asks of the machine: what stands at a path.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, OFlags};

use serde::{Deserialize, Serialize};

use super::git_config::{self, GitConfig};
use super::kept::Copies;
use super::{proc_file, small_file, spelling};
use crate::policy::builtin_paths;

/// What the host says about a path, symlinks not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    Directory,
    File,
    Symlink,
    /// Sockets, devices, pipes.
    Special,
    /// Something may stand there, but we may not look: a directory on the way is closed to its own user.
    Closed,
}

/// What a search below a directory found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repositories {
    pub found: Vec<PathBuf>,
    /// Those of the directory itself.
    pub own: Vec<PathBuf>,
    /// Directories that could not be looked into, or that go too deep.
    pub closed: Vec<PathBuf>,
    /// There was more than may be looked at.
    pub is_cut: bool,
}

/// A small piece of plain data that everybody may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Small {
    Directory { mode: u32 },
    File { content: Vec<u8>, mode: u32 },
    Symlink { to: PathBuf },
}

/// With all that is in it, parents first.
pub type SmallTree = Vec<(PathBuf, Small)>;
/// Links, with what they say.
pub type Links = Vec<(PathBuf, PathBuf)>;

/// What lies in a `.git` besides the repository itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    pub directories: Vec<PathBuf>,
    /// Links where such a directory could stand.
    pub links: Vec<PathBuf>,
}

/// Where the host is asked.
pub trait Host {
    /// The file or directory at a path with all that is in it, parents first, if all of it is small and everybody may
    /// read it: what a sandbox may have as a copy instead of a mount.
    fn small(&self, _path: &Path) -> Option<SmallTree> {
        None
    }
    fn look(&self, path: &Path) -> Option<PathKind>;
    /// Whether the user may write it.
    fn may_write(&self, _path: &Path) -> bool {
        true
    }
    /// Target of a symlink as written.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// The path with all its links followed.
    fn canonical(&self, path: &Path) -> Option<PathBuf>;
    /// What version control looks at below a directory, without the directory's own: every `.git` and the like, and
    /// repositories without working tree.
    fn repositories(&self, directory: &Path) -> Repositories;
    /// What is in a directory, as much as may be looked at; None when it is closed.
    fn names(&self, directory: &Path) -> Option<Vec<(OsString, PathKind)>>;
    /// Whether a path is an empty file or directory.
    fn is_empty(&self, path: &Path) -> bool;
    /// Mounts that one sandbox can be made of: each is open for a moment.
    fn most_mounts(&self) -> usize;
    /// Whether the user may make something in a directory.
    fn may_make_in(&self, directory: &Path) -> bool;
    /// The home directory of a user of this machine.
    fn home_of(&self, user: &str) -> Option<PathBuf>;
    /// The name and login shell of a user id; those of whoever started agentsh where the id is nobody's.
    fn account(&self, uid: u32) -> (Option<String>, Option<PathBuf>);
    /// The disks of the machine: their directories, and the links that lead there with what they say.
    fn disks(&self) -> Vec<(Links, PathBuf)>;
    /// Directories of submodules and linked working trees below a `.git`; None when there was too much to look at.
    fn modules(&self, git: &Path) -> Option<Modules>;
    /// Whether files in a directory answer to more names than it lists.
    fn has_other_names(&self, directory: &Path) -> bool;
    /// The device and inode of a file that has more than one name.
    fn shared_inode(&self, _path: &Path) -> Option<(u64, u64)> {
        None
    }
    /// Every name of these files below a directory, as much as may be looked at.
    fn names_of(&self, _directory: &Path, _files: &BTreeSet<(u64, u64)>) -> Vec<PathBuf> {
        Vec::new()
    }
    /// The directory that a `.git` file names.
    fn git_directory(&self, file: &Path) -> Option<PathBuf>;
    /// The directory that a `.git` shares with others, where it has one.
    fn common_directory(&self, git: &Path) -> Option<PathBuf>;
    /// What a configuration of git says about other files; None when it cannot be read.
    fn git_config(&self, config: &Path) -> Option<GitConfig>;
}

/// The real host, with bounded effort.
#[derive(Debug, Default)]
pub struct RealHost {
    /// What was small is read once: every sandbox of a session gets the same.
    small: RefCell<BTreeMap<PathBuf, Option<SmallTree>>>,
    /// The same from one session to the next.
    copies: Option<Copies>,
    /// Searches for repositories look at everything, however much it is.
    is_unlimited: bool,
}

impl RealHost {
    /// Keeps copies of small files in this directory.
    #[must_use]
    pub fn keeping(state: &Path) -> Self {
        Self { copies: Some(Copies::of(state)), ..Self::default() }
    }

    /// For the last look at what a sandbox wrote: it may have written anything.
    #[must_use]
    pub fn unlimited() -> Self {
        Self { is_unlimited: true, ..Self::default() }
    }

    fn max_entries(&self) -> usize {
        if self.is_unlimited { usize::MAX } else { MAX_ENTRIES }
    }

    /// Writes down what is new.
    pub fn keep(&self) {
        if let Some(copies) = &self.copies {
            copies.save();
        }
    }
}

/// Directory entries looked at in search of repositories: about a second on a cold disk. What holds more is not written
/// to by a sandbox.
const MAX_ENTRIES: usize = 2_000_000;
/// Directories inside each other in which something is looked for. What lies deeper is guarded by hiding all of it: each of
/// those above would need a mount, and paths that the kernel does not take (`PATH_MAX`) can be neither looked at nor mounted.
const MAX_LEVELS: usize = 200;
/// Bytes of the path of a directory in which something is looked for: with room for what is named in it, and for where it is
/// mounted.
const MAX_LENGTH: usize = 3_500;
/// Names of one directory that are compared with patterns, or followed where they are links.
pub(crate) const MAX_NAMES: usize = 10_000;
/// Bytes of one answer about the names of a directory.
const LISTING_BYTES: usize = 32 << 10;
/// Bytes of a configuration of git that are read.
const MAX_CONFIGURATION: u64 = 1 << 20;
/// Directories of a repository in which no other lies.
const NO_MODULES: [&str; 5] = ["objects", "refs", "logs", "hooks", "info"];
/// Each takes a mount.
const MAX_DISKS: usize = 32;
/// Up to here a copy costs less than a mount, which is made, moved and taken down again: most are kept from one start to the next.
const SMALL_BYTES: u64 = 96 << 10;
/// What a directory with few entries takes at most.
const SMALL_DIRECTORY_BYTES: u64 = 16 << 10;
/// As many copies cost about as much as the one mount that they replace.
const SMALL_ENTRIES: usize = 6;

impl Host for RealHost {
    fn small(&self, path: &Path) -> Option<SmallTree> {
        let look = || match &self.copies {
            Some(copies) => copies.get(path, || small(path)),
            None => small(path),
        };
        self.small.borrow_mut().entry(path.to_owned()).or_insert_with(look).clone()
    }

    fn may_write(&self, path: &Path) -> bool {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn look(&self, path: &Path) -> Option<PathKind> {
        let kind = match std::fs::symlink_metadata(path) {
            Ok(found) => found.file_type(),
            Err(error) if is_missing(&error) => return None,
            Err(_) => return Some(PathKind::Closed),
        };
        Some(of_kind(kind))
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        std::fs::read_link(path).ok()
    }

    fn has_other_names(&self, directory: &Path) -> bool {
        spelling::is_ambiguous(directory)
    }

    fn repositories(&self, directory: &Path) -> Repositories {
        let (mut found, mut own, mut closed) = (Vec::new(), Vec::new(), Vec::new());
        let mut open = vec![(directory.to_owned(), 0)];
        let mut budget = self.max_entries();
        while let Some((current, level)) = open.pop() {
            if level > MAX_LEVELS || current.as_os_str().len() > MAX_LENGTH {
                closed.push(outermost(&current, directory).to_owned());
                continue;
            }
            let entries = match std::fs::read_dir(&current) {
                Ok(entries) => entries,
                Err(error) if is_missing(&error) => continue,
                Err(_) => {
                    closed.push(current);
                    continue;
                }
            };
            for entry in entries.flatten() {
                let Some(rest) = budget.checked_sub(1) else {
                    return Repositories { found, own, closed, is_cut: true };
                };
                budget = rest;
                let name = entry.file_name();
                if is_version_control(&name) {
                    let list = if current == directory { &mut own } else { &mut found };
                    list.push(entry.path());
                    continue;
                }
                if begins_bare(&name) && is_bare(&current) {
                    found.push(current.clone());
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push((entry.path(), level + 1));
                }
            }
        }
        closed.dedup();
        // Outer repositories first: an inner one is mounted on top.
        found.sort();
        found.dedup();
        Repositories { found, own, closed, is_cut: false }
    }

    fn names(&self, directory: &Path) -> Option<Vec<(OsString, PathKind)>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, rustix::fs::Mode::empty()).ok()?;
        let mut found = Vec::new();
        // Most directories take one call, and one for their end.
        let mut buffer = Vec::with_capacity(LISTING_BYTES);
        let mut entries = rustix::fs::RawDir::new(opened, buffer.spare_capacity_mut());
        while found.len() < MAX_NAMES
            && let Some(Ok(entry)) = entries.next()
        {
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Directory => PathKind::Directory,
                FileType::RegularFile => PathKind::File,
                FileType::Symlink => PathKind::Symlink,
                // Some file systems do not say.
                FileType::Unknown => self.look(&directory.join(&name)).unwrap_or(PathKind::Closed),
                _ => PathKind::Special,
            };
            found.push((name, kind));
        }
        Some(found)
    }

    fn is_empty(&self, path: &Path) -> bool {
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => found.len() == 0,
            Ok(found) if found.is_dir() => {
                std::fs::read_dir(path).is_ok_and(|mut inner| inner.next().is_none())
            }
            _ => false,
        }
    }

    fn most_mounts(&self) -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn may_make_in(&self, directory: &Path) -> bool {
        let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(directory, wanted).is_ok()
    }

    fn home_of(&self, user: &str) -> Option<PathBuf> {
        let users = start_of(Path::new("/etc/passwd"))?;
        let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
        line.split(':').nth(5).map(PathBuf::from).filter(|home| home.is_absolute())
    }

    fn disks(&self) -> Vec<(Links, PathBuf)> {
        disks().unwrap_or_default()
    }

    fn account(&self, uid: u32) -> (Option<String>, Option<PathBuf>) {
        let users = start_of(Path::new("/etc/passwd")).unwrap_or_default();
        let of = |uid: u32| {
            let uid = uid.to_string();
            users.lines().map(|line| line.split(':')).find(|fields| fields.clone().nth(2) == Some(&uid))
        };
        let mut found = of(uid).or_else(|| of(rustix::process::getuid().as_raw()));
        let (name, shell) = found.as_mut().map_or((None, None), |found| (found.next(), found.nth(5)));
        // Users of a directory service are in no file.
        let shell = shell.map(PathBuf::from).or_else(|| std::env::var_os("SHELL").map(PathBuf::from));
        let is_plain = |shell: &PathBuf| {
            shell.is_absolute() && !shell.to_string_lossy().contains([':', '\n']) && shell.exists()
        };
        (name.map(str::to_owned), shell.filter(is_plain))
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize().ok()
    }

    fn modules(&self, git: &Path) -> Option<Modules> {
        let mut found = Modules::default();
        let mut open = vec![git.join("modules"), git.join("worktrees")];
        let mut budget = self.max_entries();
        while let Some(current) = open.pop() {
            budget = budget.checked_sub(1)?;
            match self.look(&current) {
                Some(PathKind::Directory) => {}
                Some(PathKind::Symlink) => {
                    found.links.push(current);
                    continue;
                }
                _ => continue,
            }
            // Names of submodules may hold slashes, so that the directory of one may lie deeper.
            let is_module = is_module(&current);
            for entry in std::fs::read_dir(&current).into_iter().flatten().flatten() {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let may_lead_on = if is_module {
                    is_directory && !NO_MODULES.iter().any(|name| entry.file_name() == *name)
                } else {
                    true
                };
                if may_lead_on {
                    open.push(entry.path());
                }
            }
            if is_module {
                found.directories.push(current);
            }
        }
        found.directories.sort();
        Some(found)
    }

    fn shared_inode(&self, path: &Path) -> Option<(u64, u64)> {
        let found = path.symlink_metadata().ok().filter(|found| found.is_file() && found.nlink() > 1)?;
        Some((found.dev(), found.ino()))
    }

    fn names_of(&self, directory: &Path, files: &BTreeSet<(u64, u64)>) -> Vec<PathBuf> {
        let (mut found, mut left, mut waiting) = (Vec::new(), self.max_entries(), vec![directory.to_owned()]);
        // Which device an entry is on, only a look at each would say.
        let inodes: BTreeSet<u64> = files.iter().map(|(_, inode)| *inode).collect();
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                left = left.saturating_sub(1);
                if left == 0 {
                    return found;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                    Ok(kind) if kind.is_file() && inodes.contains(&entry.ino()) => {
                        found.extend(Some(entry.path()).filter(|path| {
                            self.shared_inode(path).is_some_and(|number| files.contains(&number))
                        }));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    fn git_directory(&self, file: &Path) -> Option<PathBuf> {
        let text = start_of(file)?;
        let named = text.lines().find_map(|line| line.strip_prefix("gitdir:"))?.trim();
        Some(plain(&file.parent()?.join(named)))
    }

    fn common_directory(&self, git: &Path) -> Option<PathBuf> {
        let text = start_of(&git.join(builtin_paths::GIT_COMMON))?;
        let named = text.lines().next().map(str::trim).filter(|named| !named.is_empty())?;
        Some(plain(&git.join(named)))
    }

    fn git_config(&self, config: &Path) -> Option<GitConfig> {
        start_of(config).map(|text| git_config::parse(&text))
    }
}

/// The path, or the one above it that is still near enough to the directory around to be guarded.
#[must_use]
pub fn outermost<'p>(path: &'p Path, around: &Path) -> &'p Path {
    let levels = path.strip_prefix(around).map_or(0, |below| below.components().count());
    let mut near = path.ancestors().skip(levels.saturating_sub(MAX_LEVELS));
    near.find(|above| above.as_os_str().len() <= MAX_LENGTH).unwrap_or(path)
}

fn of_kind(kind: std::fs::FileType) -> PathKind {
    if kind.is_dir() {
        PathKind::Directory
    } else if kind.is_file() {
        PathKind::File
    } else if kind.is_symlink() {
        PathKind::Symlink
    } else {
        PathKind::Special
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// `.git`, and what other systems call it.
fn is_version_control(name: &OsStr) -> bool {
    repository_names().any(|known| name == known)
}

/// The names under which version control keeps what it knows, at the top of a working tree.
pub fn repository_names() -> impl Iterator<Item = &'static str> {
    builtin_paths::OTHER_REPOSITORIES.iter().map(|(name, _)| *name).chain([".git"])
}

/// A name by which a directory may be a repository without a working tree of its own.
fn begins_bare(name: &OsStr) -> bool {
    name == OsStr::new(builtin_paths::GIT_BARE[0]) || name == OsStr::new(builtin_paths::GIT_COMMON)
}

/// A repository without a working tree of its own. Git follows links to its parts, and takes them from elsewhere where
/// `commondir` says so. What git keeps there beside, a sandbox may move away for a while.
#[must_use]
pub fn is_bare(directory: &Path) -> bool {
    let is_there = |name: &str| directory.join(name).symlink_metadata().is_ok();
    builtin_paths::GIT_BARE.iter().all(|name| directory.join(name).is_dir())
        || is_there(builtin_paths::GIT_COMMON) && is_there("HEAD")
}

/// A directory of a submodule or a linked working tree, even with some of its files moved away.
fn is_module(directory: &Path) -> bool {
    let files = ["HEAD", "config", "commondir", "gitdir", "index", "packed-refs"];
    let is_there = |name: &str, wants_directory: bool| {
        directory.join(name).symlink_metadata().is_ok_and(|found| found.is_dir() == wants_directory)
    };
    files.iter().any(|name| is_there(name, false)) || is_there(builtin_paths::GIT_BARE[0], true)
}

/// The first bytes of a small file of somebody else's.
fn start_of(file: &Path) -> Option<String> {
    let file = open_for_reading(file)?;
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let bytes = small_file::content_of(file, found.len(), MAX_CONFIGURATION).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn open_for_reading(file: &Path) -> Option<std::fs::File> {
    let nofollow = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(nofollow.bits().cast_signed()).open(file).ok()
}

/// Without `.` and `..`, by its letters.
#[must_use]
pub fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// `/proc/partitions` says the numbers of all that hold something; a disk that holds nothing has no partition, and asks for itself.
fn disks() -> std::io::Result<Vec<(Links, PathBuf)>> {
    const BLOCK: &str = "/sys/block";
    let mut found = Vec::new();
    let holding = proc_file::read("/proc/partitions").unwrap_or_default();
    let rows = || holding.lines().filter_map(numbered);
    for link in std::fs::read_dir(BLOCK)?.flatten().map(|entry| entry.path()) {
        if found.len() >= MAX_DISKS || is_unused(&link, &holding) {
            continue;
        }
        let Ok(to) = std::fs::read_link(&link) else { continue };
        // No part of it is a link.
        let device = plain(&Path::new(BLOCK).join(&to));
        let disk = device.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let mut parts: Vec<_> = rows().filter(|(name, _)| is_part(&disk, name)).collect();
        if !parts.iter().any(|(name, _)| *name == disk) {
            let number = proc_file::read(device.join("dev")).unwrap_or_default();
            parts.push((&disk, number.trim().to_owned()));
        }
        let mut links = vec![(link, to)];
        for (name, number) in parts.into_iter().filter(|(_, number)| !number.is_empty()) {
            let part = if name == disk { device.clone() } else { device.join(name) };
            links.push((Path::new("/sys/dev/block").join(number), part.clone()));
            links.push((Path::new("/sys/class/block").join(name), part));
        }
        found.push((links, device));
    }
    Ok(found)
}

/// The name and `major:minor` of a line of `/proc/partitions`.
fn numbered(line: &str) -> Option<(&str, String)> {
    let mut words = line.split_whitespace();
    let (major, minor, name) = (words.next()?, words.next()?, words.nth(1)?);
    major.parse::<u32>().is_ok().then(|| (name, format!("{major}:{minor}")))
}

/// A partition is called as its disk is, with a number behind it, and `p` before that where the disk's name ends in a digit.
fn is_part(disk: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let ends_in_digit = disk.ends_with(|letter: char| letter.is_ascii_digit());
    let number = if ends_in_digit { rest.strip_prefix('p').unwrap_or_default() } else { rest };
    rest.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// There may be many loop devices and memory disks that hold nothing. The first are in the kernel's list when they do.
fn is_unused(link: &Path, holding: &str) -> bool {
    let name = link.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let lists = |name: &str| holding.lines().filter_map(numbered).any(|(listed, _)| listed == name);
    if name.starts_with("loop") && holding.lines().count() > 2 {
        return !lists(name);
    }
    ["loop", "ram"].iter().any(|kind| name.starts_with(kind))
        && proc_file::read(link.join("size")).unwrap_or_default().trim() == "0"
}

/// Of a file or a directory.
fn small(path: &Path) -> Option<SmallTree> {
    let mut found: Vec<(PathBuf, Small)> = Vec::new();
    let mut waiting = vec![(path.to_owned(), FileType::RegularFile)];
    while let Some((current, kind)) = waiting.pop() {
        let small = match kind {
            FileType::Symlink => Small::Symlink { to: std::fs::read_link(&current).ok()? },
            FileType::RegularFile | FileType::Directory => {
                let (small, opened) = small_entry(&current)?;
                for entry in opened.map(rustix::fs::Dir::new).transpose().ok()?.into_iter().flatten() {
                    let entry = entry.ok()?;
                    let name = OsStr::from_bytes(entry.file_name().to_bytes());
                    if name != "." && name != ".." {
                        waiting.push((current.join(name), entry.file_type()));
                    }
                    if found.len() + waiting.len() >= SMALL_ENTRIES {
                        return None;
                    }
                }
                small
            }
            _ => return None,
        };
        found.push((current, small));
    }
    Some(found)
}

/// With the directory, where it is one. What is opened decides: it may have been replaced since it was looked at.
fn small_entry(path: &Path) -> Option<(Small, Option<std::fs::File>)> {
    const EVERYBODY_READS: u32 = 0o004;
    const EVERYBODY_ENTERS: u32 = 0o005;
    let file = open_for_reading(path)?;
    let found = file.metadata().ok()?;
    let (size, mode) = (found.len(), found.mode() & 0o777);
    if found.is_dir() {
        // Most file systems tell by the size that there are many entries; listing them would take longer than a mount.
        let is_small = size <= SMALL_DIRECTORY_BYTES && mode & EVERYBODY_ENTERS == EVERYBODY_ENTERS;
        return is_small.then_some((Small::Directory { mode }, Some(file)));
    }
    if !found.is_file() || size > SMALL_BYTES || mode & EVERYBODY_READS == 0 {
        return None;
    }
    let content = small_file::content_of(file, size, SMALL_BYTES + 1).ok()?;
    (content.len() as u64 <= SMALL_BYTES).then_some((Small::File { content, mode }, None))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_what_everybody_may_read_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "content").unwrap();
        set_mode(&file, 0o644);
        let expected = Small::File { content: b"content".to_vec(), mode: 0o644 };
        assert_eq!(small(&file), Some(vec![(file.clone(), expected)]));
        set_mode(&file, 0o640);
        assert_eq!(small(&file), None);
        set_mode(&file, 0o644);
        set_mode(directory.path(), 0o755);
        assert_eq!(small(directory.path()).unwrap().len(), 2);
        set_mode(directory.path(), 0o750);
        assert_eq!(small(directory.path()), None);
    }

    #[test]
    fn one_private_or_large_or_special_entry_makes_a_directory_a_mount() {
        let directory = tempfile::tempdir().unwrap();
        set_mode(directory.path(), 0o755);
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::os::unix::fs::symlink("../elsewhere", inner.join("link")).unwrap();
        let copied = small(directory.path()).unwrap();
        assert!(copied.contains(&(inner.join("link"), Small::Symlink { to: "../elsewhere".into() })));
        assert_eq!(copied.first().unwrap().0, directory.path());

        let secret = inner.join("secret");
        std::fs::write(&secret, "secret").unwrap();
        set_mode(&secret, 0o600);
        assert_eq!(small(directory.path()), None);
        std::fs::remove_file(&secret).unwrap();

        std::fs::write(inner.join("large"), vec![b'x'; usize::try_from(SMALL_BYTES).unwrap() + 1]).unwrap();
        assert_eq!(small(directory.path()), None);
        std::fs::remove_file(inner.join("large")).unwrap();

        let _socket = std::os::unix::net::UnixListener::bind(inner.join("socket")).unwrap();
        assert_eq!(small(directory.path()), None);
        std::fs::remove_file(inner.join("socket")).unwrap();

        for number in 0..SMALL_ENTRIES {
            std::fs::write(inner.join(number.to_string()), "").unwrap();
        }
        assert_eq!(small(directory.path()), None);
    }
}
