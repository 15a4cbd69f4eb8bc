//! TLS inspection: requests between two TLS connections are judged one by one. Offers only HTTP/1.1, unless the handler
//! speaks HTTP/2. The server is verified before the program gets a byte.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::CertificateError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::authority::Authority;
use super::copy::{IDLE_TIMEOUT, close_sending_side, reset_when_dropped};
use super::credentials::Use;
use super::http_host;
use super::protocol_detection::{Closed, Http};
use super::reason::Reason;
use super::refuse::{self, CloseReply};
use super::requests::End;
use super::response_secrets::ResponseReader;
use super::traffic::{Direction, Traffic};

/// For each handshake, and for the response to a refused program.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const PIECE: usize = 16 * 1024;
/// TLS alert: unknown certificate authority.
const UNKNOWN_AUTHORITY: u8 = 48;
const INTERNAL_ERROR: u8 = 80;

/// One connection whose requests are judged.
pub struct Inspected<'a> {
    pub authority: &'a Authority,
    pub name: &'a str,
    pub reader: http_host::Reader,
    /// Bytes already received.
    pub hello: Vec<u8>,
    /// Searches responses for secrets.
    pub answers: Option<ResponseReader>,
    /// Called before a secret is used; false: it may not be.
    pub used: &'a dyn Fn(Use) -> bool,
}

/// Carries requests and responses to the end. `refused` is called before the program gets a refusal; if it returns
/// false, the program gets no answer. Counts plaintext bytes.
pub async fn both_ways(
    inside: &TcpStream,
    outside: &TcpStream,
    inspected: Inspected<'_>,
    traffic: &Traffic,
    refused: impl AsyncFnOnce(http_host::Refusal) -> bool,
) -> End {
    let Inspected { authority, name, reader, hello, answers, used } = inspected;
    let (program, server) = match handshakes(inside, outside, (authority, name), (hello, &[HTTP_1])).await {
        Ok(both) => both,
        Err(end) => {
            reset_when_dropped(outside);
            return end;
        }
    };
    let (from_program, mut to_program) = tokio::io::split(program);
    let (from_server, to_server) = tokio::io::split(server);
    let shared = Shared { http: RefCell::new(Http::new(reader)), answered: Notify::new(), traffic, used };
    let result = {
        let both = async {
            tokio::try_join!(
                forward_requests(from_program, to_server, &shared),
                forward_answers(from_server, &mut to_program, (inside, &shared), answers)
            )
        };
        tokio::select! {
            result = both => result.map(|_| ()),
            () = traffic.idle(IDLE_TIMEOUT) => Err(Stop::Broken(io::ErrorKind::TimedOut.into())),
        }
    };
    match result {
        Ok(()) => End::Done(Ok(())),
        Err(Stop::Broken(error)) => {
            reset_when_dropped(inside);
            reset_when_dropped(outside);
            End::Done(Err(error))
        }
        Err(Stop::Refused(refusal)) => {
            reset_when_dropped(outside);
            let text = format!(
                "agentsh: this request is refused ({}): the connection is to '{name}'",
                refusal.reason
            );
            if !refused(refusal).await {
                reset_when_dropped(inside);
                return End::Done(Ok(()));
            }
            let say = async {
                to_program.write_all(&refuse::http(403, &text)).await?;
                to_program.shutdown().await?;
                refuse::drain(inside).await
            };
            // The program may be gone.
            let _ = tokio::time::timeout(DRAIN_TIMEOUT, say).await;
            End::Done(Ok(()))
        }
    }
}

pub(super) type Program<'a> = tokio_rustls::server::TlsStream<RewoundStream<'a>>;
pub(super) type Server<'a> = tokio_rustls::client::TlsStream<RewoundStream<'a>>;

/// The protocol names of TLS.
pub(super) const HTTP_1: &[u8] = b"http/1.1";
pub(super) const HTTP_2: &[u8] = b"h2";

