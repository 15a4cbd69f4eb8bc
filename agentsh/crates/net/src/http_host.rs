//! Checks the Host of every request of a plain HTTP/1 connection before its head is released. Pure.
//!
//! Refuses HTTP/2. After a web socket upgrade request nothing more is released until the server agrees, because a
//! server that declines reads the next bytes as a request.

use std::rc::Rc;

use super::channel::RequestFilter;
use super::credentials::{Broker, HeadEdit};
use super::http_head::{self, Body, ExpectedRequest};
use super::reason::Reason;
use crate::policy::{RequestRule, Ruled};
use crate::types::RuleRef;
use agentsh_egress::secret_search::SecretSearch;

/// Longest head of a request, in bytes.
pub const MAX_HEAD: usize = 64 * 1024;
/// Limit of client bytes held while the server has not accepted a web socket.
const MAX_EARLY: usize = 64 * 1024;
/// Hexadecimal digits of a chunk's length.
const MAX_CHUNK_DIGITS: u8 = 15;

/// The result of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Bytes that may be forwarded, from the first unreleased one.
    pub forward: usize,
    /// The requests that begin in them.
    pub requests: Vec<Request>,
    /// Replacements in them.
    pub puts: Vec<HeadEdit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// As sent, without scheme and host, at most 256 characters.
    pub path: String,
}

/// Why the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub request: Option<Request>,
    /// The refusing rule, if not the connection's.
    pub rule: Option<RuleRef>,
}

/// State of one connection.
#[derive(Debug)]
pub struct Reader {
    expected: ExpectedRequest,
    state: State,
    /// An incomplete head.
    held: Vec<u8>,
    /// Bytes held until the server accepts a web socket.
    early: Vec<u8>,
    /// The server's answer to the upgrade so far.
    answer: Vec<u8>,
    is_first: bool,
    /// Searches bodies for placeholders.
    watch: Option<SecretSearch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// Remaining bytes of a body.
    Body(u64),
    /// In a chunk length: value and digits so far.
    ChunkLength(u64, u8),
    /// After a chunk length, before LF.
    ChunkLengthEnd(u64),
    Chunk(u64),
    /// After a chunk or at trailers: before CR, then LF. True: the last one.
    ChunkEnd(bool),
    ChunkEndLf(bool),
    Switch,
    Opaque,
    /// At a request that a channel takes.
    Picked,
    Refused(Refusal),
}

impl Refusal {
    pub(super) fn new(reason: Reason) -> Self {
        Self { reason, request: None, rule: None }
    }

    pub(super) fn of(reason: Reason, request: &Request) -> Self {
        Self { reason, request: Some(request.clone()), rule: None }
    }
}

impl Reader {
    /// `name` is the normalised requested host; `port` its port.
    #[must_use]
    pub fn new(name: &str, port: u16) -> Self {
        Self {
            expected: ExpectedRequest { name: name.to_ascii_lowercase(), port, ..ExpectedRequest::default() },
            state: State::Head,
            held: Vec::new(),
            early: Vec::new(),
            answer: Vec::new(),
            is_first: true,
            watch: None,
        }
    }

    /// With the session's secrets. `is_secret`: inspected TLS.
    #[must_use]
    pub fn with_broker(mut self, broker: Option<Rc<Broker>>, is_secret: bool) -> Self {
        self.watch = broker.as_ref().map(|broker| broker.watch());
        self.expected.broker = broker;
        self.expected.is_secret = is_secret;
        self
    }

    /// Only requests of one of the rules; none: every request.
    #[must_use]
    pub fn with_rules(mut self, rules: Vec<Ruled<RequestRule>>) -> Self {
        self.expected.rules = rules;
        self
    }

    /// The agent's MCP servers are behind bridges: it may not use MCP here, unless a rule names the request.
    #[must_use]
    pub fn bridged(mut self, is_bridged: bool) -> Self {
        self.expected.is_bridged = is_bridged;
        self
    }

    /// Stops at requests that a channel takes.
    #[must_use]
    pub fn picking(mut self, picks: Option<RequestFilter>) -> Self {
        self.expected.picks = picks;
        self
    }

    /// Only searches for such requests: anything else is forwarded unread.
    #[must_use]
    pub fn search_only(picks: RequestFilter) -> Self {
        let mut reader = Self::new("", 0).picking(Some(picks));
        reader.expected.is_loose = true;
        reader
    }

