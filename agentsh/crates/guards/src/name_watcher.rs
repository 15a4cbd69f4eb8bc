//! Watches names in directories with inotify.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// A watched directory takes about 1 KiB of kernel memory.
const MAX_DIRECTORIES: usize = 8_192;

/// What happened to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// By a rename, atomically.
    MovedHere,
    Made,
    Gone,
    Written,
}

pub struct Names {
    notify: OwnedFd,
    directories: BTreeMap<i32, PathBuf>,
    /// Some directories are not watched, or events were lost.
    pub is_incomplete: bool,
}

impl Names {
    /// For closing elsewhere.
    pub fn into_descriptor(self) -> OwnedFd {
        self.notify
    }

    /// # Errors
    /// When the user has no inotify instances left.
    pub fn new() -> io::Result<Self> {
        let notify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { notify, directories: BTreeMap::new(), is_incomplete: false })
    }

    /// Watches names in a directory; with `writes`, also writes to its files.
    pub fn watch(&mut self, directory: &Path, writes: bool) {
        let mut flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::MASK_ADD;
        if writes {
            flags |= WatchFlags::MODIFY;
        }
        if self.directories.len() >= MAX_DIRECTORIES {
            self.is_incomplete = true;
            return;
        }
        match inotify::add_watch(&self.notify, directory, flags) {
            Ok(number) => drop(self.directories.insert(number, directory.to_owned())),
            // A missing directory is watched through its parent.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(_) => self.is_incomplete = true,
        }
    }

    /// Changes since the last call, with whether it is a directory.
    pub fn read_changes(&mut self) -> Vec<(PathBuf, NameChange, bool)> {
        let mut found = Vec::new();
        let mut buffer = [MaybeUninit::<u8>::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.notify, &mut buffer);
        while let Ok(event) = reader.next() {
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.is_incomplete = true;
                continue;
            }
            let Some(directory) = self.directories.get(&event.wd()) else { continue };
            let Some(name) = event.file_name() else { continue };
            let path = directory.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            let what = if flags.contains(ReadFlags::MOVED_TO) {
                NameChange::MovedHere
            } else if flags.contains(ReadFlags::CREATE) {
                NameChange::Made
            } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                NameChange::Gone
            } else {
                NameChange::Written
            };
            found.push((path, what, flags.contains(ReadFlags::ISDIR)));
        }
        found
    }
}

impl AsFd for Names {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notify.as_fd()
    }
}
