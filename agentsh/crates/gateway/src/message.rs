//! The parts of a client's message that the gateway reads: kind, id, and what the protocol without sessions repeats
//! in headers.

use std::net::IpAddr;

use hyper::header::HeaderMap;

use crate::json::{self, Json};
use crate::mcp::INVALID_PARAMS;
use crate::mcp::caller::{self, Caller};
use crate::mcp::jsonrpc::{Id, Key, Message, classify};
use crate::mcp::mcp_headers::{self, PARAM, Params, decode_value};

pub use crate::mcp::client_capabilities::{CAPABILITIES, VERSION};
/// The first revision without sessions.
pub const STATELESS: &str = "2026-07-28";
/// Revisions with sessions.
pub const STATEFUL: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

pub const HEADER_MISMATCH: i32 = -32020;
pub const INVALID_REQUEST: i32 = -32600;
pub const PARSE_ERROR: i32 = -32700;

#[derive(Debug)]
pub struct Incoming {
    pub line: Vec<u8>,
    pub kind: Kind,
    /// The message's own revision.
    pub version: Option<String>,
    /// The tool, resource or task.
    pub name: Option<String>,
    /// From the message, as JSON.
    pub capabilities: Option<String>,
    /// The client's metadata in a request without sessions, as JSON.
    pub meta: Option<String>,
    pub token: Option<Key>,
}

#[derive(Debug)]
pub enum Kind {
    Request { id: Id, method: String },
    Notification,
    Response,
}

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageError {
    pub code: i32,
    pub why: String,
    pub id: Option<Id>,
}

impl Incoming {
    /// # Errors
    /// When it is not JSON, or not a message.
    pub fn read(body: &[u8]) -> Result<Self, MessageError> {
        let tree = json::read(body).map_err(|error| MessageError {
            code: PARSE_ERROR,
            why: format!("not one JSON value ({})", error.kind.code()),
            id: None,
        })?;
        let message = classify(&tree).map_err(|error| MessageError {
            code: INVALID_REQUEST,
            why: error.detail.to_owned(),
            id: error.id,
        })?;
        let (kind, params) = match message {
            Message::Request { id, method, params } => {
                (Kind::Request { id, method: method.into_owned() }, params)
            }
            Message::Notification { params, .. } => (Kind::Notification, params),
            Message::Response { .. } => (Kind::Response, None),
        };
        let meta = params.and_then(|params| params.member("_meta"));
        let method = match &kind {
            Kind::Request { method, .. } => method.as_str(),
            _ => "",
        };
        let mut line = Vec::with_capacity(body.len());
        // Serialised without line breaks.
        tree.write(&mut line);
        Ok(Self {
            meta: meta.map(said_each_time),
            version: meta.and_then(|meta| Some(meta.member(VERSION)?.as_text()?.into_owned())),
            name: mcp_headers::name(method, params).map(std::borrow::Cow::into_owned),
            capabilities: meta
                .and_then(|meta| meta.member(CAPABILITIES))
                .filter(is_object)
                .map(Json::to_compact),
            token: meta.and_then(|meta| Some(Id::from_json(meta.member("progressToken")?).ok()?.key)),
            line,
            kind,
        })
    }

