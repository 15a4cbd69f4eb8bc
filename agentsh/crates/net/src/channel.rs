//! Connections that the session itself answers, such as the model's: the handler gets both ends. Rules, addresses, TLS
//! and events are handled as for any connection.

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
    /// HTTP/2 was negotiated; else HTTP/1.1.
    pub is_http2: bool,
}

/// The program's end, and the server's.
pub type ConnectionEnds<'a> = (End<'a>, End<'a>);

/// The destination of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ChannelTarget<'a> {
    /// A name or an address.
    pub host: &'a str,
    pub port: u16,
    /// It uses TLS.
    pub is_tls: bool,
    /// The connection ends after one request.
    pub is_one: bool,
}

/// Whether a channel takes a request, by method and path with query.
pub type RequestFilter = fn(&str, &str) -> bool;

pub type ChannelFuture<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;

/// Handles connections instead of the relay.
pub trait Channel {
    fn carries(&self, host: &Host, port: u16) -> bool;
    /// The requests that it takes out of other plain connections. None: no connection is searched.
    fn request_filter(&self) -> Option<RequestFilter>;
    /// Runs until both ends are done, and copies nothing by itself. The channel has to check that requests name this
    /// host.
    fn carry<'a>(&'a self, to: ChannelTarget<'a>, ends: ConnectionEnds<'a>) -> ChannelFuture<'a>;
}

/// A plain connection, some of whose bytes were read.
pub(super) async fn carry_plain(
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

/// An inspected TLS connection.
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

/// Counts the program's bytes.
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
        self.traffic.count_bytes(Direction::Up, into.filled().len().saturating_sub(before));
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
            self.traffic.count_bytes(Direction::Down, *written);
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
