//! Strict parsers of POST bodies. They report all mistakes at once, in kiji's format.

use agentsh_base::json::{self, Json};
use agentsh_registry::{Component, Interface, Kind, MAX_DEPTH, hash, read_components};
use hyper::{HeaderMap, header};
use serde_json::{Value, json};

use crate::names;
use crate::refusal::Refusal;

/// Longest body, in bytes.
pub const MAX_BODY: usize = 8 << 20;
/// Longest text of a difference or a reason in a request, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// Longest input that a mistake repeats, in bytes.
const MAX_ECHO: usize = 1 << 10;

/// An interface under a name, as it was sent and found in order.
#[derive(Clone, Debug)]
pub struct Submission {
    pub name: String,
    pub hash: String,
    /// The components' canonical texts, as one JSON array.
    pub interface: String,
    pub components: Vec<String>,
    /// The summary in answers: counts and tools.
    pub summary: String,
}

#[derive(Clone, Debug)]
pub struct Registration {
    pub submission: Submission,
    /// Leave other interfaces under this name in force.
    pub keep: bool,
}

#[derive(Clone, Debug)]
pub struct ApprovalRequest {
    pub submission: Submission,
    pub recorded: Option<String>,
    pub diff: String,
}

/// An operator's addition to a decision.
#[derive(Clone, Debug, Default)]
pub struct DecisionNote {
    pub reason: String,
    pub name: Option<String>,
    pub keep: bool,
}

/// The body of `POST /servers`.
pub fn registration(headers: &HeaderMap, bytes: &[u8]) -> Result<Registration, Refusal> {
    let tree = object(headers, bytes)?;
    let mut form = BodyFields { tree: &tree, mistakes: Vec::new() };
    let (name, hash) = (form.name(), form.hash("hash"));
    let components = form.components("interface");
    let keep = form.flag("keep");
    form.done()?;
    Ok(Registration { submission: submission(name, hash, components, "hash")?, keep })
}

/// The body of `POST /approvals`.
pub fn approval(headers: &HeaderMap, bytes: &[u8]) -> Result<ApprovalRequest, Refusal> {
    let tree = object(headers, bytes)?;
    let mut form = BodyFields { tree: &tree, mistakes: Vec::new() };
    let name = form.name();
    let recorded = match form.tree.member("recorded_hash") {
        None | Some(Json::Null) => None,
        Some(_) => Some(form.hash("recorded_hash")),
    };
    let hash = form.hash("new_hash");
    let components = form.components("new_interface");
    let diff = form.text("diff");
    form.done()?;
    Ok(ApprovalRequest { submission: submission(name, hash, components, "new_hash")?, recorded, diff })
}

/// The body of a decision: none at all, or an object.
pub fn remark(headers: &HeaderMap, bytes: &[u8]) -> Result<DecisionNote, Refusal> {
    if bytes.is_empty() {
        return Ok(DecisionNote::default());
    }
    let tree = object(headers, bytes)?;
    let mut form = BodyFields { tree: &tree, mistakes: Vec::new() };
    let (reason, keep) = (form.text("reason"), form.flag("keep"));
    let name = tree.member("name").is_some().then(|| form.name());
    form.done()?;
    Ok(DecisionNote { reason, name, keep })
}

fn object<'a>(headers: &HeaderMap, bytes: &'a [u8]) -> Result<Json<'a>, Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let not_an_object = |input: Value| {
        Refusal::Invalid(vec![json!({
            "type": "model_attributes_type",
            "loc": ["body"],
            "msg": "Input should be a valid dictionary or object to extract fields from",
            "input": input,
        })])
    };
    // Anything else is what a form of another site may send without asking.
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(not_an_object(echo_text(&String::from_utf8_lossy(
            &bytes[..bytes.len().min(MAX_ECHO + 1)],
        ))));
    }
    let tree = json::read_to_depth(bytes, MAX_DEPTH).map_err(|error| {
        Refusal::Invalid(vec![json!({
            "type": "json_invalid",
            "loc": ["body", error.offset],
            "msg": "JSON decode error",
            "input": {},
            "ctx": { "error": error.kind.code() },
        })])
    })?;
    if tree.as_object().is_none() {
        return Err(not_an_object(echo(&tree)));
    }
    Ok(tree)
}

fn submission(
    name: String,
    sent: String,
    components: Vec<Component>,
    member: &str,
) -> Result<Submission, Refusal> {
    let hash = hash(components.iter().map(|one| one.canonical.as_str()));
    if hash != sent {
        return Err(Refusal::Contradiction(format!(
            "submitted {member} does not match the submitted interface (expected {hash})"
        )));
    }
    let interface = Interface { name, components };
    let (summary, whole) = (summary(&interface), interface.to_json());
    let components = interface.components.into_iter().map(|one| one.canonical).collect();
    Ok(Submission { name: interface.name, hash, interface: whole, components, summary })
}

