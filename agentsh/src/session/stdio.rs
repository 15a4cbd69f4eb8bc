//! agentsh's standard input and output as streams.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use agentsh_mcp::lazy_writer::LazyWriter;

/// Standard input and output.
///
/// # Errors
/// When they are closed.
pub fn streams() -> io::Result<(impl AsyncRead + Unpin, impl AsyncWrite + Unpin)> {
    let (input, output) =
        (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    let input = if can_be_watched(&input)? {
        // tokio's pipe type only needs readiness and read(2), so it also takes sockets.
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

/// Whether standard input is a file, whose end says nothing about the client.
pub fn input_is_file() -> bool {
    let status = rustix::fs::fstat(io::stdin());
    status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile)
}

/// Whether standard output is still read.
pub fn has_reader() -> bool {
    let output = io::stdout();
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    let _unknown_is_yes = poll(&mut polled, Some(&Timespec::default()));
    !polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// A pipe or socket, made non-blocking. A blocking thread serves others (a file, a terminal).
fn can_be_watched(descriptor: &OwnedFd) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode);
    let can = matches!(kind, FileType::Fifo | FileType::Socket);
    if can {
        rustix::io::ioctl_fionbio(descriptor, true)?;
    }
    Ok(can)
}

pub struct StoppableReader<R> {
    input: R,
    end: oneshot::Receiver<()>,
}

impl<R> StoppableReader<R> {
    /// Dropping the sender ends it.
    pub fn new(input: R) -> (Self, oneshot::Sender<()>) {
        let (sender, end) = oneshot::channel();
        (Self { input, end }, sender)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for StoppableReader<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { input, end } = self.get_mut();
        if end.is_terminated() || Pin::new(end).poll(poller).is_ready() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(input).poll_read(poller, buffer)
    }
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
