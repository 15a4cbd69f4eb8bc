//! The JSON-RPC 2.0 envelope: what a message is, told from its tree and never from its types.

use std::borrow::Cow;

use serde_json::Value;

use crate::json::{Json, folds_to, has_lone_surrogate};

/// Longest id, in bytes as spelled: ids are remembered while a request runs.
pub const MAX_ID_BYTES: usize = 256;

const RESERVED: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// What makes two ids the same: `1` and `"1"` differ, `"a\/b"` and `"a/b"` do not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    Number(Box<str>),
    Text(Box<str>),
}

/// An id as one side spelled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id {
    pub key: Key,
    /// JSON text, to be written back as it came.
    pub spelled: Box<str>,
}

/// One well-formed message.
#[derive(Debug)]
pub enum Message<'t, 'a> {
    Request {
        id: Id,
        method: Cow<'a, str>,
        params: Option<&'t Json<'a>>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Option<&'t Json<'a>>,
    },
    Response {
        /// None is `null`, which only an error may have.
        id: Option<Id>,
        is_error: bool,
    },
}

/// What a malformed message tried to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Request,
    Response,
    Unknown,
}

/// Why a message is not a well-formed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeError {
    /// Stable code: `batch`, `invalid-request` or `ambiguous-key`.
    pub reason: &'static str,
    pub detail: &'static str,
    pub id: Option<Id>,
    pub shape: Shape,
}

/// Tells what a message is.
///
/// # Errors
/// A batch; a missing or wrong `jsonrpc`; an id that is neither string nor integer; a method that is not a string;
/// members of a request and of a response together; a member whose name differs from a reserved one only in case,
/// which some parsers would take for it.
pub fn classify<'t, 'a>(tree: &'t Json<'a>) -> Result<Message<'t, 'a>, EnvelopeError> {
    let Some(members) = tree.as_object() else {
        let (reason, detail) = match tree {
            Json::Array(_) => ("batch", "batches are not part of this protocol"),
            _ => ("invalid-request", "a message is an object"),
        };
        return Err(EnvelopeError { reason, detail, id: None, shape: Shape::Unknown });
    };
    let id = tree.member("id");
    let method = tree.member("method");
    let (result, error) = (tree.member("result"), tree.member("error"));
    let shape = match (method, result.is_some() || error.is_some()) {
        (Some(_), false) => Shape::Request,
        (None, true) => Shape::Response,
        _ => Shape::Unknown,
    };
    let known_id = id.and_then(|id| Id::from_json(id).ok());
    let fail = |reason, detail| Err(EnvelopeError { reason, detail, id: known_id.clone(), shape });

    if members.iter().any(|(name, _)| looks_reserved(name)) {
        return fail(
            "ambiguous-key",
            "a member's name differs from a reserved one only in upper and lower case",
        );
    }
    if tree.member("jsonrpc").and_then(Json::as_text).as_deref() != Some("2.0") {
        return fail("invalid-request", "`jsonrpc` must be \"2.0\"");
    }
    match (method, result, error) {
        (Some(_), None, None) | (None, Some(_), None) | (None, None, Some(Json::Object(_))) => {}
        (None, None, Some(_)) => return fail("invalid-request", "`error` must be an object"),
        (None, None, None) => return fail("invalid-request", "neither `method`, `result` nor `error`"),
        (None, Some(_), Some(_)) => return fail("invalid-request", "both `result` and `error`"),
        (Some(_), ..) => return fail("invalid-request", "`method` together with `result` or `error`"),
    }
    if let Some(method) = method {
        let Json::String(raw) = method else { return fail("invalid-request", "`method` must be a string") };
        if has_lone_surrogate(raw) {
            return fail("invalid-request", "`method` is not Unicode text");
        }
        let method = crate::json::unescape(raw);
        let params = tree.member("params");
        return match id.map(Id::from_json) {
            None => Ok(Message::Notification { method, params }),
            Some(Ok(id)) => Ok(Message::Request { id, method, params }),
            Some(Err(detail)) => fail("invalid-request", detail),
        };
    }
    match id {
        None => fail("invalid-request", "a response needs the `id` of its request"),
        Some(Json::Null) if error.is_some() => Ok(Message::Response { id: None, is_error: true }),
        Some(id) => match Id::from_json(id) {
            Ok(id) => Ok(Message::Response { id: Some(id), is_error: error.is_some() }),
            Err(detail) => fail("invalid-request", detail),
        },
    }
}

impl Id {
    /// Reads an id or a progress token.
    ///
    /// # Errors
    /// Anything but a string or an integer, or longer than [`MAX_ID_BYTES`].
    pub fn from_json(value: &Json<'_>) -> Result<Self, &'static str> {
        let (key, spelled) = match value {
            Json::Number(raw) | Json::String(raw) if raw.len() > MAX_ID_BYTES => {
                return Err("an `id` has at most 256 bytes");
            }
            Json::Number(raw) if !raw.contains(['.', 'e', 'E']) => {
                (Key::Number((*raw).into()), (*raw).to_owned())
            }
            Json::String(raw) => (Key::Text(crate::json::unescape(raw).into()), format!("\"{raw}\"")),
            _ => return Err("an `id` is a string or an integer"),
        };
        Ok(Self { key, spelled: spelled.into() })
    }

    /// For the event log: integers that fit 64 bits as numbers, everything else as text.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match &self.key {
            Key::Number(raw) => Json::Number(raw).to_value(),
            Key::Text(text) => Value::String(text.to_string()),
        }
    }
}

fn looks_reserved(raw: &str) -> bool {
    let name = crate::json::unescape(raw);
    !RESERVED.contains(&&*name) && RESERVED.iter().any(|reserved| folds_to(&name, reserved))
}
