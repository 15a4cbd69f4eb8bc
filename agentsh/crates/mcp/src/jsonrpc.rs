//! The JSON-RPC 2.0 envelope, read from the JSON tree without typed structs.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::Value;

use crate::guard::checks::name_skeleton;
use crate::json::{Json, folds_to, has_lone_surrogate};

/// In bytes as written, because ids are kept while a request runs.
pub const MAX_ID_BYTES: usize = 256;

const RESERVED: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// The methods of the protocol. Rules, lists and translations know them by these spellings.
const METHODS: &str = "completion/complete elicitation/create initialize logging/setLevel notifications/cancelled \
    notifications/elicitation/complete notifications/initialized notifications/message \
    notifications/progress notifications/prompts/list_changed notifications/resources/list_changed \
    notifications/resources/updated notifications/roots/list_changed notifications/tasks/status \
    notifications/tools/list_changed ping prompts/get prompts/list resources/list resources/read \
    resources/subscribe resources/templates/list resources/unsubscribe roots/list sampling/createMessage \
    server/discover subscriptions/listen tasks/cancel tasks/get tasks/list tasks/result tasks/update \
    tools/call tools/list";

/// Identity of ids: `1` equals `1.0`, and `"a\/b"` equals `"a/b"`; `1` and `"1"` differ, but see [`Key::other_spelling`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    Number(Box<str>),
    Text(Box<str>),
}

/// An id as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id {
    pub key: Key,
    /// JSON text, to be written back unchanged.
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
        /// None is `null`, allowed only for errors.
        id: Option<Id>,
        is_error: bool,
    },
}

/// The kind of a malformed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Request,
    Response,
    /// An answer without the version, which may be a log line.
    Unversioned,
    Unknown,
    /// Not JSON-RPC: a log line, a banner.
    Noise,
}

impl Shape {
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Response | Self::Unversioned)
    }
}

/// Why a message is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeError {
    /// Stable code: `batch`, `invalid-request`, `ambiguous-key` or `ambiguous-method`.
    pub reason: &'static str,
    pub detail: &'static str,
    pub id: Option<Id>,
    pub shape: Shape,
}

/// The result and the error of an answer. Some libraries write the one that is not meant as null.
fn halves<'t, 'a>(tree: &'t Json<'a>) -> (Option<&'t Json<'a>>, Option<&'t Json<'a>>) {
    match (tree.member("result"), tree.member("error")) {
        (Some(result), Some(Json::Null)) => (Some(result), None),
        (Some(Json::Null), Some(error @ Json::Object(_))) => (None, Some(error)),
        both => both,
    }
}

