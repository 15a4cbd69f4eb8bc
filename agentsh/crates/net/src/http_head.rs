//! Judges one HTTP/1 request head. Refuses every head that two servers could parse differently.

use std::net::IpAddr;
use std::rc::Rc;
use std::str::FromStr;

use super::channel::RequestFilter;
use super::credentials::{Broker, HeadEdit, RequestTarget};
use super::http_host::{Refusal, Request};
use super::reason::Reason;
use crate::policy::{MAX_FETCH_BODY, RequestRule, Ruled};

/// The permitted requests of a connection.
#[derive(Debug, Default)]
pub struct ExpectedRequest {
    /// Lower case, or an address.
    pub name: String,
    pub port: u16,
    /// None: every request.
    pub rules: Vec<Ruled<RequestRule>>,
    /// The agent's connection: its MCP servers are behind bridges and must not be reached directly.
    pub is_bridged: bool,
    /// The session's secrets.
    pub broker: Option<Rc<Broker>>,
    /// Inspected TLS.
    pub is_secret: bool,
    /// Requests that a channel takes.
    pub picks: Option<RequestFilter>,
    /// Requests may name any host: they arrive at this one, which may not speak HTTP.
    pub is_loose: bool,
}

/// A permitted head.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    pub request: Request,
    pub body: Body,
    /// Replacements in order: secrets for placeholders, and no compression.
    pub puts: Vec<HeadEdit>,
    pub is_picked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A number of bytes; 0: no body.
    Length(u64),
    Chunked,
    /// Nothing, until the server accepts the web socket.
    Switch,
}

const MAX_METHOD: usize = 32;
const MAX_HEADERS: usize = 500;
/// Recorded length of a path.
const SHOWN_PATH: usize = 256;
/// Headers that define a request. Some servers read `_` as `-`.
const DECISIVE: [&str; 5] = ["host", "content-length", "transfer-encoding", "upgrade", "connection"];

/// Headers of MCP over HTTP.
const MCP_HEADERS: [&str; 4] = ["mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"];
/// Headers of clients whose names or values are like those that replace a request.
const ORDINARY: &str = "host http-referer access-control-request-method mcp-method x-forwarded-for x-forwarded-proto \
    x-forwarded-port dropbox-api-path-root soapaction";
/// Prefixes of header names whose values may be paths: HTTP's own, and those of clients of large services, with
/// object paths.
const ORDINARY_STARTS: &str = "accept content- sec- if- grpc- x-amz- x-amzn- x-goog- x-ms- x-stainless-";
/// Last words of header names whose values may begin with `/` or a scheme without being a target: base64, and
/// origins.
const ORDINARY_ENDS: &str = "authorization auth checksum cookie digest hash id key md5 nonce origin profile referer secret \
    session sha256 signature source token";

/// Whether servers, gateways and frameworks may take method, path or host from this header instead of from the
/// request. `name` is in lower case.
pub(super) fn overrides_request(name: &str, value: &[u8]) -> bool {
    // Gateways merge both spellings.
    let name = name.replace('_', "-");
    if ORDINARY.split(' ').any(|ordinary| ordinary == name) {
        return false;
    }
    let is_of_client = |starts: &str| starts.split(' ').any(|start| name.starts_with(start));
    let names_a_part = |word: &str| {
        ["method", "path", "uri", "url", "host"].iter().any(|part| word.ends_with(part))
            || ["forwarded", "override", "rewrite", "subrequest"].iter().any(|part| word.contains(part))
    };
    if name.split('-').any(names_a_part) {
        return !is_of_client("x-stainless-");
    }
    let last = name.rsplit('-').next().unwrap_or_default();
    let is_ordinary = || is_of_client(ORDINARY_STARTS) || ORDINARY_ENDS.split(' ').any(|end| end == last);
    names_a_target(trimmed(value)) && !is_ordinary()
}

/// A path, or an absolute URL.
fn names_a_target(value: &[u8]) -> bool {
    let scheme = || value.split(|byte| *byte == b':').next().unwrap_or_default();
    let is_scheme = |text: &[u8]| {
        !text.is_empty() && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
    };
    value.starts_with(b"/")
        || is_scheme(scheme()) && value.get(scheme().len()..).is_some_and(|rest| rest.starts_with(b"://"))
}

