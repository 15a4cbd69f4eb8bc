//! Appends every event to a file as a line of JSON.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use agentsh_base::small_file;

use super::entry::Entry;

pub struct Lines {
    file: File,
    /// Why lines are missing, and how many.
    pub failed: Option<(String, u64)>,
}

impl Lines {
    /// Opens the file, or makes it for the user alone. No link is followed: another user could have made it.
    ///
    /// # Errors
    /// It is not a regular file, has a second name, or cannot be written to.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = small_file::open_own(path, true).map_err(|error| error.to_string())?;
        Ok(Self { file, failed: None })
    }

    pub fn write_entry(&mut self, entry: &Entry) {
        let line = format!("{}\n", entry.flat());
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            let lost = self.failed.take().map_or(0, |(_, lost)| lost);
            self.failed = Some((error.to_string(), lost + 1));
        }
    }
}
