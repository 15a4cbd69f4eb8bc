//! Watches names in directories with inotify.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::process::{Resource, getrlimit};

/// A watched directory takes about 1 KiB of kernel memory.
const MAX_DIRECTORIES: usize = 8_192;
/// One sandbox may hold directories with this fraction of the process's descriptors: those near the top.
const HELD_DIVISOR: u64 = 8;
const MAX_HELD: u64 = 1_024;

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
    /// Directories that are found wherever the host moves them.
    held: BTreeMap<i32, File>,
    max_held: OnceCell<usize>,
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
        let (directories, held) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { notify, directories, held, max_held: OnceCell::new(), is_incomplete: false })
    }

    /// Like [`Self::watch`], and keeps the directory open if it is on this device: an open one keeps a disk from being unmounted.
    pub fn hold(&mut self, directory: &Path, device: u64) {
        let Some(number) = self.watch(directory, false) else { return };
        let max_held = self.max_held.get_or_init(|| {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / HELD_DIVISOR;
            usize::try_from(limit.min(MAX_HELD)).unwrap_or_default()
        });
        if self.held.len() >= *max_held || self.held.contains_key(&number) {
            return;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let held = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(directory);
        let on_device = |held: &File| held.metadata().is_ok_and(|found| found.dev() == device);
        held.ok().filter(on_device).map(|held| self.held.insert(number, held));
    }

    /// A held directory that is no longer at a path.
    pub fn moved_from(&mut self, path: &Path) -> Option<File> {
        let at = |number: &&i32| self.directories.get(number).is_some_and(|at| at == path);
        let number = *self.held.keys().find(at)?;
        self.held.remove(&number)
    }

    /// Watches names in a directory; with `writes`, also writes to its files. Gives the number of the watch.
    pub fn watch(&mut self, directory: &Path, writes: bool) -> Option<i32> {
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
            return None;
        }
        match inotify::add_watch(&self.notify, directory, flags) {
            Ok(number) => {
                self.directories.insert(number, directory.to_owned());
                return Some(number);
            }
            // A missing directory is watched through its parent.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(_) => self.is_incomplete = true,
        }
        None
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