/// An answer without the half that is null, which strict clients do not accept.
pub fn with_one_half(mut tree: Json<'_>) -> Json<'_> {
    if tree.member("result").is_none() || tree.member("error").is_none() {
        return tree;
    }
    let unused = match halves(&tree) {
        (Some(_), None) => "error",
        (None, Some(_)) => "result",
        _ => return tree,
    };
    if let Json::Object(members) = &mut tree {
        members.retain(|(name, _)| crate::json::unescape(name) != unused);
    }
    tree
}

/// Classifies a message.
///
/// # Errors
/// A batch; a wrong `jsonrpc`; an invalid id; a method that is not a string, or that is one of the protocol in another
/// spelling; both request and response members; a member that differs from a reserved name only in case.
pub fn classify<'t, 'a>(tree: &'t Json<'a>) -> Result<Message<'t, 'a>, EnvelopeError> {
    let Some(members) = tree.as_object() else {
        let (reason, detail) = match tree {
            Json::Array(_) => ("batch", "agentsh does not forward batches"),
            _ => ("invalid-request", "a message must be an object"),
        };
        let shape = if reason == "batch" { Shape::Unknown } else { Shape::Noise };
        return Err(EnvelopeError { reason, detail, id: None, shape });
    };
    let id = tree.member("id");
    let method = tree.member("method");
    let (result, error) = halves(tree);
    // An `error` without more may be that of a log line.
    let is_answer = |error| matches!(error, &Json::Object(_)) || tree.member("jsonrpc").is_some();
    let has_version = tree.member("jsonrpc").and_then(Json::as_text).as_deref() == Some("2.0");
    let shape = match (method, result.is_some() || error.is_some_and(is_answer)) {
        (Some(_), false) => Shape::Request,
        (None, true) if has_version => Shape::Response,
        (None, true) => Shape::Unversioned,
        (None, false) if !has_version => Shape::Noise,
        _ => Shape::Unknown,
    };
    // Whatever its length, the sender waits for an answer with it.
    let known_id = id.and_then(|id| Id::of(id).ok());
    let fail = |reason, detail| Err(EnvelopeError { reason, detail, id: known_id.clone(), shape });

    if members.iter().any(|(name, _)| looks_reserved(name)) {
        return fail(
            "ambiguous-key",
            "a member's name differs from a reserved one only in upper and lower case",
        );
    }
    if !has_version {
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
        if looks_known(&method) {
            return fail("ambiguous-method", "the method is a known one in another spelling");
        }
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
    /// Parses an id or progress token.
    ///
    /// # Errors
    /// Anything but a string or integer, or longer than [`MAX_ID_BYTES`]. `1.0` is the integer 1.
    pub fn from_json(value: &Json<'_>) -> Result<Self, &'static str> {
        match value {
            Json::Number(raw) | Json::String(raw) if raw.len() > MAX_ID_BYTES => {
                Err("an `id` must have at most 256 bytes")
            }
            _ => Self::of(value),
        }
    }

    fn of(value: &Json<'_>) -> Result<Self, &'static str> {
        let (key, spelled) = match value {
            Json::Number(raw) => match integer(raw) {
                Some(number) => (Key::Number(number.as_ref().into()), (*raw).to_owned()),
                None => return Err("an `id` must be a string or an integer"),
            },
            Json::String(raw) => (Key::Text(crate::json::unescape(raw).into()), format!("\"{raw}\"")),
            _ => return Err("an `id` must be a string or an integer"),
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

    /// For events: integers of up to 64 bits as numbers, others as text.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match &self.key {
            Key::Number(raw) => Json::Number(raw).to_value(),
            Key::Text(text) => Value::String(text.to_string()),
        }
    }
}

/// The message with the requester's id.
#[must_use]
pub fn with_id<'a>(mut tree: Json<'a>, id: &'a Id) -> Json<'a> {
    if let Some(place) = tree.member_mut("id") {
        *place = id.to_json();
    }
    tree
}

impl Key {
    /// The other spelling of a number: 1 for `"1"`, `"1"` for 1. Servers that keep ids as text answer so, and official
    /// clients accept it.
    #[must_use]
    pub fn other_spelling(&self) -> Option<Self> {
        match self {
            Self::Number(raw) => Some(Self::Text(raw.clone())),
            Self::Text(text) => {
                text.trim().parse::<i64>().ok().map(|number| Self::Number(number.to_string().into()))
            }
        }
    }

    /// Whether an answer with id `other` matches.
    #[must_use]
    pub fn matches_answer(&self, other: &Self) -> bool {
        self == other || other.other_spelling().as_ref() == Some(self)
    }
}

/// The integer of a number without fraction and exponent. Above 2^53 fractions are not exact everywhere.
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

/// Whether a server that ignores case, spaces, forms of letters or further slashes would take this for a method that it
/// is not.
fn looks_known(method: &str) -> bool {
    static FORMS: LazyLock<Vec<String>> = LazyLock::new(|| METHODS.split(' ').map(form).collect());
    METHODS.split(' ').all(|known| known != method) && FORMS.contains(&form(method))
}

/// Letters, digits and signs of a method as people see them.
fn form(method: &str) -> String {
    let seen: String = name_skeleton(method)
        .chars()
        .filter(|seen| seen.is_alphanumeric() || "/_-.$".contains(*seen))
        .collect();
    seen.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}
