//! A directory of files that will be loaded: every file is hashed, every link recorded, and links are not followed
//! blindly.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use sha2::{Digest, Sha256};

use super::PinError;
use super::file::{self, FileKey, Hasher, MAX_ENTRIES, Stamp, hex};

/// Deeper than any package manager nests, shallow enough for the stack and the descriptor limit.
const MAX_DEPTH: usize = 96;

/// The source of the versions in `packages`. The digest is always over the files themselves, because a lock
/// file pins nothing on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeSource {
    NpmLock,
    UvLock,
    Files,
}

/// The content of a place according to a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its own name: an alias puts a package into another one's place.
    pub name: String,
    pub version: String,
}

#[derive(Debug)]
pub struct PinnedTree {
    /// The role of the tree for the program, independent of its path: `package`, `node_modules`, `venv`.
    pub name: String,
    /// Absolute, without links.
    pub root: PathBuf,
    /// `sha256:` over `manifest`.
    pub digest: String,
    /// Relative path to `sha256:HEX`, or to `link:TARGET`, followed by ` sha256:HEX` when the target is a file.
    pub manifest: BTreeMap<PathBuf, String>,
    pub source: TreeSource,
    /// The packages inside by their directories, as far as a lock file or the installer's records name them.
    pub packages: BTreeMap<String, Listed>,
    /// Links to directories outside the tree: the link's relative path, and the directory.
    pub(super) outside: Vec<(PathBuf, PathBuf)>,
    selection: Selection,
    files: BTreeMap<PathBuf, (Stamp, [u8; 32])>,
    links: BTreeMap<PathBuf, Link>,
    directories: BTreeMap<PathBuf, Stamp>,
}

#[derive(Debug)]
struct Link {
    key: FileKey,
    /// The target; None if it does not exist.
    real: Option<PathBuf>,
    /// The bytes there, when they are a file's.
    bytes: Option<(Stamp, [u8; 32])>,
}

/// The files of a directory from which a runtime loads code; all others are data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code {
    /// Their endings, without the dot.
    pub endings: &'static [&'static str],
    /// Files that say which code is loaded.
    pub names: &'static [&'static str],
    /// A name without an ending means a file of just that name first.
    pub tries_exact_names: bool,
    /// Below directories of this name every file counts: what is installed there is not worked on.
    pub installed: Option<&'static str>,
}

impl Code {
    /// Whether a file without an ending is loaded in place of one with it: `require("./a")` tries `a` before `a.js` and
    /// `a.json`. `names`: all of the directory, sorted.
    fn precedes(&self, name: &OsStr, names: &[OsString]) -> bool {
        let mut endings = self.endings.iter().chain(&["json"]);
        let is_there = |ending: &&str| {
            let other = Path::new(name).with_extension(ending);
            names.binary_search_by(|name| name.as_os_str().cmp(other.as_os_str())).is_ok()
        };
        self.tries_exact_names && Path::new(name).extension().is_none() && endings.any(is_there)
    }

    fn has(&self, relative: &Path) -> bool {
        let is_one_of =
            |part: Option<&OsStr>, of: &[&str]| of.iter().any(|one| part == Some(OsStr::new(one)));
        is_one_of(relative.extension(), self.endings)
            || is_one_of(relative.file_name(), self.names)
            || self.is_installed(relative)
    }

    fn is_installed(&self, relative: &Path) -> bool {
        self.installed.is_some_and(|name| relative.iter().any(|part| part == OsStr::new(name)))
    }
}

/// The part of a directory that belongs to the tree. `.git` and `__pycache__` never do.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// Only these names of the root directory.
    pub names: Option<BTreeSet<OsString>>,
    /// Only these files; None is every file.
    pub code: Option<&'static Code>,
    /// Not this directory, relative to the root.
    pub hidden: Option<PathBuf>,
}

impl Selection {
    fn file(&self, relative: &Path) -> bool {
        self.entry(relative) && self.code.is_none_or(|code| code.has(relative))
    }

