//! Requests of agentsh itself to an address that its user named: one `POST`, one bounded answer.
//!
//! Nothing is followed or guessed: a redirection is an answer like any other, and variables that name a proxy are not
//! read. Names are resolved by whoever makes the client.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

/// Longest head of an answer, in bytes.
const MAX_HEAD: usize = 32 << 10;
/// How long one address may take to answer a connection attempt before the next one is tried.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// Gives the addresses of a name, in the order in which they are to be tried.
pub type Resolve = dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, String>>>>;

/// Cheap to clone.
#[derive(Clone)]
pub struct Client {
    tls: Result<TlsConnector, String>,
    resolve: Rc<Resolve>,
}

pub struct Post {
    /// `https:`, or `http:` for an address on this machine.
    pub url: Url,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Vec<u8>,
    /// From the first packet to the last byte of the answer.
    pub within: Duration,
    /// Longest body of an answer, in bytes.
    pub max_answer: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("{0} is not an address that can be asked")]
    Address(String),
    #[error("the name '{name}' cannot be resolved: {why}")]
    Name { name: String, why: String },
    #[error("cannot connect to {host}: {source}")]
    Connect { host: String, source: io::Error },
    #[error("no certificate authority is known here: {0}")]
    Roots(String),
    #[error("the certificate of {host} is not accepted: {source}")]
    Tls { host: String, source: io::Error },
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    #[error("the answer is broken: {0}")]
    Broken(String),
}

impl Client {
    /// With the certificate authorities of this machine, or of the file that SSL_CERT_FILE names.
    #[must_use]
    pub fn new(resolve: Rc<Resolve>) -> Self {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        let tls = if usable == 0 {
            let why =
                found.errors.first().map_or_else(|| "none is installed".to_owned(), ToString::to_string);
            Err(why)
        } else {
            connector(roots)
        };
        Self { tls, resolve }
    }

    #[cfg(test)]
    fn trusting(roots: RootCertStore, resolve: Rc<Resolve>) -> Self {
        Self { tls: connector(roots), resolve }
    }

    /// Sends one request and reads the whole answer, whatever its status is.
    ///
    /// # Errors
    /// As [`HttpError`] says. Neither the path nor a header stands in a message: they may hold a key.
    pub async fn post(&self, post: Post) -> Result<Answer, HttpError> {
        let within = post.within;
        timeout(within, self.exchange(post)).await.unwrap_or(Err(HttpError::TimedOut(within)))
    }

    async fn exchange(&self, post: Post) -> Result<Answer, HttpError> {
        let shown = post.url.host_str().unwrap_or_default().to_owned();
        let stream = self.connect(&post.url, &shown).await?;
        if post.url.scheme() == "http" {
            return converse(stream, post).await;
        }
        let tls = self.tls.as_ref().map_err(|why| HttpError::Roots(why.clone()))?;
        let name = ServerName::try_from(shown.trim_matches(['[', ']']).to_owned())
            .map_err(|_| HttpError::Address(shown.clone()))?;
        let stream =
            tls.connect(name, stream).await.map_err(|source| HttpError::Tls { host: shown, source })?;
        converse(stream, post).await
    }

    async fn connect(&self, url: &Url, shown: &str) -> Result<TcpStream, HttpError> {
        let refused = || HttpError::Address(shown.to_owned());
        if !matches!(url.scheme(), "https" | "http") {
            return Err(refused());
        }
        let port = url.port_or_known_default().ok_or_else(refused)?;
        let addresses = match url.host().ok_or_else(refused)? {
            Host::Ipv4(address) => vec![IpAddr::V4(address)],
            Host::Ipv6(address) => vec![IpAddr::V6(address)],
            Host::Domain(name) => {
                let found = (self.resolve)(name.trim_end_matches('.').to_owned()).await;
                found.map_err(|why| HttpError::Name { name: name.to_owned(), why })?
            }
        };
        if url.scheme() == "http" && !addresses.iter().all(|address| address.to_canonical().is_loopback()) {
            return Err(HttpError::Address(format!(
                "http://{shown} (not on this machine, so it must be https)"
            )));
        }
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match timeout(CONNECT_LIMIT, TcpStream::connect(SocketAddr::new(address, port))).await {
                Ok(Ok(stream)) => {
                    // Only speed is lost without it.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(HttpError::Connect { host: shown.to_owned(), source: last })
    }
}

fn connector(roots: RootCertStore) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    post: Post,
) -> Result<Answer, HttpError> {
    let broken = |error: hyper::Error| HttpError::Broken(error.to_string());
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let host = &post.url[url::Position::BeforeHost..url::Position::AfterPort];
    let mut request = hyper::Request::post(&post.url[url::Position::BeforePath..url::Position::AfterQuery])
        .header(HOST, host)
        .body(Full::new(Bytes::from(post.body)))
        .map_err(|_| HttpError::Address(host.to_owned()))?;
    request.headers_mut().extend(post.headers);
    let max = post.max_answer;
    let asked = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), max).collect().await.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                HttpError::TooLarge(max)
            } else {
                HttpError::Broken(error.to_string())
            }
        })?;
        Ok(Answer { status, body: body.to_bytes().to_vec() })
    };
    tokio::pin!(asked, connection);
    tokio::select! {
        answer = &mut asked => answer,
        // Whatever it ended with, what was read of the answer tells more.
        _ = &mut connection => asked.await,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
pub mod testing;
