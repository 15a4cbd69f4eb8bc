//! Opens and hashes one file, always through the descriptor that is kept, never by a second lookup.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use agentsh_base::words;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use sha2::{Digest, Sha256};

use super::PinError;
pub use crate::types::FileKey;

/// Files and bytes that one command may bring along, over all of its trees.
pub const MAX_FILES: u64 = 60_000;
/// Bytes, as above.
pub const MAX_BYTES: u64 = 2 << 30;
/// Directory entries looked at, also those that a filter leaves out.
pub(super) const MAX_ENTRIES: u64 = 240_000;

/// A file system may give two writes that follow each other closely the same timestamp.
const RACY_NANOSECONDS: i64 = 2_000_000_000;
const CHUNK: usize = 256 * 1024;
const PROGRESS_BYTES: u64 = 8 << 20;

/// Remembers digests of files that did not change. Only keys whose ctime was more than 2 s old when the bytes
/// were read are ever asked for or stored: a younger file could change again without a new timestamp.
pub trait DigestCache {
    fn lookup(&mut self, key: &FileKey) -> Option<[u8; 32]>;
    fn store(&mut self, key: FileKey, digest: [u8; 32]);
}

/// Remembers nothing.
#[derive(Debug, Default)]
pub struct NoCache;

impl DigestCache for NoCache {
    fn lookup(&mut self, _key: &FileKey) -> Option<[u8; 32]> {
        None
    }
    fn store(&mut self, _key: FileKey, _digest: [u8; 32]) {}
}

/// How far hashing is: called every 8 MiB of a big file and every 256 files.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The file that is read now.
    pub path: &'a Path,
    /// Bytes of this file that are done, and its size.
    pub done: u64,
    pub total: u64,
    /// Files hashed so far, over all trees.
    pub files: u64,
}

words! {
    #[derive(PartialOrd, Ord)]
    pub enum Role: name {
        /// Reads the entry: node, python, a shell.
        Interpreter = "interpreter",
        /// The script that the interpreter gets as an argument, or one that it loads before that script.
        Entry = "entry",
        /// A program that the kernel runs itself.
        Executable = "executable",
    }
}

/// One file that was opened, hashed and kept open. `file` reads the bytes that were hashed even if the path names
/// another file meanwhile.
#[derive(Debug)]
pub struct PinnedFile {
    /// Absolute, without links.
    pub path: PathBuf,
    pub role: Role,
    /// Bytes.
    pub size: u64,
    pub sha256: [u8; 32],
    /// `O_RDONLY | O_NOFOLLOW | O_CLOEXEC`.
    pub file: File,
    /// Only root can replace it: the file and every directory above it belong to root, and no other user may write.
    pub system_owned: bool,
    pub(super) stamp: Stamp,
}

impl PinnedFile {
    /// Fails when the path no longer names the file that was hashed, or its bytes may have changed.
    pub(super) fn unchanged_since(&self) -> Result<(), PinError> {
        self.stamp.check(&self.path, &self.path, self.sha256)
    }
}

/// The version of a file at the time its bytes were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub key: FileKey,
    /// Whether the file was so new when read that its timestamps prove nothing.
    pub racy: bool,
}

impl Stamp {
    pub fn of(key: FileKey) -> Self {
        Self { key, racy: is_racy(&key, now_ns()) }
    }

    /// `path` is opened, `shown` named in the error.
    pub fn check(&self, path: &Path, shown: &Path, sha256: [u8; 32]) -> Result<(), PinError> {
        let changed = || PinError::ChangedSince { path: shown.to_owned() };
        if !self.racy {
            let stat = rustix::fs::lstat(path).map_err(|_| changed())?;
            return if key_of(&stat) == self.key { Ok(()) } else { Err(changed()) };
        }
        let file = open_at(CWD, path, path).map_err(|_| changed())?;
        let (digest, key) = digest_of(&file, path, &mut |_, _| ())?;
        if key == self.key && digest == sha256 { Ok(()) } else { Err(changed()) }
    }
}

/// Hashes for one resolution and keeps count of what it may still read.
pub(super) struct Hasher<'a> {
    cache: &'a mut dyn DigestCache,
    progress: &'a mut dyn FnMut(Progress<'_>),
    /// Big files that were read already: an entry also is in its tree.
    read: std::collections::BTreeMap<FileKey, [u8; 32]>,
    files: u64,
    bytes: u64,
    pub entries: u64,
}

