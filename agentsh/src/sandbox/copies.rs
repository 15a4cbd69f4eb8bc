//! Pinned bytes are copied into memory and checked on the way, so that nobody can change them between check and use.
//! On a thread of its own: hashing them takes as long as all the mounts together.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

use super::stage::{At, StageError};

/// One file: the bytes behind a descriptor, an empty file of the sandbox's own, and the digest that both must have.
pub struct Copy {
    pub from: OwnedFd,
    pub to: OwnedFd,
    pub sha256: [u8; 32],
    /// For messages.
    pub target: PathBuf,
}

/// Copies in the making.
pub struct Copies(Option<JoinHandle<Result<(), StageError>>>);

impl Copies {
    /// # Errors
    /// When there can be no thread.
    pub fn begin(copies: Vec<Copy>) -> Result<Self, StageError> {
        if copies.is_empty() {
            return Ok(Self(None));
        }
        let maker = rustix::thread::sched_getcpu();
        let all = move || {
            leave(maker);
            copies.into_iter().try_for_each(make)
        };
        std::thread::Builder::new().spawn(all).map(Some).map(Self).at("copy the pinned bytes")
    }

    /// Waits for the last byte. Afterwards nothing of it is open for writing: the copies can be executed.
    ///
    /// # Errors
    /// Bytes that are not those that were pinned, or have no room.
    pub fn finish(self) -> Result<(), StageError> {
        self.0.map_or(Ok(()), |thread| {
            let broken = |_| Err(io::Error::other("the thread ended")).at("copy the pinned bytes");
            thread.join().unwrap_or_else(broken)
        })
    }
}

/// To another processor. A thread begins beside the one that made it, and the two would take turns there until the
/// scheduler looks again, which is later than all of this is done.
fn leave(processor: usize) {
    if let Ok(mut others) = rustix::thread::sched_getaffinity(None) {
        others.unset(processor);
        // Where there is no other one, they take turns.
        let _ = rustix::thread::sched_setaffinity(None, &others);
    }
}

fn make(Copy { from, to, sha256, target }: Copy) -> Result<(), StageError> {
    let found = copy_bytes(from.as_fd(), to).on("copy", target.display())?;
    if found == sha256 { Ok(()) } else { Err(changed()).on("check the pinned bytes of", target.display()) }
}

pub(super) fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the file changed after it was checked")
}

fn copy_bytes(from: BorrowedFd<'_>, to: OwnedFd) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut offset = 0;
    let mut out = File::from(to);
    loop {
        // By position: the descriptor's own offset is shared with whoever else holds it.
        let read = rustix::io::pread(from, &mut buffer, offset)?;
        if read == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(&buffer[..read]);
        out.write_all(&buffer[..read])?;
        offset += read as u64;
    }
}
