//! Opens a file inside a sandbox from outside, also after its processes have ended.
//!
//! Files on the sandbox's own file systems have no path on the host, so a child of the [`super::zygote`] enters the
//! namespaces and opens the file. It follows no links, does not block, and returns only regular files.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::control::{self, Answer, ZygoteRequest};
use super::remount_guards::Namespaces;
use super::zygote::Zygote;

/// Opens a file for reading; None if missing.
///
/// # Errors
/// When it is not a regular file, or the sandbox cannot be entered.
pub fn open(zygote: &Zygote, inside: &Namespaces, path: &Path) -> io::Result<Option<File>> {
    let order = ZygoteRequest::Visit { path: path.as_os_str().as_bytes().to_vec() };
    let (user, mount) = inside.descriptors();
    let socket = zygote.ask(&order, &[user, mount])?;
    match control::receive::<Answer>(socket.as_fd())? {
        Some((Answer::Opened, mut files)) => Ok(files.pop().map(File::from)),
        Some((Answer::Failed { cause: control::Cause::Missing, .. }, _)) => Ok(None),
        Some((Answer::Failed { message, .. }, _)) => Err(io::Error::other(message)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// In a child of the zygote: opens and reports.
pub(super) fn child(socket: BorrowedFd<'_>, path: Vec<u8>, namespaces: Vec<OwnedFd>) {
    use std::os::unix::ffi::OsStringExt;
    let path = PathBuf::from(std::ffi::OsString::from_vec(path));
    // A session that is gone needs no answer.
    let _ = match enter_and_open(&path, namespaces) {
        Ok(file) => control::send(socket, &Answer::Opened, &[file.as_fd()]),
        Err(error) => {
            let cause = control::Cause::of(&error);
            control::send(socket, &Answer::Failed { message: error.to_string(), cause }, &[])
        }
    };
}

fn enter_and_open(path: &Path, namespaces: Vec<OwnedFd>) -> io::Result<OwnedFd> {
    let [user, mount]: [OwnedFd; 2] =
        namespaces.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    nix::sched::setns(&user, CloneFlags::CLONE_NEWUSER)?;
    nix::sched::setns(&mount, CloneFlags::CLONE_NEWNS)?;
    let root = File::open("/")?;
    let below = path.strip_prefix("/").unwrap_or(path);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let file = rustix::fs::openat2(&root, below, flags, Mode::empty(), resolve)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}