fn summary(interface: &Interface) -> String {
    let count = |kind| interface.components.iter().filter(|one| one.kind == kind).count();
    let tools = interface.components.iter().filter(|one| one.kind == Kind::Tool);
    let mut tools: Vec<&str> = tools.map(|one| one.name.as_str()).collect();
    tools.sort_unstable();
    // `json!` would sort or keep the members by how it is built: this is the order of kiji's answers.
    format!(
        r#"{{"tool_count":{},"prompt_count":{},"resource_count":{},"tools":{}}}"#,
        count(Kind::Tool),
        count(Kind::Prompt),
        count(Kind::Resource),
        json!(tools)
    )
}

/// The members of a body, and what is wrong with them.
struct BodyFields<'a> {
    tree: &'a Json<'a>,
    mistakes: Vec<Value>,
}

impl BodyFields<'_> {
    fn done(self) -> Result<(), Refusal> {
        if self.mistakes.is_empty() { Ok(()) } else { Err(Refusal::Invalid(self.mistakes)) }
    }

    fn add_error(&mut self, kind: &str, place: Value, said: &str, input: Value, context: Option<Value>) {
        let mut mistake = json!({ "type": kind, "loc": place, "msg": said, "input": input });
        if let (Some(context), Some(members)) = (context, mistake.as_object_mut()) {
            members.insert("ctx".to_owned(), context);
        }
        self.mistakes.push(mistake);
    }

    /// A member that has to be there and be a text without half of a surrogate pair.
    fn required_text(&mut self, name: &'static str) -> Option<String> {
        match self.tree.member(name) {
            None => {
                let input = echo(self.tree);
                self.add_error("missing", json!(["body", name]), "Field required", input, None);
                None
            }
            Some(Json::String(raw)) if !json::has_lone_surrogate(raw) => {
                Some(json::unescape(raw).into_owned())
            }
            Some(other) => {
                let input = echo(other);
                self.add_error(
                    "string_type",
                    json!(["body", name]),
                    "Input should be a valid string",
                    input,
                    None,
                );
                None
            }
        }
    }

    fn name(&mut self) -> String {
        let Some(name) = self.required_text("name") else { return String::new() };
        if name.is_empty() {
            let context = Some(json!({ "min_length": 1 }));
            let said = "String should have at least 1 character";
            self.add_error("string_too_short", json!(["body", "name"]), said, json!(""), context);
            return name;
        }
        names::normal(&name).unwrap_or_else(|said| {
            self.add_error("value_error", json!(["body", "name"]), said, echo_text(&name), None);
            String::new()
        })
    }

    /// 64 characters; whether they are the right ones is asked afterwards.
    fn hash(&mut self, member: &'static str) -> String {
        let Some(hash) = self.required_text(member) else { return String::new() };
        let length = hash.chars().count();
        if length != 64 {
            let (kind, said, context) = if length < 64 {
                ("string_too_short", "String should have at least 64 characters", json!({ "min_length": 64 }))
            } else {
                ("string_too_long", "String should have at most 64 characters", json!({ "max_length": 64 }))
            };
            self.add_error(kind, json!(["body", member]), said, echo_text(&hash), Some(context));
        }
        hash
    }

    fn components(&mut self, member: &'static str) -> Vec<Component> {
        let Some(value) = self.tree.member(member) else {
            let input = echo(self.tree);
            self.add_error("missing", json!(["body", member]), "Field required", input, None);
            return Vec::new();
        };
        let Some(items) = value.as_array() else {
            let said = "Input should be a valid list";
            self.add_error("list_type", json!(["body", member]), said, echo(value), None);
            return Vec::new();
        };
        read_components(items).unwrap_or_else(|wrong| {
            let mut place = vec![json!("body"), json!(member), json!(wrong.index)];
            place.extend(wrong.member.map(|name| json!(name)));
            let kind = if wrong.member.is_none() { "dict_type" } else { "value_error" };
            let input = items.get(wrong.index).map_or(Value::Null, echo);
            self.add_error(kind, Value::Array(place), wrong.reason, input, None);
            Vec::new()
        })
    }

    /// A text that may be missing and has a bound.
    fn text(&mut self, member: &'static str) -> String {
        if matches!(self.tree.member(member), None | Some(Json::Null)) {
            return String::new();
        }
        let text = self.required_text(member).unwrap_or_default();
        if text.len() > MAX_TEXT {
            let context = Some(json!({ "max_length": MAX_TEXT }));
            let said = "String is too long";
            self.add_error("string_too_long", json!(["body", member]), said, Value::Null, context);
        }
        text
    }

    fn flag(&mut self, member: &'static str) -> bool {
        match self.tree.member(member) {
            None | Some(Json::Null) => false,
            Some(Json::Bool(value)) => *value,
            Some(other) => {
                let said = "Input should be a valid boolean";
                self.add_error("bool_type", json!(["body", member]), said, echo(other), None);
                false
            }
        }
    }
}

/// The sent value, if it is short.
fn echo(value: &Json<'_>) -> Value {
    let short = value.to_compact().len() <= MAX_ECHO;
    if short { value.to_value() } else { Value::Null }
}

fn echo_text(text: &str) -> Value {
    if text.len() <= MAX_ECHO { json!(text) } else { Value::Null }
}
