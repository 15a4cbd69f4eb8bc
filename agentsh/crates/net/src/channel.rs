//! Connections on which somebody else speaks: who is asked, and with which two ends. Name, policy, address, TLS and record
//! are the relay's as for every connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::authority::Authority;
use super::copy::{IDLE_TIMEOUT, reset_when_dropped};
use super::inspect::{HTTP_1, HTTP_2, RewoundStream, handshakes};
use super::requests;
use super::traffic::{Direction, Traffic};
use crate::policy::domain::Host;

/// Both ends of a connection, without TLS.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// One end of a connection.
pub struct End<'a> {
    pub stream: Box<dyn Duplex + 'a>,
    /// HTTP/2 was agreed on; else it is HTTP/1.1.
    pub is_http2: bool,
}

/// The end that comes from a program, and the one that leads to its server.
pub type ConnectionEnds<'a> = (End<'a>, End<'a>);

/// What a connection is to.
#[derive(Clone, Copy, Debug)]
pub struct ChannelTarget<'a> {
    /// By name or as an address.
    pub host: &'a str,
    pub port: u16,
    /// TLS is spoken with it.
    pub is_tls: bool,
    /// The connection ends behind one request: those behind it are not the channel's.
    pub is_one: bool,
}

/// Whether a request belongs to a channel, by its method and its path with the query.
pub type RequestFilter = fn(&str, &str) -> bool;

pub type ChannelFuture<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;

/// Speaks on the connections that it carries.
pub trait Channel {
    fn carries(&self, host: &Host, port: u16) -> bool;
    /// Which requests it takes out of the other connections without TLS. None: nobody has to look for any.
    fn picks(&self) -> Option<RequestFilter>;
    /// Until both ends are done. Nothing of the one reaches the other by itself. That the requests on a connection say the same
    /// host as it is to, is for the channel to see to.
    fn carry<'a>(&'a self, to: ChannelTarget<'a>, ends: ConnectionEnds<'a>) -> ChannelFuture<'a>;
}

/// A connection without TLS, of which some bytes were read already.
pub(super) async fn plain(
    (channel, to): (&dyn Channel, ChannelTarget<'_>),
    (inside, first): (&TcpStream, Vec<u8>),
    outside: &TcpStream,
    traffic: &Traffic,
) -> requests::End {
    let program = CountingStream { stream: RewoundStream::new(inside, first), traffic };
    let program = End { stream: Box::new(program), is_http2: false };
    let server = End { stream: Box::new(RewoundStream::new(outside, Vec::new())), is_http2: false };
    finish(channel.carry(to, (program, server)), (inside, outside), traffic).await
}

/// A connection whose TLS ends here.
pub(super) async fn tls(
    channel: &dyn Channel,
    (authority, (host, port)): (&Authority, (&str, u16)),
    (inside, hello): (&TcpStream, Vec<u8>),
    outside: &TcpStream,
    traffic: &Traffic,
) -> requests::End {
    let offered = (hello, &[HTTP_2, HTTP_1][..]);
    let (program, server) = match handshakes(inside, outside, (authority, host), offered).await {
        Ok(both) => both,
        Err(end) => {
            reset_when_dropped(outside);
            return end;
        }
    };
    let is_http2 = program.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let program = End { stream: Box::new(CountingStream { stream: program, traffic }), is_http2 };
    let is_http2 = server.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let server = End { stream: Box::new(server), is_http2 };
    let to = ChannelTarget { host, port, is_tls: true, is_one: false };
    finish(channel.carry(to, (program, server)), (inside, outside), traffic).await
}

async fn finish(
    carried: ChannelFuture<'_>,
    (inside, outside): (&TcpStream, &TcpStream),
    traffic: &Traffic,
) -> requests::End {
    let result = tokio::select! {
        result = carried => result,
        () = traffic.idle(IDLE_TIMEOUT) => Err(io::ErrorKind::TimedOut.into()),
    };
    if result.is_err() {
        reset_when_dropped(inside);
    }
    reset_when_dropped(outside);
    requests::End::Done(result)
}

/// Counts what the program sends and gets.
struct CountingStream<'a, S> {
    stream: S,
    traffic: &'a Traffic,
}

impl<S: AsyncRead + Unpin> AsyncRead for CountingStream<'_, S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for CountingStream<'_, S> {
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
