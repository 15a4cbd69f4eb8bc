//! A file of a sandbox, opened from outside: also after everything in it has ended.
//!
//! What lies in the sandbox's own file systems has no name on the host. A child of the [`super::zygote`] enters the
//! namespaces, as one that [`super::mend`]s does, opens the file there and hands it back. What runs inside may have put
//! anything at the name: no link is followed, nothing is waited for, and only a regular file is given.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::control::{self, Answer, ZygoteRequest};
use super::mend::Namespaces;
use super::zygote::Zygote;

/// Opens a file for reading; None when there is none.
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

/// In the child of the zygote: opens and tells.
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
