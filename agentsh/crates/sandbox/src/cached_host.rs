//! A [`Host`](super::host::Host) that reads each directory once. A layout asks for about a hundred names in a project,
//! and most do not exist. Used for one layout only.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::git_config::GitConfig;
use crate::host::{
    Host, Links, Listing, Modules, PathKind, Repositories, SmallFile, SmallTree, is_known_missing,
};

/// A directory is listed once this many names in it were looked up: reading takes five system calls.
const LOOKUPS_BEFORE_LISTING: usize = 6;

#[derive(Debug)]
enum DirectoryState {
    Asked(usize),
    Listed(Arc<Listing>),
    /// Unreadable, too large, or without entry types.
    Opaque,
}

/// Answers from directories that were read, and asks the host for the rest.
pub struct CachedHost<'h> {
    host: &'h dyn Host,
    known: RefCell<HashMap<PathBuf, DirectoryState>>,
    /// Parsed git configurations, which several guards need.
    configs: RefCell<HashMap<PathBuf, Option<GitConfig>>>,
    looked_at: RefCell<HashMap<PathBuf, Option<PathKind>>>,
    common: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
    /// Directories with resolved links.
    real: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
    may_make: RefCell<HashMap<PathBuf, bool>>,
    small: RefCell<HashMap<PathBuf, Option<SmallTree>>>,
}

fn asked_once<T: Clone>(known: &RefCell<HashMap<PathBuf, T>>, path: &Path, ask: impl FnOnce() -> T) -> T {
    known.borrow_mut().entry(path.to_owned()).or_insert_with(ask).clone()
}

impl<'h> CachedHost<'h> {
    #[must_use]
    pub fn new(host: &'h dyn Host) -> Self {
        Self {
            host,
            known: RefCell::default(),
            configs: RefCell::default(),
            looked_at: RefCell::default(),
            common: RefCell::default(),
            real: RefCell::default(),
            may_make: RefCell::default(),
            small: RefCell::default(),
        }
    }

    /// Whether something exists at a path, links followed.
    #[must_use]
    pub fn exists(&self, path: &Path) -> bool {
        match self.path_kind(path) {
            None => false,
            Some(PathKind::Symlink | PathKind::Closed) => path.exists(),
            Some(_) => true,
        }
    }

    /// Whether a regular file is at a path, links followed.
    #[must_use]
    pub fn is_file(&self, path: &Path) -> bool {
        match self.path_kind(path) {
            Some(PathKind::File) => true,
            Some(PathKind::Symlink) => path.is_file(),
            _ => false,
        }
    }

    /// Reads a directory in which many names will be looked up.
    pub fn read(&self, directory: &Path) {
        self.cached_listing(directory, 0);
    }

    /// Whether a directory above is known to lack a path, or to have a file there.
    fn is_missing(&self, path: &Path) -> bool {
        let known = self.known.borrow();
        is_known_missing(path, |directory| match known.get(directory)? {
            DirectoryState::Listed(listing) => Some(&**listing),
            _ => None,
        })
    }

    /// A directory's listing, if it was read or asked about often enough.
    fn cached_listing(&self, directory: &Path, looks_before: usize) -> Option<Arc<Listing>> {
        let asked = match self.known.borrow().get(directory) {
            Some(DirectoryState::Listed(listing)) => return Some(Arc::clone(listing)),
            Some(DirectoryState::Opaque) => return None,
            Some(DirectoryState::Asked(times)) => *times,
            None if self.is_missing(directory) => return None,
            None => 0,
        };
        let listing = if asked < looks_before { None } else { self.host.listing(directory) };
        let known = match &listing {
            _ if asked < looks_before => DirectoryState::Asked(asked + 1),
            Some(listing) => DirectoryState::Listed(Arc::clone(listing)),
            None => DirectoryState::Opaque,
        };
        self.known.borrow_mut().insert(directory.to_owned(), known);
        listing
    }
}

