//! What a layout needs to know about the machine: what exists at a path.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags};

use super::etc_cache::Copies;
use super::git_config::{self, GitConfig};
use super::{listing, name_aliases, proc_file, small_file};
use crate::policy::builtin_paths;
use crate::types::FileKey;
use agentsh_base::real_paths::real_path;

/// What is at a path, without following symlinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    Directory,
    File,
    Symlink,
    /// Sockets, devices, pipes.
    Special,
    /// Not accessible: a directory above is closed to its own user.
    Closed,
}

/// What a search below a directory found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repositories {
    pub found: Vec<PathBuf>,
    /// Those of the directory itself.
    pub own: Vec<PathBuf>,
    /// Directories that could not be searched, or are too deep.
    pub closed: Vec<PathBuf>,
    /// The search reached its limit.
    pub is_cut: bool,
    /// Symbolic links, from an unlimited host.
    pub links: Vec<PathBuf>,
    /// Directories with names that programs or agents obey, outside of dependencies.
    pub obeyed_in: Vec<PathBuf>,
}

/// A file or directory that is small and that everybody may read, by what tells whether anything of it has changed: the keys of its
/// files and directories. A link changes with the directory that holds it.
pub type SmallTree = Vec<(PathBuf, FileKey)>;
/// Links, with what they say.
pub type Links = Vec<(PathBuf, PathBuf)>;

/// Directories in a `.git` besides the repository itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    pub directories: Vec<PathBuf>,
    /// Links where such a directory could stand.
    pub links: Vec<PathBuf>,
}

/// The entries of a directory.
#[derive(Debug, Default)]
pub struct Listing {
    pub names: Vec<(OsString, PathKind)>,
    pub kinds: HashMap<OsString, PathKind>,
}

impl Listing {
    fn of<H: Host + ?Sized>(host: &H, directory: &Path) -> Option<Arc<Self>> {
        let names = host.names(directory).filter(|names| names.len() < MAX_NAMES)?;
        // A directory may be read and not entered: then nothing in it can be looked at.
        let may_enter = |(name, _): &(OsString, PathKind)| {
            host.look(&directory.join(name)).is_some_and(|found| found != PathKind::Closed)
        };
        let may_enter = names.first().is_none_or(may_enter);
        may_enter.then(|| Arc::new(Self { kinds: names.iter().cloned().collect(), names }))
    }
}

/// Whether a directory above a path is known to lack what the path needs, or to have a file there.
pub fn is_known_missing<'l>(path: &Path, listed: impl Fn(&Path) -> Option<&'l Listing>) -> bool {
    let mut way = path.ancestors().map_while(|on_the_way| Some((on_the_way.parent()?, on_the_way)));
    way.any(|(above, on_the_way)| {
        let Some(listing) = listed(above) else { return false };
        let kind = on_the_way.file_name().and_then(|name| listing.kinds.get(name));
        kind.is_none() || on_the_way != path && matches!(kind, Some(PathKind::File | PathKind::Special))
    })
}

