//! Reads the server name from a ClientHello, without decryption, in any fragmentation. Pure.
//!
//! Refuses everything that servers could read differently: two names, a repeated name, inconsistent lengths.

use super::reason::Reason;

/// Maximum size of a ClientHello in bytes, record headers included.
pub const MAX_HELLO: usize = 64 * 1024;

/// The result so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// Valid so far.
    NeedMore,
    NotTls,
    /// A whole ClientHello with one name.
    Name {
        /// Lower case.
        name: String,
        /// It also has an encrypted name, which may differ.
        ech: bool,
        /// In the client's order, at most 32.
        alpn: Vec<Vec<u8>>,
    },
    /// A whole ClientHello without a name.
    NoName {
        /// Like [`Hello::Name`].
        ech: bool,
    },
    /// TLS, but a ClientHello that agentsh refuses, with the reason.
    Bad(Reason),
}

impl Hello {
    /// Whether it is whole and has an Encrypted Client Hello.
    #[must_use]
    pub fn has_ech(&self) -> bool {
        matches!(self, Self::Name { ech: true, .. } | Self::NoName { ech: true })
    }
}

/// Parses a ClientHello incrementally, in linear time.
#[derive(Debug, Default)]
pub struct Reader {
    /// The handshake message without record headers.
    message: Vec<u8>,
    /// The current record's header.
    header: Vec<u8>,
    /// Remaining bytes of that record.
    body_left: usize,
    /// Bytes fed, record headers included.
    total: usize,
    answer: Option<Hello>,
}

/// Parses a whole ClientHello.
#[must_use]
pub fn read(bytes: &[u8]) -> Hello {
    Reader::default().feed(bytes)
}

/// Bytes of a record's header: type, version, length.
const RECORD_HEADER: usize = 5;
/// Maximum size of a plaintext record's body in bytes.
const MAX_RECORD: usize = 1 << 14;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Bytes of a handshake message's header: type and length.
const MESSAGE_HEADER: usize = 4;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// The encrypted name of an older draft.
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;
const MAX_PROTOCOLS: usize = 32;
const MAX_EXTENSIONS: usize = 256;

impl Reader {
    /// Takes bytes. After any result but [`Hello::NeedMore`] it stays the same.
    pub fn feed(&mut self, bytes: &[u8]) -> Hello {
        if self.answer.is_none() {
            self.answer = self.take(bytes);
        }
        self.answer.clone().unwrap_or(Hello::NeedMore)
    }

    fn take(&mut self, mut bytes: &[u8]) -> Option<Hello> {
        while !bytes.is_empty() {
            if self.total >= MAX_HELLO {
                return Some(Hello::Bad(Reason::HelloTooLong));
            }
            let taken = if self.body_left > 0 { self.take_body(bytes) } else { self.take_header(bytes) };
            let (used, answer) = taken;
            if answer.is_some() {
                return answer;
            }
            self.total += used;
            bytes = bytes.get(used..).unwrap_or_default();
        }
        None
    }

    /// One byte at a time, to detect other protocols at their first byte.
    fn take_header(&mut self, bytes: &[u8]) -> (usize, Option<Hello>) {
        let Some(byte) = bytes.first() else { return (0, None) };
        self.header.push(*byte);
        let is_first = self.message.is_empty();
        let answer = match self.header.as_slice() {
            [HANDSHAKE_RECORD] | [_, 3] => None,
            [_] | [_, _] if is_first => Some(Hello::NotTls),
            // No TLS version allows another record type inside a hello.
            [_] | [_, _] => Some(Hello::Bad(Reason::HelloInterrupted)),
            [_, _, minor] => (*minor > 4).then_some(Hello::Bad(Reason::VersionNotKnown)),
            [_, _, _, high, low] => {
                self.body_left = usize::from(u16::from_be_bytes([*high, *low]));
                (self.body_left == 0 || self.body_left > MAX_RECORD)
                    .then_some(Hello::Bad(Reason::RecordLength))
            }
            _ => None,
        };
        if self.header.len() == RECORD_HEADER {
            self.header.clear();
        }
        (1, answer)
    }

