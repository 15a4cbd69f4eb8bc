//! Our own standard input and output as streams.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Standard input, standard output.
///
/// # Errors
/// When they are closed.
pub fn streams() -> io::Result<(impl AsyncRead + Unpin, impl AsyncWrite + Unpin)> {
    let input = Standard::new(io::stdin().as_fd().try_clone_to_owned()?, Interest::READABLE)?;
    let output = Standard::new(io::stdout().as_fd().try_clone_to_owned()?, Interest::WRITABLE)?;
    Ok((input, output))
}

/// One of them: a pipe or socket is watched, anything else (a file, a terminal) is served by
/// a blocking thread.
enum Standard {
    Watched(tokio::io::unix::AsyncFd<OwnedFd>),
    Thread(tokio::fs::File),
}

impl Standard {
    fn new(descriptor: OwnedFd, interest: Interest) -> io::Result<Self> {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode);
        if matches!(kind, rustix::fs::FileType::Fifo | rustix::fs::FileType::Socket) {
            rustix::io::ioctl_fionbio(&descriptor, true)?;
            return Ok(Self::Watched(crate::sandbox::spawn::watch(descriptor, interest)?));
        }
        Ok(Self::Thread(tokio::fs::File::from_std(descriptor.into())))
    }
}

impl AsyncRead for Standard {
    fn poll_read(
        self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Thread(file) => Pin::new(file).poll_read(poller, buffer),
            Self::Watched(descriptor) => loop {
                let mut guard = std::task::ready!(descriptor.poll_read_ready(poller))?;
                let space = buffer.initialize_unfilled();
                match guard.try_io(|inner| Ok(rustix::io::read(inner.get_ref(), &mut *space)?)) {
                    Ok(read) => {
                        buffer.advance(read?);
                        return Poll::Ready(Ok(()));
                    }
                    Err(_would_block) => {}
                }
            },
        }
    }
}

impl AsyncWrite for Standard {
    fn poll_write(self: Pin<&mut Self>, poller: &mut Poller<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Thread(file) => Pin::new(file).poll_write(poller, bytes),
            Self::Watched(descriptor) => loop {
                let mut guard = std::task::ready!(descriptor.poll_write_ready(poller))?;
                if let Ok(written) = guard.try_io(|inner| Ok(rustix::io::write(inner.get_ref(), bytes)?)) {
                    return Poll::Ready(written);
                }
            },
        }
    }

    fn poll_flush(self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Thread(file) => Pin::new(file).poll_flush(poller),
            Self::Watched(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _poller: &mut Poller<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
