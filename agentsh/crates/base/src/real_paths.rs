//! Resolves symlinks in paths and caches each lookup, because many paths share directories.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// Like [`Path::canonicalize`], which looks up each part of a path: a path without links, `.` and `..` is looked up as a
/// whole.
///
/// # Errors
/// As there.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let is_plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    if is_plain && rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok() {
        return Ok(path.components().collect());
    }
    path.canonicalize()
}

/// The kernel follows no more.
const MAX_LINKS: usize = 40;

#[derive(Clone, Debug)]
enum LinkTarget {
    Link(PathBuf),
    Other,
    /// It does not exist, or cannot be read.
    Nothing,
}

/// A cache of links. For a short time, because they may change.
#[derive(Clone, Debug, Default)]
pub struct RealPaths(RefCell<HashMap<PathBuf, LinkTarget>>);

impl RealPaths {
    fn read_link(&self, path: &Path) -> LinkTarget {
        let ask = || match std::fs::read_link(path) {
            Ok(to) => LinkTarget::Link(to),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => LinkTarget::Other,
            Err(_) => LinkTarget::Nothing,
        };
        self.0.borrow_mut().entry(path.to_owned()).or_insert_with(ask).clone()
    }

    /// The target of a link; None: it is not a link.
    #[must_use]
    pub fn link(&self, path: &Path) -> Option<PathBuf> {
        match self.read_link(path) {
            LinkTarget::Link(to) => Some(to),
            LinkTarget::Other | LinkTarget::Nothing => None,
        }
    }

    /// Whether a path exists whose parents are not links.
    #[must_use]
    pub fn is_there(&self, path: &Path) -> bool {
        !matches!(self.read_link(path), LinkTarget::Nothing)
    }

    /// The absolute path with all its links followed; None if the path does not exist.
    #[must_use]
    pub fn canonical(&self, path: &Path) -> Option<PathBuf> {
        let parts = |path: &Path| path.iter().rev().map(OsString::from).collect::<Vec<_>>();
        if !path.is_absolute() {
            return path.canonicalize().ok();
        }
        let (mut followed, mut at, mut rest) = (0, PathBuf::from("/"), parts(path));
        while let Some(part) = rest.pop() {
            if part == "/" {
                at = PathBuf::from("/");
                continue;
            }
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(part);
            match self.read_link(&next) {
                LinkTarget::Nothing => return None,
                LinkTarget::Other => at = next,
                LinkTarget::Link(_) if followed == MAX_LINKS => return None,
                LinkTarget::Link(to) => {
                    followed += 1;
                    rest.extend(parts(&to));
                }
            }
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn canonical_path_is_that_of_the_standard_library() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/file"), "").unwrap();
        symlink("a/b", root.join("relative")).unwrap();
        symlink(root.join("a"), root.join("absolute")).unwrap();
        symlink("../relative/..", root.join("a/up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("gone", root.join("dangling")).unwrap();
        let paths = RealPaths::default();
        for name in [
            "",
            "a",
            "a/b",
            "relative",
            "absolute/b",
            "a/up",
            "a/up/file",
            "loop",
            "dangling",
            "none",
            "a/file/below",
            "relative/../file",
            "absolute/./b/..",
        ] {
            let path = root.join(name);
            assert_eq!(paths.canonical(&path), path.canonicalize().ok(), "{name}");
        }
        assert_eq!(paths.link(&root.join("relative")), Some("a/b".into()));
        assert!(paths.is_there(&root.join("loop")) && !paths.is_there(&root.join("none")));
    }
}
