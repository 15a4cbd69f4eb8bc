//! Connections on which somebody else speaks: who is asked, and with which two ends. Name, policy, address, TLS and record
//! are the relay's as for every connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::authority::Authority;
use super::copy::{IDLE, reset_when_dropped};
use super::inspect::{Plain, handshakes};
use super::requests::End;
use super::traffic::{Direction, Traffic};
use crate::policy::domain::Host;

/// Both ends of a connection, without TLS.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// The end that comes from a program, and the one that leads to its server.
pub type Ends<'a> = (Box<dyn Duplex + 'a>, Box<dyn Duplex + 'a>);

pub type Carried<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;

/// Speaks on the connections that it carries.
pub trait Channel {
    fn carries(&self, host: &Host, port: u16) -> bool;
    /// Until both ends are done. Nothing of the one reaches the other by itself.
    fn carry<'a>(&'a self, host: &'a str, ends: Ends<'a>) -> Carried<'a>;
}

/// A connection without TLS, of which some bytes were read already.
pub(super) async fn plain(
    channel: &dyn Channel,
    inside: &TcpStream,
    first: Vec<u8>,
    outside: &TcpStream,
    traffic: &Traffic,
) -> End {
    let program = Counted { stream: Plain::new(inside, first), traffic };
    let ends: Ends<'_> = (Box::new(program), Box::new(Plain::new(outside, Vec::new())));
    finish(channel.carry("127.0.0.1", ends), (inside, outside), traffic).await
}

/// A connection whose TLS ends here.
pub(super) async fn tls(
    channel: &dyn Channel,
    (authority, name): (&Authority, &str),
    (inside, hello): (&TcpStream, Vec<u8>),
    outside: &TcpStream,
    traffic: &Traffic,
) -> End {
    let (program, server) = match handshakes(inside, outside, (authority, name), hello).await {
        Ok(both) => both,
        Err(end) => {
            reset_when_dropped(outside);
            return end;
        }
    };
    let ends: Ends<'_> = (Box::new(Counted { stream: program, traffic }), Box::new(server));
    finish(channel.carry(name, ends), (inside, outside), traffic).await
}

async fn finish(carried: Carried<'_>, (inside, outside): (&TcpStream, &TcpStream), traffic: &Traffic) -> End {
    let result = tokio::select! {
        result = carried => result,
        () = traffic.idle(IDLE) => Err(io::ErrorKind::TimedOut.into()),
    };
    if result.is_err() {
        reset_when_dropped(inside);
    }
    reset_when_dropped(outside);
    End::Done(result)
}

/// Counts what the program sends and gets.
struct Counted<'a, S> {
    stream: S,
    traffic: &'a Traffic,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        self.traffic.moved(Direction::Up, into.filled().len().saturating_sub(before));
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = &polled {
            self.traffic.moved(Direction::Down, *written);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
