//! OpenAI Responses: an answer is a list of items, some of which are calls.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AnswerContent, Dialect, EventContent, EventTarget, Piece, Rulings, WholeAnswer, holds_only, is_cut,
    number, parse, quoted, reason, text, with_members,
};
use crate::engine::Ruling;
use crate::json::Json;
use crate::sse::{Frame, event_text};
use crate::usage::Usage;
use crate::{Call, LlmError, refusal};

/// Numbers of the last event's items begin here.
const LAST_ITEMS: u64 = 1 << 32;
/// Clients differ about which of them they run.
const TWO_NAMES: LlmError = LlmError::Shape("a call with two names");
/// Events that end an answer, with the whole of it.
const FINAL_EVENTS: [&str; 4] = ["response.completed", "response.incomplete", "response.failed", "error"];

#[derive(Default)]
pub(super) struct Responses {
    /// Namespace and name of each call, by its place.
    calls: BTreeMap<u64, (Option<String>, String)>,
    /// Arguments that came before their item.
    arguments: BTreeMap<u64, String>,
    /// Items whose text arrived in pieces.
    heard: BTreeSet<u64>,
    /// Items by their ids, and the number of places: some gateways leave out the index.
    ids: BTreeMap<String, u64>,
    places: u64,
    is_ambiguous: bool,
    response: Option<String>,
    items: u64,
    /// Items that the agent has begun to read.
    open: BTreeMap<u64, OpenItem>,
    /// Refused items whose replacement the agent has.
    replaced: BTreeSet<u64>,
}

struct OpenItem {
    /// The item as it began.
    item: String,
    /// The open part.
    part: Option<u64>,
}

/// An item's call. Calls of the provider's own tools have already run.
fn call(item: &Json<'_>) -> Option<Call> {
    let kind = text(item, "type")?;
    let at_provider = match kind.as_str() {
        "mcp_call"
        | "web_search_call"
        | "file_search_call"
        | "code_interpreter_call"
        | "image_generation_call" => true,
        other if other.ends_with("_call") => false,
        _ => return None,
    };
    let input = text(item, "input").map(|input| quoted(&input));
    let action = item.member("action").or_else(|| item.member("operation")).map(Json::to_compact);
    let name = text(item, "name").unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
    Some(Call {
        id: text(item, "call_id").or_else(|| text(item, "id")).unwrap_or_default(),
        namespace: text(item, "namespace").or_else(|| text(item, "server_label")),
        name,
        arguments: text(item, "arguments")
            .filter(|text| !text.is_empty())
            .or(input)
            .or(action)
            .unwrap_or_default(),
        at_provider,
    })
}

/// The message that replaces a refused call.
fn message(place: u64, said: &str, status: &str) -> String {
    format!(
        r#"{{"id":"msg_agentsh_{place}","type":"message","status":"{status}","role":"assistant","content":[{}]}}"#,
        if said.is_empty() { String::new() } else { part(said) }
    )
}

