//! Builds the mount tree on an empty tmpfs. Opens the sources first, as the launcher's user while the host's tree is
//! visible; then fills and enters the new root, and detaches the host's tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::mount_calls::{
    attach, close_together, filesystem, mount_new, open_directory, open_in, open_path, overlay, parent_of,
    relative, restrict, tmpfs_options,
};
use super::plan::{Access, Executable, Kind, Mount, NodeContent, PROJECT_LAYER, Source, UPPER, WORK};
use super::report::{Enforcement, State};
use super::sealed;
use super::stage::{StageContext, StageError};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

/// A directory that exists everywhere; the new root is mounted on it, in this mount namespace only.
const SCAFFOLD: &CStr = c"/tmp";
/// Why the project cannot be mounted as a layer, and what to do.
const NO_LAYER: &str = "mount the project's copy-on-write layer (it needs overlayfs in user namespaces, Linux 5.11 or \
     later, nothing mounted inside the project, and a state directory on ext4, xfs, btrfs or tmpfs: set \
     XDG_STATE_HOME to one, or run without --review)";
/// Limit of terminals of one sandbox, out of the machine's (kernel.pty.max).
const MAX_TERMINALS: &str = "256";
/// Copies of pinned files until they are bound to their paths; the directory is unlisted.
const COPIES: &str = "/.copies";

/// Detached copies of all bind sources, taken before the host's tree is detached, and sealed memory.
pub struct Sources {
    opened: BTreeMap<usize, OwnedFd>,
    /// The directories of layers.
    layers: BTreeMap<usize, OwnedFd>,
}

/// Opens every bind source of the plan.
///
/// # Errors
/// A missing source, or a pinned file that changed since it was hashed.
pub fn open_sources(
    mounts: &[Mount],
    executable: &Executable,
    passed: &mut [Option<OwnedFd>],
) -> Result<Sources, StageError> {
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .at("make mounts private")?;
    let (mut opened, mut layers) = (BTreeMap::new(), BTreeMap::new());
    for (index, mount) in mounts.iter().enumerate() {
        let mut take = |descriptor: usize| {
            or_not_found(passed.get_mut(descriptor).and_then(Option::take))
                .on("find the passed mount for", mount.target.display())
        };
        let mut open = |source: &Source, access, executable| {
            let tree = match source {
                Source::Path { path, expect, no_links } => {
                    return open_path(path, expect.as_ref(), *no_links, (access, executable)).map(Some);
                }
                Source::Detached(descriptor) => take(*descriptor)?,
                Source::Layer { .. } => return Ok(None),
            };
            restrict(tree.as_fd(), access, executable, true).on("restrict mount", mount.target.display())?;
            Ok(Some(tree))
        };
        let source = match &mount.what {
            NodeContent::Bind { source, access, .. } => {
                open(source, *access, executable.holds(&mount.target))?
            }
            NodeContent::Overlay { lower, layer, .. } => {
                // Mounts above it say what may be executed.
                layers.extend(open(layer, Access::ReadWrite, true)?.map(|tree| (index, tree)));
                open(lower, Access::ReadOnly, true)?
            }
            NodeContent::Copy { from, .. } => Some(take(*from)?),
            _ => None,
        };
        opened.extend(source.map(|source| (index, source)));
    }
    Ok(Sources { opened, layers })
}

