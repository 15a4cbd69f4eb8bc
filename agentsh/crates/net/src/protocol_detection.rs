//! Detects TLS or HTTP in the first bytes, and compares their host.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::channel::RequestFilter;
use super::credentials::{Broker, HeadEdit, Use};
use super::http_host;
use super::reason::Reason;
use super::refuse::{ACCESS_DENIED, CloseReply, UNRECOGNIZED_NAME};
use super::socket::recv_now;
use super::tls_sni::{self, Hello};
use crate::policy::{RequestRule, Ruled};

/// The first bytes of a permitted connection.
#[derive(Debug)]
pub enum FirstBytes {
    /// The bytes of the ClientHello, and perhaps more. `has_ech`: with an Encrypted Client Hello.
    Tls { hello: Vec<u8>, has_ech: bool },
    /// HTTP, whose requests are judged one by one.
    Http(Box<Http>),
}

/// Buffered bytes of an HTTP connection.
#[derive(Debug)]
pub struct Http {
    pub reader: http_host::Reader,
    /// Fed and not released.
    pub held: Vec<u8>,
    /// The number of bytes of `held` that may be forwarded.
    pub released: usize,
    /// Replacements in them.
    pub puts: Vec<HeadEdit>,
}

/// Why it is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The program closed it.
    Gone,
    Refused {
        protocol: Option<&'static str>,
        reason: Reason,
        detail: String,
        close_reply: CloseReply,
    },
    /// A plain HTTP request.
    Request(http_host::Refusal),
}

/// The required host.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedPeer<'a> {
    /// Normalised.
    pub host: &'a str,
    pub port: u16,
    /// An address: TLS has no server name.
    pub is_address: bool,
    pub requests: &'a [Ruled<RequestRule>],
    /// The agent's: MCP servers are behind bridges.
    pub is_bridged: bool,
    /// The session's secrets, none of which is sent in plain requests.
    pub broker: Option<&'a Rc<Broker>>,
    /// Requests that a channel takes.
    pub picks: Option<RequestFilter>,
    /// TLS with an Encrypted Client Hello is accepted, because agentsh can end it here.
    pub may_end_tls: bool,
}

/// Timeout for a program's first bytes.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(10);
const CHUNK_BYTES: usize = 16 * 1024;

/// Reads until the protocol is known. Nothing is forwarded before that.
pub struct Reading<'a> {
    wanted: ExpectedPeer<'a>,
    hello: tls_sni::Reader,
    bytes: Vec<u8>,
    /// Once it is not TLS.
    http: Option<Box<Http>>,
}

impl<'a> Reading<'a> {
    #[must_use]
    pub fn new(wanted: ExpectedPeer<'a>) -> Self {
        Self { wanted, hello: tls_sni::Reader::default(), bytes: Vec::new(), http: None }
    }

    /// The first bytes nearly always arrive with the connection. None: wait for them.
    pub fn at_once(&mut self, from: &impl AsFd) -> Option<Result<FirstBytes, Closed>> {
        let mut chunk = [0; CHUNK_BYTES];
        match recv_now(from, &mut chunk) {
            Ok(0) => Some(Err(Closed::Gone)),
            Ok(read) => self.feed(chunk.get(..read).unwrap_or_default()),
            // The next reader gets the error.
            Err(_) => None,
        }
    }

    /// # Errors
    /// [`Closed`].
    pub async fn read_rest(mut self, stream: &TcpStream) -> Result<FirstBytes, Closed> {
        let first = async {
            let mut new = Vec::new();
            loop {
                more(stream, &mut new).await.map_err(|_| Closed::Gone)?;
                if let Some(opening) = self.feed(&new) {
                    return opening;
                }
                new.clear();
            }
        };
        tokio::time::timeout(FIRST_BYTES_TIMEOUT, first).await.unwrap_or_else(|_| {
            Err(Closed::Refused {
                protocol: None,
                reason: Reason::Silent,
                detail: format!("neither TLS nor HTTP within {} s", FIRST_BYTES_TIMEOUT.as_secs()),
                close_reply: CloseReply::Reset,
            })
        })
    }

    /// None: more is needed.
    fn feed(&mut self, new: &[u8]) -> Option<Result<FirstBytes, Closed>> {
        if self.http.is_some() {
            return self.request(new);
        }
        self.bytes.extend_from_slice(new);
        match self.hello.feed(new) {
            Hello::NeedMore => None,
            Hello::NotTls => {
                // A method is in capital letters; other protocols get no HTTP response.
                if !self.bytes.first().is_some_and(u8::is_ascii_uppercase) {
                    return Some(Err(Closed::Refused {
                        protocol: None,
                        reason: Reason::NotTlsOrHttp,
                        detail: "the first bytes are neither TLS nor HTTP".to_owned(),
                        close_reply: CloseReply::Reset,
                    }));
                }
                let reader = http_host::Reader::new(self.wanted.host, self.wanted.port);
                let reader = reader.with_rules(self.wanted.requests.to_vec()).bridged(self.wanted.is_bridged);
                let reader = reader.picking(self.wanted.picks);
                let reader = reader.with_broker(self.wanted.broker.cloned(), false);
                self.http = Some(Box::new(Http::new(reader)));
                let bytes = std::mem::take(&mut self.bytes);
                self.request(&bytes)
            }
            hello => {
                let has_ech = hello.has_ech();
                let bytes = std::mem::take(&mut self.bytes);
                Some(judge(&hello, self.wanted).map_or(Ok(FirstBytes::Tls { hello: bytes, has_ech }), Err))
            }
        }
    }

