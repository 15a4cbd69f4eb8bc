//! Deletes directory trees of any depth.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Removes a tree in which a program may have closed directories, and the kernel's own, which has no permissions.
///
/// # Errors
/// When something in it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    let here = rustix::fs::CWD;
    let root = open(here, path.as_os_str())?;
    let mut lifted = 0;
    loop {
        let names = names(&root)?;
        if names.is_empty() {
            return fs::remove_dir(path);
        }
        for name in names {
            let name = OsStr::from_bytes(name.to_bytes());
            if !unlink(root.as_fd(), name)? {
                move_to_root(&root, name, &mut lifted)?;
                rustix::fs::unlinkat(&root, name, AtFlags::REMOVEDIR)?;
            }
        }
    }
}

/// Directories in a directory go up to the root, so that no path has more than two names; the rest is removed.
fn move_to_root(root: &OwnedFd, name: &OsStr, lifted: &mut u64) -> io::Result<()> {
    let directory = open(root.as_fd(), name)?;
    for inner in names(&directory)? {
        let inner = OsStr::from_bytes(inner.to_bytes());
        if unlink(directory.as_fd(), inner)? {
            continue;
        }
        // Moving a directory requires write access to it.
        drop(open(directory.as_fd(), inner)?);
        loop {
            *lifted += 1;
            let to = format!("lifted-{lifted}");
            match rustix::fs::renameat_with(&directory, inner, root, &to, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                other => break other?,
            }
        }
    }
    Ok(())
}

/// False: it is a directory.
fn unlink(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        return Ok(false);
    }
    rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
    Ok(true)
}

/// A directory, opened to its owner first where it is closed.
fn open(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if found.st_mode & 0o700 != 0o700 {
        rustix::fs::chmodat(parent, name, Mode::from_raw_mode(0o700), AtFlags::empty())?;
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if ![b".".as_slice(), b".."].contains(&name.to_bytes()) {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn deep_tree_is_deleted_without_following_links() {
        let place = tempfile::tempdir().unwrap();
        let (root, kept) = (place.path().join("gone"), place.path().join("kept"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        let mut at = open(rustix::fs::CWD, root.as_os_str()).unwrap();
        for depth in 0..1500 {
            let name = format!("{depth}-a-long-name");
            for name in [name.as_str(), "lifted-1"] {
                rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o700)).unwrap();
            }
            rustix::fs::symlinkat(&kept, &at, "link").unwrap();
            let next = open(at.as_fd(), OsStr::new(&name)).unwrap();
            if depth % 7 == 0 {
                rustix::fs::fchmod(&at, Mode::empty()).unwrap();
            }
            at = next;
        }
        remove(&root).unwrap();
        assert!(!root.exists() && kept.join("file").exists());
    }
}