impl Host for CachedHost<'_> {
    fn listing(&self, directory: &Path) -> Option<Arc<Listing>> {
        self.cached_listing(directory, 0)
    }

    fn path_kind(&self, path: &Path) -> Option<PathKind> {
        if self.is_missing(path) {
            return None;
        }
        let listing = path.parent().and_then(|above| self.cached_listing(above, LOOKUPS_BEFORE_LISTING));
        let ask = || asked_once(&self.looked_at, path, || self.host.path_kind(path));
        let (Some(listing), Some(name)) = (listing, path.file_name()) else { return ask() };
        match listing.kinds.get(name) {
            // Some file systems do not say what an entry is.
            Some(PathKind::Closed) => ask(),
            found => found.copied(),
        }
    }

    fn names(&self, directory: &Path) -> Option<Vec<(OsString, PathKind)>> {
        match self.cached_listing(directory, 0) {
            Some(listing) => Some(listing.names.clone()),
            None => self.host.names(directory),
        }
    }

    fn small_tree(&self, path: &Path) -> Option<SmallTree> {
        asked_once(&self.small, path, || self.host.small_tree(path))
    }

    fn generated_files(&self, directory: &Path) -> Option<Vec<SmallFile>> {
        self.host.generated_files(directory)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.host.link(path)
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        asked_once(&self.real, path, || self.host.canonical(path))
    }

    fn repositories(&self, directory: &Path) -> Repositories {
        self.host.repositories(directory)
    }

    fn is_empty(&self, path: &Path) -> bool {
        self.host.is_empty(path)
    }

    fn most_mounts(&self) -> usize {
        self.host.most_mounts()
    }

    fn may_make_in(&self, directory: &Path) -> bool {
        asked_once(&self.may_make, directory, || self.host.may_make_in(directory))
    }

    fn home_of(&self, user: &str) -> Option<PathBuf> {
        self.host.home_of(user)
    }

    fn account(&self, uid: u32, users: &str) -> (Option<String>, Option<PathBuf>) {
        self.host.account(uid, users)
    }

    fn names_in(&self, file: &Path) -> String {
        self.host.names_in(file)
    }

    fn disks(&self) -> Vec<(Links, PathBuf)> {
        self.host.disks()
    }

    fn modules(&self, git: &Path) -> Option<Modules> {
        self.host.modules(git)
    }

    fn has_other_names(&self, directory: &Path) -> bool {
        self.host.has_other_names(directory)
    }

    fn shared_inode(&self, path: &Path) -> Option<(u64, u64)> {
        self.host.shared_inode(path)
    }

    fn names_of(&self, directory: &Path, files: &BTreeSet<(u64, u64)>) -> Vec<PathBuf> {
        self.host.names_of(directory, files)
    }

    fn git_directory(&self, file: &Path) -> Option<PathBuf> {
        self.host.git_directory(file)
    }

    fn common_directory(&self, git: &Path) -> Option<PathBuf> {
        asked_once(&self.common, git, || self.host.common_directory(git))
    }

    fn git_config(&self, config: &Path) -> Option<GitConfig> {
        asked_once(&self.configs, config, || self.host.git_config(config))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::fs;

    use super::*;
    use crate::host::RealHost;

    #[test]
    fn cached_host_answers_as_the_host_does() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        fs::create_dir(place.path().join("directory")).unwrap();
        std::os::unix::fs::symlink("nowhere", place.path().join("link")).unwrap();
        let real = RealHost::default();
        let listed = CachedHost::new(&real);
        for _ in 0..4 {
            for name in ["file", "directory", "link", "missing", "directory/missing", "file/below"] {
                let path = place.path().join(name);
                assert_eq!(listed.path_kind(&path), real.path_kind(&path), "{name}");
            }
        }
        assert!(matches!(listed.known.borrow().get(place.path()), Some(DirectoryState::Listed(_))));
        assert!(listed.is_missing(&place.path().join("missing/below")));
        assert!(!listed.is_missing(&place.path().join("directory/below")));
        assert!(listed.exists(&place.path().join("file")) && !listed.exists(&place.path().join("link")));
        assert!(
            listed.is_file(&place.path().join("file")) && !listed.is_file(&place.path().join("directory"))
        );
        let mut names = listed.names(place.path()).unwrap();
        let mut expected = real.names(place.path()).unwrap();
        names.sort_by(|one, other| one.0.cmp(&other.0));
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(names, expected);
    }
}
