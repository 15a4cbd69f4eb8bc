//! What the events of each provider mean, and how a refused call is taken out of them.

mod anthropic;
mod chat;
mod google;
mod ollama;
mod responses;

use std::collections::BTreeMap;

use crate::engine::Ruling;
use crate::json::{self, Json};
use crate::route::Provider;
use crate::sse::Frame;
use crate::usage::Usage;
use crate::{Call, LlmError, MAX_DEPTH};

/// A call in an answer: the block, or the choice and the place in it.
pub(crate) type Key = (u64, u64);
/// Texts that are read as one: of a choice, what is said and what is thought.
pub(crate) type Channel = (u64, u8);
pub(crate) type Rulings = BTreeMap<Key, (Call, Ruling)>;

/// Which calls, and which block, an event is about.
#[derive(Debug, Default)]
pub(crate) struct EventTarget {
    /// Calls without whose ruling the event cannot go on, in the order in which they stand in it.
    pub keys: Vec<Key>,
    pub block: Option<u64>,
}

/// What an event brings.
#[derive(Debug, Default)]
pub(crate) struct EventContent {
    pub texts: Vec<(Channel, String)>,
    pub pieces: Vec<Piece>,
    pub at: EventTarget,
    /// Calls that have all of their arguments now.
    pub complete: Vec<Key>,
    /// What the event says of the tokens so far.
    pub usage: Option<Usage>,
    pub is_ping: bool,
    /// Nothing that counts comes behind it.
    pub is_last: bool,
}

/// A part of a call.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub key: Key,
    pub id: Option<String>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub arguments: String,
    /// The arguments are all that there are, whatever came before.
    pub is_whole: bool,
    pub at_provider: bool,
}

/// One provider's form of events.
pub(crate) trait Dialect {
    fn take(&mut self, event: &str, data: &str) -> Result<EventContent, LlmError>;
    /// Writes the event from what was judged: without what was refused, and with calls at places of their own where the model
    /// put several at one. `at` is what [`Dialect::take`] gave for it. False: it goes on as it came.
    fn rewrite(
        &mut self,
        frame: &Frame,
        at: &EventTarget,
        rulings: &Rulings,
        out: &mut Vec<u8>,
    ) -> Result<bool, LlmError>;
    /// Events have to be rewritten although nothing was refused: clients would read other calls in them than were judged.
    fn is_ambiguous(&self) -> bool {
        false
    }
    /// Clients leave an event of this name unread.
    fn is_unknown(&self, _event: &str) -> bool {
        false
    }
    /// The event is on its way to the agent.
    fn released(&mut self, frame: &Frame, at: &EventTarget) -> Result<(), LlmError>;
    /// Ends the message well-formed, with this text and the tokens that the provider has counted until now.
    fn leak(&mut self, replacement: &str, usage: Usage, out: &mut Vec<u8>);
}

pub(crate) fn dialect(provider: Provider) -> Box<dyn Dialect + Send> {
    match provider {
        Provider::Anthropic => Box::new(anthropic::Anthropic::default()),
        Provider::OpenAiChat => Box::new(chat::Chat::default()),
        Provider::OpenAiResponses => Box::new(responses::Responses::default()),
        Provider::Google => Box::new(google::Google::default()),
        Provider::Ollama => Box::new(ollama::Ollama::default()),
    }
}

/// The calls in an answer, and its texts.
pub(crate) type AnswerContent = (Vec<(Key, Call)>, Vec<String>);

/// A whole answer: the calls in it, where they stand, and how it is written without some of them.
pub(crate) trait WholeAnswer {
    /// Every call, and every text of every channel.
    fn read(&self, tree: &Json<'_>) -> Result<AnswerContent, LlmError>;
    fn without(&self, tree: &Json<'_>, rulings: &Rulings) -> Result<String, LlmError>;
    fn replaced(&self, tree: &Json<'_>, replacement: &str) -> String;
}

pub(crate) fn whole(provider: Provider) -> &'static dyn WholeAnswer {
    match provider {
        Provider::Anthropic => &anthropic::Message,
        Provider::OpenAiChat => &chat::Completion,
        Provider::OpenAiResponses => &responses::Response,
        Provider::Google => &google::Generated,
        Provider::Ollama => &ollama::Reply,
    }
}

pub(crate) fn parse(data: &str) -> Result<Json<'_>, LlmError> {
    Ok(json::read_to_depth(data.as_bytes(), MAX_DEPTH)?)
}

pub(crate) fn text(object: &Json<'_>, name: &str) -> Option<String> {
    object.member(name)?.as_text().map(std::borrow::Cow::into_owned)
}

pub(crate) fn number(object: &Json<'_>, name: &str) -> Option<u64> {
    match object.member(name) {
        Some(Json::Number(raw)) => raw.parse().ok(),
        _ => None,
    }
}

/// As a JSON string, with its quotes.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", json::spell(text))
}

