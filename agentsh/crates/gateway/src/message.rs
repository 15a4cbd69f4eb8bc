//! What has to be known of a client's message: its kind, its id, and what the protocol without sessions repeats in headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderMap;

use crate::json::{self, Json};
use crate::mcp::jsonrpc::{Id, Key, Message, classify};

/// Names the revision in each request of the protocol without sessions.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The first revision without sessions.
pub const STATELESS: &str = "2026-07-28";
/// Revisions with sessions.
pub const STATEFUL: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

pub const HEADER_MISMATCH: i32 = -32020;
pub const INVALID_REQUEST: i32 = -32600;
pub const PARSE_ERROR: i32 = -32700;

/// A message of a client, read once.
#[derive(Debug)]
pub struct Incoming {
    pub line: Vec<u8>,
    pub kind: Kind,
    /// The revision that the message itself names.
    pub version: Option<String>,
    /// What `params.name` or `params.uri` says.
    pub name: Option<String>,
    pub token: Option<Key>,
}

#[derive(Debug)]
pub enum Kind {
    Request { id: Id, method: String },
    Notification,
    Response,
}

/// Why a message goes nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub code: i32,
    pub why: String,
    pub id: Option<Id>,
}

impl Incoming {
    /// # Errors
    /// What is no JSON, or no message.
    pub fn read(body: &[u8]) -> Result<Self, Wrong> {
        let tree = json::read(body).map_err(|error| Wrong {
            code: PARSE_ERROR,
            why: format!("not one JSON value ({})", error.kind.code()),
            id: None,
        })?;
        let message = classify(&tree).map_err(|error| Wrong {
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
        let text = |name: &str| Some(params?.member(name)?.as_text()?.into_owned());
        let mut line = Vec::with_capacity(body.len());
        // A line has no line break in it.
        tree.write(&mut line);
        Ok(Self {
            kind,
            version: meta.and_then(|meta| Some(meta.member(VERSION)?.as_text()?.into_owned())),
            name: text("name").or_else(|| text("uri")),
            token: meta.and_then(|meta| Some(Id::from_json(meta.member("progressToken")?).ok()?.key)),
            line,
        })
    }

    pub fn id(&self) -> Option<&Id> {
        match &self.kind {
            Kind::Request { id, .. } => Some(id),
            _ => None,
        }
    }

    pub fn is_initialize(&self) -> bool {
        matches!(&self.kind, Kind::Request { method, .. } if method == "initialize")
    }

    /// It belongs to the protocol without sessions.
    pub fn is_stateless(&self, headers: &HeaderMap) -> bool {
        self.version.is_some() || header(headers, "mcp-protocol-version") == Some(STATELESS)
    }

    /// What stands beside the message must be what it says.
    ///
    /// # Errors
    /// A header that lacks, or says something else.
    pub fn check_headers(&self, headers: &HeaderMap) -> Result<(), Wrong> {
        let mismatch = |why: String| Wrong { code: HEADER_MISMATCH, why, id: self.id().cloned() };
        let Some(version) = &self.version else { return Ok(()) };
        let Kind::Request { method, .. } = &self.kind else { return Ok(()) };
        let named = matches!(method.as_str(), "tools/call" | "prompts/get" | "resources/read");
        let wanted = [
            ("mcp-protocol-version", Some(version.as_str())),
            ("mcp-method", Some(method.as_str())),
            ("mcp-name", self.name.as_deref().filter(|_| named)),
        ];
        for (name, wanted) in wanted {
            let Some(wanted) = wanted else { continue };
            match header(headers, name).map(unfolded) {
                Some(Some(found)) if found == wanted => {}
                Some(_) => {
                    return Err(mismatch(format!("the header {name} does not say what the body says")));
                }
                None => return Err(mismatch(format!("the header {name} is missing"))),
            }
        }
        Ok(())
    }
}

pub fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// A value that no header can hold as it is stands there in base64. None when that is broken.
fn unfolded(value: &str) -> Option<String> {
    let value = value.trim();
    let Some(coded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    String::from_utf8(STANDARD.decode(coded).ok()?).ok()
}

/// What a message of the server is for.
pub enum Outgoing {
    Answer(Option<Key>),
    Progress(Key),
    /// Belongs to the request that listens with this id.
    Subscription(Key),
    Other,
}

/// Names the listening request in notifications of the protocol without sessions.
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
    fn headers_repeat_the_body() {
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
    fn a_line_has_no_line_break() {
        let message = Incoming::read(b"{\"jsonrpc\":\"2.0\",\n \"id\":1,\"method\":\"ping\"}").unwrap();
        assert!(!message.line.contains(&b'\n'));
        assert_eq!(Incoming::read(b"[]").unwrap_err().code, INVALID_REQUEST);
        assert_eq!(Incoming::read(b"{\"a\":1,\"a\":2}").unwrap_err().code, PARSE_ERROR);
    }
}