/// Access to the host's file system.
pub trait Host {
    /// The entries of a directory that can be entered; None if it cannot, or has too many.
    fn listing(&self, directory: &Path) -> Option<Arc<Listing>> {
        Listing::of(self, directory)
    }
    /// The file or directory at a path with all that is in it, parents first, if a sandbox may have a copy of it instead of a
    /// mount.
    fn small(&self, _path: &Path) -> Option<SmallTree> {
        None
    }
    fn look(&self, path: &Path) -> Option<PathKind>;
    /// Whether the user may write it.
    fn may_write(&self, _path: &Path) -> bool {
        true
    }
    /// Target of a symlink as written.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// The path with all its links followed.
    fn canonical(&self, path: &Path) -> Option<PathBuf>;
    /// Repositories below a directory, without its own: every `.git` and the like, and bare repositories.
    fn repositories(&self, directory: &Path) -> Repositories;
    /// The entries of a directory, up to a limit; None if it is closed.
    fn names(&self, directory: &Path) -> Option<Vec<(OsString, PathKind)>>;
    /// Whether a path is an empty file or directory.
    fn is_empty(&self, path: &Path) -> bool;
    /// How many mounts one sandbox may have: each needs a descriptor.
    fn most_mounts(&self) -> usize;
    /// Whether the user may make something in a directory.
    fn may_make_in(&self, directory: &Path) -> bool;
    /// The home directory of a user of this machine.
    fn home_of(&self, user: &str) -> Option<PathBuf>;
    /// Name and login shell of a user id, or of the invoking user if the id is unknown.
    fn account(&self, uid: u32) -> (Option<String>, Option<PathBuf>);
    /// The machine's disks: their directories, and the links to them.
    fn disks(&self) -> Vec<(Links, PathBuf)>;
    /// Directories of submodules and linked worktrees below a `.git`; None if there are too many.
    fn modules(&self, git: &Path) -> Option<Modules>;
    /// Whether files in a directory have more names than are listed.
    fn has_other_names(&self, directory: &Path) -> bool;
    /// Device and inode of a file with several names.
    fn shared_inode(&self, _path: &Path) -> Option<(u64, u64)> {
        None
    }
    /// All names of these files below a directory, up to a limit.
    fn names_of(&self, _directory: &Path, _files: &BTreeSet<(u64, u64)>) -> Vec<PathBuf> {
        Vec::new()
    }
    /// The directory that a `.git` file names.
    fn git_directory(&self, file: &Path) -> Option<PathBuf>;
    /// The common directory of a linked worktree's `.git`.
    fn common_directory(&self, git: &Path) -> Option<PathBuf>;
    /// What a git configuration says about other files; None if it cannot be read.
    fn git_config(&self, config: &Path) -> Option<GitConfig>;
}

/// Since when listings are kept, and those.
type Listed = (Instant, HashMap<PathBuf, Option<Arc<Listing>>>);

/// The real host, with bounded effort.
#[derive(Debug, Default)]
pub struct RealHost {
    /// What is small, from one session to the next.
    copies: Option<Copies>,
    /// For a search without limits: where it may open what is closed.
    opened: Option<Vec<PathBuf>>,
    /// Directories that were listed while a sandbox is prepared.
    listed: RefCell<Option<Listed>>,
}

impl RealHost {
    /// Caches small files in this directory.
    #[must_use]
    pub fn keeping(state: &Path) -> Self {
        Self { copies: Some(Copies::of(state)), ..Self::default() }
    }

    /// For the final check of what a sandbox wrote in these directories, which may be anything. Repositories that it closed to their
    /// owner are opened.
    #[must_use]
    pub fn unlimited(directories: &[PathBuf]) -> Self {
        Self { opened: Some(directories.to_vec()), ..Self::default() }
    }

    /// From now on each directory is listed once, until [`Self::forget_listings`] or for [`LISTINGS_LIFETIME`].
    pub fn keep_listings(&self) {
        *self.listed.borrow_mut() = Some((Instant::now(), HashMap::new()));
    }

    /// Something was made, or the sandbox is prepared.
    pub fn forget_listings(&self) {
        *self.listed.borrow_mut() = None;
    }

    /// Whether listings that are kept say that nothing is at a path.
    #[must_use]
    pub fn is_missing(&self, path: &Path) -> bool {
        let listed = self.listed.borrow();
        let known = listed.as_ref().filter(is_fresh).map(|(_, known)| known);
        known.is_some_and(|known| is_known_missing(path, |directory| known.get(directory)?.as_deref()))
    }

    fn max_entries(&self) -> usize {
        if self.opened.is_some() { usize::MAX } else { MAX_ENTRIES }
    }

    fn open_up(&self, path: &Path) {
        if self.opened.iter().flatten().any(|directory| path.starts_with(directory)) {
            let_owner(path, OWNER_READS);
        }
    }

    /// A small file.
    fn read(&self, file: &Path) -> Option<Vec<u8>> {
        let read = || small_file::read(file, MAX_CONFIGURATION);
        let again = |error: std::io::Error| {
            if error.kind() == std::io::ErrorKind::PermissionDenied {
                self.open_up(file);
                return read();
            }
            Err(error)
        };
        read().or_else(again).ok()?
    }

    /// Saves new entries.
    pub fn keep(&self) {
        if let Some(copies) = &self.copies {
            copies.save();
        }
    }
}

