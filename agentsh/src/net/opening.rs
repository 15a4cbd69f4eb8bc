//! The first bytes of a connection: TLS with the right name, plain HTTP with the right host, or refused.

use std::io;
use std::time::Duration;

use rustix::net::RecvFlags;
use tokio::net::TcpStream;

use super::http_host;
use super::refuse::{ACCESS_DENIED, Farewell, UNRECOGNIZED_NAME};
use super::tls_sni::{self, Hello};
use crate::policy::{RequestRule, Ruled};

/// The first bytes of a connection that may go on.
#[derive(Debug)]
pub enum Opening {
    /// These bytes first, then whatever comes.
    Tls(Vec<u8>),
    /// Requests that are judged one by one.
    Http(Box<Http>),
}

/// A connection of requests: what came, what was released.
#[derive(Debug)]
pub struct Http {
    pub reader: http_host::Reader,
    /// Fed and not released yet.
    pub held: Vec<u8>,
    /// How many bytes of `held` may go on.
    pub released: usize,
}

/// Why it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The program itself ended it.
    Gone,
    Refused {
        protocol: Option<&'static str>,
        reason: &'static str,
        detail: String,
        farewell: Farewell,
    },
    /// A request of plain HTTP was.
    Request(http_host::Refusal),
}

/// What the connection has to be for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// In its one spelling.
    pub host: &'a str,
    pub port: u16,
    /// The host is an address: TLS then carries no name.
    pub is_address: bool,
    pub requests: &'a [Ruled<RequestRule>],
}

/// A program has this long to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads as much as is needed to tell.
///
/// # Errors
/// [`Closed`]; nothing was forwarded yet.
pub async fn read(stream: &TcpStream, wanted: Wanted<'_>) -> Result<Opening, Closed> {
    match tokio::time::timeout(PATIENCE, first(stream, wanted)).await {
        Ok(opening) => opening,
        Err(_) => Err(Closed::Refused {
            protocol: None,
            reason: "silent",
            detail: format!("neither TLS nor HTTP within {} s", PATIENCE.as_secs()),
            farewell: Farewell::Reset,
        }),
    }
}

async fn first(stream: &TcpStream, wanted: Wanted<'_>) -> Result<Opening, Closed> {
    let mut hello = tls_sni::Reader::default();
    let mut bytes = Vec::new();
    loop {
        let before = bytes.len();
        more(stream, &mut bytes).await.map_err(|_| Closed::Gone)?;
        match hello.feed(bytes.get(before..).unwrap_or_default()) {
            Hello::NeedMore => {}
            Hello::NotTls => return http(stream, bytes, wanted).await,
            hello => return judge(&hello, wanted).map_or(Ok(Opening::Tls(bytes)), Err),
        }
    }
}

/// None when the name is right.
pub(super) fn judge(hello: &Hello, wanted: Wanted<'_>) -> Option<Closed> {
    let refused = |reason, detail, alert| {
        Some(Closed::Refused { protocol: Some("tls"), reason, detail, farewell: Farewell::Alert(alert) })
    };
    match hello {
        // What it hides may name another host behind the same address.
        Hello::Name { ech: true, .. } | Hello::NoName { ech: true } => {
            let detail = "TLS with an encrypted server name; Chromium leaves it out with \
                          `--disable-features=EncryptedClientHello`";
            refused("encrypted-client-hello", detail.to_owned(), ACCESS_DENIED)
        }
        Hello::Name { name, .. } if name != wanted.host && !wanted.is_address => refused(
            "server-name-mismatch",
            format!("TLS for '{name}' on a connection to '{}'", wanted.host),
            UNRECOGNIZED_NAME,
        ),
        Hello::Name { name, .. } if wanted.is_address => refused(
            "server-name-mismatch",
            format!("TLS for '{name}' on a connection to an address; connect by the name"),
            UNRECOGNIZED_NAME,
        ),
        Hello::Name { .. } => None,
        Hello::NoName { .. } if wanted.is_address => None,
        Hello::NoName { .. } => {
            refused("no-server-name", "TLS without a server name".to_owned(), UNRECOGNIZED_NAME)
        }
        Hello::Bad(code) => refused(code, "a TLS hello that is not let through".to_owned(), ACCESS_DENIED),
        Hello::NeedMore | Hello::NotTls => refused("not-tls", String::new(), ACCESS_DENIED),
    }
}

async fn http(stream: &TcpStream, bytes: Vec<u8>, wanted: Wanted<'_>) -> Result<Opening, Closed> {
    // A method is a word of capital letters; anything else gets no answer in a language it does not speak.
    if !bytes.first().is_some_and(u8::is_ascii_uppercase) {
        return Err(Closed::Refused {
            protocol: None,
            reason: "not-tls-or-http",
            detail: "the first bytes are neither TLS nor HTTP".to_owned(),
            farewell: Farewell::Reset,
        });
    }
    let reader = http_host::Reader::new(wanted.host, wanted.port).with_rules(wanted.requests.to_vec());
    let mut http = Http { reader, held: Vec::new(), released: 0 };
    let mut new = bytes;
    loop {
        http.take(&new).map_err(Closed::Request)?;
        if http.released > 0 {
            return Ok(Opening::Http(Box::new(http)));
        }
        new.clear();
        more(stream, &mut new).await.map_err(|_| Closed::Gone)?;
    }
}

impl Http {
    /// Judges the next bytes of the program; none judge again what was held back.
    ///
    /// # Errors
    /// When the connection must end.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), http_host::Refusal> {
        self.held.extend_from_slice(bytes);
        let verdict = self.reader.feed(bytes)?;
        self.released = self.released.saturating_add(verdict.forward).min(self.held.len());
        Ok(())
    }

    /// What may go on, each byte once.
    pub fn release(&mut self) -> Vec<u8> {
        let rest = self.held.split_off(self.released);
        self.released = 0;
        std::mem::replace(&mut self.held, rest)
    }
}

/// At least one byte more; an end of file is an error here.
pub(super) async fn more(stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; 16 * 1024];
    // A program's first words come with the connection, before the runtime has heard of them.
    let first = rustix::net::recv(stream, &mut chunk, RecvFlags::DONTWAIT);
    let mut got = first.map(|(read, _)| read).map_err(io::Error::from);
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