/// The server first: the program gets nothing before the server is verified. Both are offered `offered`; the program
/// gets HTTP/2 only if the server accepted it.
pub(super) async fn handshakes<'a>(
    inside: &'a TcpStream,
    outside: &'a TcpStream,
    (authority, name): (&Authority, &str),
    (hello, offered): (Vec<u8>, &[&[u8]]),
) -> Result<(Program<'a>, Server<'a>), End> {
    let refused = |reason, detail, close_reply| {
        End::Closed(Closed::Refused { protocol: Some("https"), reason, detail, close_reply })
    };
    let cannot = |why| refused(Reason::InspectionFailed, why, CloseReply::Alert(INTERNAL_ERROR));
    let mut shown = authority.server_config(name).map_err(cannot)?;
    let mut trusting = authority.client_config().map_err(cannot)?;
    let protocols: Vec<Vec<u8>> = offered.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::make_mut(&mut trusting).alpn_protocols.clone_from(&protocols);
    let server_name = rustls::pki_types::ServerName::try_from(name.to_owned())
        .map_err(|error| cannot(format!("cannot verify the certificate of '{name}': {error}")))?;
    let connecting =
        TlsConnector::from(trusting).connect(server_name, RewoundStream::new(outside, Vec::new()));
    let server =
        with_timeout(HANDSHAKE_TIMEOUT, connecting).await.map_err(|error| match tls_error(&error) {
            Some(rustls::Error::InvalidCertificate(why)) => refused(
                Reason::CertificateNotValid,
                format!("the certificate of '{name}' is not valid: {}", certificate_error_text(why)),
                CloseReply::Alert(UNKNOWN_AUTHORITY),
            ),
            _ => End::Done(Err(error)),
        })?;
    if server.get_ref().1.alpn_protocol() == Some(HTTP_2) {
        Arc::make_mut(&mut shown).alpn_protocols = protocols;
    }
    let accepting = TlsAcceptor::from(shown).accept(RewoundStream::new(inside, hello));
    let program = with_timeout(HANDSHAKE_TIMEOUT, accepting).await.map_err(|error| match tls_error(&error) {
        Some(rustls::Error::AlertReceived(alert)) => refused(
            Reason::AuthorityNotTrusted,
            format!("the program does not trust the certificate of this session for '{name}' (TLS alert {alert:?})"),
            CloseReply::Reset,
        ),
        Some(error) => refused(Reason::ClientHandshakeFailed, error.to_string(), CloseReply::Reset),
        None => End::Done(Err(error)),
    })?;
    Ok((program, server))
}

/// Words for the common errors: the library shows most of them by their names in its source.
fn certificate_error_text(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "its issuer is not trusted".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::Revoked => "it is revoked".to_owned(),
        why => why.to_string(),
    }
}

async fn with_timeout<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

struct Shared<'a> {
    http: RefCell<Http>,
    /// The server's answer, for which a request is held.
    answered: Notify,
    traffic: &'a Traffic,
    used: &'a dyn Fn(Use) -> bool,
}