fn or_not_found<T>(what: Option<T>) -> io::Result<T> {
    what.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The new root, still empty.
pub struct Root(OwnedFd);

impl Root {
    /// Mounts an empty root.
    ///
    /// # Errors
    /// The first failed step.
    pub fn begin() -> Result<Self, StageError> {
        let scaffold = Path::new(OsStr::from_bytes(SCAFFOLD.to_bytes()));
        mount_new(c"tmpfs", &tmpfs_options(64 * 1024 * 1024, 0o755), true, scaffold)
            .at("mount the root tmpfs")?;
        // Opened after mounting, so this is the new root and not the directory below it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, SCAFFOLD, flags, Mode::empty()).map(Self).at("open the new root")
    }

    /// Fills and enters the root, and detaches the host's tree.
    ///
    /// # Errors
    /// The first failed step, with its path.
    pub fn build(
        self,
        mounts: &[Mount],
        executable: &Executable,
        mut sources: Sources,
    ) -> Result<Vec<Enforcement>, StageError> {
        let root = self.0.as_fd();
        let mut tree = Tree::new(root, executable).at("look at the new root")?;
        let mut short = Vec::new();
        for (index, mount) in mounts.iter().enumerate() {
            let source = sources.opened.remove(&index);
            match &mount.what {
                NodeContent::Overlay { or_upper, .. } => {
                    let layers = (source, sources.layers.remove(&index));
                    short.extend(tree.layer(&mount.target, layers, *or_upper)?);
                }
                _ => tree.make(mount, source)?,
            }
        }
        close_together(std::mem::take(&mut tree.done));
        drop(tree);
        if mounts.iter().any(|mount| mount.target == Path::new(PROJECT_LAYER)) {
            detach(Path::new(PROJECT_LAYER)).at("unmount the bare layer")?;
        }
        restrict(root, Access::ReadOnly, executable.holds(Path::new("/")), false)
            .at("make the root read-only")?;
        rustix::process::fchdir(root).at("enter the new root")?;
        // With equal arguments the old root is stacked on the new one, and unmounted at once.
        rustix::process::pivot_root(".", ".").at("pivot_root")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).at("detach the host's tree")?;
        rustix::process::chdir("/").at("enter /")?;
        Ok(short)
    }
}

/// The path of a new-root path before it is entered.
fn from_outside(path: &Path) -> PathBuf {
    Path::new(OsStr::from_bytes(SCAFFOLD.to_bytes())).join(relative(path))
}

/// Removes a temporary mount and its directory.
fn detach(path: &Path) -> rustix::io::Result<()> {
    let path = from_outside(path);
    rustix::mount::unmount(&path, UnmountFlags::DETACH)?;
    rustix::fs::rmdir(&path)
}

/// The root while it is filled.
struct Tree<'r> {
    root: BorrowedFd<'r>,
    executable: &'r Executable,
    /// File systems of the sandbox: generated files may be written only there.
    own: BTreeSet<u64>,
    /// Directories of `own` that were created here and are not mounted over. No part of their paths is a link.
    made: BTreeSet<PathBuf>,
    /// Other names in the directories of `made`.
    taken: BTreeSet<PathBuf>,
    /// Open directories of `own` that were found through other mounts, under paths without links.
    found: BTreeMap<PathBuf, OwnedFd>,
    /// Directories that are not in `own`.
    foreign: BTreeSet<PathBuf>,
    /// Directories of `own` may be below a host mount or a link.
    may_be_behind: bool,
    /// Number of host files that generated ones cover.
    covered: usize,
    /// The finished mounts.
    done: Vec<OwnedFd>,
}

/// A mount point.
enum MountTarget {
    Opened(OwnedFd, Kind),
    /// In a directory of the sandbox: its name is enough.
    Made,
}

/// Limit of open directories.
const MAX_FOUND: usize = 16;

impl<'r> Tree<'r> {
    fn new(root: BorrowedFd<'r>, executable: &'r Executable) -> io::Result<Self> {
        Ok(Self {
            root,
            executable,
            own: BTreeSet::from([device(root)?]),
            made: BTreeSet::from(["/".into()]),
            taken: BTreeSet::new(),
            found: BTreeMap::new(),
            foreign: BTreeSet::new(),
            may_be_behind: false,
            covered: 0,
            done: Vec::new(),
        })
    }

