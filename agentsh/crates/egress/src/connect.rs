//! A connection to one origin: checked, resolved, connected, and under TLS before a byte of HTTP.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::rt::ReadBufCursor;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::dial::{Timeouts, dial};
use super::error::HttpError;
use super::proxy::Proxy;
use super::resolve::Lookup;
use super::target::{Rules, Target};

#[derive(Clone)]
pub(crate) struct Connector {
    pub tls: Result<TlsConnector, String>,
    pub rules: Arc<Rules>,
    pub lookup: Arc<Lookup>,
    pub proxy: Option<Arc<Proxy>>,
    /// From the question to the resolver to the end of the TLS handshake.
    pub limit: Duration,
}

impl Connector {
    async fn connect(&self, uri: &Uri) -> Result<Stream, HttpError> {
        let host = uri.host().unwrap_or_default().to_owned();
        let target =
            Target::parse(&uri.to_string(), &self.rules).map_err(|why| HttpError::refused(&host, why))?;
        let stream = match self.proxy.as_ref().filter(|proxy| proxy.is_for(&target)) {
            Some(proxy) => proxy.connect(&target, &*self.lookup).await?,
            None => self.direct(&target).await?,
        };
        // Only speed is lost without it.
        let _ = stream.set_nodelay(true);
        if target.is_plain() {
            return Ok(Stream { io: TokioIo::new(Box::pin(stream)), is_http2: false });
        }
        let tls = self.tls.as_ref().map_err(|why| HttpError::Roots(why.clone()))?;
        let name = target.name().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(name).map_err(|error| HttpError::Tls {
            host: host.clone(),
            source: Arc::new(io::Error::new(io::ErrorKind::InvalidInput, error)),
        })?;
        let stream = tls
            .connect(name, stream)
            .await
            .map_err(|source| HttpError::Tls { host, source: Arc::new(source) })?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Stream { io: TokioIo::new(Box::pin(stream)), is_http2 })
    }

    async fn direct(&self, target: &Target) -> Result<TcpStream, HttpError> {
        let name = target.name();
        let addresses =
            target.resolve(&self.rules, &*self.lookup).await.map_err(|why| HttpError::refused(name, why))?;
        let failed = |source| HttpError::Connect {
            host: format!("{name}:{}", target.port()),
            source: Arc::new(source),
        };
        let timeouts = Timeouts { total: self.limit, ..Timeouts::default() };
        let dialled = dial(&addresses, target.port(), timeouts).await.map_err(failed)?;
        dialled.socket.into_tokio().map_err(failed)
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, HttpError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            timeout(this.limit, this.connect(&uri)).await.unwrap_or(Err(HttpError::TimedOut(this.limit)))
        })
    }
}

trait Bytes: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Bytes for T {}

/// A connection that is ready for HTTP.
pub(crate) struct Stream {
    io: TokioIo<Pin<Box<dyn Bytes>>>,
    is_http2: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.is_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
