//! Reads from a socket that other processes share. They can clear `O_NONBLOCK`, so every call passes `MSG_DONTWAIT`.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

/// Maximum per read, because the buffer is zeroed first.
const CHUNK: usize = 64 << 10;

/// Reads from a stream socket without blocking, whatever its flags.
#[derive(Debug)]
pub struct SharedReader(pipe::Receiver);

impl SharedReader {
    /// # Errors
    /// When the runtime cannot register it.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        // tokio's pipe type only needs readiness, so it also takes sockets.
        pipe::Receiver::from_owned_fd_unchecked(socket).map(Self)
    }
}

impl AsyncRead for SharedReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &self.get_mut().0;
        loop {
            ready!(socket.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled_to(buffer.remaining().min(CHUNK));
            let receive = || {
                let received = rustix::io::retry_on_intr(|| recv(socket, &mut *room, RecvFlags::DONTWAIT));
                Ok(received?.1)
            };
            match socket.try_io(receive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use tokio::io::AsyncReadExt;

    /// The open file blocks, and another reader takes the bytes that arrived: the read returns anyway.
    #[tokio::test]
    async fn shared_reader_does_not_block_on_a_blocking_description() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut thief = ours.try_clone().unwrap();
        let mut reader = SharedReader::new(ours.into()).unwrap();
        theirs.write_all(b"x").unwrap();
        // The runtime knows of the byte, and does not know that it is gone.
        reader.0.readable().await.unwrap();
        std::io::Read::read_exact(&mut thief, &mut [0]).unwrap();
        let mut buffer = [0; 8];
        let nothing = tokio::time::timeout(Duration::from_millis(20), reader.read(&mut buffer)).await;
        assert!(nothing.is_err(), "nothing to read, and still able to notice");
        theirs.write_all(b"abc").unwrap();
        assert_eq!(reader.read(&mut buffer).await.unwrap(), 3);
        drop(theirs);
        assert_eq!(reader.read(&mut buffer).await.unwrap(), 0);
    }
}