/// A start takes some milliseconds; a question to a person may take longer.
const LISTINGS_LIFETIME: Duration = Duration::from_secs(5);
/// Limit of entries in a search for repositories: about a second on a cold disk. A larger directory is read-only
/// inside.
const MAX_ENTRIES: usize = 2_000_000;
/// Maximum depth of a search. Deeper directories are hidden: guarding them would need a mount for each directory
/// above, and paths beyond `PATH_MAX` cannot be mounted.
const MAX_LEVELS: usize = 200;
/// Maximum path length in a search, with room for names in it and for its mount point.
const MAX_LENGTH: usize = 3_500;
/// Limit of names of one directory that are compared with patterns, or followed if they are links.
pub(crate) const MAX_NAMES: usize = 10_000;
/// Bytes of a configuration of git that are read.
const MAX_CONFIGURATION: u64 = 1 << 20;
/// Directories of a repository in which no other lies.
const NO_MODULES: [&str; 5] = ["objects", "refs", "logs", "hooks", "info"];
/// Directories that package managers fill: what they bring for agents is nobody's news.
const DEPENDENCIES: [&str; 4] = ["node_modules", "site-packages", "target", "vendor"];
/// Directories with names that are obeyed, of one search.
const MAX_OBEYED: usize = 1_000;
/// Each takes a mount.
const MAX_DISKS: usize = 32;
/// Of a file that is copied. Copies are kept from one start to the next.
const SMALL_BYTES: u64 = 512 << 10;
/// What a directory with few entries takes at most; links are short.
const SMALL_DIRECTORY_BYTES: u64 = 64 << 10;
/// To look at so many files and directories costs about as much as the one mount that their copies replace.
const SMALL_ENTRIES: usize = 8;

impl Host for RealHost {
    fn small(&self, path: &Path) -> Option<SmallTree> {
        self.copies.as_ref()?.get(path, || small(path))
    }

    fn may_write(&self, path: &Path) -> bool {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
    }

    fn listing(&self, directory: &Path) -> Option<Arc<Listing>> {
        let kept =
            self.listed.borrow().as_ref().filter(is_fresh).and_then(|(_, all)| all.get(directory).cloned());
        kept.unwrap_or_else(|| {
            let found = Listing::of(self, directory);
            if let Some((_, kept)) = &mut *self.listed.borrow_mut() {
                kept.insert(directory.to_owned(), found.clone());
            }
            found
        })
    }

    fn look(&self, path: &Path) -> Option<PathKind> {
        if self.is_missing(path) {
            return None;
        }
        let kind = match std::fs::symlink_metadata(path) {
            Ok(found) => found.file_type(),
            Err(error) if is_missing(&error) => return None,
            Err(_) => return Some(PathKind::Closed),
        };
        Some(of_kind(kind))
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        std::fs::read_link(path).ok()
    }

    fn has_other_names(&self, directory: &Path) -> bool {
        name_aliases::has_name_aliases(directory)
    }

    fn repositories(&self, directory: &Path) -> Repositories {
        let mut all = Repositories::default();
        let Repositories { found, own, closed, links, obeyed_in, .. } = &mut all;
        let mut open = vec![(directory.to_owned(), 0, false)];
        let mut budget = self.max_entries();
        while let Some((current, level, is_dependency)) = open.pop() {
            if level > MAX_LEVELS || current.as_os_str().len() > MAX_LENGTH {
                closed.push(outermost(&current, directory).to_owned());
                continue;
            }
            let (mut is_cut, mut is_entered, mut is_obeyed) = (false, false, false);
            let listed = listing::each(&current, |name, kind| {
                let Some(rest) = budget.checked_sub(1) else {
                    is_cut = true;
                    return ControlFlow::Break(());
                };
                budget = rest;
                is_entered |= begins_bare(name);
                if is_version_control(name) {
                    let list = if current == directory { &mut *own } else { &mut *found };
                    list.push(current.join(name));
                    // Git takes no path with this name into a repository; other names are directories to it.
                    if name == ".git" {
                        return ControlFlow::Continue(());
                    }
                }
                if begins_bare(name) && is_bare(&current) {
                    found.push(current.clone());
                }
                is_obeyed |= name.to_str().is_some_and(builtin_paths::is_known);
                match kind {
                    FileType::Directory => {
                        let is_dependency = is_dependency || DEPENDENCIES.iter().any(|known| name == *known);
                        open.push((current.join(name), level + 1, is_dependency));
                    }
                    FileType::Symlink if self.opened.is_some() => links.push(current.join(name)),
                    _ => {}
                }
                ControlFlow::Continue(())
            });
            if is_cut {
                all.is_cut = true;
                return all;
            }
            if is_obeyed && !is_dependency && obeyed_in.len() < MAX_OBEYED {
                obeyed_in.push(current.clone());
            }
            let is_closed = listed.is_err_and(|error| !is_missing(&error));
            let above = current.parent().filter(|_| is_closed && current != directory);
            if let Some(above) = above.filter(|above| !may_enter(above)) {
                closed.push(above.to_owned());
            } else if is_closed || is_entered && !may_enter(&current) {
                closed.push(current);
            }
        }
        closed.sort();
        closed.dedup();
        // Outer repositories first: an inner one is mounted on top.
        found.sort();
        found.dedup();
        all
    }