    pub fn id(&self) -> Option<&Id> {
        match &self.kind {
            Kind::Request { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Adds the caller to a request.
    pub fn tell_caller(&mut self, address: IpAddr, wanted: &[String], headers: &HeaderMap) {
        if !matches!(self.kind, Kind::Request { .. }) {
            return;
        }
        let values = |name: &str| {
            let all = headers.get_all(name).iter();
            all.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect::<Vec<_>>()
        };
        let named = wanted.iter().map(|name| (name.clone(), values(name)));
        let headers = named.filter(|(_, values)| !values.is_empty()).collect();
        if let Some(line) = caller::with_caller(&self.line, &Caller { address, headers }) {
            self.line = line;
        }
    }

    pub fn is_initialize(&self) -> bool {
        matches!(&self.kind, Kind::Request { method, .. } if method == "initialize")
    }

    /// Whether it belongs to the protocol without sessions.
    pub fn is_stateless(&self, headers: &HeaderMap) -> bool {
        self.version.is_some() || header(headers, "mcp-protocol-version") == Some(STATELESS)
    }

    /// Compares headers with the message.
    ///
    /// # Errors
    /// A missing or different header.
    pub fn check_headers(&self, headers: &HeaderMap) -> Result<(), MessageError> {
        let mismatch = |why: String| MessageError { code: HEADER_MISMATCH, why, id: self.id().cloned() };
        let Some(version) = &self.version else { return Ok(()) };
        let Kind::Request { method, .. } = &self.kind else { return Ok(()) };
        let wanted = [
            ("mcp-protocol-version", Some(version.as_str())),
            ("mcp-method", Some(method.as_str())),
            ("mcp-name", self.name.as_deref()),
        ];
        wanted
            .into_iter()
            .filter(|(_, wanted)| wanted.is_some())
            .try_for_each(|(name, wanted)| agrees(headers, name, wanted).map_err(mismatch))
    }

    /// Compares argument headers with the body.
    ///
    /// # Errors
    /// A missing, different or unexpected header.
    pub fn check_params(&self, known: &Params, headers: &HeaderMap) -> Result<(), MessageError> {
        let mismatch = |why: String| MessageError { code: HEADER_MISMATCH, why, id: self.id().cloned() };
        let Ok(tree) = json::read(&self.line) else { return Ok(()) };
        known
            .of_call(tree.member("params"))
            .into_iter()
            .try_for_each(|(name, wanted)| agrees(headers, name, wanted.as_deref()).map_err(mismatch))
    }

    /// Checks the metadata that requests without sessions need.
    ///
    /// # Errors
    /// Without revision or capabilities.
    pub fn check_meta(&self) -> Result<(), MessageError> {
        let Kind::Request { id, .. } = &self.kind else { return Ok(()) };
        let lacking = match (&self.version, &self.capabilities) {
            (None, _) => VERSION,
            (_, None) => CAPABILITIES,
            _ => return Ok(()),
        };
        let why = format!("`params._meta` has no {lacking}");
        Err(MessageError { code: INVALID_PARAMS, why, id: Some(id.clone()) })
    }

    /// The client's capabilities in a handshake, as JSON.
    pub fn client_capabilities(&self) -> String {
        let Ok(tree) = json::read(&self.line) else { return String::new() };
        let can = tree.member("params").and_then(|params| params.member("capabilities"));
        can.map(Json::to_compact).unwrap_or_default()
    }

    pub fn is_call(&self) -> bool {
        matches!(&self.kind, Kind::Request { method, .. } if method == "tools/call")
    }
}

/// The protocol's own members of `_meta`.
fn said_each_time(meta: &Json<'_>) -> String {
    let own = [VERSION, CAPABILITIES, "io.modelcontextprotocol/clientInfo"];
    let members = own.into_iter().filter_map(|name| Some((name, meta.member(name)?.clone())));
    Json::Object(members.collect()).to_compact()
}

fn is_object(value: &&Json<'_>) -> bool {
    matches!(value, Json::Object(_))
}

/// A header must occur once and match the body, or be absent with it.
fn agrees(headers: &HeaderMap, name: &str, wanted: Option<&str>) -> Result<(), String> {
    let mut all = headers.get_all(name).iter();
    let (found, more) = (all.next(), all.next());
    if more.is_some() {
        return Err(format!("the header {name} occurs more than once"));
    }
    let found = found.map(|value| value.to_str().ok().and_then(decode_value));
    match (found, wanted) {
        (None, None) => Ok(()),
        (Some(Some(found)), Some(wanted)) if found == wanted => Ok(()),
        (None, Some(_)) => Err(format!("the header {name} is missing")),
        (Some(_), None) if name.starts_with(PARAM) => {
            Err(format!("the header {name} names an argument that the body does not have"))
        }
        _ => Err(format!("the header {name} does not match the body")),
    }
}

pub fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The kind of a server message.
pub enum Outgoing {
    Answer(Option<Key>),
    Progress(Key),
    /// For the listening request with this id.
    Subscription(Key),
    Other,
}

/// The listening request of a notification, without sessions.
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

impl Outgoing {
    pub fn read(tree: &Json<'_>) -> Self {
        match classify(tree) {
            Ok(Message::Response { id, .. }) => Self::Answer(id.map(|id| id.key)),
            Ok(Message::Notification { method, params }) if method == "notifications/progress" => {
                let token = params.and_then(|params| Id::from_json(params.member("progressToken")?).ok());
                token.map_or(Self::Other, |token| Self::Progress(token.key))
            }
            Ok(Message::Notification { params: Some(params), .. }) => {
                let own =
                    params.member("_meta").and_then(|meta| Id::from_json(meta.member(SUBSCRIPTION)?).ok());
                own.map_or(Self::Other, |id| Self::Subscription(id.key))
            }
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn mcp_headers_must_repeat_the_body() {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"größe","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let message = Incoming::read(body.as_bytes()).unwrap();
        let good = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?Z3LDtsOfZQ==?="),
        ];
        assert_eq!(message.check_headers(&headers(&good)), Ok(()));
        for (at, other) in [(0, "2025-11-25"), (1, "tools/list"), (2, "groesse")] {
            let mut bad = good;
            bad[at].1 = other;
            assert_eq!(message.check_headers(&headers(&bad)).unwrap_err().code, HEADER_MISMATCH);
            assert!(message.check_headers(&headers(&[&good[..at], &good[at + 1..]].concat())).is_err());
        }
    }

    #[test]
    fn message_line_contains_no_line_break() {
        let message = Incoming::read(b"{\"jsonrpc\":\"2.0\",\n \"id\":1,\"method\":\"ping\"}").unwrap();
        assert!(!message.line.contains(&b'\n'));
        assert_eq!(Incoming::read(b"[]").unwrap_err().code, INVALID_REQUEST);
        assert_eq!(Incoming::read(b"{\"a\":1,\"a\":2}").unwrap_err().code, PARSE_ERROR);
    }
}
