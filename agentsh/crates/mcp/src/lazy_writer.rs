//! Writes to a descriptor that is registered with the runtime only once it is full: epoll wakes a writer for each read
//! at the other end, which costs that reader up to 20 µs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;

/// The writing end; it never blocks.
#[derive(Debug)]
pub struct LazyWriter {
    state: State,
    is_socket: bool,
}

#[derive(Debug)]
enum State {
    Bare(OwnedFd),
    /// It was full, and is registered with the runtime. tokio's pipe type only needs readiness, so it also takes
    /// sockets.
    Watched(pipe::Sender),
    /// Registering or unregistering failed.
    Lost,
}

impl LazyWriter {
    /// A socket, shared or not; or a non-blocking pipe whose file description is ours alone.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        let is_socket = fstat(&descriptor)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Socket);
        Self { state: State::Bare(descriptor), is_socket }
    }
}

/// Writes without waiting. A shared socket's flags can change at any time, so each call passes `MSG_DONTWAIT`.
fn write(descriptor: impl AsFd, is_socket: bool, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::io::retry_on_intr(|| match is_socket {
        true => send(&descriptor, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        false => rustix::io::write(&descriptor, bytes),
    })
}

impl AsyncWrite for LazyWriter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { state, is_socket } = self.get_mut();
        if let State::Bare(descriptor) = state {
            match write(&*descriptor, *is_socket, bytes) {
                Err(Errno::WOULDBLOCK) => {}
                written => return Poll::Ready(written.map_err(io::Error::from)),
            }
        }
        let watched = match std::mem::replace(state, State::Lost) {
            State::Bare(descriptor) => pipe::Sender::from_owned_fd_unchecked(descriptor)?,
            State::Watched(watched) => watched,
            State::Lost => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        };
        let written = poll_watched(&watched, *is_socket, context, bytes);
        *state = match written {
            Poll::Pending => State::Watched(watched),
            Poll::Ready(_) => State::Bare(watched.into_nonblocking_fd()?),
        };
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// The writer is closed when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn poll_watched(
    watched: &pipe::Sender,
    is_socket: bool,
    context: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(watched.poll_write_ready(context))?;
        match watched.try_io(|| Ok(write(watched, is_socket, bytes)?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use std::io::Read;
    use tokio::io::AsyncWriteExt;

    /// More than any pipe or socket holds at once.
    const MAX_BUFFERED_BYTES: usize = 4 << 20;

    fn much() -> Vec<u8> {
        (0..MAX_BUFFERED_BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    async fn passes_everything(ours: OwnedFd, mut theirs: impl Read + Send + 'static) {
        let reader = tokio::task::spawn_blocking(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).map(|_| got)
        });
        let mut writer = LazyWriter::new(ours);
        writer.write_all(b"first").await.unwrap();
        assert!(matches!(writer.state, State::Bare(_)), "nobody waited");
        writer.write_all(&much()).await.unwrap();
        assert!(matches!(writer.state, State::Bare(_)), "nobody waits any more");
        drop(writer);
        let got = reader.await.unwrap().unwrap();
        assert!(got == [b"first".to_vec(), much()].concat());
    }

    #[tokio::test]
    async fn lazy_writer_delivers_every_byte_to_a_slow_socket() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        passes_everything(ours.into(), theirs).await;
    }

    /// It was never made non-blocking, or another process has undone it.
    #[tokio::test]
    async fn lazy_writer_does_not_block_on_a_blocking_socket() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        passes_everything(ours.into(), theirs).await;
    }

    #[tokio::test]
    async fn lazy_writer_delivers_every_byte_to_a_slow_pipe() {
        let (theirs, ours) = std::io::pipe().unwrap();
        let ours = OwnedFd::from(ours);
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        passes_everything(ours, theirs).await;
    }

    #[tokio::test]
    async fn write_to_a_closed_reader_is_an_error() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut writer = LazyWriter::new(ours.into());
        drop(theirs);
        let error = writer.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn reader_that_closes_during_a_write_is_an_error() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut writer = LazyWriter::new(ours.into());
        let leaver = async {
            tokio::task::yield_now().await;
            drop(theirs);
        };
        let (written, ()) = tokio::join!(async { writer.write_all(&much()).await }, leaver);
        assert!(written.is_err());
    }
}
