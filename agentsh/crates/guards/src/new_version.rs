//! A new version of a guarded file that a program renames or links over it: its difference, and how the session writes
//! it. The content is read once, so what is judged is what is written.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;

use super::difference;
use agentsh_host::copies::Copy;
use agentsh_registry::hex;
use agentsh_sandbox::mount_calls::open_without_links;
use agentsh_store::redact;

/// Size limit of one version.
const MAX_BYTES: u64 = 256 << 10;
/// Maximum difference that a person is shown: what is not shown cannot be approved.
const MAX_SHOWN: usize = 16 << 10;

/// Why a rename is not done.
pub enum Refusal {
    /// Not about a guarded file, as far as visible: the kernel decides.
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

/// A rename or link over a guarded file, with host paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewName {
    pub pid: u32,
    pub from: PathBuf,
    pub to: PathBuf,
    pub only_new: bool,
    pub is_link: bool,
}

/// A regular file with its content.
#[derive(Debug)]
pub struct Version {
    file: File,
    pub content: Vec<u8>,
    mode: u32,
}

impl Version {
    fn open(directory: BorrowedFd<'_>, name: &OsStr, access: OFlags) -> Result<Self, Refusal> {
        let open = |access: OFlags| {
            let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::openat(directory, name, flags, Mode::empty()).map(File::from)
        };
        let file = match open(access) {
            // A rename does not need write permission on its target, so the owner may get it for a moment.
            Err(Errno::ACCESS) if access == OFlags::RDWR => {
                let read = open(OFlags::RDONLY)?;
                let before = read.metadata()?.permissions();
                read.set_permissions(Permissions::from_mode(before.mode() | 0o200))?;
                let file = open(access);
                read.set_permissions(before)?;
                file?
            }
            file => file?,
        };
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(Refusal::Not);
        }
        let mut content = Vec::new();
        (&file).take(MAX_BYTES + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_BYTES {
            return Err(Refusal::Because("it is too large to compare".to_owned()));
        }
        Ok(Self { file, content, mode: found.mode() & 0o777 })
    }

    /// # Errors
    /// In words, if it is not text.
    pub fn text(&self) -> Result<&str, String> {
        std::str::from_utf8(&self.content).map_err(|_| "it is not UTF-8, so it cannot be compared".to_owned())
    }

    fn copy(&self) -> Copy {
        Copy::File { content: self.content.clone(), mode: self.mode }
    }
}

#[derive(Debug)]
pub struct Change {
    name: NewName,
    /// For the guarded file, and for the new version.
    directory: OwnedFd,
    beside: OwnedFd,
    /// None: it does not exist.
    pub old: Option<Version>,
    pub new: Version,
}

impl Change {
    /// # Errors
    /// [`Refusal::Not`] also if the caller could not rename it, or sees another file.
    pub fn read(name: &NewName) -> Result<Self, Refusal> {
        let NewName { pid, from, to, only_new, is_link } = name;
        let (directory, _) = open_both_views(*pid, to)?;
        let (beside, inside) = open_both_views(*pid, from)?;
        // A read-only file is not moved away.
        let flags = rustix::fs::fstatvfs(&inside)?.f_flag;
        if flags.contains(StatVfsMountFlags::RDONLY) && !is_link {
            return Err(Refusal::Not);
        }
        let new = Version::open(beside.as_fd(), last(from)?, OFlags::RDONLY)?;
        let same = rustix::fs::statat(&inside, last(from)?, AtFlags::SYMLINK_NOFOLLOW)?;
        if (same.st_dev, same.st_ino) != key(new.file.as_fd())? {
            return Err(Refusal::Not);
        }
        let old = match Version::open(directory.as_fd(), last(to)?, OFlags::RDWR) {
            Ok(_) if *only_new => return Err(Refusal::Not),
            Ok(old) => Some(old),
            Err(Refusal::Failed(Errno::NOENT)) => None,
            Err(Refusal::Failed(Errno::LOOP)) => {
                return Err(Refusal::Because("it is a symbolic link".to_owned()));
            }
            Err(error) => return Err(error),
        };
        let owner = |file: &File| file.metadata().map(|found| found.uid());
        if let Some(old) = &old
            && owner(&old.file)? != owner(&new.file)?
        {
            return Err(Refusal::Because("the new file belongs to another user".to_owned()));
        }
        Ok(Self { name: name.clone(), directory, beside, old, new })
    }

