//! Pipes between the session, which never waits on its end, and a program in a sandbox, which may.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::net::unix::pipe;

/// Bytes that a program may have written, or not yet read. The kernel gives a pipe 64 KiB, and a long line in such pieces is
/// a change of process for each; a user may have 64 MiB of pipes (fs.pipe-user-pages-soft).
const PIPE_BYTES: usize = 256 << 10;

/// Our end to write to, and the end for the inside.
///
/// # Errors
/// When there are no descriptors left.
pub fn to_write() -> io::Result<(pipe::Sender, OwnedFd)> {
    let (inside, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    make_ours(&ours)?;
    Ok((pipe::Sender::from_owned_fd(ours)?, inside))
}

/// Our end to read from, and the end for the inside.
///
/// # Errors
/// When there are no descriptors left.
pub fn to_read() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (ours, inside) = pipe_with(PipeFlags::CLOEXEC)?;
    make_ours(&ours)?;
    Ok((pipe::Receiver::from_owned_fd(ours)?, inside))
}

fn make_ours(end: &OwnedFd) -> io::Result<()> {
    // A user's pipes may be limited: a small one is slower and works.
    let _ = fcntl_setpipe_size(end, PIPE_BYTES);
    Ok(rustix::io::ioctl_fionbio(end, true)?)
}
