//! Copies both directions of a connection: through a shared buffer, or with splice(2) for large transfers.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::pipe::SpliceFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::socket::send_now;
use super::traffic::{Direction, Traffic};

/// An idle connection is closed after this.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// A direction with this many bytes gets its own pipe.
pub(super) const MIN_SPLICE_BYTES: u64 = 256 * 1024;
const BUFFER_BYTES: usize = 64 * 1024;
/// With half, the relay sleeps and wakes so often that a stream takes a fifth longer on a virtual machine with two
/// processors.
const PIPE_BYTES: usize = 256 * 1024;
/// Send buffer of local connections: more would leave the processor's caches before the program reads it.
const IN_FLIGHT_BYTES: usize = 192 * 1024;
/// Limit of pipes; more large streams are copied.
const MAX_PIPES: usize = 128;

thread_local! {
    /// Empty between turns, so one serves all connections.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER_BYTES].into_boxed_slice());
    static PIPES: Cell<usize> = const { Cell::new(0) };
}

/// Copies both ways with half-close. The caller then closes both, which passes on the later end. After an error or
/// idleness both sides are reset.
///
/// # Errors
/// The first error of either side; `TimedOut` for an idle connection.
pub async fn both_ways(inside: &TcpStream, outside: &TcpStream, traffic: &Traffic) -> io::Result<()> {
    let both = async {
        tokio::try_join!(
            one_way(inside, outside, traffic, Direction::Up),
            one_way(outside, inside, traffic, Direction::Down)
        )
    };
    let result = tokio::select! {
        result = both => result.map(|_| ()),
        () = traffic.idle(IDLE_TIMEOUT) => Err(io::ErrorKind::TimedOut.into()),
    };
    if result.is_err() {
        reset_when_dropped(inside);
        reset_when_dropped(outside);
    }
    result
}

/// Copies one direction; its end is passed on if the other direction continues.
///
/// # Errors
/// The error of either side.
pub async fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    traffic: &Traffic,
    direction: Direction,
) -> io::Result<()> {
    let mut way = HalfConnection::default();
    loop {
        from.readable().await?;
        match way.copy_available(from, to, traffic.bytes(direction) > MIN_SPLICE_BYTES).await? {
            None => {}
            Some(0) => break,
            Some(moved) => traffic.count_bytes(direction, moved),
        }
        // A fast stream must not starve the others.
        tokio::task::coop::consume_budget().await;
    }
    if traffic.ends(direction).await {
        close_sending_side(to);
    }
    Ok(())
}

#[derive(Default)]
pub(super) struct HalfConnection {
    pipe: Option<Pipe>,
}

impl HalfConnection {
    /// Moves available bytes: 0 at the end, None if there were none.
    pub(super) async fn copy_available(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        large: bool,
    ) -> io::Result<Option<usize>> {
        if large && self.pipe.is_none() {
            self.pipe = Pipe::new();
            if self.pipe.is_some() && is_on_this_machine(to) {
                // A large buffer would only be slower.
                let _ = rustix::net::sockopt::set_socket_send_buffer_size(to, IN_FLIGHT_BYTES);
            }
        }
        let moved = match &self.pipe {
            None => copy_some(from, to).await,
            Some(pipe) => splice_some(from, to, pipe).await,
        };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            moved => moved.map(Some),
        }
    }
}

/// Closes the sending side. Errors of a closed connection are ignored.
pub fn close_sending_side(stream: &TcpStream) {
    let _ = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
}

/// Makes closing send a reset, which signals an error.
pub fn reset_when_dropped(stream: &impl AsFd) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// # Errors
/// The connection's own.
pub async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    // There nearly always is room, before the runtime knows.
    if !bytes.is_empty() {
        let sent = send_now(to, bytes)?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads once into the shared buffer; `take` gets the bytes, none at the end.
pub(super) fn read_some<T>(from: &TcpStream, take: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
    BUFFER.with_borrow_mut(|buffer| {
        let read = from.try_read(buffer)?;
        Ok(take(buffer.get(..read).unwrap_or_default()))
    })
}

/// Reads once and writes everything.
async fn copy_some(from: &TcpStream, to: &TcpStream) -> io::Result<usize> {
    let (read, left) = BUFFER.with_borrow_mut(|buffer| -> io::Result<(usize, Vec<u8>)> {
        let read = from.try_read(buffer)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        if read == 0 {
            return Ok((0, Vec::new()));
        }
        let written = match to.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            written => written?,
        };
        // Only a slow peer needs memory, at most this much.
        Ok((read, bytes.get(written..).unwrap_or_default().to_vec()))
    })?;
    write_all(to, &left).await?;
    Ok(read)
}

async fn splice_some(from: &TcpStream, to: &TcpStream, pipe: &Pipe) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    let filled = from.try_io(Interest::READABLE, || {
        Ok(rustix::pipe::splice(from, None, &pipe.enter, None, PIPE_BYTES, flags)?)
    })?;
    let mut left = filled;
    while left > 0 {
        let emptied = to
            .async_io(Interest::WRITABLE, || {
                Ok(rustix::pipe::splice(&pipe.leave, None, to, None, left, flags)?)
            })
            .await?;
        left = left.saturating_sub(emptied);
    }
    Ok(filled)
}

/// Local connections gain nothing from large send buffers.
fn is_on_this_machine(stream: &TcpStream) -> bool {
    stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback())
}

struct Pipe {
    leave: OwnedFd,
    enter: OwnedFd,
}

impl Pipe {
    /// None at the limit of pipes, or without descriptors: the stream is copied.
    fn new() -> Option<Self> {
        if PIPES.get() >= MAX_PIPES {
            return None;
        }
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (leave, enter) = rustix::pipe::pipe_with(flags).ok()?;
        // The user's pipe limit may be reached: a small pipe is only slower.
        let _ = rustix::pipe::fcntl_setpipe_size(&enter, PIPE_BYTES);
        PIPES.set(PIPES.get() + 1);
        Some(Self { leave, enter })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        PIPES.set(PIPES.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn both_directions_half_close_and_every_byte_is_counted() {
        let (mut program, inside) = connected().await;
        let (outside, mut server) = connected().await;
        let (up, down) = (300_000_usize, 3_000_000_usize);
        let relay = async move {
            let traffic = Traffic::default();
            both_ways(&inside, &outside, &traffic).await.unwrap();
            drop((inside, outside));
            (traffic.bytes(Direction::Up), traffic.bytes(Direction::Down))
        };
        let program = async {
            program.write_all(&vec![7; up]).await.unwrap();
            program.shutdown().await.unwrap();
            let mut got = Vec::new();
            program.read_to_end(&mut got).await.unwrap();
            got
        };
        let server = async {
            let mut got = Vec::new();
            server.read_to_end(&mut got).await.unwrap();
            let answer: Vec<u8> = (0..down).map(|at| u8::try_from(at % 251).unwrap()).collect();
            server.write_all(&answer).await.unwrap();
            drop(server);
            (got, answer)
        };
        let (counts, got, (asked, answer)) = tokio::join!(relay, program, server);
        assert_eq!(counts, (up as u64, down as u64));
        assert_eq!(asked.len(), up);
        assert!(got == answer);
    }

    #[tokio::test]
    async fn connection_reset_is_passed_on() {
        let (program, inside) = connected().await;
        let (outside, mut server) = connected().await;
        reset_when_dropped(&program);
        drop(program);
        assert!(both_ways(&inside, &outside, &Traffic::default()).await.is_err());
        drop((inside, outside));
        let error = server.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
