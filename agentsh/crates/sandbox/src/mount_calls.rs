//! Single steps of building a mount tree: the kernel's calls on detached mounts, and names that cannot lead out of the
//! new root.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use super::plan::{Access, FileKey};
use super::stage::{At, StageError};

pub(super) fn open_path(
    path: &Path,
    expect: Option<&FileKey>,
    no_links: bool,
) -> Result<OwnedFd, StageError> {
    let tree = clone_tree(path, OpenTreeFlags::AT_RECURSIVE, no_links).on("open", path.display())?;
    if let Some(expected) = expect {
        let now = file_key(tree.as_fd()).on("look at", path.display())?;
        if now != *expected {
            let changed = "the file changed after it was checked";
            return Err(io::Error::new(io::ErrorKind::InvalidData, changed))
                .on("check the pinned file", path.display());
        }
    }
    Ok(tree)
}

/// A detached copy of what stands at a path.
pub(super) fn clone_tree(path: &Path, more: OpenTreeFlags, no_links: bool) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | more;
    if no_links {
        let found = open_without_links(path, OFlags::PATH)?;
        return rustix::mount::open_tree(found, "", flags | OpenTreeFlags::AT_EMPTY_PATH);
    }
    rustix::mount::open_tree(CWD, path, flags)
}

/// Opens an absolute path of which no part is a symlink.
///
/// # Errors
/// `ELOOP` when one is, else as openat2(2).
pub fn open_without_links(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// # Errors
/// When the descriptor cannot be looked at.
pub fn file_key(file: BorrowedFd<'_>) -> io::Result<FileKey> {
    let stat = rustix::fs::fstat(file)?;
    let nanoseconds =
        |seconds: i64, rest: u64| seconds.saturating_mul(1_000_000_000).saturating_add_unsigned(rest);
    Ok(FileKey {
        dev: stat.st_dev,
        ino: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    })
}

pub(super) fn open_in(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat2(
        root,
        relative(path),
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
}

pub(super) fn open_directory(
    root: BorrowedFd<'_>,
    path: &Path,
    more: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat2(
        root,
        relative(path),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | more,
    )
}

/// Opens the parent of a path below the new root, making what is missing on the way.
pub(super) fn parent_of<'p>(
    root: BorrowedFd<'_>,
    path: &'p Path,
) -> Result<(OwnedFd, &'p OsStr), StageError> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
        .on("name", path.display())?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let open = |path: &Path| open_directory(root, path, ResolveFlags::empty());
    if let Ok(found) = open(parent) {
        return Ok((found, name));
    }
    let mut walked = PathBuf::from("/");
    for component in parent.components() {
        let Component::Normal(part) = component else { continue };
        let above = open(&walked).on("open", walked.display())?;
        walked.push(part);
        match rustix::fs::mkdirat(&above, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error).on("make directory", walked.display()),
        }
    }
    Ok((open(parent).on("open", parent.display())?, name))
}

pub(super) fn relative(path: &Path) -> &Path {
    let stripped = path.strip_prefix("/").unwrap_or(path);
    if stripped.as_os_str().is_empty() { Path::new(".") } else { stripped }
}

pub(super) fn tmpfs(bytes: u64, mode: u32, executable: bool) -> rustix::io::Result<OwnedFd> {
    // The inode limit keeps a flood of empty files from filling the kernel's memory.
    filesystem(
        c"tmpfs",
        &[("size", &bytes.to_string()), ("mode", &format!("{mode:o}")), ("nr_inodes", "200000")],
        executable,
    )
}

/// Without devices, but for terminals: those are nothing else.
pub(super) fn filesystem(
    name: &CStr,
    options: &[(&str, &str)],
    executable: bool,
) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let mut flags = MountAttrFlags::MOUNT_ATTR_NOSUID;
    if name != c"devpts" {
        flags |= MountAttrFlags::MOUNT_ATTR_NODEV;
    }
    if !executable {
        flags |= MountAttrFlags::MOUNT_ATTR_NOEXEC;
    }
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// A copy-on-write layer: three paths without commas and colons. Whoever mounts it is who writes to the upper one.
pub(super) fn overlay(lower: &Path, upper: &Path, work: &Path) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, path) in [("lowerdir", lower), ("upperdir", upper), ("workdir", work)] {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, path)?;
    }
    rustix::mount::fsconfig_set_flag(context.as_fd(), "userxattr")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

pub(super) fn attach(tree: BorrowedFd<'_>, at: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", at, "", flags)
}

/// Adds restrictions to a mount and, if `recursive`, to all that is mounted below it. Never takes one away.
pub(super) fn restrict(
    tree: BorrowedFd<'_>,
    access: Access,
    executable: bool,
    recursive: bool,
) -> io::Result<()> {
    let no_execute = if executable { 0 } else { libc::MOUNT_ATTR_NOEXEC };
    let set = match access {
        Access::ReadOnly => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_RDONLY,
        Access::ReadWrite => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        Access::Device => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
    };
    set_attributes(tree, set | no_execute, recursive, None)
}

/// `mount_setattr(2)`; with `map_of` the mount's ids are mapped as in that user namespace.
///
/// # Errors
/// The kernel's answer.
#[expect(unsafe_code, reason = "no safe wrapper of mount_setattr exists in the dependencies")]
pub(super) fn set_attributes(
    tree: BorrowedFd<'_>,
    set: u64,
    recursive: bool,
    map_of: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set | if map_of.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: 0,
        userns_fd: map_of.map_or(0, |fd| fd.as_raw_fd().unsigned_abs().into()),
    };
    let flags = AtFlags::EMPTY_PATH.bits() | if recursive { libc::AT_RECURSIVE as u32 } else { 0 };
    // SAFETY: the path is a valid empty C string, the attribute block is initialised and outlives the call,
    // and its size is the one passed; the kernel only reads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
