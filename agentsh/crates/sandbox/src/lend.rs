//! Parts of a running sandbox's tree, for another sandbox of the same session: servers see the project's layer as the
//! agent does. A layer can be mounted once only, so that the others get mounts of that one.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use nix::sched::CloneFlags;
use rustix::mount::OpenTreeFlags;

use super::control::{self, Answer, Cause, MAX_DESCRIPTORS, ZygoteRequest};
use super::init;
use super::mend::{Namespaces, with_namespaces};
use super::mount_calls::open_in;
use super::stage::{StageContext, StageError};
use super::zygote::Zygote;

/// Detached mounts of these paths of a running sandbox, in this order.
///
/// # Errors
/// The step that failed, in words.
pub fn lend(zygote: &Zygote, inside: &Namespaces, paths: &[PathBuf]) -> Result<Vec<OwnedFd>, String> {
    if paths.len() > MAX_DESCRIPTORS {
        return Err(format!("more than {MAX_DESCRIPTORS} parts of the project are to be shown"));
    }
    ask(zygote, inside, paths).map_err(|error| error.to_string())
}

fn ask(zygote: &Zygote, inside: &Namespaces, paths: &[PathBuf]) -> Result<Vec<OwnedFd>, StageError> {
    let memory = rustix::fs::memfd_create("lend", rustix::fs::MemfdFlags::CLOEXEC).at("write the paths")?;
    let mut memory = File::from(memory);
    control::encoded(&paths).and_then(|bytes| memory.write_all(&bytes)).at("write the paths")?;
    let (user, mount) = inside.descriptors();
    let with = [memory.as_fd(), user, mount];
    let socket = zygote.ask(&ZygoteRequest::Lend, &with).at("ask for mounts")?;
    match control::receive::<Answer>(socket.as_fd()).at("wait for mounts")? {
        Some((Answer::Lent, mounts)) if mounts.len() == paths.len() => Ok(mounts),
        Some((Answer::Failed { message, .. }, _)) => Err(io::Error::other(message)).at("show the project"),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)).at("wait for mounts"),
    }
}

/// In a child of the zygote: does the work and tells.
pub(super) fn child(socket: BorrowedFd<'_>, descriptors: Vec<OwnedFd>) {
    // A session that is gone needs no answer.
    let _ = match work(descriptors) {
        Ok(mounts) => {
            let mounts: Vec<BorrowedFd<'_>> = mounts.iter().map(AsFd::as_fd).collect();
            control::send(socket, &Answer::Lent, &mounts)
        }
        Err(error) => {
            control::send(socket, &Answer::Failed { message: error.to_string(), cause: Cause::Other }, &[])
        }
    };
}

fn work(descriptors: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, StageError> {
    let Ok([memory, user, mount]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        return Err(io::Error::from(io::ErrorKind::InvalidData)).at("read the paths");
    };
    let paths: Vec<PathBuf> = init::read_sent(memory)?;
    nix::sched::setns(&user, CloneFlags::CLONE_NEWUSER).at("enter the user namespace")?;
    // A detached mount counts as a namespace.
    with_namespaces(|| {
        nix::sched::setns(&mount, CloneFlags::CLONE_NEWNS).at("enter the sandbox's mounts")?;
        let root = File::open("/").at("open the sandbox's root")?;
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let lend = |path: &PathBuf| {
            let at = open_in(root.as_fd(), path).on("open", path.display())?;
            rustix::mount::open_tree(at, "", flags).on("open", path.display())
        };
        paths.iter().map(lend).collect()
    })
}