/// The object with some members changed, added behind the others, or (None) left out.
pub(crate) fn with(object: &Json<'_>, changes: &[(&str, Option<String>)]) -> String {
    let mut members = Vec::new();
    for (raw, value) in object.as_object().unwrap_or_default() {
        let name = json::unescape(raw);
        match changes.iter().find(|(changed, _)| *changed == name) {
            Some((_, Some(value))) => members.push(format!("\"{raw}\":{value}")),
            Some((_, None)) => {}
            None => members.push(format!("\"{raw}\":{}", value.to_compact())),
        }
    }
    for (name, value) in changes {
        if let (None, Some(value)) = (object.member(name), value) {
            members.push(format!("{}:{value}", quoted(name)));
        }
    }
    format!("{{{}}}", members.join(","))
}

/// What lies in this member of an envelope; the object itself where it is in none. Google's Code Assist has one around each
/// question and answer.
pub(crate) fn opened<'a, 'b>(object: &'b Json<'a>, envelope: &str) -> &'b Json<'a> {
    object.member(envelope).filter(|inner| is_object(inner)).unwrap_or(object)
}

/// The object with another text for what [`opened`] gives, in the envelope that it came in.
pub(crate) fn with_opened(object: &Json<'_>, envelope: &str, written: String) -> String {
    let is_in_envelope = !std::ptr::eq(opened(object, envelope), object);
    if is_in_envelope { with(object, &[(envelope, Some(written))]) } else { written }
}

/// Members of an answer that hold what a call takes, or a tool is described by: no client looks for calls there.
const OPAQUE: [&str; 7] = ["args", "arguments", "input", "input_schema", "metadata", "parameters", "tools"];

/// Members that are a call of their own.
const CALL_MEMBERS: [&str; 4] = ["executableCode", "executable_code", "functionCall", "function_call"];

/// How many calls stand anywhere in an answer, in the form of any API.
fn calls_in(value: &Json<'_>) -> usize {
    match value {
        Json::Array(items) => items.iter().map(calls_in).sum(),
        Json::Object(members) => {
            let kind = text(value, "type").unwrap_or_default();
            let own = usize::from(kind.ends_with("_call") || kind.ends_with("tool_use"));
            let inner = members.iter().map(|(raw, inner)| {
                let name = json::unescape(raw);
                match inner {
                    _ if OPAQUE.contains(&name.as_ref()) => 0,
                    Json::Array(items) if name == "tool_calls" => items.iter().map(callees).sum(),
                    Json::Object(_) if CALL_MEMBERS.contains(&name.as_ref()) => 1,
                    _ => calls_in(inner),
                }
            });
            own + inner.sum::<usize>()
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

/// How many tools an entry of `tool_calls` names: clients differ about which of two they run.
fn callees(entry: &Json<'_>) -> usize {
    let named = ["function", "custom"].iter().filter(|name| entry.member(name).is_some_and(is_object));
    named.count().max(1)
}

fn is_object(value: &Json<'_>) -> bool {
    value.as_object().is_some()
}

/// Checks that an answer, or an event of one, holds no call but those that are judged: some client would run it.
pub(crate) fn holds_only(tree: &Json<'_>, judged: usize) -> Result<(), LlmError> {
    if calls_in(tree) > judged {
        Err(LlmError::Shape("a call stands where this API has none"))
    } else {
        Ok(())
    }
}

/// Why a call was refused; None: it was not.
pub(crate) fn reason(rulings: &Rulings, key: Key) -> Option<(&Call, &str)> {
    match rulings.get(&key) {
        Some((call, Ruling::Block(reason))) => Some((call, reason)),
        _ => None,
    }
}
