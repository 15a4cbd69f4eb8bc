//! Remounts guards in a running sandbox, after the host renamed or removed what they were mounted on.
//!
//! A child of the [`super::zygote`] does it, because only a single-threaded process may enter a user namespace. It
//! enters that namespace with a copy of the host's mounts and opens the sources, then enters the sandbox's mount
//! namespace and attaches them. Processes in the sandbox cannot see it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use nix::sched::CloneFlags;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountPropagationFlags, OpenTreeFlags};
use serde::{Deserialize, Serialize};

use super::control::{self, Answer, Cause, ZygoteRequest};
use super::init;
use super::mount_calls::{attach, open_in, open_path, relative, restrict, tmpfs};
use super::plan::{Access, Executable, Identity, Mount, NodeContent, Source};
use super::stage::{StageContext, StageError};
use super::zygote::Zygote;

/// The limit of mount namespaces in the user namespace of the opener.
const MOUNT_NAMESPACES: &str = "/proc/sys/user/max_mnt_namespaces";

/// Limit of detached mounts in one message.
const MAX_AT_ONCE: usize = 100;

/// The two namespaces of a sandbox that mounts are made in, open so that they can be entered later. Clones share the descriptors.
#[derive(Clone, Debug)]
pub struct Namespaces(Arc<Descriptors>);

#[derive(Debug)]
struct Descriptors {
    user: OwnedFd,
    mount: OwnedFd,
}

impl Namespaces {
    /// The namespaces of a new pid 1. Later its files in /proc are closed to its own user.
    ///
    /// # Errors
    /// When it is gone.
    pub fn of(pid: u32) -> io::Result<Self> {
        let open = |name: &str| File::open(Path::new("/proc").join(pid.to_string()).join("ns").join(name));
        Ok(Self(Arc::new(Descriptors { user: open("user")?.into(), mount: open("mnt")?.into() })))
    }

    /// The descriptors, to be closed; empty while there are other clones.
    #[must_use]
    pub fn into_descriptors(self) -> Vec<OwnedFd> {
        Arc::into_inner(self.0).map(|last| vec![last.user, last.mount]).unwrap_or_default()
    }