/// `bytes` ends with the empty line; it has no NUL, and CR and LF only in pairs. `is_first`: no earlier request on
/// this connection.
pub fn judge(bytes: &[u8], expected: &ExpectedRequest, is_first: bool) -> Result<Head, Refusal> {
    let refuse = |reason| Err(Refusal::new(reason));
    let mut lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let request_line = lines.next().unwrap_or_default();
    let parts: Vec<&[u8]> = request_line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = parts.as_slice() else { return refuse(Reason::RequestLineNotValid) };
    let is_modern = match *version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        b"HTTP/2.0" => return refuse(Reason::Http2PriorKnowledge),
        _ => return refuse(Reason::HttpVersionNotKnown),
    };
    let (Ok(method), Ok(target)) = (std::str::from_utf8(method), std::str::from_utf8(target)) else {
        return refuse(Reason::RequestLineNotValid);
    };
    if method.is_empty() || !method.bytes().all(is_token) || !target.bytes().all(|b| b.is_ascii_graphic()) {
        return refuse(Reason::RequestLineNotValid);
    }
    if method == "CONNECT" {
        return refuse(Reason::ConnectNotAllowed);
    }
    let path = path_of(method, target, expected)?;
    let pushed = push_path(method, path);
    let (method_meant, path_meant) = pushed.as_ref().map_or((method, path), |path| ("POST", path.as_str()));
    let request =
        Request { method: method_meant.to_owned(), path: path_meant.chars().take(SHOWN_PATH).collect() };
    let fields = Fields::read(lines, !expected.rules.is_empty())?;
    match fields.host {
        None if !expected.is_loose => return refuse(Reason::HostMissing),
        Some(host) if !is_expected(host, expected) => return refuse(Reason::HostMismatch),
        _ => {}
    }
    // A server may ignore the offer of HTTP/2 without TLS. JDK's client makes it with each first request.
    let is_h2c = fields.upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(b"h2c"));
    if fields.has_settings && !is_h2c {
        return refuse(Reason::UpgradeNotAllowed);
    }
    let upgrade = fields.upgrade.filter(|_| !is_h2c);
    let meant = |rule: &&Ruled<RequestRule>| rule.value.matches(method_meant, path_meant);
    let meaning: Vec<&RequestRule> = expected.rules.iter().filter(meant).map(|rule| &rule.value).collect();
    if !expected.rules.is_empty() && meaning.is_empty() {
        return Err(Refusal::of(Reason::RequestNotAllowed, &request));
    }
    // A web socket cannot be inspected, so a rule with methods does not allow it.
    let names_methods = !meaning.is_empty() && !meaning.iter().any(|rule| rule.method == "*");
    if upgrade.is_some() && names_methods {
        return Err(Refusal::of(Reason::UpgradeNotAllowed, &request));
    }
    if !meaning.is_empty()
        && meaning.iter().all(|rule| rule.is_git_fetch)
        && (fields.is_chunked || fields.length.is_some_and(|length| length > MAX_FETCH_BODY))
    {
        return Err(Refusal::of(Reason::BodyTooLong, &request));
    }
    // A rule for the request is explicit permission.
    if expected.is_bridged && expected.rules.is_empty() && fields.speaks_mcp(method) {
        return Err(Refusal::of(Reason::McpPastBridges, &request));
    }
    let mut puts = Vec::new();
    if let Some(broker) = &expected.broker {
        let to = RequestTarget { host: &expected.name, port: expected.port, is_secret: expected.is_secret };
        puts.extend(broker.judge(bytes, to, &request, path_meant)?);
    }
    let has_secret = !puts.is_empty();
    if expected.is_secret
        && let Some(broker) = &expected.broker
        && broker.has_secret_of(&expected.name, expected.port)
    {
        puts.extend(Broker::request_uncompressed(bytes));
    }
    if is_h2c {
        puts.extend(without_h2c(bytes));
    }
    puts.sort_by_key(|put| put.at);
    // A server that expects no body would read it as the next request.
    let has_body = fields.is_chunked || fields.length.is_some_and(|length| length > 0);
    let is_judged = !expected.rules.is_empty() || has_secret;
    if has_body && is_judged && ["GET", "HEAD", "OPTIONS", "TRACE"].contains(&method) {
        return Err(Refusal::of(Reason::BodyNotExpected, &request));
    }
    let body = match (fields.length, fields.is_chunked, upgrade) {
        (Some(_), true, _) => return refuse(Reason::LengthAndChunked),
        (_, true, _) if !is_modern => return refuse(Reason::ChunkedInHttp10),
        (_, _, Some(upgrade)) => {
            if !upgrade.eq_ignore_ascii_case(b"websocket") || method != "GET" || has_body || !is_modern {
                return refuse(Reason::UpgradeNotAllowed);
            }
            // After other requests the answer to the upgrade would be ambiguous.
            if !is_first {
                return refuse(Reason::UpgradeNotFirst);
            }
            Body::Switch
        }
        (_, true, None) => Body::Chunked,
        (length, false, None) => Body::Length(length.unwrap_or(0)),
    };
    let is_picked = expected.picks.is_some_and(|picks| picks(method, path));
    Ok(Head { request, body, puts, is_picked })
}

