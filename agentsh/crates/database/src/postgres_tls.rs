//! TLS to PostgreSQL: the URL parameters, and a connector on rustls.
//!
//! TLS always means a verified server: `require` checks the certificate and its name as `verify-full` does.

use std::fs;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{Connect, TlsConnector};

use super::DbError;

/// The TLS parameters of the URL, and the rest of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsOptions {
    /// Without the words that are read here.
    pub url: String,
    pub tls: bool,
    /// `sslrootcert`: authorities in place of those of this machine, as PEM.
    roots: Option<String>,
}

impl TlsOptions {
    /// # Errors
    /// An unknown word, and plain text to another machine without an explicit setting.
    pub fn read(url: &str) -> Result<Self, DbError> {
        let (before, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(percent_decoded(value)?),
                _ => rest.push(pair),
            }
        }
        let tls = match mode {
            None if is_near(before, &rest) => false,
            None => {
                let why = "the database is on another machine: write `sslmode=verify-full` into its URL, or `sslmode=disable` \
                           if the connection is protected in another way";
                return Err(DbError(why.to_owned()));
            }
            Some("disable") => false,
            Some("require" | "verify-full") => true,
            Some(other) => {
                let why = format!("sslmode={other} is not known: write `disable` or `verify-full`");
                return Err(DbError(why));
            }
        };
        let url = if rest.is_empty() { before.to_owned() } else { format!("{before}?{}", rest.join("&")) };
        Ok(Self { url, tls, roots })
    }

    /// # Errors
    /// Authorities that cannot be read.
    pub fn maker(&self) -> Result<TlsConnectorFactory, DbError> {
        let roots = match &self.roots {
            None => agentsh_egress::tls::machine_roots()
                .map_err(|why| DbError(format!("cannot load certificate authorities: {why}")))?,
            Some(file) => read_roots(file)?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| DbError(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(TlsConnectorFactory(Arc::new(config)))
    }
}

fn read_roots(file: &str) -> Result<RootCertStore, DbError> {
    let failed = |error: &dyn std::fmt::Display| DbError(format!("cannot use sslrootcert '{file}': {error}"));
    let text = fs::read(file).map_err(|error| failed(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() { Err(failed(&"it has no certificate")) } else { Ok(roots) }
}

/// A socket, or the loopback.
fn is_near(before: &str, rest: &[&str]) -> bool {
    let near = |host: &str| {
        host.is_empty()
            || host.starts_with('/')
            || host.to_ascii_lowercase().starts_with("%2f")
            || host == "localhost"
            || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    let authority = before.split_once("://").map_or(before, |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let bare = |host: &str| match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name.to_owned(),
        _ => host.to_owned(),
    };
    let named = rest.iter().filter_map(|pair| pair.split_once('='));
    let named = named.filter(|(name, _)| matches!(*name, "host" | "hostaddr"));
    hosts.split(',').all(|host| near(&bare(host))) && named.flat_map(|(_, hosts)| hosts.split(',')).all(near)
}

fn percent_decoded(text: &str) -> Result<String, DbError> {
    let wrong = || DbError("sslrootcert is not a path".to_owned());
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok()).ok_or_else(wrong)?;
            bytes.push(u8::from_str_radix(hex, 16).map_err(|_| wrong())?);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Makes connectors for the hosts of the URL.
#[derive(Clone)]
pub(super) struct TlsConnectorFactory(Arc<ClientConfig>);

pub(super) struct Connector {
    tls: TlsConnector,
    name: ServerName<'static>,
}

pub(super) struct PostgresTlsStream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for TlsConnectorFactory {
    type Stream = PostgresTlsStream<S>;
    type TlsConnect = Connector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Connector> {
        let name = ServerName::try_from(domain.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Connector { tls: TlsConnector::from(Arc::clone(&self.0)), name })
    }
}

/// The greeting under way.
pub(super) struct Greeting<S>(Connect<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Greeting<S> {
    type Output = io::Result<PostgresTlsStream<S>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(|stream| PostgresTlsStream(Box::new(stream)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connector {
    type Stream = PostgresTlsStream<S>;
    type Error = io::Error;
    type Future = Greeting<S>;

    fn connect(self, stream: S) -> Greeting<S> {
        Greeting(self.tls.connect(self.name, stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for PostgresTlsStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PostgresTlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PostgresTlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn postgres_without_tls_needs_an_option_for_other_machines() {
        for near in [
            "postgres://a@localhost/x",
            "postgres://a:b@127.0.0.1:5432/x",
            "postgres://a@[::1]:5432/x",
            "postgres://a@%2Frun%2Fpostgresql/x",
            "postgres:///x?host=/run/postgresql",
        ] {
            assert!(!TlsOptions::read(near).unwrap().tls, "{near}");
        }
        for far in [
            "postgres://a@db.example/x",
            "postgres://a@localhost,db.example/x",
            "postgres:///x?host=db.example",
            "postgres://a@db.example/x?sslmode=prefer",
        ] {
            assert!(TlsOptions::read(far).is_err(), "{far}");
        }
        let asked = "postgres://a@db.example/x?sslmode=verify-full&connect_timeout=3&sslrootcert=/a%20b";
        let asked = TlsOptions::read(asked).unwrap();
        assert_eq!((asked.url.as_str(), asked.tls), ("postgres://a@db.example/x?connect_timeout=3", true));
        assert_eq!(asked.roots.as_deref(), Some("/a b"));
        assert!(!TlsOptions::read("postgres://a@db.example/x?sslmode=disable").unwrap().tls);
    }
}