    fn names(&self, directory: &Path) -> Option<Vec<(OsString, PathKind)>> {
        let mut found = Vec::new();
        let listed = listing::each(directory, |name, kind| {
            let kind = match kind {
                FileType::Directory => PathKind::Directory,
                FileType::RegularFile => PathKind::File,
                FileType::Symlink => PathKind::Symlink,
                FileType::Unknown => PathKind::Closed,
                _ => PathKind::Special,
            };
            found.push((name.to_owned(), kind));
            if found.len() < MAX_NAMES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        listed.ok().map(|()| found)
    }

    fn is_empty(&self, path: &Path) -> bool {
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => found.len() == 0,
            Ok(found) if found.is_dir() => {
                std::fs::read_dir(path).is_ok_and(|mut inner| inner.next().is_none())
            }
            _ => false,
        }
    }

    fn most_mounts(&self) -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
    }

    fn may_make_in(&self, directory: &Path) -> bool {
        let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(directory, wanted).is_ok()
    }

    fn home_of(&self, user: &str) -> Option<PathBuf> {
        let users = start_of(Path::new("/etc/passwd"))?;
        let line = users.lines().find(|line| line.split(':').next() == Some(user))?;
        line.split(':').nth(5).map(PathBuf::from).filter(|home| home.is_absolute())
    }

    fn disks(&self) -> Vec<(Links, PathBuf)> {
        disks().unwrap_or_default()
    }

    fn account(&self, uid: u32) -> (Option<String>, Option<PathBuf>) {
        let users = start_of(Path::new("/etc/passwd")).unwrap_or_default();
        let of = |uid: u32| {
            let uid = uid.to_string();
            users.lines().map(|line| line.split(':')).find(|fields| fields.clone().nth(2) == Some(&uid))
        };
        let mut found = of(uid).or_else(|| of(rustix::process::getuid().as_raw()));
        let (name, shell) = found.as_mut().map_or((None, None), |found| (found.next(), found.nth(5)));
        // Users of a directory service are in no file.
        let shell = shell.map(PathBuf::from).or_else(|| std::env::var_os("SHELL").map(PathBuf::from));
        let is_plain = |shell: &PathBuf| {
            shell.is_absolute() && !shell.to_string_lossy().contains([':', '\n']) && shell.exists()
        };
        (name.map(str::to_owned), shell.filter(is_plain))
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        real_path(path).ok()
    }

    fn modules(&self, git: &Path) -> Option<Modules> {
        let mut found = Modules::default();
        self.open_up(git);
        let mut open = vec![git.join("modules"), git.join("worktrees")];
        let mut budget = self.max_entries();
        while let Some(current) = open.pop() {
            budget = budget.checked_sub(1)?;
            match self.look(&current) {
                Some(PathKind::Directory) => {}
                Some(PathKind::Symlink) => {
                    found.links.push(current);
                    continue;
                }
                _ => continue,
            }
            self.open_up(&current);
            // Names of submodules may hold slashes, so that the directory of one may lie deeper.
            let is_module = is_module(&current);
            for entry in std::fs::read_dir(&current).into_iter().flatten().flatten() {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let may_lead_on = if is_module {
                    is_directory && !NO_MODULES.iter().any(|name| entry.file_name() == *name)
                } else {
                    true
                };
                if may_lead_on {
                    open.push(entry.path());
                }
            }
            if is_module {
                found.directories.push(current);
            }
        }
        found.directories.sort();
        Some(found)
    }