    /// The current text; empty if it does not exist.
    ///
    /// # Errors
    /// In words, if it is not text.
    pub fn old_text(&self) -> Result<&str, String> {
        self.old.as_ref().map_or(Ok(""), Version::text)
    }

    /// The difference for a person. None: no difference.
    ///
    /// # Errors
    /// Why it cannot be shown.
    pub fn difference(&self) -> Result<Option<String>, String> {
        let mut text = difference::lines_with_context(self.old_text()?, self.new.text()?);
        let mode = self.old.as_ref().map_or(0o644, |old| old.mode);
        if mode != self.new.mode {
            text.push_str(&format!("mode {mode:o} -> {:o}\n", self.new.mode));
        }
        let text = redact::redact_text(&text);
        match text.len() {
            0 if self.old.is_none() => Ok(Some("an empty file\n".to_owned())),
            0 => Ok(None),
            length if length > MAX_SHOWN => {
                Err(format!("its difference is longer than the {} KiB that are shown", MAX_SHOWN >> 10))
            }
            _ => Ok(Some(text)),
        }
    }

    /// Hash of everything that an answer is bound to.
    #[must_use]
    pub fn hash(&self) -> String {
        let old = self.old.as_ref().map(|old| hex(&old.content)).unwrap_or_default();
        hex(format!("{old} {} {:o}", hex(&self.new.content), self.new.mode).as_bytes())
    }

    /// Whether both are equal, byte for byte.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.old.as_ref().is_some_and(|old| old.content == self.new.content)
    }

    /// The old version.
    #[must_use]
    pub fn old_version(&self) -> Copy {
        self.old.as_ref().map_or(Copy::Absent, Version::copy)
    }

    /// Writes the new version over the compared one; `with_mode`: also its mode.
    ///
    /// # Errors
    /// When the target changed, or cannot be written.
    pub fn write(&self, with_mode: bool) -> Result<(), Refusal> {
        let new = &self.new;
        match &self.old {
            Some(old) => {
                let now = Version::open(self.directory.as_fd(), last(&self.name.to)?, OFlags::RDWR)?;
                if now.content != old.content {
                    return Err(Refusal::Because("another program changed it in the meantime".to_owned()));
                }
                if now.file.metadata()?.nlink() != 1 {
                    return Err(Refusal::Because("it has other hard links".to_owned()));
                }
                write_in_place(&now.file, &old.content, &new.content)?;
                if with_mode {
                    now.file.set_permissions(Permissions::from_mode(new.mode))?;
                }
            }
            None => self.make()?,
        }
        Ok(())
    }

    /// Created without a name, and linked when complete.
    fn make(&self) -> Result<(), Refusal> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.directory, ".", flags, Mode::from_raw_mode(0o600))?);
        file.write_all_at(&self.new.content, 0)?;
        let above = rustix::fs::fstat(&self.directory)?;
        std::os::unix::fs::fchown(&file, Some(above.st_uid), Some(above.st_gid))?;
        file.set_permissions(Permissions::from_mode(self.new.mode))?;
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, open, &self.directory, last(&self.name.to)?, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    /// Removes the renamed source, if unchanged.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn take_source(&self) -> Result<(), Refusal> {
        if self.name.is_link {
            return Ok(());
        }
        let name = last(&self.name.from)?;
        let still = rustix::fs::statat(&self.beside, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (still.st_dev, still.st_ino) == key(self.new.file.as_fd())? {
            rustix::fs::unlinkat(&self.beside, name, AtFlags::empty())?;
        }
        Ok(())
    }
}