    fn request(&mut self, new: &[u8]) -> Option<Result<FirstBytes, Closed>> {
        let mut http = self.http.take()?;
        match http.take(new) {
            Err(refused) => Some(Err(Closed::Request(refused))),
            Ok(()) if http.released > 0 || http.reader.is_picked() => Some(Ok(FirstBytes::Http(http))),
            Ok(()) => {
                self.http = Some(http);
                None
            }
        }
    }
}

/// None if the name is right.
pub(super) fn judge(hello: &Hello, wanted: ExpectedPeer<'_>) -> Option<Closed> {
    let refused = |reason, detail, alert| {
        Some(Closed::Refused { protocol: Some("tls"), reason, detail, close_reply: CloseReply::Alert(alert) })
    };
    match hello {
        // The encrypted name may be another host at the same address. Chromium and Bun send random bytes there (GREASE), which
        // nobody but the server can tell from a name: with agentsh as the server, they mean nothing.
        hello if hello.has_ech() && !wanted.may_end_tls => {
            let detail = "TLS with an Encrypted Client Hello, which may hide another server name; a rule with \
                          `inspect: true` for the host lets agentsh read it";
            refused(Reason::EncryptedClientHello, detail.to_owned(), ACCESS_DENIED)
        }
        Hello::Name { name, .. } if name != wanted.host && !wanted.is_address => refused(
            Reason::ServerNameMismatch,
            format!("TLS for '{name}' on a connection to '{}'", wanted.host),
            UNRECOGNIZED_NAME,
        ),
        Hello::Name { name, .. } if wanted.is_address => refused(
            Reason::ServerNameMismatch,
            format!("TLS for '{name}' on a connection to an address; connect by the name"),
            UNRECOGNIZED_NAME,
        ),
        Hello::Name { .. } => None,
        Hello::NoName { .. } if wanted.is_address => None,
        Hello::NoName { .. } => {
            refused(Reason::NoServerName, "TLS without a server name".to_owned(), UNRECOGNIZED_NAME)
        }
        Hello::Bad(reason) => {
            let why = reason.code().replace('-', " ");
            refused(*reason, format!("the TLS handshake is refused: {why}"), ACCESS_DENIED)
        }
        Hello::NeedMore | Hello::NotTls => refused(Reason::NotTls, String::new(), ACCESS_DENIED),
    }
}

impl Http {
    #[must_use]
    pub fn new(reader: http_host::Reader) -> Self {
        Self { reader, held: Vec::new(), released: 0, puts: Vec::new() }
    }

    /// Judges the program's next bytes; with none, the held ones again.
    ///
    /// # Errors
    /// When the connection must end.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), http_host::Refusal> {
        self.held.extend_from_slice(bytes);
        let verdict = self.reader.feed(bytes)?;
        let released = self.released;
        self.puts.extend(verdict.puts.into_iter().map(|put| HeadEdit { at: released + put.at, ..put }));
        self.released = self.released.saturating_add(verdict.forward).min(self.held.len());
        Ok(())
    }

    /// The bytes that may be forwarded.
    #[must_use]
    pub fn forwardable_bytes(&self) -> &[u8] {
        self.held.get(..self.released).unwrap_or_default()
    }

    /// Marks bytes of [`Self::forwardable_bytes`] as sent.
    pub fn sent(&mut self, bytes: usize) {
        let bytes = bytes.min(self.released);
        self.held.drain(..bytes);
        self.released -= bytes;
    }

    /// All bytes read, to be judged elsewhere.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.held
    }

    /// Returns each permitted byte once, with secrets in place of placeholders, and their uses.
    pub fn release(&mut self) -> (Vec<u8>, Vec<Use>) {
        let rest = self.held.split_off(self.released);
        self.released = 0;
        let held = std::mem::replace(&mut self.held, rest);
        if self.puts.is_empty() {
            return (held, Vec::new());
        }
        let (mut whole, mut copied, mut uses) = (Vec::with_capacity(held.len()), 0, Vec::new());
        for put in std::mem::take(&mut self.puts) {
            whole.extend_from_slice(held.get(copied..put.at).unwrap_or_default());
            whole.extend_from_slice(&put.value);
            copied = put.at + put.length;
            uses.extend(put.used);
        }
        whole.extend_from_slice(held.get(copied..).unwrap_or_default());
        (whole, uses)
    }
}

/// At least one more byte; the end is an error.
pub(super) async fn more(stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; CHUNK_BYTES];
    // Data may have arrived before the runtime knows.
    let mut got = recv_now(stream, &mut chunk);
    loop {
        match got {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                bytes.extend_from_slice(chunk.get(..read).unwrap_or_default());
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        stream.readable().await?;
        got = stream.try_read(&mut chunk);
    }
}
