//! A socket that is registered with the runtime only if a task has to wait for it.
//!
//! Registration costs a system call and memory. The first bytes of a program, and a connection to this machine, are
//! available at once, so both ends are registered while the server prepares its answer.

use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};
use tokio::net::TcpStream;

/// One end of a connection; it never blocks.
#[derive(Debug)]
pub enum Socket {
    Bare(StdStream),
    Watched(TcpStream),
}

impl Socket {
    /// A socket that was made with `SOCK_NONBLOCK`.
    #[must_use]
    pub fn from_nonblocking(socket: OwnedFd) -> Self {
        Self::Bare(socket.into())
    }

    /// Must be called inside a runtime.
    ///
    /// # Errors
    /// When the kernel has no room to watch one more; the connection is closed then.
    pub fn into_tokio(self) -> io::Result<TcpStream> {
        match self {
            Self::Bare(stream) => TcpStream::from_std(stream),
            Self::Watched(stream) => Ok(stream),
        }
    }

    /// # Errors
    /// The socket's own.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Bare(stream) => stream.local_addr(),
            Self::Watched(stream) => stream.local_addr(),
        }
    }

    /// # Errors
    /// The socket's own.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Bare(stream) => stream.peer_addr(),
            Self::Watched(stream) => stream.peer_addr(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Bare(stream) => stream.as_fd(),
            Self::Watched(stream) => stream.as_fd(),
        }
    }
}

/// Reads available bytes without waiting, whether the socket is registered or not; 0 at the end.
///
/// # Errors
/// `WouldBlock` when nothing is there; the connection's own.
pub fn recv_now(from: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(from, bytes, RecvFlags::DONTWAIT)?.0)
}

/// Writes as much as possible without waiting: 0 if the buffer is full.
///
/// # Errors
/// The connection's own.
pub fn send_now(to: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    match rustix::net::send(to, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(0),
        sent => Ok(sent?),
    }
}