    fn make(&mut self, mount: &Mount, source: Option<OwnedFd>) -> Result<(), StageError> {
        let target = &mount.target;
        match &mount.what {
            NodeContent::Directory { mode } => {
                self.create_mount_point(target, Kind::Directory, *mode)?;
            }
            NodeContent::Symlink { to } => {
                let made = match self.own_parent(target)? {
                    Some((parent, name)) => rustix::fs::symlinkat(to, parent, name),
                    None => {
                        let (parent, name) = parent_of(self.root, target)?;
                        self.may_be_behind = true;
                        rustix::fs::symlinkat(to, &parent, name)
                    }
                };
                match made {
                    Err(error) if error == rustix::io::Errno::EXIST => {}
                    other => other.on("make symlink", target.display())?,
                }
            }
            NodeContent::File { content, mode } => self.generate(target, content, *mode)?,
            NodeContent::Tmpfs { bytes, mode } => {
                self.mount(c"tmpfs", &tmpfs_options(*bytes, *mode), target, *mode)?;
            }
            NodeContent::Bind { source: Source::Layer { below }, access, kind } => {
                let tree = self.part_of_layer(below, *access, target)?;
                let at = self.create_mount_point(target, *kind, 0o755)?;
                self.attach(tree.as_fd(), target, &at, "bind")?;
            }
            NodeContent::Bind { kind, .. } => {
                let at = self.create_mount_point(target, *kind, 0o755)?;
                let tree = or_not_found(source).on("find", target.display())?;
                self.attach(tree.as_fd(), target, &at, "bind")?;
                self.done.push(tree);
            }
            NodeContent::Copy { from, executable } => {
                let memory = or_not_found(source).on("find the pinned bytes of", target.display())?;
                let (name, mode) = (from.to_string(), if *executable { 0o555 } else { 0o444 });
                let copy = self.new_copy(&name, mode).on("copy", target.display())?;
                sealed::copy_to(memory.as_fd(), &copy).on("copy", target.display())?;
                // A file that is open for writing cannot be executed.
                drop(copy);
                let tree = self.mount_copy(&name, target).on("open the copy of", target.display())?;
                let at = self.create_mount_point(target, Kind::File, 0o755)?;
                self.attach(tree.as_fd(), target, &at, "bind")?;
            }
            // Made by `layer`.
            NodeContent::Overlay { .. } => {}
            NodeContent::Proc => self.mount(c"proc", &[], target, 0o555)?,
            NodeContent::Mqueue => self.mount(c"mqueue", &[], target, 0o755)?,
            NodeContent::Devpts => {
                let options = [("ptmxmode", "0666"), ("mode", "0620"), ("max", MAX_TERMINALS)];
                self.mount(c"devpts", &options.map(|(key, value)| (key, value.to_owned())), target, 0o755)?;
            }
        }
        Ok(())
    }

    /// A file system of the sandbox.
    fn mount(
        &mut self,
        name: &CStr,
        options: &[(&str, String)],
        target: &Path,
        mode: u32,
    ) -> Result<(), StageError> {
        // Processes are executed, and nothing that is theirs.
        let executable = match name.to_bytes() {
            b"proc" => true,
            b"tmpfs" => self.executable.holds(target),
            _ => false,
        };
        let at = self.create_mount_point(target, Kind::Directory, mode)?;
        let is_own = target.parent().is_some_and(|above| self.made.contains(above));
        if matches!(at, MountTarget::Made) && is_own {
            // No part of the name is a link.
            let path = from_outside(target);
            mount_new(name, options, executable, &path).on("mount", target.display())?;
            self.note_covered(target);
            if name == c"tmpfs" {
                self.own.insert(rustix::fs::lstat(&path).on("look at", target.display())?.st_dev);
                self.made.insert(target.to_owned());
            }
            return Ok(());
        }
        let tree = filesystem(name, options, executable).on("make", target.display())?;
        if name == c"tmpfs" {
            self.own.insert(device(tree.as_fd()).on("look at", target.display())?);
            self.may_be_behind = true;
        }
        self.attach(tree.as_fd(), target, &at, "mount")
    }

    /// A copy-on-write layer. Its parts are mounted next to it while the kernel opens them.
    fn layer(
        &mut self,
        target: &Path,
        (lower, layer): (Option<OwnedFd>, Option<OwnedFd>),
        or_upper: bool,
    ) -> Result<Option<Enforcement>, StageError> {
        const LOWER: &str = "/.lower";
        const LAYER: &str = "/.upper";
        let (lower, layer) = (
            or_not_found(lower).on("find", target.display())?,
            or_not_found(layer).on("find", target.display())?,
        );
        for (path, tree) in [(LOWER, &lower), (LAYER, &layer)] {
            let at = self.create_mount_point(Path::new(path), Kind::Directory, 0o700)?;
            self.attach(tree.as_fd(), Path::new(path), &at, "mount a part of the layer of")?;
        }
        let part = |name: &str| from_outside(&Path::new(LAYER).join(name));
        let made = overlay(&from_outside(Path::new(LOWER)), &part(UPPER), &part(WORK));
        let (tree, short) = match made {
            Ok(tree) => (tree, None),
            Err(error) if or_upper => {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
                let upper = relative(Path::new(LAYER)).join(UPPER);
                let tree = rustix::mount::open_tree(self.root, upper, flags).on("open", target.display())?;
                let asked = format!("{}: your own, copy-on-write", target.display());
                let why = format!("overlayfs cannot be mounted here: {error}");
                let short = Enforcement::weakened(
                    "cache",
                    &asked,
                    "a separate one for this project",
                    State::Degraded,
                    why,
                );
                (tree, Some(short))
            }
            Err(error) => return Err(error).on(NO_LAYER, ""),
        };
        if target != Path::new(PROJECT_LAYER) {
            restrict(tree.as_fd(), Access::ReadWrite, self.executable.holds(target), false)
                .on("restrict mount", target.display())?;
        }
        for path in [LOWER, LAYER] {
            detach(Path::new(path)).on("take away a part of the layer of", target.display())?;
        }
        let at = self.create_mount_point(target, Kind::Directory, 0o755)?;
        self.attach(tree.as_fd(), target, &at, "mount the layer")?;
        Ok(short)
    }

