//! Opens files below one directory: every name is resolved beneath one descriptor, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The metadata of a name that show whether it was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub inode: u64,
    pub size: u64,
    pub modified_ns: i64,
    pub changed_ns: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Link,
    /// How a layer says that something was removed.
    Whiteout,
    /// Sockets, pipes, devices.
    Special,
    /// A directory that its owner cannot list.
    Closed,
}

/// A longer file, which may be nothing but a hole, is not read: a disk takes minutes for it.
pub const MAX_FILE_BYTES: u64 = 64 << 30;

impl Stamp {
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        self.kind == Kind::File && self.size > MAX_FILE_BYTES
    }

    #[must_use]
    pub fn of(stat: &Stat) -> Self {
        let nanoseconds =
            |seconds: i64, rest: u64| seconds.saturating_mul(1_000_000_000).saturating_add_unsigned(rest);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            FileType::CharacterDevice if stat.st_rdev == 0 => Kind::Whiteout,
            _ => Kind::Special,
        };
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether it is unchanged. The content of a directory is compared separately.
    #[must_use]
    pub fn is_unchanged(&self, now: &Self) -> bool {
        if self.kind == Kind::Directory {
            return now.kind == Kind::Directory && now.mode == self.mode;
        }
        self == now
    }

    /// Like [`Self::is_unchanged`], for a renamed file, of which only the directory entry changed.
    #[must_use]
    pub fn is_unchanged_but_for_its_name(&self, now: &Self) -> bool {
        self.is_unchanged(&Self { changed_ns: self.changed_ns, ..now.clone() })
    }

    /// The bits that are ever given to something outside: never set-id.
    #[must_use]
    pub fn given_mode(&self) -> u32 {
        match self.kind {
            Kind::Directory => self.mode & 0o1777,
            _ => self.mode & 0o777,
        }
    }
}

/// Maximum length of a path that the kernel accepts in one call (`PATH_MAX`, with some room to spare).
const MAX_LENGTH: usize = 4000;

/// A path in pieces that the kernel accepts, each below the previous one.
fn pieces(path: &Path) -> Vec<PathBuf> {
    if path.as_os_str().len() <= MAX_LENGTH {
        return vec![path.to_owned()];
    }
    let mut pieces: Vec<PathBuf> = Vec::new();
    for part in path.components() {
        let length = part.as_os_str().len() + 1;
        match pieces.last_mut().filter(|piece| piece.as_os_str().len() + length <= MAX_LENGTH) {
            Some(piece) => piece.push(part),
            None => pieces.push(PathBuf::from(part.as_os_str())),
        }
    }
    pieces
}

#[derive(Debug)]
pub struct DirectoryHandle {
    root: OwnedFd,
}

impl DirectoryHandle {
    /// # Errors
    /// When the directory cannot be opened, or lies behind a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::RDONLY;
        let root = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        Ok(Self { root })
    }

    fn at(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let open = |from: BorrowedFd<'_>, path: &Path, flags: OFlags| {
            let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::openat2(from, path, flags, Mode::empty(), resolve)
        };
        let mut pieces = pieces(path);
        let last = pieces.pop().unwrap_or_else(|| path.to_owned());
        let mut above: Option<OwnedFd> = None;
        for piece in pieces {
            let from = above.as_ref().unwrap_or(&self.root).as_fd();
            above = Some(open(from, &piece, OFlags::PATH | OFlags::DIRECTORY)?);
        }
        open(above.as_ref().unwrap_or(&self.root).as_fd(), &last, flags)
    }

    /// The directory in which a path is a name.
    ///
    /// # Errors
    /// When that directory does not exist, or a component of its path is a link.
    pub fn parent<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let above = path.parent().unwrap_or(Path::new(""));
        Ok((self.at(above, OFlags::RDONLY | OFlags::DIRECTORY)?, name))
    }

    /// None if the path does not exist, or a parent is missing or not a directory.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn stamp(&self, path: &Path) -> io::Result<Option<Stamp>> {
        match self.at(path, OFlags::PATH) {
            Ok(found) => Ok(Some(Stamp::of(&rustix::fs::fstat(found)?))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A regular file, for reading.
    ///
    /// # Errors
    /// When it is none, or closed to us.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        let file = File::from(self.at(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// The content of a file of at most `most` bytes; None for a larger one.
    ///
    /// # Errors
    /// Like [`Self::file`].
    pub fn content(&self, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
        let mut content = Vec::new();
        self.file(path)?.take(most + 1).read_to_end(&mut content)?;
        Ok((content.len() as u64 <= most).then_some(content))
    }

    /// # Errors
    /// When it is not a link.
    pub fn link(&self, path: &Path) -> io::Result<OsString> {
        let link = self.at(path, OFlags::PATH)?;
        let to = rustix::fs::readlinkat(link, "", Vec::new())?;
        Ok(OsString::from_vec(to.into_bytes()))
    }

    /// Names in a directory with what they are, in order.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn names(&self, path: &Path) -> io::Result<Vec<(OsString, Stamp)>> {
        let directory = self.at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => names.push((name.to_owned(), Stamp::of(&stat))),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        names.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(names)
    }

    /// An extended attribute of a file or directory; None where it has none of this name.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn attribute(&self, path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
        let found = self.at(path, OFlags::PATH)?;
        let place = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
        let mut value = [0_u8; 256];
        match rustix::fs::getxattr(place, name, &mut value) {
            Ok(length) => Ok(Some(value.get(..length).unwrap_or_default().to_vec())),
            // A file that its owner cannot read has no attributes that could be copied.
            Err(Errno::NODATA | Errno::NOTSUP | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether two files hold the same bytes.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn is_same_file(&self, path: &Path, other: &Self) -> io::Result<bool> {
        let (one, two) = (self.file(path)?, other.file(path)?);
        if one.metadata()?.len() != two.metadata()?.len() {
            return Ok(false);
        }
        Ok(hash(one)? == hash(two)?)
    }

    /// # Errors
    /// When there are no descriptors left.
    pub fn root(&self) -> io::Result<OwnedFd> {
        self.root.as_fd().try_clone_to_owned()
    }
}

/// SHA-256 of what is left to read.
///
/// # Errors
/// When it cannot be read.
pub fn hash(mut from: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0_u8; 128 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => break,
            length => hash.update(buffer.get(..length).unwrap_or_default()),
        }
    }
    Ok(agentsh_base::hex(&hash.finalize()))
}

/// Paths in JSON: any bytes.
pub mod bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Vec::<u8>::deserialize(deserializer).map(|bytes| OsString::from_vec(bytes).into())
    }
}
