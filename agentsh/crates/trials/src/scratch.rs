//! A temporary directory for one run of `doctor` or `demo`.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Removes the directory when dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If the removal fails, the rest stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes `$TMPDIR/agentsh-NAME-…`, for this user alone. Links on the way are resolved.
///
/// # Errors
/// When there is no place for temporary files.
#[expect(
    clippy::disallowed_methods,
    reason = "the directory made in it has mode 0700 and an unguessable name"
)]
pub fn make(name: &str) -> io::Result<Scratch> {
    let base = std::env::temp_dir().canonicalize()?;
    let unique = uuid::Uuid::now_v7().simple().to_string();
    let directory = base.join(format!("agentsh-{name}-{unique}"));
    std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
    Ok(Scratch(directory))
}

/// Writes a file and the directories above it.
///
/// # Errors
/// Those of the file system.
pub fn write_file(directory: &Path, path: &str, content: &str) -> io::Result<PathBuf> {
    let path = directory.join(path);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&path, content)?;
    Ok(path)
}