    /// A mount of a part of the project's layer.
    fn part_of_layer(&self, below: &Path, access: Access, target: &Path) -> Result<OwnedFd, StageError> {
        let at = open_in(self.root, &Path::new(PROJECT_LAYER).join(below)).on("open", target.display())?;
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = rustix::mount::open_tree(at, "", flags).on("open", target.display())?;
        restrict(tree.as_fd(), access, self.executable.holds(target), false)
            .on("restrict mount", target.display())?;
        Ok(tree)
    }

    /// The directory and name under which `path` is created or mounted, if that is on the sandbox's own file system.
    /// Creates the directory.
    fn own_parent<'p>(&mut self, path: &'p Path) -> Result<Option<(BorrowedFd<'_>, &'p Path)>, StageError> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        if self.is_made(above)? {
            return Ok(Some((self.root, relative(path))));
        }
        Ok(self.find(above)?.map(|parent| (parent, Path::new(name))))
    }

    /// Whether a directory is in `made`, created if nothing has its name.
    fn is_made(&mut self, path: &Path) -> Result<bool, StageError> {
        if self.made.contains(path) {
            return Ok(true);
        }
        let Some(above) = path.parent().filter(|_| !self.taken.contains(path)) else { return Ok(false) };
        if !self.is_made(above)? {
            return Ok(false);
        }
        match make_entry(self.root, relative(path), Kind::Directory, 0o755) {
            Ok(()) => Ok(self.made.insert(path.to_owned())),
            Err(rustix::io::Errno::EXIST) => {
                self.taken.insert(path.to_owned());
                Ok(false)
            }
            Err(error) => Err(error).on("make directory", path.display()),
        }
    }

    /// A directory of `own` below a host mount or a link.
    fn find(&mut self, path: &Path) -> Result<Option<BorrowedFd<'_>>, StageError> {
        if !self.may_be_behind || self.foreign.contains(path) {
            return Ok(None);
        }
        if !self.found.contains_key(path) {
            let opened = match open_directory(self.root, path, ResolveFlags::NO_SYMLINKS) {
                Ok(opened) => opened,
                Err(rustix::io::Errno::NOENT) => parent_of(self.root, &path.join("x"))?.0,
                Err(_) => return Ok(None),
            };
            if !self.own.contains(&device(opened.as_fd()).on("look at", path.display())?) {
                self.foreign.insert(path.to_owned());
                return Ok(None);
            }
            if self.found.len() >= MAX_FOUND {
                self.found.clear();
            }
            self.found.insert(path.to_owned(), opened);
        }
        Ok(self.found.get(path).map(AsFd::as_fd))
    }

    /// A mount point, created if missing. Resolution never leaves the new root, whatever links a bound tree has, and
    /// does not follow a final symlink.
    fn create_mount_point(
        &mut self,
        target: &Path,
        kind: Kind,
        mode: u32,
    ) -> Result<MountTarget, StageError> {
        if kind == Kind::Directory && self.made.contains(target) {
            return Ok(MountTarget::Made);
        }
        if let Some((parent, name)) = self.own_parent(target)? {
            match make_entry(parent, name, kind, mode) {
                Ok(()) => {
                    let is_directory = kind == Kind::Directory;
                    if is_directory && target.parent().is_some_and(|above| self.made.contains(above)) {
                        self.made.insert(target.to_owned());
                    }
                    return Ok(MountTarget::Made);
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error).on("make mount point", target.display()),
            }
        } else {
            match open_in(self.root, target) {
                Ok(found) => return Ok(MountTarget::Opened(found, kind)),
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error).on("open mount point", target.display()),
            }
            let (parent, name) = parent_of(self.root, target)?;
            self.may_be_behind = true;
            make_entry(parent.as_fd(), Path::new(name), kind, mode)
                .on("make mount point", target.display())?;
        }
        let found = open_in(self.root, target).on("open mount point", target.display())?;
        Ok(MountTarget::Opened(found, kind))
    }

    fn attach(
        &mut self,
        tree: BorrowedFd<'_>,
        target: &Path,
        at: &MountTarget,
        stage: &'static str,
    ) -> Result<(), StageError> {
        match at {
            MountTarget::Made => {
                let (parent, name) = or_not_found(self.own_parent(target)?).on(stage, target.display())?;
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                rustix::mount::move_mount(tree, "", parent, name, flags).on(stage, target.display())?;
                self.note_covered(target);
            }
            MountTarget::Opened(at, kind) => {
                // Through a link it may be another name of our directory; a file contains nothing.
                let may_be_own = *kind == Kind::Directory
                    && self.own.contains(&device(at.as_fd()).on("look at", target.display())?);
                attach(tree, at.as_fd()).on(stage, target.display())?;
                if may_be_own {
                    self.made = BTreeSet::from(["/".into()]);
                    self.may_be_behind = true;
                    self.found.clear();
                }
                if *kind == Kind::Directory {
                    self.found.retain(|found, _| !found.starts_with(target));
                    self.foreign.clear();
                }
            }
        }
        Ok(())
    }

    /// Something is mounted in one of our directories.
    fn note_covered(&mut self, target: &Path) {
        self.made.retain(|made| !made.starts_with(target));
        self.taken.insert(target.to_owned());
        self.found.retain(|found, _| !found.starts_with(target));
    }

    /// A generated file. A host file is covered, never written; a missing one is created only on the sandbox's own
    /// file systems.
    fn generate(&mut self, target: &Path, content: &[u8], mode: u32) -> Result<(), StageError> {
        if let Some((parent, name)) = self.own_parent(target)? {
            match create(parent, name, mode) {
                Ok(file) => return write(file, content).on("write", target.display()),
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error).on("write", target.display()),
            }
        }
        let Ok(at) = open_in(self.root, target) else {
            return Err(io::Error::other("it would be made on the host")).on("write", target.display());
        };
        self.covered += 1;
        let copy = format!("g{}", self.covered);
        let file = self.new_copy(&copy, mode).on("write", target.display())?;
        write(file, content).on("write", target.display())?;
        let tree = self.mount_copy(&copy, target).on("open the copy of", target.display())?;
        self.attach(tree.as_fd(), target, &MountTarget::Opened(at, Kind::File), "cover")
    }

    /// A new file below [`COPIES`].
    fn new_copy(&mut self, name: &str, mode: u32) -> io::Result<OwnedFd> {
        let path = Path::new(COPIES).join(name);
        match self.own_parent(&path).map_err(|error| error.source)? {
            Some((parent, name)) => Ok(create(parent, name, mode)?),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A read-only mount of a new file below [`COPIES`].
    fn mount_copy(&self, name: &str, target: &Path) -> io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(self.root, relative(&Path::new(COPIES).join(name)), flags)?;
        restrict(tree.as_fd(), Access::ReadOnly, self.executable.holds(target), false)?;
        Ok(tree)
    }
}

fn make_entry(parent: BorrowedFd<'_>, name: &Path, kind: Kind, mode: u32) -> rustix::io::Result<()> {
    match kind {
        Kind::Directory => rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)),
        Kind::File => rustix::fs::mknodat(parent, name, FileType::RegularFile, Mode::from_raw_mode(0o444), 0),
    }
}

/// Creates a new file.
fn create(parent: BorrowedFd<'_>, name: &Path, mode: u32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode))
}

fn write(file: OwnedFd, content: &[u8]) -> io::Result<()> {
    std::fs::File::from(file).write_all(content)
}

fn device(file: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_dev)
}