/// Takes the offer of HTTP/2 out of a head.
fn without_h2c(head: &[u8]) -> Vec<HeadEdit> {
    let (mut edits, mut at) = (Vec::new(), 0);
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let value = line.get(name.len() + 1..).unwrap_or_default();
        let is_offer = |word: &[u8]| {
            [&b"upgrade"[..], b"http2-settings"].iter().any(|own| word.eq_ignore_ascii_case(own))
        };
        let is_connection = name.eq_ignore_ascii_case(b"connection");
        if is_offer(name) || is_connection {
            let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            let others: Vec<&[u8]> =
                words.filter(|word| is_connection && !word.is_empty() && !is_offer(word)).collect();
            let left = [b"Connection: ", &others.join(&b", "[..])[..], b"\r\n"].concat();
            let value = if others.is_empty() { Vec::new() } else { left };
            edits.push(HeadEdit { at, length: line.len(), value, used: None });
        }
        at += line.len();
    }
    edits
}

/// A push first requests the refs; it is judged by the push's path.
fn push_path(method: &str, path: &str) -> Option<String> {
    let (path, query) = path.split_once('?')?;
    let is_for_a_push = url::form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "service" && value == "git-receive-pack");
    let repository = path.strip_suffix("/info/refs").filter(|_| is_for_a_push && method == "GET")?;
    Some(format!("{repository}/git-receive-pack"))
}

/// Whether bytes can begin a head; methods are short.
pub fn can_begin(bytes: &[u8]) -> bool {
    match bytes.iter().position(|byte| *byte == b' ') {
        Some(end) => end > 0 && end <= MAX_METHOD,
        None => bytes.len() <= MAX_METHOD && bytes.iter().copied().all(is_token),
    }
}

/// Whether the first bytes can begin a request, so that other protocols are not delayed.
pub fn is_request(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 7] =
        [b"GET /", b"POST /", b"PUT /", b"HEAD /", b"PATCH /", b"DELETE /", b"OPTIONS "];
    let can_begin = BEGINNINGS.iter().any(|word| word.iter().zip(bytes).all(|(one, other)| one == other));
    let has_version = || bytes.windows(8).any(|part| part == b" HTTP/1.");
    can_begin && (bytes.last() != Some(&b'\n') || has_version())
}

/// Path and query of a request target in any form.
fn path_of<'t>(method: &str, target: &'t str, expected: &ExpectedRequest) -> Result<&'t str, Refusal> {
    if target.contains('#') {
        return Err(Refusal::new(Reason::TargetNotValid));
    }
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok(target);
    }
    let Some(rest) = target.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http://"))
    else {
        return Err(Refusal::new(Reason::TargetNotValid));
    };
    let rest = rest.1;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !is_expected(authority.as_bytes(), expected) {
        return Err(Refusal::new(Reason::TargetMismatch));
    }
    match path {
        "" => Ok("/"),
        _ if path.starts_with('/') => Ok(path),
        _ => Err(Refusal::new(Reason::TargetNotValid)),
    }
}

/// Whether `host` or `host:port` is the connection's.
fn is_expected(written: &[u8], expected: &ExpectedRequest) -> bool {
    if expected.is_loose {
        return true;
    }
    let Ok(written) = std::str::from_utf8(written) else { return false };
    let (host, port) = match written.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, rest.strip_prefix(':').or(Some(""))),
            None => return false,
        },
        None => match written.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (written, None),
        },
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_port =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse() == Ok(expected.port);
    if port.is_some_and(|port| !is_port(port)) {
        return false;
    }
    match (IpAddr::from_str(&expected.name), IpAddr::from_str(host)) {
        (Ok(wanted), Ok(found)) => {
            wanted.to_canonical() == found.to_canonical() && found.is_ipv6() == written.starts_with('[')
        }
        (Err(_), Err(_)) => !written.starts_with('[') && host.eq_ignore_ascii_case(&expected.name),
        _ => false,
    }
}

