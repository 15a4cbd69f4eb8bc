//! Resolves a policy's paths to paths of this host, for both the sandbox plan and `explain`.

use std::path::{Path, PathBuf};

use super::path::{self, PathContext};
use super::sections::filesystem::FilesystemPolicy;

/// `~`, the project and `..` resolved by their letters; a pattern keeps its stars.
#[must_use]
pub fn resolve(text: &str, context: &PathContext) -> PathBuf {
    path::absolute(text, context).iter().map(AsRef::<str>::as_ref).collect()
}

/// Whether a pattern means this path.
#[must_use]
pub fn matches(pattern: &str, path: &Path, context: &PathContext) -> bool {
    path::is(&path::absolute(pattern, context), &path::absolute(&path.to_string_lossy(), context))
}

impl FilesystemPolicy {
    /// Whether a grant of `write` covers the path. Masks and read-only files are not asked.
    #[must_use]
    pub fn may_write(&self, path: &Path, context: &PathContext) -> bool {
        covers(&self.write, path, context)
    }

    /// Whether a grant of `read` or `write` covers the path.
    #[must_use]
    pub fn may_read(&self, path: &Path, context: &PathContext) -> bool {
        covers(&self.read, path, context) || covers(&self.write, path, context)
    }
}

fn covers(list: &[super::Ruled<String>], path: &Path, context: &PathContext) -> bool {
    let path = path.to_string_lossy();
    let wanted = path::absolute(&path, context);
    list.iter().any(|entry| path::covers(&path::absolute(&entry.value, context), &wanted))
}
