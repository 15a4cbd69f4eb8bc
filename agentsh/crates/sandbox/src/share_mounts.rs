//! Parts of a running sandbox's tree, for another sandbox of the same session: servers see the project's layer as the
//! agent does. A layer can be mounted only once, so the others get mounts of that one.
//!
//! Also keeps names in place while another sandbox starts from them (decision 780). The kernel refuses to rename or remove a mount
//! point of the caller's own tree: each name gets a mount, in a copy of the tree that nobody inside can reach.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use rustix::mount::{OpenTreeFlags, UnmountFlags};
use serde::{Deserialize, Serialize};

use super::control::{MAX_DESCRIPTORS, ZygoteRequest};
use super::init;
use super::layout::HELD_DIRECTORY;
use super::mount_calls::{attach, open_in, restrict};
use super::plan::Access;
use super::remount_guards::{Namespaces, order, with_namespaces};
use super::stage::{StageContext, StageError};
use super::zygote::Zygote;

/// In [`HELD_DIRECTORY`], which is closed to everybody inside: where the copy of the tree is mounted.
pub(super) const HELD_TREE: &str = "tree";

#[derive(Debug, Serialize, Deserialize)]
enum ShareMountJob {
    Lend(Vec<PathBuf>),
    /// A directory, and names below it, each after the directory that holds it.
    Hold(PathBuf, Vec<PathBuf>),
    Release,
}

/// Detached mounts of these paths of a running sandbox, in this order.
///
/// # Errors
/// The failed step, in words.
pub fn share_mounts(zygote: &Zygote, inside: &Namespaces, paths: &[PathBuf]) -> Result<Vec<OwnedFd>, String> {
    if paths.len() > MAX_DESCRIPTORS {
        return Err(format!("more than {MAX_DESCRIPTORS} parts of the project are to be shown"));
    }
    let mounts = ask(zygote, inside, &ShareMountJob::Lend(paths.to_owned()))?;
    if mounts.len() == paths.len() { Ok(mounts) } else { Err("parts of the project are missing".to_owned()) }
}

/// Until [`release`], nobody inside can rename or remove `names`. They are below `root`, each after its parent directory.
///
/// # Errors
/// A sentence; also if a process inside renamed one of them.
pub fn hold(zygote: &Zygote, inside: &Namespaces, root: &Path, names: Vec<PathBuf>) -> Result<(), String> {
    ask(zygote, inside, &ShareMountJob::Hold(root.to_owned(), names)).map(drop)
}

/// Gives up every name that is held.
///
/// # Errors
/// In words.
pub fn release(zygote: &Zygote, inside: &Namespaces) -> Result<(), String> {
    ask(zygote, inside, &ShareMountJob::Release).map(drop)
}

fn ask(zygote: &Zygote, inside: &Namespaces, job: &ShareMountJob) -> Result<Vec<OwnedFd>, String> {
    order(zygote, &ZygoteRequest::Lend, inside, job, &[]).map_err(|error| error.to_string())
}

/// In a child of the zygote.
pub(super) fn work(descriptors: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, StageError> {
    let Ok([memory, user, mount]) = <[OwnedFd; 3]>::try_from(descriptors) else {
        return Err(io::Error::from(io::ErrorKind::InvalidData)).at("read the paths");
    };
    let job: ShareMountJob = init::read_sent(memory)?;
    nix::sched::setns(&user, CloneFlags::CLONE_NEWUSER).at("enter the user namespace")?;
    // A detached mount counts as a namespace.
    with_namespaces(|| {
        nix::sched::setns(&mount, CloneFlags::CLONE_NEWNS).at("enter the sandbox's mounts")?;
        let root = File::open("/").at("open the sandbox's root")?;
        let (root, held) = (root.as_fd(), Path::new(HELD_DIRECTORY).join(HELD_TREE));
        match job {
            ShareMountJob::Lend(paths) => paths.iter().map(|path| clone_in(root, path)).collect(),
            ShareMountJob::Hold(top, names) => hold_in(root, &held, &top, &names).map(|()| Vec::new()),
            ShareMountJob::Release => {
                // Mounts may be stacked.
                while rustix::mount::unmount(&held, UnmountFlags::DETACH).is_ok() {}
                Ok(Vec::new())
            }
        }
    })
}

fn clone_in(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, StageError> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let at = open_in(root, path).on("open", path.display())?;
    rustix::mount::open_tree(at, "", flags).on("open", path.display())
}

fn hold_in(root: BorrowedFd<'_>, held: &Path, top: &Path, names: &[PathBuf]) -> Result<(), StageError> {
    let mount = |tree: &OwnedFd, at: &Path| {
        let at = open_in(root, at).on("open", at.display())?;
        attach(tree.as_fd(), at.as_fd()).at("mount")
    };
    let tree = clone_in(root, top)?;
    restrict(tree.as_fd(), Access::ReadOnly, false, false).on("restrict mount", top.display())?;
    mount(&tree, held)?;
    let below = |name: &PathBuf| name.strip_prefix(top).map(|below| held.join(below));
    let names: Vec<PathBuf> = names.iter().filter_map(|name| below(name).ok()).collect();
    for name in &names {
        mount(&clone_in(root, name)?, name)?;
    }
    // A name with a mount on it is held.
    for name in &names {
        let at = open_in(root, name).on("open", name.display())?;
        let found = rustix::fs::statx(at, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
        if !found.on("look at", name.display())?.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Err(io::Error::other("it was renamed meanwhile")).on("hold", name.display());
        }
    }
    Ok(())
}
