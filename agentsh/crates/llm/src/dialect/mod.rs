//! Parses the events of each provider, and removes refused calls from them.

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

/// A call in an answer: the block, or the choice and index.
pub(crate) type Key = (u64, u64);
/// Texts that are read as one: spoken or thought text of a choice.
pub(crate) type Channel = (u64, u8);
pub(crate) type Rulings = BTreeMap<Key, (Call, Ruling)>;

/// The calls and block that an event is about.
#[derive(Debug, Default)]
pub(crate) struct EventTarget {
    /// Calls whose rulings the event needs, in their order.
    pub keys: Vec<Key>,
    pub block: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct EventContent {
    pub texts: Vec<(Channel, String)>,
    pub pieces: Vec<Piece>,
    pub at: EventTarget,
    /// Calls whose arguments are now complete.
    pub complete: Vec<Key>,
    /// Token counts so far.
    pub usage: Option<Usage>,
    pub is_ping: bool,
    /// The answer reached its token limit.
    pub is_cut: bool,
    /// Nothing relevant follows.
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
    /// These are all arguments, replacing earlier pieces.
    pub is_whole: bool,
    /// The arguments are one text, and later pieces continue it.
    pub is_text: bool,
    pub at_provider: bool,
}

/// One provider's event format.
pub(crate) trait Dialect {
    fn take(&mut self, event: &str, data: &str) -> Result<EventContent, LlmError>;
    /// Rewrites the event from the rulings: without refused calls, and with unique indices. `at` is from
    /// [`Dialect::take`]. False: forward unchanged.
    fn rewrite(
        &mut self,
        frame: &Frame,
        at: &EventTarget,
        rulings: &Rulings,
        out: &mut Vec<u8>,
    ) -> Result<bool, LlmError>;
    /// Events have to be rewritten even without refusals, because clients could parse other calls.
    fn is_ambiguous(&self) -> bool {
        false
    }
    /// The agent asked for several answers, which are its choices.
    fn expect_choices(&mut self) {}
    /// Clients ignore events with this name.
    fn is_unknown(&self, _event: &str) -> bool {
        false
    }
    /// The event was sent to the agent.
    fn note_sent(&mut self, frame: &Frame, at: &EventTarget) -> Result<(), LlmError>;
    /// Ends the message correctly, with this text and the tokens so far.
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

pub(crate) type AnswerContent = (Vec<(Key, Call)>, Vec<String>);

/// A complete answer: its calls, and how it is written without some of them.
pub(crate) trait WholeAnswer {
    /// Every call, and every text per channel.
    fn read(&self, tree: &Json<'_>) -> Result<AnswerContent, LlmError>;
    fn without_refused_calls(&self, tree: &Json<'_>, rulings: &Rulings) -> Result<String, LlmError>;
    fn with_replacement(&self, tree: &Json<'_>, replacement: &str) -> String;
}

pub(crate) fn whole_answer(provider: Provider) -> &'static dyn WholeAnswer {
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
        Some(Json::Number(raw)) => match raw.split_once('.') {
            Some((whole, fraction)) if fraction.bytes().all(|digit| digit == b'0') => whole.parse().ok(),
            _ => raw.parse().ok(),
        },
        _ => None,
    }
}

/// Whether an answer or event says that the answer reached its token limit.
pub(crate) fn is_cut(tree: &Json<'_>) -> bool {
    let inner = ["delta", "response"].iter().filter_map(|name| tree.member(name));
    let choices = tree.member("choices").and_then(Json::as_array).unwrap_or_default();
    inner.chain(choices).chain([tree]).any(|part| {
        let part = part.member("incomplete_details").unwrap_or(part);
        let words = ["finish_reason", "reason", "stop_reason"].iter().filter_map(|name| text(part, name));
        words.into_iter().any(|word| ["length", "max_output_tokens", "max_tokens"].contains(&word.as_str()))
    })
}

/// A quoted JSON string.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", json::escape_text(text))
}

/// The object with members changed, added at the end, or (None) removed.
pub(crate) fn with_members(object: &Json<'_>, changes: &[(&str, Option<String>)]) -> String {
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

/// The content of an envelope's member, or the object itself. Google's Code Assist has envelopes.
pub(crate) fn open_envelope<'a, 'b>(object: &'b Json<'a>, envelope: &str) -> &'b Json<'a> {
    object.member(envelope).filter(|inner| is_object(inner)).unwrap_or(object)
}

/// The object with other content for [`open_envelope`], in its envelope.
pub(crate) fn with_opened(object: &Json<'_>, envelope: &str, written: String) -> String {
    let is_in_envelope = !std::ptr::eq(open_envelope(object, envelope), object);
    if is_in_envelope { with_members(object, &[(envelope, Some(written))]) } else { written }
}

/// Members with arguments or tool descriptions, in which no client looks for calls.
const OPAQUE: [&str; 7] = ["args", "arguments", "input", "input_schema", "metadata", "parameters", "tools"];

/// Members that are a call, or a list of calls, in small letters and without `_`.
const CALL_MEMBERS: [&str; 4] = ["executablecode", "functioncall", "functioncalls", "toolcalls"];

fn is_call_member(name: &str) -> bool {
    // Most names are shorter or longer.
    (9..=16).contains(&name.len())
        && CALL_MEMBERS.contains(&name.replace('_', "").to_ascii_lowercase().as_str())
}

/// The number of calls anywhere in an answer, in any API's form.
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
                    Json::Array(items) if is_call_member(&name) => items.iter().map(callees).sum(),
                    Json::Object(members) if is_call_member(&name) => usize::from(!members.is_empty()),
                    _ => calls_in(inner),
                }
            });
            own + inner.sum::<usize>()
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

/// The number of tools that an entry of `tool_calls` names: with two, clients differ.
fn callees(entry: &Json<'_>) -> usize {
    let named = ["function", "custom"].iter().filter(|name| entry.member(name).is_some_and(is_object));
    named.count().max(1)
}

fn is_object(value: &Json<'_>) -> bool {
    value.as_object().is_some()
}

/// Checks that an answer or event has no calls except judged ones, because some client would run them.
pub(crate) fn holds_only(tree: &Json<'_>, judged: usize) -> Result<(), LlmError> {
    if calls_in(tree) > judged { Err(LlmError::Shape("a tool call at an unexpected place")) } else { Ok(()) }
}

/// Why a call was refused; None: it was not.
pub(crate) fn reason(rulings: &Rulings, key: Key) -> Option<(&Call, &str)> {
    match rulings.get(&key) {
        Some((call, Ruling::Block(reason))) => Some((call, reason)),
        _ => None,
    }
}