    fn shared_inode(&self, path: &Path) -> Option<(u64, u64)> {
        let found = path.symlink_metadata().ok().filter(|found| found.is_file() && found.nlink() > 1)?;
        Some((found.dev(), found.ino()))
    }

    fn names_of(&self, directory: &Path, files: &BTreeSet<(u64, u64)>) -> Vec<PathBuf> {
        let (mut found, mut left, mut waiting) = (Vec::new(), self.max_entries(), vec![directory.to_owned()]);
        // Which device an entry is on, only a look at each would say.
        let inodes: BTreeSet<u64> = files.iter().map(|(_, inode)| *inode).collect();
        while let Some(directory) = waiting.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                left = left.saturating_sub(1);
                if left == 0 {
                    return found;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                    Ok(kind) if kind.is_file() && inodes.contains(&entry.ino()) => {
                        found.extend(Some(entry.path()).filter(|path| {
                            self.shared_inode(path).is_some_and(|number| files.contains(&number))
                        }));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    fn git_directory(&self, file: &Path) -> Option<PathBuf> {
        let content = self.read(file)?;
        named_directory(file.parent()?, content.strip_prefix(b"gitdir: ")?)
    }

    fn common_directory(&self, git: &Path) -> Option<PathBuf> {
        let content = self.read(&git.join(builtin_paths::GIT_COMMON))?;
        named_directory(git, &content)
    }

    fn git_config(&self, config: &Path) -> Option<GitConfig> {
        let content = small_file::read(config, MAX_CONFIGURATION).ok()??;
        Some(git_config::parse(&String::from_utf8_lossy(&content)))
    }
}

/// The path, or its outermost parent that is close enough to the directory to be guarded.
#[must_use]
pub fn outermost<'p>(path: &'p Path, around: &Path) -> &'p Path {
    let levels = path.strip_prefix(around).map_or(0, |below| below.components().count());
    let mut near = path.ancestors().skip(levels.saturating_sub(MAX_LEVELS));
    near.find(|above| above.as_os_str().len() <= MAX_LENGTH).unwrap_or(path)
}

/// Enough to look at a file, and into a directory.
pub const OWNER_READS: u32 = 0o500;

/// Gives the owner of a directory these rights, or of a file those of them to read and write, where whoever made it took them away.
/// Links are not followed. Where it fails, so does what is done next. Gives whether it is a directory.
pub fn let_owner(path: &Path, rights: u32) -> bool {
    let Ok(found) = path.symlink_metadata() else { return false };
    let mode = found.permissions().mode();
    let rights = if found.is_dir() { rights } else { rights & 0o600 };
    if !found.is_symlink() && mode & rights != rights {
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode | rights));
    }
    found.is_dir()
}

fn may_enter(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::EXEC_OK) != Err(rustix::io::Errno::ACCESS)
}

fn of_kind(kind: std::fs::FileType) -> PathKind {
    if kind.is_dir() {
        PathKind::Directory
    } else if kind.is_file() {
        PathKind::File
    } else if kind.is_symlink() {
        PathKind::Symlink
    } else {
        PathKind::Special
    }
}

fn is_fresh((since, _): &&Listed) -> bool {
    since.elapsed() < LISTINGS_LIFETIME
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// `.git`, and what other systems call it.
fn is_version_control(name: &OsStr) -> bool {
    repository_names().any(|known| name == known)
}

/// The names under which version control keeps what it knows, at the top of a working tree.
pub fn repository_names() -> impl Iterator<Item = &'static str> {
    builtin_paths::OTHER_REPOSITORIES.iter().map(|(name, _)| *name).chain([".git"])
}

/// A name that a bare repository may begin with.
fn begins_bare(name: &OsStr) -> bool {
    name == OsStr::new(builtin_paths::GIT_BARE[0]) || name == OsStr::new(builtin_paths::GIT_COMMON)
}

/// The directory that the content of a `gitdir` or `commondir` file names, as git reads it (`setup.c`): every byte but the ends of
/// lines at its end, up to a NUL. The kernel follows its links.
fn named_directory(base: &Path, content: &[u8]) -> Option<PathBuf> {
    let end = content.iter().rposition(|byte| !b"\r\n".contains(byte))?;
    let named = content.get(..=end)?.split(|byte| *byte == 0).next().filter(|named| !named.is_empty())?;
    let named = base.join(OsStr::from_bytes(named));
    Some(named.canonicalize().unwrap_or_else(|_| plain(&named)))
}

