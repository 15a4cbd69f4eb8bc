//! Small files: read whole or not at all, and replaced atomically.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The content of a regular file, links followed. None: it is another kind of file, or longer than `most`.
///
/// # Errors
/// When it cannot be opened or read.
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Option<Vec<u8>>> {
    // A pipe would wait for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = File::options();
    options.read(true).custom_flags(flags);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > most {
        return Ok(None);
    }
    let content = content_of(file, found.len(), most.saturating_add(1))?;
    Ok((content.len() as u64 <= most).then_some(content))
}

/// Like [`read`], as text. None also if it is not UTF-8, or cannot be read.
#[must_use]
pub fn text(path: impl AsRef<Path>, most: u64) -> Option<String> {
    String::from_utf8(read(path, most).ok()??).ok()
}

/// The content of an open regular file of this size, up to `most` bytes. If the size is right, one read is enough.
///
/// # Errors
/// When it cannot be read.
pub fn content_of(mut file: File, size: u64, most: u64) -> io::Result<Vec<u8>> {
    let most_bytes = usize::try_from(most).unwrap_or(usize::MAX);
    let mut content = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(most_bytes).saturating_add(1)];
    let read = file.read(&mut content)?;
    content.truncate(read);
    if read as u64 != size {
        file.take(most.saturating_sub(read as u64)).read_to_end(&mut content)?;
    }
    content.truncate(most_bytes);
    Ok(content)
}

/// Opens a file that a setting names, to write, or makes it, for its owner alone (0600). No link is followed: another user could
/// lead it elsewhere.
///
/// # Errors
/// It is not a regular file, has a second name, or cannot be written to.
pub fn open_own(path: &Path, appends: bool) -> io::Result<File> {
    // A pipe without a reader would wait for one.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    options.write(true).append(appends).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::other("it is a symbolic link"),
        _ => error,
    })?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if found.nlink() > 1 {
        return Err(io::Error::other("it has another hard link"));
    }
    if found.mode() & 0o077 != 0 {
        let closed = file.set_permissions(Permissions::from_mode(0o600));
        closed.map_err(|error| io::Error::new(error.kind(), format!("other users can read it: {error}")))?;
    }
    Ok(file)
}

/// Replaces the content of a file (0600); creates the directory (0700) if it is missing. A reader during the write finds the
/// old content or the new one. Not synced to the disk.
///
/// # Errors
/// When it cannot be written; the earlier file stays.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap_or(path))?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    std::fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(text(&file, 5).as_deref(), Some("12345"));
        assert_eq!(text(&file, 4), None);
        std::fs::write(&file, "").unwrap();
        assert_eq!(text(&file, 4).as_deref(), Some(""));
        assert_eq!(text(place.path(), 4), None, "a directory");
        assert_eq!(read(place.path().join("none"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
        // Its reported size is wrong (such as in `/proc`).
        assert!(text("/proc/self/status", 1 << 20).is_some_and(|text| text.contains("Name:")));
    }
}
