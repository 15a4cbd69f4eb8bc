//! System calls on detached mounts, and path resolution that cannot leave the new root.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags};

use super::plan::{Access, FileKey};
use super::stage::{StageContext, StageError};

/// A detached copy of a path with its submounts, restricted by [`restrict`].
pub(super) fn open_path(
    path: &Path,
    expect: Option<&FileKey>,
    no_links: bool,
    (access, executable): (Access, bool),
) -> Result<OwnedFd, StageError> {
    let attributes = attributes(restrictions(access, executable), None);
    let tree = clone_tree_with(path, OpenTreeFlags::AT_RECURSIVE, no_links, &attributes)
        .on("open", path.display())?;
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

/// A detached copy of the tree at a path.
pub(super) fn clone_tree(path: &Path, more: OpenTreeFlags, no_links: bool) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | more;
    if no_links {
        let found = open_without_links(path, OFlags::PATH)?;
        return rustix::mount::open_tree(found, "", flags | OpenTreeFlags::AT_EMPTY_PATH);
    }
    rustix::mount::open_tree(CWD, path, flags)
}

/// [`clone_tree`] with attributes, in one system call if the kernel has it.
pub(super) fn clone_tree_with(
    path: &Path,
    more: OpenTreeFlags,
    no_links: bool,
    attributes: &libc::mount_attr,
) -> io::Result<OwnedFd> {
    /// Linux 6.15; the same number on every architecture.
    const OPEN_TREE_ATTR: libc::c_long = 467;
    static IS_MISSING: AtomicBool = AtomicBool::new(false);
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | more;
    if !IS_MISSING.load(Ordering::Relaxed) {
        let found = no_links.then(|| open_without_links(path, OFlags::PATH)).transpose()?;
        let (at, name, flags) = match &found {
            Some(found) => (found.as_fd(), Path::new(""), flags | OpenTreeFlags::AT_EMPTY_PATH),
            None => (CWD, path, flags),
        };
        let name = CString::new(name.as_os_str().as_bytes()).map_err(io::Error::other)?;
        #[expect(unsafe_code, reason = "no safe wrapper of open_tree_attr exists in the dependencies")]
        // SAFETY: the path is a valid C string, the attribute block is initialised and outlives the call, and its size is the one
        // passed; the kernel only reads. What it returns is a new descriptor that nobody else owns.
        let opened = unsafe {
            let number = libc::syscall(
                OPEN_TREE_ATTR,
                at.as_raw_fd(),
                name.as_ptr(),
                flags.bits(),
                std::ptr::from_ref(attributes),
                size_of::<libc::mount_attr>(),
            );
            RawFd::try_from(number)
                .ok()
                .filter(|number| *number >= 0)
                .map(|number| OwnedFd::from_raw_fd(number))
        };
        match opened {
            Some(tree) => return Ok(tree),
            None if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) => {
                IS_MISSING.store(true, Ordering::Relaxed);
            }
            // Two steps, so that the error names the failed one.
            None => {}
        }
    }
    let tree = clone_tree(path, more, no_links)?;
    apply(tree.as_fd(), attributes, more.contains(OpenTreeFlags::AT_RECURSIVE))?;
    Ok(tree)
}

/// Opens an absolute path without symlinks.
///
/// # Errors
/// `ELOOP` if one is a symlink, else as openat2(2).
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

/// Opens the parent of a path below the new root, creating missing directories.
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

pub(super) fn tmpfs_options(bytes: u64, mode: u32) -> [(&'static str, String); 3] {
    // The inode limit keeps empty files from filling the kernel's memory.
    [("size", bytes.to_string()), ("mode", format!("{mode:o}")), ("nr_inodes", "200000".to_owned())]
}

pub(super) fn tmpfs(bytes: u64, mode: u32, executable: bool) -> rustix::io::Result<OwnedFd> {
    filesystem(c"tmpfs", &tmpfs_options(bytes, mode), executable)
}

/// Without device nodes, except for devpts.
pub(super) fn filesystem(
    name: &CStr,
    options: &[(&str, String)],
    executable: bool,
) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, value.as_str())?;
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

/// Like [`filesystem`], mounted at once at a path without links, in one system call.
pub(super) fn mount_new(
    name: &CStr,
    options: &[(&str, String)],
    executable: bool,
    at: &Path,
) -> rustix::io::Result<()> {
    let mut flags = MountFlags::NOSUID;
    if name != c"devpts" {
        flags |= MountFlags::NODEV;
    }
    if !executable {
        flags |= MountFlags::NOEXEC;
    }
    let options: Vec<String> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let options = CString::new(options.join(",")).map_err(|_| rustix::io::Errno::INVAL)?;
    rustix::mount::mount(name, at, name, flags, options.as_c_str())
}

/// Closes descriptors, ranges at once.
#[expect(unsafe_code, reason = "close_range has no safe wrapper: it may close descriptors that others own")]
pub(super) fn close_together(descriptors: Vec<OwnedFd>) {
    let mut numbers: Vec<RawFd> = descriptors.into_iter().map(IntoRawFd::into_raw_fd).collect();
    numbers.sort_unstable();
    for row in numbers.chunk_by(|one, next| one + 1 == *next) {
        let (Some(first), Some(last)) = (row.first(), row.last()) else { continue };
        // SAFETY: each number of the row was owned here until now, and no other lies between the first and the last.
        unsafe { libc::syscall(libc::SYS_close_range, *first, *last, 0) };
    }
}

/// A copy-on-write layer: three paths without commas and colons. It writes with the mounter's credentials.
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

/// Adds restrictions to a mount and, if `recursive`, to its submounts. Never removes one.
pub(super) fn restrict(
    tree: BorrowedFd<'_>,
    access: Access,
    executable: bool,
    recursive: bool,
) -> io::Result<()> {
    apply(tree, &attributes(restrictions(access, executable), None), recursive)
}

fn restrictions(access: Access, executable: bool) -> u64 {
    let no_execute = if executable { 0 } else { libc::MOUNT_ATTR_NOEXEC };
    no_execute
        | match access {
            Access::ReadOnly => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_RDONLY,
            Access::ReadWrite => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
            Access::Device => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
        }
}

/// Attributes of a mount; with `map_of`, ids are mapped as in that user namespace, which has to stay open.
pub(super) fn attributes(set: u64, map_of: Option<BorrowedFd<'_>>) -> libc::mount_attr {
    libc::mount_attr {
        attr_set: set | if map_of.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: 0,
        userns_fd: map_of.map_or(0, |fd| fd.as_raw_fd().unsigned_abs().into()),
    }
}

/// `mount_setattr(2)`.
///
/// # Errors
/// The kernel's answer.
#[expect(unsafe_code, reason = "no safe wrapper of mount_setattr exists in the dependencies")]
fn apply(tree: BorrowedFd<'_>, attributes: &libc::mount_attr, recursive: bool) -> io::Result<()> {
    let flags = AtFlags::EMPTY_PATH.bits() | if recursive { libc::AT_RECURSIVE as u32 } else { 0 };
    // SAFETY: the path is a valid empty C string, the attribute block is initialised and outlives the call,
    // and its size is the one passed; the kernel only reads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