fn last(path: &Path) -> Result<&OsStr, Refusal> {
    path.file_name().ok_or(Refusal::Not)
}

fn key(file: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(file).map(|found| (found.st_dev, found.st_ino))
}

/// A directory as the host and as a process sees it; [`Refusal::Not`] if they differ.
pub(super) fn open_both_views(pid: u32, path: &Path) -> Result<(OwnedFd, OwnedFd), Refusal> {
    let above = path.parent().ok_or(Refusal::Not)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let root = rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags | OFlags::CLOEXEC, Mode::empty())?;
    let below = above.strip_prefix("/").ok().filter(|below| !below.as_os_str().is_empty());
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let below = below.unwrap_or(Path::new("."));
    let inside = rustix::fs::openat2(root, below, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    let (Ok(inside), Ok(outside)) = (inside, open_without_links(above, flags)) else {
        return Err(Refusal::Not);
    };
    if key(inside.as_fd())? != key(outside.as_fd())? {
        return Err(Refusal::Not);
    }
    Ok((outside, inside))
}

/// Whether a process sees the host's file at a path, or none, in a directory that is not read-only.
#[must_use]
pub fn may_write(pid: u32, path: &Path) -> bool {
    let Ok((outside, inside)) = open_both_views(pid, path) else { return false };
    let (Some(name), Ok(mounted)) = (path.file_name(), rustix::fs::fstatvfs(&inside)) else { return false };
    let at = |directory: &OwnedFd| {
        let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        found.map(|found| (found.st_dev, found.st_ino))
    };
    !mounted.f_flag.contains(StatVfsMountFlags::RDONLY) && at(&outside) == at(&inside)
}

/// Writes into the file that is mounted inside, so that the guard stays. A concurrent reader sees a prefix of the old
/// or new text, never a mixture.
fn write_in_place(file: &File, old: &[u8], new: &[u8]) -> io::Result<()> {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let whole = new.get(..same).and_then(|same| same.iter().rposition(|byte| *byte == b'\n'));
    let kept = whole.map_or(0, |at| at + 1);
    let write = |text: &[u8]| {
        file.set_len(kept as u64)?;
        file.write_all_at(text.get(kept..).unwrap_or_default(), kept as u64)
    };
    write(new).inspect_err(|_| {
        // Disk full: there was space for the old text.
        let _ = write(old);
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn new_version_is_written_in_place() {
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

    /// Run by a process that sees the host's files.
    #[test]
    fn difference_of_a_new_version_is_shown_and_bound() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let name = NewName {
            pid: std::process::id(),
            from: top.join("new"),
            to: top.join("guarded"),
            only_new: false,
            is_link: false,
        };
        std::fs::write(&name.from, "one\n\x1b[2Jtwo\n").unwrap();
        let first = Change::read(&name).ok().unwrap();
        let shown = first.difference().unwrap().unwrap();
        assert!(shown.contains("+one\n+\\u{1b}[2Jtwo\n") && first.old.is_none(), "{shown}");
        first.write(true).ok().unwrap();
        first.take_source().ok().unwrap();
        assert!(!name.from.exists());
        assert_eq!(std::fs::read_to_string(&name.to).unwrap(), "one\n\x1b[2Jtwo\n");
        std::fs::write(&name.from, "three\n").unwrap();
        let second = Change::read(&name).ok().unwrap();
        assert_ne!(first.hash(), second.hash());
        // Another process was faster.
        std::fs::write(&name.to, "four\n").unwrap();
        assert!(matches!(second.write(true), Err(Refusal::Because(_))));
        std::fs::write(&name.from, "x\n".repeat(20_000)).unwrap();
        assert!(Change::read(&name).ok().unwrap().difference().is_err());
        std::fs::write(&name.from, [0xFF]).unwrap();
        assert!(Change::read(&name).ok().unwrap().difference().is_err());
    }
}