impl<'a> Hasher<'a> {
    pub fn new(cache: &'a mut dyn DigestCache, progress: &'a mut dyn FnMut(Progress<'_>)) -> Self {
        Self { cache, progress, read: std::collections::BTreeMap::new(), files: 0, bytes: 0, entries: 0 }
    }

    /// Opens `path`, which must have no link in it, and pins its bytes.
    pub fn pin(&mut self, path: &Path, role: Role) -> Result<PinnedFile, PinError> {
        let file = open(path)?;
        let (sha256, stamp) = self.hash(&file, path)?;
        Ok(PinnedFile {
            path: path.to_owned(),
            role,
            size: stamp.key.size,
            sha256,
            file,
            system_owned: system_owned(path),
            stamp,
        })
    }

    /// Like `hash`, counted against the limits of a tree.
    pub fn hash_in_tree(
        &mut self,
        file: &File,
        path: &Path,
        root: &Path,
    ) -> Result<([u8; 32], Stamp), PinError> {
        let too_large = |limit| PinError::TooLarge { root: root.to_owned(), limit };
        let size = file.metadata().map_err(|source| PinError::io(path, source))?.size();
        self.bytes = self.bytes.saturating_add(size);
        if self.files >= MAX_FILES {
            return Err(too_large("60000 files"));
        }
        if self.bytes > MAX_BYTES {
            return Err(too_large("2 GiB"));
        }
        self.hash(file, path)
    }

    fn hash(&mut self, file: &File, path: &Path) -> Result<([u8; 32], Stamp), PinError> {
        let now = now_ns();
        let before = key_of(&rustix::fs::fstat(file).map_err(|source| PinError::io(path, source))?);
        let racy = is_racy(&before, now);
        self.files = self.files.saturating_add(1);
        let files = self.files;
        if files.is_multiple_of(256) {
            (self.progress)(Progress { path, done: 0, total: before.size, files });
        }
        let known =
            if racy { None } else { self.read.get(&before).copied().or_else(|| self.cache.lookup(&before)) };
        if let Some(digest) = known {
            return Ok((digest, Stamp { key: before, racy }));
        }
        let progress = &mut *self.progress;
        let (digest, after) = digest_of(file, path, &mut |done, total| {
            progress(Progress { path, done, total, files });
        })?;
        if after != before {
            return Err(PinError::Changing { path: path.to_owned() });
        }
        if !racy {
            self.cache.store(before, digest);
            if before.size > CHUNK as u64 {
                self.read.insert(before, digest);
            }
        }
        Ok((digest, Stamp { key: before, racy }))
    }
}

/// Opens a regular file by a path that has no link in it. Never waits for a FIFO's other end.
pub(super) fn open(path: &Path) -> Result<File, PinError> {
    match rustix::fs::openat2(CWD, path, FLAGS, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(descriptor) => regular(descriptor, path),
        // Kernels before 5.6, and filters that hide the call: the last component is still never followed.
        Err(rustix::io::Errno::NOSYS) => open_at(CWD, path, path),
        Err(source) => Err(PinError::io(path, source)),
    }
}

/// Like `open`, for one name inside an open directory.
pub(super) fn open_at(directory: impl AsFd, name: &Path, shown: &Path) -> Result<File, PinError> {
    let descriptor = rustix::fs::openat(directory, name, FLAGS, Mode::empty())
        .map_err(|source| PinError::io(shown, source))?;
    regular(descriptor, shown)
}

const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

fn regular(descriptor: OwnedFd, path: &Path) -> Result<File, PinError> {
    let stat = rustix::fs::fstat(&descriptor).map_err(|source| PinError::io(path, source))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(File::from(descriptor)),
        other => Err(PinError::NotRegular { path: path.to_owned(), kind: kind_name(other) }),
    }
}

pub(super) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        _ => "special file",
    }
}

/// Reads from the start, whatever the position of the descriptor is, and says which version was read.
fn digest_of(
    mut file: &File,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<([u8; 32], FileKey), PinError> {
    let io = |source: std::io::Error| PinError::io(path, source);
    std::io::Seek::rewind(&mut file).map_err(io)?;
    let total = file.metadata().map_err(io)?.size();
    let mut buffer = vec![0u8; CHUNK.min(usize::try_from(total).unwrap_or(CHUNK).saturating_add(1))];
    let mut hash = Sha256::new();
    let (mut done, mut told) = (0u64, 0u64);
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(io(error)),
        };
        hash.update(buffer.get(..read).unwrap_or_default());
        done = done.saturating_add(read as u64);
        // A file that grows as fast as it is read would never end.
        if done > total {
            return Err(PinError::Changing { path: path.to_owned() });
        }
        if done - told >= PROGRESS_BYTES {
            told = done;
            progress(done, total);
        }
    }
    std::io::Seek::rewind(&mut file).map_err(io)?;
    let key = key_of(&rustix::fs::fstat(file).map_err(|source| PinError::io(path, source))?);
    Ok((hash.finalize().into(), key))
}

pub(super) fn key_of(stat: &rustix::fs::Stat) -> FileKey {
    let nanoseconds = |seconds: i64, rest: u64| {
        seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(rest).unwrap_or(0))
    };
    FileKey {
        dev: stat.st_dev,
        ino: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn is_racy(key: &FileKey, now: i64) -> bool {
    key.ctime_ns > now.saturating_sub(RACY_NANOSECONDS)
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Only root can change what this absolute path names. A sticky directory such as `/tmp` does not count: others
/// may create what is not there yet.
pub(super) fn system_owned(path: &Path) -> bool {
    path.is_absolute()
        && path.ancestors().all(|part| {
            rustix::fs::lstat(part).is_ok_and(|stat| stat.st_uid == 0 && stat.st_mode & 0o022 == 0)
        })
}

/// Part of the distribution's own directories and `system_owned`: what is not hashed file by file. When agentsh
/// runs as root everything of root's is `system_owned`, so the place counts too.
pub(super) fn is_distribution(path: &Path) -> bool {
    const PLACES: [&str; 6] = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/nix/store"];
    PLACES.iter().any(|place| path.starts_with(place)) && system_owned(path)
}

#[must_use]
pub(super) fn hex(digest: &[u8; 32]) -> String {
    format!("sha256:{}", agentsh_base::hex(digest))
}