    pub(super) fn descriptors(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.0.user.as_fd(), self.0.mount.as_fd())
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RemountJob {
    identity: Identity,
    executable: Executable,
    mounts: Vec<Mount>,
}

/// Mounts in a running sandbox, in this order. `passed` are the detached mounts that sources refer to.
///
/// # Errors
/// The failed step, in words; earlier mounts remain.
pub fn remount(
    zygote: &Zygote,
    inside: &Namespaces,
    (identity, executable): (Identity, &Executable),
    mounts: Vec<Mount>,
    passed: &[OwnedFd],
) -> Result<(), String> {
    for some in mounts.chunks(MAX_AT_ONCE) {
        let mut mounts = some.to_vec();
        let mut of_these: Vec<BorrowedFd<'_>> = Vec::new();
        for mount in &mut mounts {
            if let NodeContent::Bind { source: Source::Detached(index), .. } = &mut mount.what {
                of_these.extend(passed.get(*index).map(AsFd::as_fd));
                *index = of_these.len().saturating_sub(1);
            }
        }
        let job = RemountJob { identity, executable: executable.clone(), mounts };
        order(zygote, &ZygoteRequest::Mend, inside, &job, &of_these).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The answer of a child of the zygote that works in a sandbox.
pub(super) fn order(
    zygote: &Zygote,
    request: &ZygoteRequest,
    inside: &Namespaces,
    job: &impl Serialize,
    passed: &[BorrowedFd<'_>],
) -> Result<Vec<OwnedFd>, StageError> {
    let memory =
        rustix::fs::memfd_create("mounts", rustix::fs::MemfdFlags::CLOEXEC).at("write the mounts")?;
    let mut memory = File::from(memory);
    control::encoded(job).and_then(|bytes| memory.write_all(&bytes)).at("write the mounts")?;
    let (user, mount) = inside.descriptors();
    let mut descriptors = vec![memory.as_fd(), user, mount];
    descriptors.extend(passed);
    let socket = zygote.ask(request, &descriptors).at("ask for mounts")?;
    match control::receive::<Answer>(socket.as_fd()).at("wait for mounts")? {
        Some((Answer::Mounted, mounts)) => Ok(mounts),
        Some((Answer::Failed { message, .. }, _)) => Err(io::Error::other(message)).at("change mounts"),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)).at("wait for mounts"),
    }
}

/// In a child of the zygote: reports the result.
pub(super) fn send_result(socket: BorrowedFd<'_>, done: Result<Vec<OwnedFd>, StageError>) {
    // A session that is gone needs no answer.
    let _ = match done {
        Ok(mounts) => {
            let mounts: Vec<BorrowedFd<'_>> = mounts.iter().map(AsFd::as_fd).collect();
            control::send(socket, &Answer::Mounted, &mounts)
        }
        Err(error) => {
            control::send(socket, &Answer::Failed { message: error.to_string(), cause: Cause::Other }, &[])
        }
    };
}

/// In the child of the zygote.
pub(super) fn work(descriptors: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, StageError> {
    let mut descriptors = descriptors.into_iter();
    let (Some(memory), Some(user), Some(mount)) =
        (descriptors.next(), descriptors.next(), descriptors.next())
    else {
        return Err(io::Error::from(io::ErrorKind::InvalidData)).at("read the mounts");
    };
    let mut passed: Vec<Option<OwnedFd>> = descriptors.map(Some).collect();
    let RemountJob { identity, executable, mounts } = init::read_sent(memory)?;

    nix::sched::setns(&user, CloneFlags::CLONE_NEWUSER).at("enter the user namespace")?;
    // Inside it no further namespace may be made, and each detached mount counts as one. Nobody inside has the
    // capability that this needs; the limit is lowered again anyway.
    with_namespaces(|| make(&mount, identity, &executable, mounts, &mut passed)).map(|()| Vec::new())
}

/// Works in a sandbox's user namespace while its limit of mount namespaces is raised.
pub(super) fn with_namespaces<T>(work: impl FnOnce() -> Result<T, StageError>) -> Result<T, StageError> {
    let mut most = File::options().write(true).open(MOUNT_NAMESPACES).at("open the limit of namespaces")?;
    most.write_all(b"1000").at("raise the limit of namespaces")?;
    let done = work();
    most.write_all(b"0").at("lower the limit of namespaces")?;
    done
}

fn make(
    inside: &OwnedFd,
    identity: Identity,
    executable: &Executable,
    mounts: Vec<Mount>,
    passed: &mut [Option<OwnedFd>],
) -> Result<(), StageError> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).at("copy the host's mounts")?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .at("make mounts private")?;
    let mut sources = Vec::with_capacity(mounts.len());
    for mount in &mounts {
        sources.push(open_mount(mount, executable, passed)?);
    }
    if identity.from_root {
        init::become_the_sandbox_user(identity)?;
    }
    rustix::process::umask(Mode::empty());
    // After the sources, because some may be there.
    let copies = tmpfs(1 << 20, 0o700, false).at("make a directory for copies")?;
    let scaffold = File::open("/tmp").at("open the scaffold directory")?;
    attach(copies.as_fd(), scaffold.as_fd()).at("mount a directory for copies")?;
    let copies = File::open("/tmp").at("open the directory for copies")?;
    for (index, (mount, source)) in mounts.iter().zip(&mut sources).enumerate() {
        if let NodeContent::File { content, mode } = &mount.what {
            let copy = mount_copy(copies.as_fd(), &index.to_string(), content, *mode);
            *source = Some(copy.on("copy", mount.target.display())?);
        }
    }

    nix::sched::setns(inside, CloneFlags::CLONE_NEWNS).at("enter the sandbox's mounts")?;
    let root = File::open("/").at("open the sandbox's root")?;
    for (mount, source) in mounts.iter().zip(sources) {
        let target = &mount.target;
        let tree = match (&mount.what, source) {
            (_, Some(tree)) => tree,
            (NodeContent::Tmpfs { bytes, mode }, None) => {
                tmpfs(*bytes, *mode, executable.holds(target)).on("make tmpfs", target.display())?
            }
            _ => continue,
        };
        let at = open_in(root.as_fd(), target).on("open mount point", target.display())?;
        attach(tree.as_fd(), at.as_fd()).on("mount", target.display())?;
    }
    Ok(())
}

fn open_mount(
    mount: &Mount,
    executable: &Executable,
    passed: &mut [Option<OwnedFd>],
) -> Result<Option<OwnedFd>, StageError> {
    let NodeContent::Bind { source, access, .. } = &mount.what else { return Ok(None) };
    let restrictions = (*access, executable.holds(&mount.target));
    let tree = match source {
        Source::Path { path, expect, no_links } => {
            return open_path(path, expect.as_ref(), *no_links, restrictions).map(Some);
        }
        Source::Detached(index) => {
            let tree = passed.get_mut(*index).and_then(Option::take);
            tree.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)).at("find a passed mount")?
        }
        // Nothing of a layer is guarded.
        Source::Layer { .. } => return Ok(None),
    };
    restrict(tree.as_fd(), restrictions.0, restrictions.1, true)
        .on("restrict mount", mount.target.display())?;
    Ok(Some(tree))
}

/// A read-only mount of a new file.
fn mount_copy(copies: BorrowedFd<'_>, name: &str, content: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(copies, name, flags, Mode::from_raw_mode(mode))?;
    File::from(file).write_all(content)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = rustix::mount::open_tree(copies, relative(Path::new(name)), flags)?;
    restrict(tree.as_fd(), Access::ReadOnly, false, false)?;
    Ok(tree)
}
