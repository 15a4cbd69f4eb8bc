//! The JSON-RPC 2.0 envelope: what a message is, told from its tree and never from its types.

use std::borrow::Cow;

use serde_json::Value;

use crate::json::{Json, folds_to, has_lone_surrogate};

/// Longest id, in bytes as spelled: ids are remembered while a request runs.
pub const MAX_ID_BYTES: usize = 256;

const RESERVED: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// What makes two ids the same: `1` and `1.0` are, `"a\/b"` and `"a/b"` too; `1` and `"1"` are not, but see [`Key::twin`].
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
    /// Neither a method nor an answer: a line of a log, a banner.
    Noise,
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
        let shape = if reason == "batch" { Shape::Unknown } else { Shape::Noise };
        return Err(EnvelopeError { reason, detail, id: None, shape });
    };
    let id = tree.member("id");
    let method = tree.member("method");
    let (result, error) = (tree.member("result"), tree.member("error"));
    let shape = match (method, result.is_some() || error.is_some()) {
        (Some(_), false) => Shape::Request,
        (None, true) => Shape::Response,
        (Some(_), true) => Shape::Unknown,
        (None, false) => Shape::Noise,
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
    /// Anything but a string or an integer, or longer than [`MAX_ID_BYTES`]. `1.0` is the integer 1, as readers have it that
    /// know one kind of number.
    pub fn from_json(value: &Json<'_>) -> Result<Self, &'static str> {
        let (key, spelled) = match value {
            Json::Number(raw) | Json::String(raw) if raw.len() > MAX_ID_BYTES => {
                return Err("an `id` has at most 256 bytes");
            }
            Json::Number(raw) => match integer(raw) {
                Some(number) => (Key::Number(number.as_ref().into()), (*raw).to_owned()),
                None => return Err("an `id` is a string or an integer"),
            },
            Json::String(raw) => (Key::Text(crate::json::unescape(raw).into()), format!("\"{raw}\"")),
            _ => return Err("an `id` is a string or an integer"),
        };
        Ok(Self { key, spelled: spelled.into() })
    }

    /// As a member of a message.
    #[must_use]
    pub fn to_json(&self) -> Json<'_> {
        match self.spelled.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(raw) => Json::String(raw),
            None => Json::Number(&self.spelled),
        }
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

/// The message under the id that whoever asked gave it.
#[must_use]
pub fn with_id<'a>(mut tree: Json<'a>, id: &'a Id) -> Json<'a> {
    if let Some(place) = tree.member_mut("id") {
        *place = id.to_json();
    }
    tree
}

impl Key {
    /// The other way to write the same number: 1 for `"1"`, `"1"` for 1. Servers that keep ids as text answer so, and the
    /// official clients look for the number that a text spells.
    #[must_use]
    pub fn twin(&self) -> Option<Self> {
        match self {
            Self::Number(raw) => Some(Self::Text(raw.clone())),
            Self::Text(text) => {
                text.trim().parse::<i64>().ok().map(|number| Self::Number(number.to_string().into()))
            }
        }
    }

    /// Whether an answer with `other` is the answer to a request with this id.
    #[must_use]
    pub fn fits(&self, other: &Self) -> bool {
        self == other || other.twin().as_ref() == Some(self)
    }
}

/// The integer that a number is, without fraction and exponent. Above 2^53 a fraction has no exact value everywhere.
fn integer(raw: &str) -> Option<Cow<'_, str>> {
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    if raw == "-0" {
        return Some(Cow::Borrowed("0"));
    }
    if !raw.contains(['.', 'e', 'E']) {
        return Some(Cow::Borrowed(raw));
    }
    let number: f64 = raw.parse().ok()?;
    (number.fract() == 0.0 && number.abs() < MAX_EXACT_INTEGER)
        .then(|| Cow::Owned(format!("{:.0}", number + 0.0)))
}

fn looks_reserved(raw: &str) -> bool {
    let name = crate::json::unescape(raw);
    !RESERVED.contains(&&*name) && RESERVED.iter().any(|reserved| folds_to(&name, reserved))
}
