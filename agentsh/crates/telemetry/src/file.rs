//! Appends every event to a file as a line of JSON.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

use super::entry::Entry;

pub struct Lines {
    file: File,
    /// Why lines are missing, and how many.
    pub failed: Option<(String, u64)>,
}

impl Lines {
    /// Opens the file, or makes it for the user alone. No link is followed: somebody else could lead it elsewhere.
    ///
    /// # Errors
    /// What is not a file, has a second name, or cannot be written to.
    pub fn open(path: &Path) -> Result<Self, String> {
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW
            // A pipe without a reader would wait for one.
            | OFlags::NONBLOCK;
        let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let file: OwnedFd = opened.map_err(|error| match error {
            rustix::io::Errno::LOOP => "it is a symbolic link".to_owned(),
            error => io::Error::from(error).to_string(),
        })?;
        let found = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err("it is not a regular file".to_owned());
        }
        if found.st_nlink > 1 {
            return Err("it has another hard link".to_owned());
        }
        if found.st_mode & 0o077 != 0 {
            rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)
                .map_err(|error| format!("other users can read it: {error}"))?;
        }
        Ok(Self { file: file.into(), failed: None })
    }

    pub fn tell(&mut self, entry: &Entry) {
        let line = format!("{}\n", entry.flat());
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            let lost = self.failed.take().map_or(0, |(_, lost)| lost);
            self.failed = Some((error.to_string(), lost + 1));
        }
    }
}