/// The defining headers.
#[derive(Default)]
struct Fields<'h> {
    host: Option<&'h [u8]>,
    length: Option<u64>,
    is_chunked: bool,
    upgrade: Option<&'h [u8]>,
    has_settings: bool,
    /// An MCP header is present.
    is_mcp: bool,
    accepts_json: bool,
    accepts_events: bool,
    /// Rules name method and path, so overriding headers are refused.
    has_rules: bool,
}

impl<'h> Fields<'h> {
    /// The first request of an MCP client has no version and session: a message that accepts both answer types.
    fn speaks_mcp(&self, method: &str) -> bool {
        self.is_mcp || (method == "POST" && self.accepts_json && self.accepts_events)
    }

    fn read(lines: impl Iterator<Item = &'h [u8]>, has_rules: bool) -> Result<Self, Refusal> {
        let mut fields = Self { has_rules, ..Self::default() };
        for (count, line) in lines.take_while(|line| !line.is_empty()).enumerate() {
            if count >= MAX_HEADERS {
                return Err(Refusal::new(Reason::TooManyHeaders));
            }
            fields.line(line)?;
        }
        Ok(fields)
    }

    fn line(&mut self, line: &'h [u8]) -> Result<(), Refusal> {
        let refuse = |reason| Err(Refusal::new(reason));
        if line.first().is_some_and(|byte| b" \t".contains(byte)) {
            return refuse(Reason::FoldedHeader);
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return refuse(Reason::HeaderNotValid);
        };
        let (name, rest) = line.split_at(colon);
        if name.last().is_some_and(|byte| b" \t".contains(byte)) {
            return refuse(Reason::SpaceBeforeColon);
        }
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return refuse(Reason::HeaderNotValid);
        }
        let value = rest.get(1..).unwrap_or_default();
        if value.iter().any(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f) {
            return refuse(Reason::HeaderNotValid);
        }
        let value = trimmed(value);
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if name.contains('_') && DECISIVE.contains(&name.replace('_', "-").as_str()) {
            return refuse(Reason::HeaderLookAlike);
        }
        if self.has_rules && overrides_request(&name, value) {
            return refuse(Reason::OverrideNotAllowed);
        }
        // Servers may read `_` as `-`.
        self.is_mcp |= MCP_HEADERS.contains(&name.replace('_', "-").as_str());
        match name.as_str() {
            "accept" => {
                let value = value.to_ascii_lowercase();
                let names = |kind: &[u8]| value.windows(kind.len()).any(|part| part == kind);
                self.accepts_json |= names(b"application/json");
                self.accepts_events |= names(b"text/event-stream");
            }
            "host" if self.host.is_some() => return refuse(Reason::HostTwice),
            "host" => self.host = Some(value),
            "content-length" if self.length.is_some() => return refuse(Reason::ContentLengthTwice),
            "content-length" => match number(value) {
                Some(length) => self.length = Some(length),
                None => return refuse(Reason::ContentLengthNotValid),
            },
            "transfer-encoding" if self.is_chunked => return refuse(Reason::ChunkedTwice),
            "transfer-encoding" if value.eq_ignore_ascii_case(b"chunked") => self.is_chunked = true,
            "transfer-encoding" => {
                let is_chunked = |part: &&[u8]| trimmed(part).eq_ignore_ascii_case(b"chunked");
                let times = value.split(|byte| *byte == b',').filter(is_chunked).count();
                return refuse(if times > 1 {
                    Reason::ChunkedTwice
                } else {
                    Reason::TransferEncodingNotKnown
                });
            }
            "upgrade" if self.upgrade.is_some() => return refuse(Reason::UpgradeNotAllowed),
            "upgrade" => self.upgrade = Some(value),
            // For an offer of HTTP/2.
            "http2-settings" => self.has_settings = true,
            _ => {}
        }
        Ok(())
    }
}

/// Digits only, of a plausible length.
fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 {
        return None;
    }
    value.iter().try_fold(0u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

fn trimmed(value: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !b" \t".contains(byte);
    let start = value.iter().position(is_text).unwrap_or(value.len());
    let end = value.iter().rposition(is_text).map_or(start, |at| at + 1);
    value.get(start..end).unwrap_or_default()
}

pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