    fn is_exact(&self, name: &OsStr, names: &[OsString]) -> bool {
        self.code.is_some_and(|code| code.precedes(name, names))
    }

    fn directory(&self, relative: &Path) -> bool {
        self.entry(relative) && !self.leaves_out(relative)
    }

    /// Whether a directory is no part of the tree, or is in such a one.
    fn leaves_out(&self, relative: &Path) -> bool {
        relative.iter().any(is_excluded)
            || self.hidden.as_ref().is_some_and(|hidden| relative.starts_with(hidden))
    }

    fn entry(&self, relative: &Path) -> bool {
        let at_root = relative.parent().is_none_or(|parent| parent.as_os_str().is_empty());
        !at_root
            || self
                .names
                .as_ref()
                .is_none_or(|names| relative.file_name().is_some_and(|name| names.contains(name)))
    }
}

fn is_excluded(name: &OsStr) -> bool {
    name == ".git" || name == "__pycache__"
}

/// Hashes the selected part of `root`, which must be absolute and without links.
pub(super) fn pin(
    hasher: &mut Hasher<'_>,
    name: &str,
    root: &Path,
    selection: Selection,
) -> Result<PinnedTree, PinError> {
    let tree = PinnedTree {
        name: name.to_owned(),
        root: root.to_owned(),
        digest: String::new(),
        manifest: BTreeMap::new(),
        source: TreeSource::Files,
        packages: BTreeMap::new(),
        outside: Vec::new(),
        selection,
        files: BTreeMap::new(),
        links: BTreeMap::new(),
        directories: BTreeMap::new(),
    };
    let descriptor = open_directory(CWD, root, root)?;
    let mut walk = Walk { hasher, tree };
    walk.directory(descriptor, Path::new(""), 0)?;
    let mut tree = walk.tree;
    tree.digest = digest(&tree.manifest);
    Ok(tree)
}