    #[must_use]
    pub fn is_picked(&self) -> bool {
        self.state == State::Picked
    }

    /// Takes client bytes.
    ///
    /// # Errors
    /// The connection must be closed, now and for every later call. Nothing but earlier releases may be forwarded.
    /// Permitted requests before a refused one in the same call are released first; the refusal is returned by the
    /// next call.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Verdict, Refusal> {
        let mut verdict = Verdict::default();
        if let Err(refusal) = self.take(bytes, &mut verdict) {
            if self.expected.is_loose {
                (self.state, self.held, self.early) = (State::Opaque, Vec::new(), Vec::new());
                verdict.forward = usize::MAX;
                return Ok(verdict);
            }
            self.state = State::Refused(refusal.clone());
            self.held = Vec::new();
            if verdict.forward == 0 {
                return Err(refusal);
            }
        }
        Ok(verdict)
    }

    /// The refusal that the next [`Self::feed`] returns.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.state {
            State::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the server's answer is needed: after an upgrade request nothing is released until the server accepts.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        self.state == State::Switch
    }

    /// Takes server bytes, while [`Self::awaits_answer`]. Then call `feed(&[])`, which may release held bytes.
    ///
    /// # Errors
    /// Like [`Self::feed`].
    pub fn answer(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.state != State::Switch {
            return Ok(());
        }
        for byte in bytes {
            self.answer.push(*byte);
            if self.answer.ends_with(b"\r\n\r\n") {
                let head = std::mem::take(&mut self.answer);
                match status(&head) {
                    Some(101) => self.state = State::Opaque,
                    // Other informational responses precede the answer.
                    Some(100..200) => continue,
                    Some(_) => self.state = State::Head,
                    None => return self.refuse(Reason::AnswerNotValid),
                }
                return Ok(());
            }
            if self.answer.len() >= MAX_HEAD {
                return self.refuse(Reason::AnswerTooLong);
            }
        }
        Ok(())
    }

    /// Bytes that may be forwarded unread: the rest of a body, or everything (`u64::MAX`) after a web socket. Report
    /// them with [`Self::skip`].
    #[must_use]
    pub fn free(&self) -> u64 {
        match self.state {
            _ if !self.early.is_empty() => 0,
            State::Body(left) | State::Chunk(left) => left,
            State::Opaque => u64::MAX,
            _ => 0,
        }
    }

    /// Reports forwarded bytes of [`Self::free`].
    pub fn skip(&mut self, bytes: u64) {
        match self.state {
            State::Body(left) => self.state = after_body(left.saturating_sub(bytes)),
            State::Chunk(left) => self.state = after_chunk(left.saturating_sub(bytes)),
            _ => {}
        }
    }

    fn refuse(&mut self, reason: Reason) -> Result<(), Refusal> {
        if self.expected.is_loose {
            self.state = State::Opaque;
            return Ok(());
        }
        self.state = State::Refused(Refusal::new(reason));
        self.held = Vec::new();
        Err(Refusal::new(reason))
    }

    fn take(&mut self, bytes: &[u8], verdict: &mut Verdict) -> Result<(), Refusal> {
        if self.state != State::Switch {
            // The server has answered: held bytes come first.
            let early = std::mem::take(&mut self.early);
            self.run(&early, verdict)?;
        }
        self.run(bytes, verdict)
    }

    fn run(&mut self, mut rest: &[u8], verdict: &mut Verdict) -> Result<(), Refusal> {
        while let Some(byte) = rest.first().copied() {
            let used = match &self.state {
                State::Refused(refusal) => return Err(refusal.clone()),
                State::Opaque => rest.len(),
                State::Picked => return Ok(()),
                State::Switch => {
                    if self.early.len() + rest.len() > MAX_EARLY {
                        return Err(Refusal::new(Reason::EarlyData));
                    }
                    self.early.extend_from_slice(rest);
                    return Ok(());
                }
                State::Head => {
                    self.head_byte(byte, verdict)?;
                    rest = rest.get(1..).unwrap_or_default();
                    continue;
                }
                State::Body(left) | State::Chunk(left) => {
                    let used = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    let body = rest.get(..used).unwrap_or_default();
                    if self.watch.as_mut().is_some_and(|watch| watch.finds_in(body)) {
                        return Err(Refusal::new(Reason::PlaceholderInBody));
                    }
                    self.skip(used as u64);
                    used
                }
                _ => {
                    self.state = frame_byte(&self.state, byte)?;
                    1
                }
            };
            verdict.forward += used;
            rest = rest.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    fn head_byte(&mut self, byte: u8, verdict: &mut Verdict) -> Result<(), Refusal> {
        let refuse = |reason| Err(Refusal::new(reason));
        let before = self.held.last().copied();
        match (before, byte) {
            (_, 0) => return refuse(Reason::NulInHead),
            (Some(b'\r'), b'\n') => {}
            (_, b'\n') => return refuse(Reason::BareLf),
            (Some(b'\r'), _) => return refuse(Reason::BareCr),
            _ => {}
        }
        if self.held.len() >= MAX_HEAD {
            return refuse(Reason::HeadTooLong);
        }
        self.held.push(byte);
        let is_strange = self.expected.is_loose && !http_head::is_request(&self.held);
        if is_strange || (self.held.len() <= 40 && !http_head::can_begin(&self.held)) {
            return refuse(Reason::NotHttp);
        }
        if byte == b'\n' && self.held.ends_with(b"\r\n\r\n") {
            let head = http_head::judge(&self.held, &self.expected, self.is_first)?;
            if head.is_picked {
                (self.state, self.held) = (State::Picked, Vec::new());
                return Ok(());
            }
            let forward = verdict.forward;
            let puts = head.puts.into_iter().map(|put| HeadEdit { at: forward + put.at, ..put });
            verdict.puts.extend(puts);
            verdict.forward += self.held.len();
            verdict.requests.push(head.request);
            self.held.clear();
            self.is_first = false;
            self.state = match head.body {
                Body::Length(length) => after_body(length),
                Body::Chunked => State::ChunkLength(0, 0),
                Body::Switch => State::Switch,
            };
        } else if byte == b'\n' && self.held.starts_with(b"PRI * HTTP/2") {
            return refuse(Reason::Http2PriorKnowledge);
        }
        Ok(())
    }
}

fn after_body(left: u64) -> State {
    if left == 0 { State::Head } else { State::Body(left) }
}

fn after_chunk(left: u64) -> State {
    if left == 0 { State::ChunkEnd(false) } else { State::Chunk(left) }
}

/// One byte of chunk framing. Extensions and trailers are refused: they are rare, and servers differ.
fn frame_byte(state: &State, byte: u8) -> Result<State, Refusal> {
    let refuse = |reason| Err(Refusal::new(reason));
    match (state, byte) {
        (State::ChunkLength(value, digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
            let digit = char::from(byte).to_digit(16).unwrap_or(0);
            if *digits >= MAX_CHUNK_DIGITS {
                return refuse(Reason::ChunkTooLong);
            }
            Ok(State::ChunkLength(value << 4 | u64::from(digit), digits + 1))
        }
        (State::ChunkLength(value, 1..), b'\r') => Ok(State::ChunkLengthEnd(*value)),
        (State::ChunkLength(_, 1..), b';' | b' ' | b'\t') => refuse(Reason::ChunkExtension),
        (State::ChunkLengthEnd(0), b'\n') => Ok(State::ChunkEnd(true)),
        (State::ChunkLengthEnd(value), b'\n') => Ok(State::Chunk(*value)),
        (State::ChunkEnd(is_last), b'\r') => Ok(State::ChunkEndLf(*is_last)),
        (State::ChunkEnd(true), byte) if http_head::is_token(byte) => refuse(Reason::TrailersNotAllowed),
        (State::ChunkEndLf(true), b'\n') => Ok(State::Head),
        (State::ChunkEndLf(false), b'\n') => Ok(State::ChunkLength(0, 0)),
        (_, b'\n') => refuse(Reason::BareLf),
        _ => refuse(Reason::ChunkNotValid),
    }
}

/// The status code of a head.
fn status(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.1 ").or_else(|| head.strip_prefix(b"HTTP/1.0 "))?;
    let (digits, rest) = rest.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) || !rest.first().is_some_and(|byte| b" \r".contains(byte)) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "http_host_tests.rs"]
mod tests;