fn part(said: &str) -> String {
    format!(r#"{{"type":"output_text","text":{},"annotations":[],"logprobs":[]}}"#, quoted(said))
}

/// The events of a message, numbered like the replaced event.
fn message_events(place: u64, sequence: Option<u64>, said: &str, out: &mut Vec<u8>) {
    let begun = StartedMessage { place, id: format!("msg_agentsh_{place}"), item: None, part: None };
    begun.events(sequence, said, out);
}

/// A message, with what the agent has received of it.
struct StartedMessage {
    place: u64,
    id: String,
    /// Its final content; None: the agent has received no part of it.
    item: Option<String>,
    /// The started part.
    part: Option<u64>,
}

impl StartedMessage {
    /// Its remaining events.
    fn events(&self, sequence: Option<u64>, said: &str, out: &mut Vec<u8>) {
        let place = self.place;
        let sequence = sequence.map(|number| format!(r#","sequence_number":{number}"#)).unwrap_or_default();
        let (id, index) = (quoted(&self.id), self.part.unwrap_or(0));
        let at = format!(r#""item_id":{id},"output_index":{place},"content_index":{index}"#);
        let text = quoted(said);
        let done = self.item.clone().unwrap_or_else(|| message(place, said, "completed"));
        let events = [
            (
                "response.output_item.added",
                format!(r#""output_index":{place},"item":{}"#, message(place, "", "in_progress")),
            ),
            (
                "response.content_part.added",
                format!(
                    r#"{at},"part":{}"#,
                    r#"{"type":"output_text","text":"","annotations":[],"logprobs":[]}"#
                ),
            ),
            ("response.output_text.delta", format!(r#"{at},"delta":{text},"logprobs":[]"#)),
            ("response.output_text.done", format!(r#"{at},"text":{text},"logprobs":[]"#)),
            ("response.content_part.done", format!(r#"{at},"part":{}"#, part(said))),
            ("response.output_item.done", format!(r#""output_index":{place},"item":{done}"#)),
        ];
        let begun = usize::from(self.item.is_some()) + usize::from(self.part.is_some());
        for (name, members) in events.into_iter().skip(begun) {
            out.extend(event_text(Some(name), &format!(r#"{{"type":"{name}"{sequence},{members}}}"#)));
        }
    }
}

/// The items without refused ones.
fn without_refused(response: &Json<'_>, rulings: &Rulings) -> String {
    let items = response.member("output").and_then(Json::as_array).unwrap_or_default();
    let items = (0..).zip(items).map(|(place, item)| {
        let refused = call(item).and_then(|call| {
            rulings.values().find(|(known, ruling)| known.id == call.id && *ruling != Ruling::Allow)
        });
        match refused {
            Some((call, Ruling::Block(why))) => message(place, &refusal(&call.name, why), "completed"),
            _ => item.to_compact(),
        }
    });
    with_members(response, &[("output", Some(format!("[{}]", items.collect::<Vec<_>>().join(","))))])
}

impl Dialect for Responses {
    fn take(&mut self, event: &str, data: &str) -> Result<EventContent, LlmError> {
        let mut taken = EventContent::default();
        if data.trim() == "[DONE]" {
            taken.is_last = true;
            return Ok(taken);
        }
        let tree = parse(data)?;
        taken.usage = Usage::of(&tree);
        taken.is_cut = is_cut(&tree);
        let kind = text(&tree, "type").unwrap_or_else(|| event.to_owned());
        let place = self.item_index(&tree);
        taken.at.block = place;
        let key = place.filter(|place| self.calls.contains_key(place)).map(|place| (place, 0));
        match kind.as_str() {
            "response.output_item.added" | "response.output_item.done" => {
                let (place, item) =
                    place.zip(tree.member("item")).ok_or(LlmError::Shape("an event without its item"))?;
                if let Some(call) = call(item) {
                    taken.at.keys.push((place, 0));
                    let Call { id, namespace, name, arguments, at_provider } = call;
                    let named = (namespace.clone(), name.clone());
                    if self.calls.insert(place, named.clone()).is_some_and(|before| before != named) {
                        return Err(TWO_NAMES);
                    }
                    let is_done = kind.ends_with("done");
                    let is_other = |told: &String| is_done && *told != arguments;
                    if self.arguments.get(&place).is_some_and(is_other) {
                        return Err(LlmError::Shape("a call with two kinds of arguments"));
                    }
                    taken.pieces.push(Piece {
                        key: (place, 0),
                        id: Some(id),
                        namespace,
                        name: Some(name),
                        arguments,
                        is_whole: is_done,
                        at_provider,
                        ..Piece::default()
                    });
                    if is_done {
                        taken.complete.push((place, 0));
                    }
                } else if kind.ends_with("done") {
                    taken.texts.extend(self.missing_texts(place, item));
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.heard.insert(place.unwrap_or_default());
                taken.texts.extend(text(&tree, "delta").map(|said| ((0, 0), said)));
            }
            // Some send text only at its end.
            "response.output_text.done" if !self.heard.contains(&place.unwrap_or_default()) => {
                taken.texts.extend(text(&tree, "text").map(|said| ((0, 0), said)));
            }
            // Used if the item is not repeated.
            "response.function_call_arguments.delta" => {
                taken.at.keys.extend(key);
                let arguments = text(&tree, "delta").unwrap_or_default();
                taken.pieces.extend(key.map(|key| Piece { key, arguments, ..Piece::default() }));
            }
            "response.function_call_arguments.done" => {
                let named = place.and_then(|place| self.calls.get(&place)).zip(text(&tree, "name"));
                if named.is_some_and(|((_, known), name)| *known != name) {
                    return Err(TWO_NAMES);
                }
                taken.at.keys.extend(key);
                let Some(arguments) = text(&tree, "arguments") else { return Ok(taken) };
                self.arguments.extend(place.map(|place| (place, arguments.clone())));
                let piece = |key| Piece { key, arguments, is_whole: true, ..Piece::default() };
                taken.pieces.extend(key.map(piece));
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                taken.texts.extend(text(&tree, "delta").map(|said| ((0, 1), said)));
            }
            last if FINAL_EVENTS.contains(&last) => {
                taken.is_last = true;
                self.take_last(&tree, &mut taken);
            }
            _ => taken.at.keys.extend(key),
        }
        holds_only(&tree, taken.pieces.len())?;
        Ok(taken)
    }

    fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    fn rewrite(
        &mut self,
        frame: &Frame,
        at: &EventTarget,
        rulings: &Rulings,
        out: &mut Vec<u8>,
    ) -> Result<bool, LlmError> {
        let (event, data) = (frame.event.as_str(), frame.data.as_deref().unwrap_or_default());
        if data.trim() == "[DONE]" {
            return Ok(false);
        }
        let tree = parse(data)?;
        let kind = text(&tree, "type").unwrap_or_else(|| event.to_owned());
        if let Some(response) = tree.member("response").filter(|_| FINAL_EVENTS.contains(&kind.as_str())) {
            let response = ("response", Some(without_refused(response, rulings)));
            out.extend(event_text(Some(&kind), &with_members(&tree, &[response])));
            return Ok(true);
        }
        let Some(place) = at.block else { return Ok(false) };
        if let Some((call, why)) = reason(rulings, (place, 0)) {
            // Some send an item only at its end.
            if kind.starts_with("response.output_item.") && self.replaced.insert(place) {
                message_events(place, number(&tree, "sequence_number"), &refusal(&call.name, why), out);
            }
            return Ok(true);
        }
        if number(&tree, "output_index") == Some(place) {
            return Ok(false);
        }
        out.extend(event_text(
            Some(&kind),
            &with_members(&tree, &[("output_index", Some(place.to_string()))]),
        ));
        Ok(true)
    }

    fn note_sent(&mut self, frame: &Frame, at: &EventTarget) -> Result<(), LlmError> {
        let Some(data) = frame.data.as_deref().filter(|data| data.trim() != "[DONE]") else { return Ok(()) };
        let tree = parse(data)?;
        if self.response.is_none() {
            self.response = tree.member("response").map(Json::to_compact);
        }
        let Some(place) = at.block else { return Ok(()) };
        let part = || number(&tree, "content_index");
        match text(&tree, "type").as_deref() {
            Some("response.output_item.added") => {
                self.items += 1;
                // The agent has a whole message for a refused one.
                if self.replaced.contains(&place) {
                    return Ok(());
                }
                let item = tree.member("item").map(Json::to_compact).unwrap_or_default();
                self.open.insert(place, OpenItem { item, part: None });
            }
            Some("response.output_item.done") => {
                self.open.remove(&place);
            }
            Some("response.content_part.added") => {
                self.open.entry(place).and_modify(|open| open.part = part());
            }
            Some("response.content_part.done") => {
                self.open.entry(place).and_modify(|open| open.part = None);
            }
            _ => {}
        }
        Ok(())
    }

    fn leak(&mut self, replacement: &str, _usage: Usage, out: &mut Vec<u8>) {
        let mut output = Vec::new();
        let mut own = None;
        // Open items are ended: messages with the replacement, others as they are.
        for (place, open) in std::mem::take(&mut self.open) {
            let Ok(item) = parse(&open.item) else { continue };
            if text(&item, "type").as_deref() == Some("message") && own.is_none() {
                let content = ("content", Some(format!("[{}]", part(replacement))));
                let item = with_members(&item, &[("status", Some(quoted("completed"))), content]);
                let id = parse(&item).ok().and_then(|item| text(&item, "id")).unwrap_or_default();
                own = Some(StartedMessage { place, id, item: Some(item), part: open.part });
                continue;
            }
            let item = with_members(&item, &[("status", Some(quoted("incomplete")))]);
            let done = "response.output_item.done";
            let data = format!(r#"{{"type":"{done}","output_index":{place},"item":{item}}}"#);
            out.extend(event_text(Some(done), &data));
            output.push(item);
        }
        let place = self.items;
        let own = own.unwrap_or_else(|| StartedMessage {
            place,
            id: format!("msg_agentsh_{place}"),
            item: None,
            part: None,
        });
        own.events(None, replacement, out);
        output.push(own.item.unwrap_or_else(|| message(place, replacement, "completed")));
        let response = self
            .response
            .clone()
            .unwrap_or_else(|| r#"{"id":"resp_withheld","object":"response"}"#.to_owned());
        let Ok(tree) = parse(&response) else { return };
        let output = format!("[{}]", output.join(","));
        let response =
            with_members(&tree, &[("status", Some(quoted("completed"))), ("output", Some(output))]);
        let last = format!(r#"{{"type":"response.completed","response":{response}}}"#);
        out.extend(event_text(Some("response.completed"), &last));
    }
}

impl Responses {
    /// The item that an event is about. Without an index it is the one with its id, or a new one.
    fn item_index(&mut self, tree: &Json<'_>) -> Option<u64> {
        let item = tree.member("item");
        let id = item.map_or_else(|| text(tree, "item_id"), |item| text(item, "id"));
        let id = id.filter(|id| !id.is_empty());
        let indexed = number(tree, "output_index");
        let known = || self.ids.get(id.as_ref()?).copied();
        let place = indexed.or_else(known).or_else(|| item.map(|_| self.places))?;
        self.is_ambiguous |= indexed.is_none();
        self.places = self.places.max(place.saturating_add(1));
        self.ids.extend(id.map(|id| (id, place)));
        Some(place)
    }

    /// An item's text that did not arrive in pieces.
    fn missing_texts(&mut self, place: u64, item: &Json<'_>) -> Vec<((u64, u8), String)> {
        if !self.heard.insert(place) {
            return Vec::new();
        }
        let (said, thought) = text_and_thought(item);
        [((0, 0), said), ((0, 1), thought)].into_iter().filter(|(_, text)| !text.is_empty()).collect()
    }

    /// The last event repeats the whole answer; anything new in it counts too.
    fn take_last(&mut self, tree: &Json<'_>, taken: &mut EventContent) {
        let response = tree.member("response");
        let items = response.and_then(|response| response.member("output")).and_then(Json::as_array);
        for (place, item) in (0..).zip(items.unwrap_or_default()) {
            let Some(Call { id, namespace, name, arguments, at_provider }) = call(item) else {
                taken.texts.extend(self.missing_texts(place, item));
                continue;
            };
            // Clients may use this one, so it is judged as well.
            let key = (LAST_ITEMS + place, 0);
            taken.at.keys.push(key);
            taken.complete.push(key);
            taken.pieces.push(Piece {
                key,
                id: Some(id),
                namespace,
                name: Some(name),
                arguments,
                is_whole: true,
                at_provider,
                ..Piece::default()
            });
        }
    }
}

fn text_and_thought(item: &Json<'_>) -> (String, String) {
    let all = |name: &str| {
        let parts = item.member(name).and_then(Json::as_array).unwrap_or_default();
        parts
            .iter()
            .filter_map(|part| text(part, "text").or_else(|| text(part, "refusal")))
            .collect::<String>()
    };
    (all("content"), all("summary"))
}

/// A complete answer.
pub(super) struct Response;

impl WholeAnswer for Response {
    fn read(&self, tree: &Json<'_>) -> Result<AnswerContent, LlmError> {
        let (mut found, mut said, mut thought) = (Vec::new(), String::new(), String::new());
        for (place, item) in (0..).zip(tree.member("output").and_then(Json::as_array).unwrap_or_default()) {
            found.extend(call(item).map(|call| ((place, 0), call)));
            let (texts, thoughts) = text_and_thought(item);
            said.push_str(&texts);
            thought.push_str(&thoughts);
        }
        Ok((found, vec![said, thought]))
    }

    fn without_refused_calls(&self, tree: &Json<'_>, rulings: &Rulings) -> Result<String, LlmError> {
        Ok(without_refused(tree, rulings))
    }

    fn with_replacement(&self, tree: &Json<'_>, replacement: &str) -> String {
        let output = format!("[{}]", message(0, replacement, "completed"));
        with_members(tree, &[("output", Some(output)), ("output_text", None)])
    }
}