/// Every field is preceded by its length, so that no two manifests are the same text.
fn digest(manifest: &BTreeMap<PathBuf, String>) -> String {
    let mut hash = Sha256::new();
    for (path, entry) in manifest {
        for field in [path.as_os_str().as_bytes(), entry.as_bytes()] {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
    }
    hex(&hash.finalize().into())
}

struct Walk<'a, 'b> {
    hasher: &'a mut Hasher<'b>,
    tree: PinnedTree,
}

impl Walk<'_, '_> {
    fn directory(&mut self, descriptor: OwnedFd, relative: &Path, depth: usize) -> Result<(), PinError> {
        let shown = self.tree.root.join(relative);
        if depth > MAX_DEPTH {
            return Err(PinError::TooLarge { root: self.tree.root.clone(), limit: "96 directories deep" });
        }
        // Before the names are read: what is added later has a later timestamp.
        let stat = rustix::fs::fstat(&descriptor).map_err(|source| PinError::io(&shown, source))?;
        self.tree.directories.insert(relative.to_owned(), Stamp::of(file::key_of(&stat)));
        let names = names(&descriptor, &shown)?;
        for name in &names {
            self.hasher.entries = self.hasher.entries.saturating_add(1);
            if self.hasher.entries > MAX_ENTRIES {
                return Err(PinError::TooLarge {
                    root: self.tree.root.clone(),
                    limit: "240000 directory entries",
                });
            }
            let is_exact = self.tree.selection.is_exact(name, &names);
            self.entry(&descriptor, (&relative.join(name), Path::new(name)), is_exact, depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        parent: &OwnedFd,
        (relative, name): (&Path, &Path),
        is_exact: bool,
        depth: usize,
    ) -> Result<(), PinError> {
        let shown = self.tree.root.join(relative);
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|source| PinError::io(&shown, source))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory if self.tree.selection.directory(relative) => {
                match open_directory(parent, name, &shown) {
                    Err(error) if self.is_of_others(&stat, &error) => Ok(()),
                    opened => self.directory(opened?, relative, depth + 1),
                }
            }
            FileType::Directory => Ok(()),
            FileType::RegularFile if is_exact || self.tree.selection.file(relative) => {
                let file = match file::open_at(parent, name, &shown) {
                    Err(error) if self.is_of_others(&stat, &error) => return Ok(()),
                    opened => opened?,
                };
                let (digest, stamp) = self.hasher.hash_in_tree(&file, &shown, &self.tree.root)?;
                self.tree.manifest.insert(relative.to_owned(), hex(&digest));
                self.tree.files.insert(relative.to_owned(), (stamp, digest));
                Ok(())
            }
            FileType::RegularFile => Ok(()),
            FileType::Symlink => self.link(parent, (relative, name), is_exact, file::key_of(&stat)),
            kind if self.tree.selection.file(relative) => {
                Err(PinError::SpecialFile { path: shown, kind: file::kind_name(kind) })
            }
            _ => Ok(()),
        }
    }

    /// What another user keeps from this one beside a script, the script cannot load either.
    fn is_of_others(&self, stat: &rustix::fs::Stat, error: &PinError) -> bool {
        let is_denied = match error {
            PinError::Io { source, .. } | PinError::Unreadable { source, .. } => {
                source.kind() == std::io::ErrorKind::PermissionDenied
            }
            _ => false,
        };
        is_denied && self.tree.code().is_some() && stat.st_uid != rustix::process::geteuid().as_raw()
    }

    /// Records the target's name and content: the target may be outside the tree, or in a part of it that is not hashed.
    /// Directories outside are left to the caller, who knows what they are.
    fn link(
        &mut self,
        parent: &OwnedFd,
        (relative, name): (&Path, &Path),
        is_exact: bool,
        key: FileKey,
    ) -> Result<(), PinError> {
        let shown = self.tree.root.join(relative);
        let target = rustix::fs::readlinkat(parent, name, Vec::new())
            .map_err(|source| PinError::io(&shown, source))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        // A link into its own tree by absolute path stays the same link if the tree is elsewhere.
        let (prefix, rest) = match target.strip_prefix(&self.tree.root) {
            Ok(inside) => ("link:{tree}/", inside),
            Err(_) => ("link:", target.as_path()),
        };
        let mut entry = format!("{prefix}{}", rest.as_os_str().as_bytes().escape_ascii());
        let mut bytes = None;
        let real = std::fs::canonicalize(&shown).ok();
        // A dangling link is recorded as dangling: once it has a target, it has changed.
        if let Some(real) = &real {
            let stat = rustix::fs::lstat(real).map_err(|source| PinError::io(real, source))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile if self.is_hashed_target(&shown, &target, real) => {}
                FileType::RegularFile if is_exact || self.tree.selection.file(relative) => {
                    let file = file::open(real)?;
                    let (digest, stamp) = self.hasher.hash_in_tree(&file, real, &self.tree.root)?;
                    entry.push(' ');
                    entry.push_str(&hex(&digest));
                    bytes = Some((stamp, digest));
                }
                FileType::Directory if self.tree.selection.directory(relative) => {
                    let hashed = real.strip_prefix(&self.tree.root).is_ok_and(|inside| {
                        self.tree.selection.names.is_none() && !self.tree.selection.leaves_out(inside)
                    });
                    if !hashed {
                        self.tree.outside.push((relative.to_owned(), real.clone()));
                    }
                }
                FileType::RegularFile | FileType::Directory => return Ok(()),
                kind if self.tree.selection.file(relative) => {
                    return Err(PinError::SpecialFile { path: shown, kind: file::kind_name(kind) });
                }
                _ => return Ok(()),
            }
        } else if !self.tree.selection.file(relative) {
            return Ok(());
        }
        self.tree.manifest.insert(relative.to_owned(), entry);
        self.tree.links.insert(relative.to_owned(), Link { key, real, bytes });
        Ok(())
    }
}

