//! Pipes that are non-blocking on the session's side and blocking on the program's.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::net::unix::pipe;

/// The kernel's default of 64 KiB would cost a context switch per piece of a long line; a user may have 64 MiB of
/// pipes (fs.pipe-user-pages-soft).
const PIPE_BYTES: usize = 256 << 10;

/// Our writing end, and the inner end.
///
/// # Errors
/// When there are no descriptors left.
pub fn to_write() -> io::Result<(pipe::Sender, OwnedFd)> {
    let (inside, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    make_ours(&ours)?;
    Ok((pipe::Sender::from_owned_fd(ours)?, inside))
}

/// Our reading end, and the inner end.
///
/// # Errors
/// When there are no descriptors left.
pub fn to_read() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (ours, inside) = pipe_with(PipeFlags::CLOEXEC)?;
    make_ours(&ours)?;
    Ok((pipe::Receiver::from_owned_fd(ours)?, inside))
}

fn make_ours(end: &OwnedFd) -> io::Result<()> {
    // At the user's limit the pipe stays small, which is only slower.
    let _ = fcntl_setpipe_size(end, PIPE_BYTES);
    Ok(rustix::io::ioctl_fionbio(end, true)?)
}
