//! Our own standard input and output as streams.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

use crate::mcp::lazy_writer::LazyWriter;

/// Standard input, standard output.
///
/// # Errors
/// When they are closed.
pub fn streams() -> io::Result<(impl AsyncRead + Unpin, impl AsyncWrite + Unpin)> {
    let (input, output) =
        (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    let input = if can_be_watched(&input)? {
        // Of sockets it asks no more than of pipes: readiness and read(2).
        Input::Watched(pipe::Receiver::from_owned_fd_unchecked(input)?)
    } else {
        Input::Thread(tokio::fs::File::from_std(input.into()))
    };
    let output = if can_be_watched(&output)? {
        Output::Lazy(LazyWriter::new(output))
    } else {
        Output::Thread(tokio::fs::File::from_std(output.into()))
    };
    Ok((input, output))
}

/// A pipe or socket, which does not block from here on. Anything else (a file, a terminal) is served by a blocking thread.
fn can_be_watched(descriptor: &OwnedFd) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode);
    let can = matches!(kind, FileType::Fifo | FileType::Socket);
    if can {
        rustix::io::ioctl_fionbio(descriptor, true)?;
    }
    Ok(can)
}

enum Input {
    Watched(pipe::Receiver),
    Thread(tokio::fs::File),
}

enum Output {
    Lazy(LazyWriter),
    Thread(tokio::fs::File),
}

impl AsyncRead for Input {
    fn poll_read(
        self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Thread(file) => Pin::new(file).poll_read(poller, buffer),
            Self::Watched(stream) => Pin::new(stream).poll_read(poller, buffer),
        }
    }
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, poller: &mut Poller<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Lazy(writer) => Pin::new(writer).poll_write(poller, bytes),
            Self::Thread(file) => Pin::new(file).poll_write(poller, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Lazy(writer) => Pin::new(writer).poll_flush(poller),
            Self::Thread(file) => Pin::new(file).poll_flush(poller),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _poller: &mut Poller<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