impl Walk<'_, '_> {
    /// The link names, without another link on the way, a file whose bytes the tree covers anyway. So a change
    /// of that file is reported once, under its own name.
    fn is_hashed_target(&self, link: &Path, target: &Path, real: &Path) -> bool {
        let selection = &self.tree.selection;
        let inside = real.strip_prefix(&self.tree.root).is_ok_and(|inside| {
            selection.names.is_none() && selection.file(inside) && !selection.leaves_out(inside)
        });
        inside && link.parent().is_some_and(|parent| without_dots(&parent.join(target)) == real)
    }
}

/// Resolves `.` and `..` by name alone.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

impl PinnedTree {
    /// Every file below `directory` that counts as `code` is part of this tree.
    pub(super) fn holds(&self, directory: &Path, code: Option<&Code>) -> bool {
        let own = &self.selection;
        let is_whole = |inside: &Path| {
            own.code.is_none_or(|own| Some(own) == code || own.is_installed(inside))
                && !own.leaves_out(inside)
        };
        own.names.is_none() && directory.strip_prefix(&self.root).is_ok_and(is_whole)
    }

    pub(super) fn code(&self) -> Option<&'static Code> {
        self.selection.code
    }

    /// Looks at every file, link and directory again without reading bytes, except of files that were so young
    /// when they were hashed that their timestamps prove nothing.
    pub(super) fn unchanged_since(&self) -> Result<(), PinError> {
        for (relative, (stamp, digest)) in &self.files {
            let path = self.root.join(relative);
            stamp.check(&path, &path, *digest)?;
        }
        for (relative, link) in &self.links {
            let path = self.root.join(relative);
            let same = rustix::fs::lstat(&path).is_ok_and(|stat| file::key_of(&stat) == link.key)
                && std::fs::canonicalize(&path).ok() == link.real;
            if !same {
                return Err(PinError::ChangedSince { path });
            }
            if let (Some(real), Some((stamp, digest))) = (&link.real, &link.bytes) {
                stamp.check(real, &path, *digest)?;
            }
        }
        self.directories.iter().try_for_each(|(relative, stamp)| self.directory_unchanged(relative, stamp))
    }

    /// A directory may get new entries that do not belong to the tree: only then are its names compared.
    fn directory_unchanged(&self, relative: &Path, stamp: &Stamp) -> Result<(), PinError> {
        let path = self.root.join(relative);
        let changed = |path: &Path| PinError::ChangedSince { path: path.to_owned() };
        let stat = rustix::fs::lstat(&path).map_err(|_| changed(&path))?;
        let key = file::key_of(&stat);
        if (key.dev, key.ino) != (stamp.key.dev, stamp.key.ino) {
            return Err(changed(&path));
        }
        if key == stamp.key && !stamp.racy {
            return Ok(());
        }
        let descriptor = open_directory(CWD, &path, &path)?;
        let names = names(&descriptor, &path)?;
        for name in &names {
            let inside = relative.join(name);
            let known = self.files.contains_key(&inside)
                || self.links.contains_key(&inside)
                || self.directories.contains_key(&inside);
            if known {
                continue;
            }
            let stat = rustix::fs::statat(&descriptor, Path::new(name), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|_| changed(&path))?;
            let is_file = || self.selection.file(&inside) || self.selection.is_exact(name, &names);
            let belongs = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.selection.directory(&inside),
                // As in `link`: by the target.
                FileType::Symlink if self.root.join(&inside).is_dir() => self.selection.directory(&inside),
                _ => is_file(),
            };
            if belongs {
                return Err(changed(&self.root.join(inside)));
            }
        }
        Ok(())
    }
}

fn open_directory(parent: impl AsFd, name: &Path, shown: &Path) -> Result<OwnedFd, PinError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(|source| PinError::io(shown, source))
}

/// Sorted, without `.` and `..`.
fn names(descriptor: &OwnedFd, shown: &Path) -> Result<Vec<OsString>, PinError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(descriptor).map_err(|source| PinError::io(shown, source))? {
        let entry = entry.map_err(|source| PinError::io(shown, source))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
            if names.len() as u64 > MAX_ENTRIES {
                return Err(PinError::TooLarge { root: shown.to_owned(), limit: "240000 directory entries" });
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}