/// A repository without a working tree of its own. Git asks of its parts only whether they may be entered or executed, follows
/// their links, and takes them from elsewhere where `commondir` says so. What git keeps there beside, a sandbox may move away
/// for a while.
#[must_use]
pub fn is_bare(directory: &Path) -> bool {
    let is_there = |name: &str| directory.join(name).symlink_metadata().is_ok();
    builtin_paths::GIT_BARE.iter().all(|name| directory.join(name).exists())
        || is_there(builtin_paths::GIT_COMMON) && is_there("HEAD")
}

/// A directory of a submodule or linked worktree, even if some files were moved away.
fn is_module(directory: &Path) -> bool {
    let files = ["HEAD", "config", "commondir", "gitdir", "index", "packed-refs"];
    let is_there = |name: &str, wants_directory: bool| {
        directory.join(name).symlink_metadata().is_ok_and(|found| found.is_dir() == wants_directory)
    };
    files.iter().any(|name| is_there(name, false)) || is_there(builtin_paths::GIT_BARE[0], true)
}

/// Whether [`Host::modules`] may find a directory, from the first moment of its creation.
#[must_use]
pub fn may_be_module(directory: &Path) -> bool {
    let mut below = directory.iter().rev().take_while(|part| *part != ".git");
    directory.iter().any(|part| part == ".git")
        && below.all(|part| NO_MODULES.iter().all(|name| part != *name))
        && is_module(directory)
}