    fn take_body(&mut self, bytes: &[u8]) -> (usize, Option<Hello>) {
        let wanted = self.body_left.min(MAX_HELLO.saturating_sub(self.total));
        let piece = bytes.get(..wanted).unwrap_or(bytes);
        self.message.extend_from_slice(piece);
        self.body_left -= piece.len();
        let answer = match self.message.as_slice() {
            [CLIENT_HELLO, a, b, c, body @ ..] => {
                let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
                if length > MAX_HELLO - MESSAGE_HEADER {
                    Some(Hello::Bad(Reason::HelloTooLong))
                } else {
                    // Data after the hello in its record would be a second message.
                    let is_whole = body.len() >= length;
                    let has_more = body.len() > length || (is_whole && self.body_left > 0);
                    match (is_whole, has_more) {
                        (false, _) => None,
                        (true, true) => Some(Hello::Bad(Reason::HelloFollowed)),
                        (true, false) => Some(hello(body)),
                    }
                }
            }
            [CLIENT_HELLO, ..] => None,
            _ => Some(Hello::Bad(Reason::NotAHello)),
        };
        (piece.len(), answer)
    }
}

fn hello(body: &[u8]) -> Hello {
    match fields(body) {
        Some(Ok(names)) => match names.name {
            Some(name) => Hello::Name { name, ech: names.ech, alpn: names.alpn },
            None => Hello::NoName { ech: names.ech },
        },
        Some(Err(why)) => Hello::Bad(why),
        None => Hello::Bad(Reason::HelloLengths),
    }
}

#[derive(Default)]
struct Names {
    name: Option<String>,
    ech: bool,
    alpn: Vec<Vec<u8>>,
}

/// None: an inconsistent length.
fn fields(body: &[u8]) -> Option<Result<Names, Reason>> {
    let mut input = Input(body);
    let version = input.number(2)?;
    if version >> 8 != 3 {
        return Some(Err(Reason::VersionNotKnown));
    }
    input.bytes(32)?;
    let session = input.block(1)?;
    let suites = input.block(2)?;
    let compressions = input.block(1)?;
    if session.0.len() > 32 || suites.0.is_empty() || suites.0.len() % 2 != 0 || compressions.0.is_empty() {
        return None;
    }
    let mut names = Names::default();
    if input.0.is_empty() {
        return Some(Ok(names));
    }
    let mut extensions = input.block(2)?;
    if !input.0.is_empty() {
        return None;
    }
    let mut seen: Vec<u16> = Vec::new();
    while !extensions.0.is_empty() {
        let kind = u16::try_from(extensions.number(2)?).ok()?;
        let mut content = extensions.block(2)?;
        if seen.contains(&kind) {
            return Some(Err(Reason::ExtensionTwice));
        }
        if seen.len() >= MAX_EXTENSIONS {
            return Some(Err(Reason::TooManyExtensions));
        }
        seen.push(kind);
        match kind {
            SERVER_NAME => match server_name(&mut content)? {
                Ok(name) => names.name = Some(name),
                Err(why) => return Some(Err(why)),
            },
            ALPN => names.alpn = protocols(&mut content)?,
            ENCRYPTED_CLIENT_HELLO | ENCRYPTED_SERVER_NAME => names.ech = true,
            _ => {}
        }
    }
    Some(Ok(names))
}

fn server_name(content: &mut Input<'_>) -> Option<Result<String, Reason>> {
    let mut list = content.block(2)?;
    let kind = list.number(1)?;
    let name = list.block(2)?.0;
    if !content.0.is_empty() {
        return None;
    }
    if kind != 0 || !list.0.is_empty() {
        return Some(Err(Reason::SeveralNames));
    }
    let is_label = |label: &[u8]| {
        (1..=63).contains(&label.len())
            && label.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    // A trailing dot is an empty label: RFC 6066 has none.
    if name.len() > 253 || !name.split(|byte| *byte == b'.').all(is_label) {
        return Some(Err(Reason::NameNotValid));
    }
    let last = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    if last.iter().all(u8::is_ascii_digit) {
        return Some(Err(Reason::NameIsAnAddress));
    }
    let name = String::from_utf8(name.to_ascii_lowercase()).ok()?;
    Some(Ok(name))
}

fn protocols(content: &mut Input<'_>) -> Option<Vec<Vec<u8>>> {
    let mut list = content.block(2)?;
    if !content.0.is_empty() || list.0.is_empty() {
        return None;
    }
    let mut protocols = Vec::new();
    while !list.0.is_empty() {
        let protocol = list.block(1)?.0;
        if protocol.is_empty() {
            return None;
        }
        if protocols.len() < MAX_PROTOCOLS {
            protocols.push(protocol.to_vec());
        }
    }
    Some(protocols)
}

/// The unread rest.
struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Big-endian, of `width` bytes.
    fn number(&mut self, width: usize) -> Option<usize> {
        Some(self.bytes(width)?.iter().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    }

    /// Bytes preceded by a length of `width` bytes.
    fn block(&mut self, width: usize) -> Option<Self> {
        let length = self.number(width)?;
        self.bytes(length).map(Self)
    }
}

#[cfg(test)]
#[path = "tls_sni_tests.rs"]
mod tests;
