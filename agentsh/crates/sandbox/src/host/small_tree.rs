//! Small files and directories that everybody may read: a sandbox may have copies of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FileType;

use super::{SmallTree, open_for_reading};
use crate::types::FileKey;

/// Maximum size of a file that is copied. Copies are kept from one start to the next.
const SMALL_BYTES: u64 = 512 << 10;
/// Maximum size of a directory with few entries, and of a link.
const SMALL_DIRECTORY_BYTES: u64 = 64 << 10;
/// Maximum number of files and directories: checking more costs as much as the mount that their copies replace.
const SMALL_ENTRIES: usize = 8;

/// The keys of a small file or directory.
pub(super) fn read_small_tree(path: &Path) -> Option<SmallTree> {
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

/// An entry's key, and its descriptor if it is a directory. Reads the opened file: the name may have been replaced.
fn small_entry(path: &Path) -> Option<(FileKey, Option<std::fs::File>)> {
    const EVERYBODY_READS: u32 = 0o004;
    const EVERYBODY_ENTERS: u32 = 0o005;
    let file = open_for_reading(path)?;
    let found = file.metadata().ok()?;
    let (size, mode) = (found.len(), found.mode() & 0o777);
    let is_small = if found.is_dir() {
        // In most file systems the size shows many entries; listing them would take longer than a mount.
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
    fn files_that_not_everybody_may_read_are_not_copied() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "content").unwrap();
        let names =
            |path: &Path| read_small_tree(path).map(|tree| tree.into_iter().map(|(path, _)| path).collect());
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
        let copied = read_small_tree(directory.path()).unwrap();
        let paths: Vec<&Path> = copied.iter().map(|(path, _)| path.as_path()).collect();
        assert_eq!(paths, [directory.path(), &inner], "links count for nothing");

        let secret = inner.join("secret");
        std::fs::write(&secret, "secret").unwrap();
        set_mode(&secret, 0o600);
        assert_eq!(read_small_tree(directory.path()), None);
        std::fs::remove_file(&secret).unwrap();

        std::fs::write(inner.join("large"), vec![b'x'; usize::try_from(SMALL_BYTES).unwrap() + 1]).unwrap();
        assert_eq!(read_small_tree(directory.path()), None);
        std::fs::remove_file(inner.join("large")).unwrap();

        let _socket = std::os::unix::net::UnixListener::bind(inner.join("socket")).unwrap();
        assert_eq!(read_small_tree(directory.path()), None);
        std::fs::remove_file(inner.join("socket")).unwrap();

        for number in 0..SMALL_ENTRIES {
            std::fs::write(inner.join(number.to_string()), "").unwrap();
        }
        assert_eq!(read_small_tree(directory.path()), None);
    }
}