/// The first bytes of a small file of another user.
fn start_of(file: &Path) -> Option<String> {
    let file = open_for_reading(file)?;
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let bytes = small_file::content_of(file, found.len(), MAX_CONFIGURATION).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn open_for_reading(file: &Path) -> Option<std::fs::File> {
    let nofollow = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(nofollow.bits().cast_signed()).open(file).ok()
}

/// Without `.` and `..`, by its letters.
#[must_use]
pub fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// `/proc/partitions` lists all disks with data; disks without data have no partition.
fn disks() -> std::io::Result<Vec<(Links, PathBuf)>> {
    const BLOCK: &str = "/sys/block";
    let mut found = Vec::new();
    let holding = proc_file::read("/proc/partitions").unwrap_or_default();
    let rows = || holding.lines().filter_map(numbered);
    for link in std::fs::read_dir(BLOCK)?.flatten().map(|entry| entry.path()) {
        if found.len() >= MAX_DISKS || is_unused(&link, &holding) {
            continue;
        }
        let Ok(to) = std::fs::read_link(&link) else { continue };
        // No part of it is a link.
        let device = plain(&Path::new(BLOCK).join(&to));
        let disk = device.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let mut parts: Vec<_> = rows().filter(|(name, _)| is_part(&disk, name)).collect();
        if !parts.iter().any(|(name, _)| *name == disk) {
            let number = proc_file::value(device.join("dev")).unwrap_or_default();
            parts.push((&disk, number.trim().to_owned()));
        }
        let mut links = vec![(link, to)];
        for (name, number) in parts.into_iter().filter(|(_, number)| !number.is_empty()) {
            let part = if name == disk { device.clone() } else { device.join(name) };
            links.push((Path::new("/sys/dev/block").join(number), part.clone()));
            links.push((Path::new("/sys/class/block").join(name), part));
        }
        found.push((links, device));
    }
    Ok(found)
}

/// The name and `major:minor` of a line of `/proc/partitions`.
fn numbered(line: &str) -> Option<(&str, String)> {
    let mut words = line.split_whitespace();
    let (major, minor, name) = (words.next()?, words.next()?, words.nth(1)?);
    major.parse::<u32>().is_ok().then(|| (name, format!("{major}:{minor}")))
}

/// A partition has its disk's name and a number, after a `p` if the name ends in a digit.
fn is_part(disk: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let ends_in_digit = disk.ends_with(|letter: char| letter.is_ascii_digit());
    let number = if ends_in_digit { rest.strip_prefix('p').unwrap_or_default() } else { rest };
    rest.is_empty() || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Loop devices and memory disks without data: there may be many.
fn is_unused(link: &Path, holding: &str) -> bool {
    let name = link.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let lists = |name: &str| holding.lines().filter_map(numbered).any(|(listed, _)| listed == name);
    if name.starts_with("loop") && holding.lines().count() > 2 {
        return !lists(name);
    }
    ["loop", "ram"].iter().any(|kind| name.starts_with(kind))
        && proc_file::value(link.join("size")).unwrap_or_default().trim() == "0"
}

/// Of a file or a directory.
fn small(path: &Path) -> Option<SmallTree> {
    let mut found = Vec::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(current) = waiting.pop() {
        let (key, opened) = small_entry(&current)?;
        found.push((current.clone(), key));
        for entry in opened.map(rustix::fs::Dir::new).transpose().ok()?.into_iter().flatten() {
            let entry = entry.ok()?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            match entry.file_type() {
                FileType::Symlink => {}
                FileType::RegularFile => waiting.push(current.join(name)),
                FileType::Directory if name == "." || name == ".." => {}
                FileType::Directory => waiting.push(current.join(name)),
                _ => return None,
            }
            if found.len() + waiting.len() > SMALL_ENTRIES {
                return None;
            }
        }
    }
    Some(found)
}

/// With the directory, where it is one. What is opened decides: it may have been replaced since it was looked at.
fn small_entry(path: &Path) -> Option<(FileKey, Option<std::fs::File>)> {
    const EVERYBODY_READS: u32 = 0o004;
    const EVERYBODY_ENTERS: u32 = 0o005;
    let file = open_for_reading(path)?;
    let found = file.metadata().ok()?;
    let (size, mode) = (found.len(), found.mode() & 0o777);
    let is_small = if found.is_dir() {
        // Most file systems tell by the size that there are many entries; listing them would take longer than a mount.
        size <= SMALL_DIRECTORY_BYTES && mode & EVERYBODY_ENTERS == EVERYBODY_ENTERS
    } else {
        found.is_file() && size <= SMALL_BYTES && mode & EVERYBODY_READS != 0
    };
    is_small.then(|| (FileKey::from(&found), found.is_dir().then_some(file)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_what_everybody_may_read_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "content").unwrap();
        let names = |path: &Path| small(path).map(|tree| tree.into_iter().map(|(path, _)| path).collect());
        set_mode(&file, 0o644);
        assert_eq!(names(&file), Some(vec![file.clone()]));
        set_mode(&file, 0o640);
        assert_eq!(names(&file), None);
        set_mode(&file, 0o644);
        set_mode(directory.path(), 0o755);
        assert_eq!(names(directory.path()), Some(vec![directory.path().to_owned(), file]));
        set_mode(directory.path(), 0o750);
        assert_eq!(names(directory.path()), None);
    }

    #[test]
    fn one_private_or_large_or_special_entry_makes_a_directory_a_mount() {
        let directory = tempfile::tempdir().unwrap();
        set_mode(directory.path(), 0o755);
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        for number in 0..100 {
            std::os::unix::fs::symlink("../elsewhere", inner.join(format!("link-{number}"))).unwrap();
        }
        let copied = small(directory.path()).unwrap();
        let paths: Vec<&Path> = copied.iter().map(|(path, _)| path.as_path()).collect();
        assert_eq!(paths, [directory.path(), &inner], "links count for nothing");

        let secret = inner.join("secret");
        std::fs::write(&secret, "secret").unwrap();
        set_mode(&secret, 0o600);
        assert_eq!(small(directory.path()), None);
        std::fs::remove_file(&secret).unwrap();

        std::fs::write(inner.join("large"), vec![b'x'; usize::try_from(SMALL_BYTES).unwrap() + 1]).unwrap();
        assert_eq!(small(directory.path()), None);
        std::fs::remove_file(inner.join("large")).unwrap();

        let _socket = std::os::unix::net::UnixListener::bind(inner.join("socket")).unwrap();
        assert_eq!(small(directory.path()), None);
        std::fs::remove_file(inner.join("socket")).unwrap();

        for number in 0..SMALL_ENTRIES {
            std::fs::write(inner.join(number.to_string()), "").unwrap();
        }
        assert_eq!(small(directory.path()), None);
    }
}
