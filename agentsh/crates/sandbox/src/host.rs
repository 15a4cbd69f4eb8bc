//! What a layout needs to know about the machine: what exists at a path.

mod disks;
mod small_tree;

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
use super::{listing, name_aliases, small_file};
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
    /// Version-control directories (`.git` and the like) of the directory itself.
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

/// A file or directory that is small and that everybody may read, with the keys of its files and directories, which
/// show a change. A link changes with the directory that holds it.
pub type SmallTree = Vec<(PathBuf, FileKey)>;
/// A file's name, content and mode.
pub type SmallFile = (OsString, Vec<u8>, u32);
/// Links, with their targets as written.
pub type Links = Vec<(PathBuf, PathBuf)>;

/// Directories in a `.git` besides the repository itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    pub directories: Vec<PathBuf>,
    /// Links where such a directory could stand.
    pub links: Vec<PathBuf>,
}

/// The entries of a directory.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub names: Vec<(OsString, PathKind)>,
    pub kinds: HashMap<OsString, PathKind>,
}

impl Listing {
    fn of<H: Host + ?Sized>(host: &H, directory: &Path) -> Option<Arc<Self>> {
        let names = host.names(directory).filter(|names| names.len() < MAX_NAMES)?;
        // A directory may be read and not entered: then nothing in it can be looked at.
        let may_enter = |(name, _): &(OsString, PathKind)| {
            host.path_kind(&directory.join(name)).is_some_and(|found| found != PathKind::Closed)
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
    fn small_tree(&self, _path: &Path) -> Option<SmallTree> {
        None
    }
    /// The files of a directory that holds nothing else and tells git to list none of them: a tool makes it.
    fn generated_files(&self, _directory: &Path) -> Option<Vec<SmallFile>> {
        None
    }
    fn path_kind(&self, path: &Path) -> Option<PathKind>;
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
    /// Name and login shell of a user id in `/etc/passwd`, or of the invoking user if the id is unknown.
    fn account(&self, uid: u32, users: &str) -> (Option<String>, Option<PathBuf>);
    /// What `/etc/passwd`, `/etc/group` or `/etc/hosts` says.
    fn names_in(&self, _file: &Path) -> String {
        String::new()
    }
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
    /// Small files and directories, kept from one session to the next.
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

    /// agentsh itself makes something at a path. It may be there already, so its kind is looked at.
    pub fn note_made(&self, path: &Path) {
        let mut listed = self.listed.borrow_mut();
        let kept = listed.as_mut().zip(path.parent());
        let listing = kept.and_then(|((_, kept), above)| kept.get_mut(above)?.as_mut());
        if let (Some(listing), Some(name)) = (listing.map(Arc::make_mut), path.file_name()) {
            listing.names.retain(|(known, _)| known != name);
            listing.names.push((name.to_owned(), PathKind::Closed));
            listing.kinds.insert(name.to_owned(), PathKind::Closed);
        }
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
pub const MAX_CONFIGURATION: u64 = 1 << 20;
/// Limits of a directory that a tool makes: bytes of one file, and files.
const MAX_REMADE: u64 = 16 << 10;
const MAX_REMADE_FILES: usize = 100;
/// Directories of a repository in which no other lies.
const NO_MODULES: [&str; 5] = ["objects", "refs", "logs", "hooks", "info"];
/// Directories that package managers fill: instruction files in them are not reported.
const DEPENDENCIES: [&str; 4] = ["node_modules", "site-packages", "target", "vendor"];
/// Directories with names that are obeyed, of one search.
const MAX_OBEYED: usize = 1_000;
impl Host for RealHost {
    fn small_tree(&self, path: &Path) -> Option<SmallTree> {
        self.copies.as_ref()?.get(path, || small_tree::read_small_tree(path))
    }

    fn generated_files(&self, directory: &Path) -> Option<Vec<SmallFile>> {
        let ignored = small_file::text(directory.join(".gitignore"), MAX_REMADE)?;
        let names =
            self.names(directory).filter(|names| ignored.trim() == "*" && names.len() <= MAX_REMADE_FILES)?;
        let read = |(name, kind): (OsString, PathKind)| {
            let path = directory.join(&name);
            let mode = path.symlink_metadata().ok()?.permissions().mode() & 0o777;
            let content = small_file::read(&path, MAX_REMADE).ok()??;
            (kind == PathKind::File).then_some((name, content, mode))
        };
        names.into_iter().map(read).collect()
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

    fn path_kind(&self, path: &Path) -> Option<PathKind> {
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
                closed.push(outermost_guarded_parent(&current, directory).to_owned());
                continue;
            }
            let (mut is_cut, mut is_entered, mut is_obeyed) = (false, false, false);
            let listed = listing::for_each_entry(&current, |name, kind| {
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
        if self.is_missing(directory) {
            return None;
        }
        let mut found = Vec::new();
        let listed = listing::for_each_entry(directory, |name, kind| {
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
        disks::disks().unwrap_or_default()
    }

    fn names_in(&self, file: &Path) -> String {
        start_of(file).unwrap_or_default()
    }

    fn account(&self, uid: u32, users: &str) -> (Option<String>, Option<PathBuf>) {
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
            match self.path_kind(&current) {
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
pub fn outermost_guarded_parent<'p>(path: &'p Path, around: &Path) -> &'p Path {
    let levels = path.strip_prefix(around).map_or(0, |below| below.components().count());
    let mut near = path.ancestors().skip(levels.saturating_sub(MAX_LEVELS));
    near.find(|above| above.as_os_str().len() <= MAX_LENGTH).unwrap_or(path)
}

/// Enough to look at a file, and into a directory.
pub const OWNER_READS: u32 = 0o500;

/// Restores these rights of the owner of a directory (of a file: those to read and write), which its maker may have
/// removed. Does not follow links. A failure shows in the next step. Returns whether it is a directory.
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
    Some(real_path(&named).unwrap_or_else(|_| normalised_path(&named)))
}

/// A repository without a working tree of its own. Git asks of its parts only whether they may be entered or executed,
/// follows their links, and takes them from elsewhere where `commondir` says so. A sandbox may move other files of git
/// away for a while.
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
pub fn normalised_path(path: &Path) -> PathBuf {
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
