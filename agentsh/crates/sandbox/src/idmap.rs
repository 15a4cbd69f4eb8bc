//! Id-mapped mounts: if root starts agentsh, files of the invoking user appear as the sandbox user's, and new files
//! belong to the invoking user on disk.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::mount::OpenTreeFlags;

use super::mount_calls::{attributes, clone_tree_with, file_key};
use super::plan::{Access, Identity, Mount, NodeContent, Source};
use super::stage::{StageContext, StageError};
use super::{Enforcement, State};

/// The id maps of a session: one for each owner whose files belong to the sandbox's user inside.
#[derive(Debug)]
pub struct IdMaps {
    identity: Identity,
    made: RefCell<BTreeMap<(u32, u32), Rc<IdMap>>>,
}

impl IdMaps {
    /// With the map for root's own files, which shows whether there can be any.
    ///
    /// # Errors
    /// The step that the kernel refused.
    pub fn new(identity: Identity) -> Result<Self, StageError> {
        let maps = Self { identity, made: RefCell::default() };
        maps.of(0, 0).map(|_| maps)
    }

    /// # Errors
    /// The step that the kernel refused.
    pub fn of(&self, owner_uid: u32, owner_gid: u32) -> Result<Rc<IdMap>, StageError> {
        let key = (owner_uid, owner_gid);
        if let Some(map) = self.made.borrow().get(&key) {
            return Ok(Rc::clone(map));
        }
        let map = Rc::new(IdMap::new(owner_uid, owner_gid, self.identity)?);
        self.made.borrow_mut().insert(key, Rc::clone(&map));
        Ok(map)
    }

    /// The owner of a path, if a map is needed to show it as the sandbox's own. Root's files count as those of root's
    /// group.
    #[must_use]
    pub fn owner(&self, path: &Path) -> Option<(u32, u32)> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::symlink_metadata(path).ok()?;
        match found.uid() {
            0 => Some((0, 0)),
            uid if uid == self.identity.host_uid => None,
            uid => Some((uid, found.gid())),
        }
    }

    /// As root: binds files of root or of another user than the sandbox's through an id map, so they belong to the
    /// sandbox's user inside, and new ones to their owner outside.
    pub fn map_owned(
        &self,
        mounts: &mut [Mount],
        passed: &mut Vec<OwnedFd>,
        enforcement: &mut Vec<Enforcement>,
    ) {
        let mut sources: Vec<(&mut Source, bool)> = Vec::new();
        for mount in mounts {
            match &mut mount.what {
                NodeContent::Bind { access: Access::Device, .. } => {}
                NodeContent::Bind { source, access, .. } => {
                    sources.push((source, *access == Access::ReadWrite));
                }
                NodeContent::Overlay { lower, layer, .. } => {
                    sources.extend([(lower, false), (layer, false)]);
                }
                _ => {}
            }
        }
        for (source, is_writable) in sources {
            let Source::Path { path, expect, no_links } = source else { continue };
            // No id map is possible for files of the kernel, and nothing inside needs to own read-only files.
            let is_of_kernel = path.starts_with("/dev") || path.starts_with("/sys");
            if is_of_kernel || super::layout::is_system(path) && !is_writable {
                continue;
            }
            let Some((uid, gid)) = self.owner(path) else { continue };
            match self.of(uid, gid).and_then(|map| map.tree(path, *no_links)) {
                // A pinned file must still be the one that was hashed; the launch fails when init finds another.
                Ok(tree) if expect.is_none_or(|key| file_key(tree.as_fd()).is_ok_and(|now| now == key)) => {
                    passed.push(tree);
                    *source = Source::Detached(passed.len() - 1);
                }
                Ok(_) => {}
                Err(error) => enforcement.push(Enforcement::weakened(
                    "id map",
                    &format!("{} belongs to the sandbox's user", path.display()),
                    "it belongs to another user and may be read-only",
                    State::Degraded,
                    error.to_string(),
                )),
            }
        }
    }
}

/// A user namespace that is only used for its map: the owner's ids and the sandbox's are exchanged, and all others stay. The
/// kernel refuses every change of a file with an owner or a group that has no id.
#[derive(Debug)]
pub struct IdMap(OwnedFd);

impl IdMap {
    /// Needs CAP_SETUID and CAP_SYS_ADMIN on the host.
    ///
    /// # Errors
    /// The step that the kernel refused.
    fn new(owner_uid: u32, owner_gid: u32, identity: Identity) -> Result<Self, StageError> {
        let (pid, pipe) = idle_process().at("start the id map's process")?;
        let directory = Path::new("/proc").join(pid.to_string());
        let write = |name: &str, host: u32, inside: u32| {
            std::fs::OpenOptions::new()
                .write(true)
                .open(directory.join(name))
                .and_then(|mut file| file.write_all(exchange_map(host, inside).as_bytes()))
                .on("write the id map's", name)
        };
        let maps = write("uid_map", owner_uid, identity.host_uid)
            .and_then(|()| write("gid_map", owner_gid, identity.host_gid));
        let namespace = std::fs::File::open(directory.join("ns/user")).at("open the id map's namespace");
        drop(pipe);
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
        maps?;
        Ok(Self(namespace?.into()))
    }

    /// A detached, mapped copy of the tree at `path`.
    ///
    /// # Errors
    /// When the file system does not support id maps.
    pub fn tree(&self, path: &Path, no_links: bool) -> Result<OwnedFd, StageError> {
        let mapped = attributes(0, Some(self.0.as_fd()));
        clone_tree_with(path, OpenTreeFlags::empty(), no_links, &mapped).on("map the ids of", path.display())
    }
}

/// A map of all ids to themselves, but for two.
fn exchange_map(one: u32, other: u32) -> String {
    let (low, high) = (one.min(other), one.max(other));
    let mut ranges = vec![(0, 0, low), (low, high, 1)];
    if low < high {
        ranges.extend([(low + 1, low + 1, high - low - 1), (high, low, 1)]);
    }
    ranges.push((high + 1, high + 1, u32::MAX - high - 1));
    let ranges = ranges.into_iter().filter(|(_, _, count)| *count > 0);
    ranges.map(|(from, to, count)| format!("{from} {to} {count}\n")).collect()
}

/// A child in a user namespace of its own that lives until the returned pipe end is dropped.
#[expect(unsafe_code, reason = "fork: the child makes three bare system calls")]
fn idle_process() -> io::Result<(i32, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (ready_read, ready_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: the child calls only unshare, write, close, read and _exit, which neither allocate nor lock.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        use std::os::fd::AsRawFd;
        // SAFETY: as above; the buffer is on this stack and the descriptors are open.
        unsafe {
            let mut byte = [0_u8];
            if libc::unshare(libc::CLONE_NEWUSER) == 0 {
                libc::write(ready_write.as_raw_fd(), byte.as_ptr().cast(), 1);
            }
            libc::close(ready_write.as_raw_fd());
            libc::close(write.as_raw_fd());
            libc::read(read.as_raw_fd(), byte.as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    drop(ready_write);
    let mut byte = [0];
    if rustix::io::retry_on_intr(|| rustix::io::read(&ready_read, &mut byte))? == 1 {
        return Ok((pid, write));
    }
    drop(write);
    let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
    Err(io::Error::other("user namespaces are not allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_map_has_every_id_once() {
        assert_eq!(exchange_map(0, 1000), "0 1000 1\n1 1 999\n1000 0 1\n1001 1001 4294966294\n");
        assert_eq!(exchange_map(7, 7), "0 0 7\n7 7 1\n8 8 4294967287\n");
        assert_eq!(exchange_map(5, 4), exchange_map(4, 5));
    }
}
