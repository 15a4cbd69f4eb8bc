//! Lists a directory in four system calls. `std::fs::read_dir` makes one more, for the directory's size, and a start lists
//! some twenty directories.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, openat2};

/// Bytes of one answer of the kernel. Most directories take one, and another call says that it was the last.
const BUFFER_BYTES: usize = 32 << 10;
const FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Calls `see` with each name and its kind, as long as it continues. Symbolic links are not followed. The order is that of the file
/// system.
///
/// # Errors
/// When the directory cannot be opened. What cannot be read after that ends the list.
pub fn for_each_entry(
    directory: &Path,
    see: impl FnMut(&OsStr, FileType) -> ControlFlow<()>,
) -> io::Result<()> {
    each_in(rustix::fs::open(directory, FLAGS, Mode::empty())?, directory, see)
}

/// Like [`for_each_entry`], of a directory with no symbolic link in its path.
///
/// # Errors
/// Like [`for_each_entry`]; `ELOOP` if there is one.
pub fn each_without_links(
    directory: &Path,
    see: impl FnMut(&OsStr, FileType) -> ControlFlow<()>,
) -> io::Result<()> {
    let opened = openat2(CWD, directory, FLAGS, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    each_in(opened, directory, see)
}

fn each_in(
    opened: OwnedFd,
    directory: &Path,
    mut see: impl FnMut(&OsStr, FileType) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut entries = RawDir::new(opened, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = entries.next() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => rustix::fs::lstat(directory.join(name))
                .map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode)),
            kind => kind,
        };
        if see(name, kind).is_break() {
            break;
        }
    }
    Ok(())
}

/// The paths of what is in a directory.
///
/// # Errors
/// Like [`for_each_entry`].
pub fn paths(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for_each_entry(directory, |name, _| {
        found.push(directory.join(name));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_listing_equals_that_of_the_standard_library() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut listed = Vec::new();
        for_each_entry(directory, |name, kind| {
            listed.push((name.to_owned(), kind == FileType::Directory));
            ControlFlow::Continue(())
        })
        .expect("it is there");
        let entries = std::fs::read_dir(directory).expect("it is there").flatten();
        let kinds = entries.map(|entry| (entry.file_name(), entry.path().is_dir()));
        assert_eq!(listed, kinds.collect::<Vec<_>>());
        assert!(paths(directory).expect("it is there").contains(&directory.join("Cargo.toml")));
        let mut count = 0;
        for_each_entry(directory, |_, _| {
            count += 1;
            ControlFlow::Break(())
        })
        .expect("it is there");
        assert_eq!(count, 1);
        assert!(for_each_entry(&directory.join("none"), |_, _| ControlFlow::Continue(())).is_err());
    }
}
