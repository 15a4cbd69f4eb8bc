//! One connection to the first of several addresses that answers (RFC 8305).

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::socket::Socket;

/// More addresses than this are not tried: a name must not turn one connection into a scan.
pub const MAX_ADDRESSES: usize = 8;

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Head start of one address before the next.
    pub attempt_delay: Duration,
    /// All addresses together.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { attempt_delay: Duration::from_millis(250), total: Duration::from_secs(10) }
    }
}

/// A connection, and which of the addresses it is to.
#[derive(Debug)]
pub struct OutboundConnection {
    pub socket: Socket,
    pub address: IpAddr,
}

/// Connects to the first address that answers. The addresses must have been checked; the first [`MAX_ADDRESSES`] are tried in
/// order.
///
/// # Errors
/// The error of the last address that failed, `TimedOut`, or `AddrNotAvailable` when there are no addresses.
pub async fn dial(addresses: &[IpAddr], port: u16, timeouts: Timeouts) -> io::Result<OutboundConnection> {
    match timeout(timeouts.total, race(addresses, port, timeouts.attempt_delay)).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<OutboundConnection>> + Send>>;

async fn race(addresses: &[IpAddr], port: u16, delay: Duration) -> io::Result<OutboundConnection> {
    let mut waiting = addresses.iter().take(MAX_ADDRESSES).map(|address| SocketAddr::new(*address, port));
    let mut running: Vec<Attempt> = Vec::new();
    // None before the first address: a timer costs more than a connection that is established at once.
    let mut next_start: Option<Pin<Box<Sleep>>> = None;
    let mut last_error = io::Error::from(io::ErrorKind::AddrNotAvailable);
    poll_fn(|context| {
        loop {
            let mut failed = false;
            let mut index = 0;
            while let Some(attempt) = running.get_mut(index) {
                match attempt.as_mut().poll(context) {
                    Poll::Ready(Ok(dialled)) => return Poll::Ready(Ok(dialled)),
                    Poll::Ready(Err(error)) => {
                        last_error = error;
                        failed = true;
                        drop(running.swap_remove(index));
                    }
                    Poll::Pending => index += 1,
                }
            }
            // The next address starts when the one before it failed or had its head start.
            let is_waiting =
                next_start.as_mut().is_some_and(|start| start.as_mut().poll(context).is_pending());
            if !failed && is_waiting && !running.is_empty() {
                return Poll::Pending;
            }
            match waiting.next() {
                Some(address) => {
                    running.push(Box::pin(connect(address)));
                    next_start = Some(Box::pin(sleep_until(Instant::now() + delay)));
                }
                None if running.is_empty() => {
                    let error = std::mem::replace(&mut last_error, io::ErrorKind::Other.into());
                    return Poll::Ready(Err(error));
                }
                None => return Poll::Pending,
            }
        }
    })
    .await
}

/// Like [`tokio::net::TcpStream::connect`], without a turn of the runtime if the connection is established at once, as on this
/// machine.
async fn connect(address: SocketAddr) -> io::Result<OutboundConnection> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let mut began = rustix::net::connect(&socket, &address);
    if began == Err(Errno::INPROGRESS) {
        began = rustix::net::connect(&socket, &address);
    }
    let socket = Socket::from_nonblocking(socket);
    let dialled = |socket| Ok(OutboundConnection { socket, address: address.ip() });
    match began {
        Ok(()) | Err(Errno::ISCONN) => return dialled(socket),
        Err(Errno::ALREADY | Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let stream = socket.into_tokio()?;
    stream.writable().await?;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => dialled(Socket::Watched(stream)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use tokio::net::{TcpListener, TcpStream};

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    /// Not through the captured stream: what was skipped must be seen.
    fn skip(reason: &str) {
        use std::io::Write;
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        let _ = writeln!(std::io::stderr(), "skipped part of {name}: {reason}");
    }

    fn v4(last: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last).into()
    }

    /// A listener whose queue is full: connecting to it neither works nor fails.
    async fn silent() -> (std::net::TcpListener, Vec<TcpStream>, SocketAddr) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap().into_std().unwrap();
        let address = listener.local_addr().unwrap();
        let mut held = Vec::new();
        for _ in 0..8 {
            match timeout(Duration::from_millis(30), TcpStream::connect(address)).await {
                Ok(stream) => held.push(stream.unwrap()),
                Err(_) => break,
            }
        }
        (listener, held, address)
    }

    #[test]
    fn dial_tries_the_next_address_at_once_after_a_refusal() {
        run(async {
            let listener = TcpListener::bind((v4(2), 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let began = Instant::now();
            let timeouts = Timeouts { attempt_delay: Duration::from_secs(5), total: Duration::from_secs(9) };
            let order = [Ipv6Addr::LOCALHOST.into(), v4(3), v4(4), v4(2)];
            let dialled = dial(&order, port, timeouts).await.unwrap();
            assert_eq!(dialled.address, v4(2));
            assert_eq!(dialled.socket.peer_addr().unwrap().ip(), v4(2));
            assert!(began.elapsed() < Duration::from_secs(2));
        });
    }

    #[test]
    fn dial_tries_the_next_address_after_a_head_start() {
        run(async {
            let (_full, _held, silent) = silent().await;
            let Ok(listener) = TcpListener::bind((v4(2), silent.port())).await else {
                return skip("somebody else has this port");
            };
            let timeouts =
                Timeouts { attempt_delay: Duration::from_millis(20), total: Duration::from_secs(5) };
            let dialled = dial(&[silent.ip(), v4(2)], silent.port(), timeouts).await.unwrap();
            assert_eq!(dialled.socket.peer_addr().unwrap(), listener.local_addr().unwrap());
        });
    }

    #[test]
    fn dial_without_an_answer_reports_the_kind_of_error() {
        run(async {
            let (_full, _held, silent) = silent().await;
            let timeouts =
                Timeouts { attempt_delay: Duration::from_millis(5), total: Duration::from_millis(60) };
            let error = dial(&[silent.ip()], silent.port(), timeouts).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let error = dial(&[], 1, timeouts).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
            let port = {
                let listener = TcpListener::bind((v4(7), 0)).await.unwrap();
                listener.local_addr().unwrap().port()
            };
            let error = dial(&[v4(7)], port, Timeouts::default()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        });
    }
}
