//! Facts about an outgoing message: its id, its method, and the headers of the newer protocol.

use std::cell::OnceCell;

use crate::json::{self, Json};
use crate::mcp::jsonrpc::{Id, Key, Message, Shape, classify};
use crate::mcp::mcp_headers::{self, Params};

/// Names the revision in each request of the protocol without sessions.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub line: Vec<u8>,
    /// The id of a request.
    pub id: Option<Id>,
    pub method: String,
    /// The subject of the request: a tool, a resource, a task.
    pub name: Option<String>,
    /// Arguments that are in headers too, by the name of the header.
    pub repeated: Vec<(String, String)>,
    /// The revision, where the message itself names it: it belongs to no session then.
    pub version: Option<String>,
    /// The request that a cancellation cancels.
    pub cancels: Option<Key>,
    /// An error without an id that stood in the answer: it is the answer if no other one follows.
    pub said: OnceCell<Vec<u8>>,
}

impl Outgoing {
    /// None for what is not a message; the proxy sends none such.
    pub fn read(line: &[u8], known: &Params) -> Option<Self> {
        let tree = json::read(line).ok()?;
        let (id, method, params) = match classify(&tree) {
            Ok(Message::Request { id, method, params }) => (Some(id), method.into_owned(), params),
            Ok(Message::Notification { method, params }) => (None, method.into_owned(), params),
            // Also an error for a request whose id was refused.
            Ok(Message::Response { .. }) => (None, String::new(), None),
            Err(error) if error.shape.is_answer() => (None, String::new(), None),
            Err(_) => return None,
        };
        let version = params.and_then(|params| params.member("_meta")?.member(VERSION)?.as_text());
        let cancels = params.filter(|_| method == "notifications/cancelled");
        Some(Self {
            line: line.to_vec(),
            name: mcp_headers::name(&method, params).map(std::borrow::Cow::into_owned),
            repeated: match method.as_str() {
                "tools/call" => {
                    let all = known.of_call(params).into_iter();
                    all.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
                }
                _ => Vec::new(),
            },
            version: version.map(std::borrow::Cow::into_owned),
            cancels: cancels.and_then(|params| Some(Id::from_json(params.member("requestId")?).ok()?.key)),
            id,
            method,
            said: OnceCell::new(),
        })
    }

    /// An error that names no request, as one that names this request.
    pub fn unnamed_error(&self, tree: &Json<'_>) -> Option<Vec<u8>> {
        let id = self.id.as_ref()?;
        let is_one = match classify(tree) {
            Ok(Message::Response { id, .. }) => id.is_none(),
            Err(error) => error.shape == Shape::Response && tree.member("id").is_none(),
            Ok(_) => false,
        };
        // No client takes one without a text.
        tree.member("error").filter(|error| is_one && error.member("message").is_some())?;
        let mut line = Vec::new();
        let others = tree.as_object()?.iter().filter(|(raw, _)| json::unescape(raw) != "id").cloned();
        Json::Object(others.chain([("id", id.to_json())]).collect()).write(&mut line);
        Some(line)
    }

    pub fn is_initialize(&self) -> bool {
        self.id.is_some() && self.method == "initialize"
    }
}

/// Whether a message of the server answers the request with this id.
pub(crate) fn answers(tree: &Json<'_>, id: &Id) -> bool {
    matches!(classify(tree), Ok(Message::Response { id: Some(own), .. }) if id.key.matches_answer(&own.key))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn an_error_without_an_id_gets_the_id_of_its_request() {
        let request = br#"{"jsonrpc":"2.0","id":"a","method":"x"}"#;
        let asked = Outgoing::read(request, &Params::default()).unwrap();
        let error = r#""error":{"code":1,"message":"m"}"#;
        let answer = |members: &str| {
            let text = format!("{{{members}}}");
            let line = asked.unnamed_error(&json::read(text.as_bytes()).unwrap());
            line.map(|line| String::from_utf8(line).unwrap())
        };
        let named = format!(r#"{{"jsonrpc":"2.0",{error},"trace":"t","id":"a"}}"#);
        for id in [r#""id":null,"#, ""] {
            let said = answer(&format!(r#""jsonrpc":"2.0",{id}{error},"trace":"t""#));
            assert_eq!(said.as_ref(), Some(&named), "{id}");
        }
        // A log line, and the answer to another request.
        for other in [error.to_owned(), format!(r#""jsonrpc":"2.0","id":2,{error}"#)] {
            assert_eq!(answer(&other), None, "{other}");
        }
    }
}