enum Stop {
    Broken(io::Error),
    Refused(http_host::Refusal),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

async fn forward_requests(
    mut program: impl AsyncRead + Unpin,
    mut server: impl AsyncWrite + Unpin,
    shared: &Shared<'_>,
) -> Result<(), Stop> {
    let mut buffer = vec![0; PIECE];
    loop {
        let ((released, uses), refusal) = {
            let mut http = shared.http.borrow_mut();
            (http.release(), http.reader.refusal().cloned())
        };
        for used in uses {
            if !(shared.used)(used) {
                return Err(Stop::Broken(io::Error::other("cannot record the use of a credential")));
            }
        }
        if !released.is_empty() {
            server.write_all(&released).await?;
            server.flush().await?;
            shared.traffic.count_bytes(Direction::Up, released.len());
        }
        if let Some(refusal) = refusal {
            return Err(Stop::Refused(refusal));
        }
        let read = tokio::select! {
            () = shared.answered.notified() => None,
            read = program.read(&mut buffer) => Some(read?),
        };
        let bytes = match read {
            Some(0) => break,
            Some(read) => buffer.get(..read).unwrap_or_default(),
            None => &[],
        };
        shared.http.borrow_mut().take(bytes).map_err(Stop::Refused)?;
    }
    Ok(server.shutdown().await?)
}

async fn forward_answers(
    mut server: impl AsyncRead + Unpin,
    program: &mut (impl AsyncWrite + Unpin),
    (inside, shared): (&TcpStream, &Shared<'_>),
    mut answers: Option<ResponseReader>,
) -> Result<(), Stop> {
    let mut buffer = vec![0; PIECE];
    // A possible beginning of a secret.
    let mut held = Vec::new();
    loop {
        let read = match server.read(&mut buffer).await {
            // The program sees the same: an end without a TLS close.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                program.write_all(&held).await?;
                program.flush().await?;
                close_sending_side(inside);
                return Ok(());
            }
            read => read?,
        };
        if read == 0 {
            program.write_all(&held).await?;
            return Ok(program.shutdown().await?);
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        let joined;
        let bytes = match &mut answers {
            None => bytes,
            Some(watch) => {
                if watch.finds_in(bytes) {
                    return Err(Stop::Refused(http_host::Refusal::new(Reason::CredentialInAnswer)));
                }
                held.extend_from_slice(bytes);
                let kept = held.split_off(held.len().saturating_sub(watch.partial_match_length()));
                joined = std::mem::replace(&mut held, kept);
                &joined
            }
        };
        let awaits = shared.http.borrow().reader.awaits_answer();
        if awaits {
            shared.http.borrow_mut().reader.answer(bytes).map_err(Stop::Refused)?;
            shared.answered.notify_one();
        }
        program.write_all(bytes).await?;
        program.flush().await?;
        shared.traffic.count_bytes(Direction::Down, bytes.len());
    }
}

/// A connection with bytes that were already read.
pub(super) struct RewoundStream<'a> {
    stream: &'a TcpStream,
    first: Vec<u8>,
    given: usize,
}

impl<'a> RewoundStream<'a> {
    pub(super) fn new(stream: &'a TcpStream, first: Vec<u8>) -> Self {
        Self { stream, first, given: 0 }
    }
}

impl AsyncRead for RewoundStream<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let left = this.first.get(this.given..).unwrap_or_default();
        if !left.is_empty() {
            let piece = left.get(..into.remaining()).unwrap_or(left);
            into.put_slice(piece);
            this.given += piece.len();
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(this.stream.poll_read_ready(context))?;
            match this.stream.try_read(into.initialize_unfilled()) {
                Ok(read) => {
                    into.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for RewoundStream<'_> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        close_sending_side(self.stream);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

    use super::*;

    use rustls::pki_types::ServerName;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::TcpListener;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// What a program that trusts `trusted` sees of `speaking`.
    async fn shakes_hands(speaking: &Authority, trusted: &Authority, name: &str, asked: &str) -> bool {
        let (program, inside) = connected().await;
        let mut roots = RootCertStore::empty();
        let certificate = trusted.certificate();
        roots
            .add(rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let asked = ServerName::try_from(asked.to_owned()).unwrap();
        let client = TlsConnector::from(config).connect(asked, RewoundStream::new(&program, Vec::new()));
        let server = TlsAcceptor::from(speaking.server_config(name).unwrap())
            .accept(RewoundStream::new(&inside, Vec::new()));
        // The side that gives up does not always say so to the other.
        tokio::try_join!(client, server).is_ok()
    }

    #[tokio::test]
    async fn session_certificate_is_accepted_only_with_its_authority() {
        let (own, other) = (Authority::new().unwrap(), Authority::new().unwrap());
        assert!(shakes_hands(&own, &own, "a.test", "a.test").await);
        assert!(!shakes_hands(&own, &other, "a.test", "a.test").await);
        assert!(!shakes_hands(&own, &own, "a.test", "b.test").await);
        assert!(!own.certificate().contains("PRIVATE"));
    }
}
