//! Anthropic Messages: an answer is a list of blocks.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AnswerContent, Dialect, EventContent, EventTarget, Piece, Rulings, WholeAnswer, holds_only, is_cut,
    number, parse, quoted, reason, text, with_members,
};
use crate::engine::{DONE, Ruling};
use crate::json::Json;
use crate::sse::{Frame, event_text};
use crate::usage::Usage;
use crate::{Call, LlmError, refusal};

/// Block types of calls at the agent; types that end with it are calls at the provider.
const AGENT_TOOL_USE: &str = "tool_use";

/// The events that clients parse.
const EVENTS: [&str; 8] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
];

#[derive(Default)]
pub(super) struct Anthropic {
    calls: BTreeSet<u64>,
    /// Calls that started with an input, and those of them whose pieces replace it.
    filled: BTreeSet<u64>,
    replaced: BTreeSet<u64>,
    /// Started blocks by the model's index. Some gateways use one index for all.
    begun: BTreeMap<u64, u64>,
    /// Number of started blocks.
    blocks: u64,
    /// Blocks without an end of their own, by the block that took their index.
    displaced: BTreeMap<u64, u64>,
    /// An index was reused, or clients ignore a part.
    is_ambiguous: bool,
    /// The block that the agent currently reads, and how many it has.
    open: Option<u64>,
    /// It is a text and still empty.
    is_open_empty: bool,
    seen: u64,
    began: bool,
}

impl Anthropic {
    /// Starts a block with a separate index. It ends the block that has the model's index, as official clients append
    /// at every start.
    fn begin(&mut self, index: u64) -> u64 {
        let place = self.blocks;
        let before = self.begun.insert(index, place);
        self.displaced.extend(before.map(|before| (place, before)));
        self.blocks += 1;
        self.is_ambiguous |= place != index;
        place
    }

    /// The block that an index currently means.
    fn block_index(&self, index: u64) -> Result<u64, LlmError> {
        self.begun.get(&index).copied().ok_or(LlmError::Shape("a block continues before its start"))
    }
}

fn call_kind(block: &Json<'_>) -> Option<bool> {
    let kind = text(block, "type")?;
    kind.ends_with(AGENT_TOOL_USE).then_some(kind != AGENT_TOOL_USE)
}

/// The official clients take the number that a text spells, too.
fn index_of(event: &Json<'_>) -> Option<u64> {
    number(event, "index").or_else(|| {
        let spelled = text(event, "index")?;
        spelled.parse().ok().filter(|index: &u64| index.to_string() == spelled)
    })
}

/// The provider's call that this is the result of.
fn result_of(block: &Json<'_>) -> Option<String> {
    text(block, "type").filter(|kind| kind.ends_with("_tool_result")).and_then(|_| text(block, "tool_use_id"))
}

fn is_blocked(rulings: &Rulings, id: &str) -> Option<String> {
    rulings.values().find(|(call, _)| call.id == id).and_then(|(call, ruling)| match ruling {
        Ruling::Block(why) => Some(refusal(&call.name, why)),
        Ruling::Allow => None,
    })
}

/// A text block as its three events.
fn text_block(index: u64, said: &str, out: &mut Vec<u8>) {
    let start = format!(
        r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"text","text":""}}}}"#
    );
    out.extend(event_text(Some("content_block_start"), &start));
    said_in(index, said, out);
}

/// The text of a started block, and its end.
fn said_in(index: u64, said: &str, out: &mut Vec<u8>) {
    let delta = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"text_delta","text":{}}}}}"#,
        quoted(said)
    );
    out.extend(event_text(Some("content_block_delta"), &delta));
    stop(index, out);
}

fn stop(index: u64, out: &mut Vec<u8>) {
    let stop = format!(r#"{{"type":"content_block_stop","index":{index}}}"#);
    out.extend(event_text(Some("content_block_stop"), &stop));
}

/// Whether an allowed call at the agent remains.
fn has_call(rulings: &Rulings) -> bool {
    rulings.values().any(|(call, ruling)| !call.at_provider && *ruling == Ruling::Allow)
}

impl Dialect for Anthropic {
    fn is_unknown(&self, event: &str) -> bool {
        !event.is_empty() && !EVENTS.contains(&event)
    }

    fn take(&mut self, event: &str, data: &str) -> Result<EventContent, LlmError> {
        if data.trim() == DONE {
            // Another API's end, before or after this one's.
            return Ok(EventContent { is_ping: true, ..EventContent::default() });
        }
        let tree = match parse(data) {
            // Gateways and load balancers end a stream with a text of their own, which clients show.
            Err(_) if event == "error" => {
                return Ok(EventContent { is_last: true, ..EventContent::default() });
            }
            tree => tree?,
        };
        // Clients use either; the event's name counts only if the data has no type.
        let is_error = event == "error" || (event.is_empty() && tree.member("error").is_some());
        let named = if is_error { Some("error") } else { (event == "ping").then_some(event) };
        let kind = text(&tree, "type").or(named.map(str::to_owned));
        if kind.is_none() && self.is_unknown(event) && tree.member("type").is_none() {
            // A gateway's own, which no client reads.
            return Ok(EventContent { is_ping: true, ..EventContent::default() });
        }
        let kind = kind.ok_or(LlmError::Shape("an event without a type"))?;
        let started = tree.member("content_block").filter(|_| kind == "content_block_start");
        holds_only(&tree, usize::from(started.and_then(call_kind).is_some()))?;
        let mut taken =
            EventContent { usage: Usage::of(&tree), is_cut: is_cut(&tree), ..EventContent::default() };
        self.is_ambiguous |= text(&tree, "index").is_some();
        let index = || index_of(&tree).ok_or(LlmError::Shape("a block without an index"));
        match kind.as_str() {
            "ping" => taken.is_ping = true,
            "message_stop" | "error" => taken.is_last = true,
            "content_block_start" => {
                let index = self.begin(index()?);
                taken.at.block = Some(index);
                let before = self.displaced.get(&index).filter(|before| self.calls.contains(before));
                taken.complete.extend(before.map(|before| (*before, 0)));
                let block = started.ok_or(LlmError::Shape("an event without its `content_block`"))?;
                if let Some(at_provider) = call_kind(block) {
                    self.calls.insert(index);
                    let input = block.member("input").filter(|input| input.as_object() != Some(&[]));
                    self.filled.extend(input.map(|_| index));
                    taken.at.keys.push((index, 0));
                    taken.pieces.push(Piece {
                        key: (index, 0),
                        id: text(block, "id"),
                        namespace: text(block, "server_name"),
                        name: text(block, "name"),
                        arguments: input.map(Json::to_compact).unwrap_or_default(),
                        at_provider,
                        ..Piece::default()
                    });
                } else if let Some(said) = text(block, "text") {
                    taken.texts.push(((0, 0), said));
                }
            }
            "content_block_delta" => {
                let index = self.block_index(index()?)?;
                taken.at.block = Some(index);
                let delta = tree.member("delta").ok_or(LlmError::Shape("an event without its `delta`"))?;
                if self.calls.contains(&index) {
                    taken.at.keys.push((index, 0));
                    let arguments = text(delta, "partial_json").unwrap_or_default();
                    // In the official clients pieces replace the input of the start.
                    let is_whole = !arguments.is_empty() && self.filled.remove(&index);
                    if is_whole {
                        self.replaced.insert(index);
                        self.is_ambiguous = true;
                    }
                    taken.pieces.push(Piece { key: (index, 0), arguments, is_whole, ..Piece::default() });
                }
                taken.texts.extend(text(delta, "text").map(|said| ((0, 0), said)));
                taken.texts.extend(text(delta, "thinking").map(|said| ((0, 1), said)));
            }
            "content_block_stop" => {
                // Clients ignore an end without a block.
                let Some(index) = self.begun.remove(&index()?) else {
                    self.is_ambiguous = true;
                    return Ok(taken);
                };
                taken.at.block = Some(index);
                if self.calls.contains(&index) {
                    taken.at.keys.push((index, 0));
                    taken.complete.push((index, 0));
                }
            }
            _ => {}
        }
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
        let tree = parse(frame.data.as_deref().unwrap_or_default())?;
        let kind = text(&tree, "type").unwrap_or_default();
        if kind == "content_block_stop" && at.block.is_none() {
            return Ok(true);
        }
        let index = at.block.unwrap_or_default();
        // What replaces a refused call has its end.
        if let Some(before) = self.displaced.remove(&index)
            && reason(rulings, (before, 0)).is_none()
        {
            stop(before, out);
        }
        if kind.starts_with("content_block_")
            && let Some((call, why)) = reason(rulings, (index, 0))
        {
            if kind == "content_block_start" {
                text_block(index, &refusal(&call.name, why), out);
            }
            return Ok(true);
        }
        if kind.starts_with("content_block_") {
            let block = tree.member("content_block");
            let refused = block.and_then(result_of).and_then(|id| is_blocked(rulings, &id));
            let text = refused.map(|said| format!(r#"{{"type":"text","text":{}}}"#, quoted(&said)));
            let emptied = block.filter(|_| self.replaced.contains(&index));
            let block =
                text.or(emptied.map(|block| with_members(block, &[("input", Some("{}".to_owned()))])));
            if block.is_some() || number(&tree, "index") != Some(index) {
                let mut changes = vec![("index", Some(index.to_string()))];
                changes.extend(block.map(|block| ("content_block", Some(block))));
                out.extend(event_text(Some(&kind), &with_members(&tree, &changes)));
                return Ok(true);
            }
        }
        if kind == "message_delta" && !has_call(rulings) {
            let delta = tree.member("delta").ok_or(LlmError::Shape("an event without its `delta`"))?;
            if text(delta, "stop_reason").as_deref() == Some(AGENT_TOOL_USE) {
                let delta = with_members(delta, &[("stop_reason", Some(quoted("end_turn")))]);
                out.extend(event_text(
                    Some("message_delta"),
                    &with_members(&tree, &[("delta", Some(delta))]),
                ));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn note_sent(&mut self, frame: &Frame, at: &EventTarget) -> Result<(), LlmError> {
        let Some(data) = &frame.data else { return Ok(()) };
        // An error may be any text.
        let Ok(tree) = parse(data) else { return Ok(()) };
        match text(&tree, "type").as_deref() {
            Some("message_start") => self.began = true,
            Some("content_block_start") => {
                self.open = at.block;
                self.is_open_empty = tree
                    .member("content_block")
                    .and_then(|block| text(block, "text"))
                    .is_some_and(|text| text.is_empty());
                self.seen += 1;
            }
            Some("content_block_delta") => {
                let said = tree.member("delta").and_then(|delta| text(delta, "text"));
                self.is_open_empty &= said.is_some_and(|said| said.is_empty());
            }
            Some("content_block_stop") if at.block.is_some() => self.open = None,
            _ => {}
        }
        Ok(())
    }

    fn leak(&mut self, replacement: &str, usage: Usage, out: &mut Vec<u8>) {
        if !self.began {
            let start = r#"{"type":"message_start","message":{"id":"msg_withheld","type":"message","role":"assistant","model":"withheld","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}}"#;
            out.extend(event_text(Some("message_start"), start));
        }
        match self.open.take() {
            // Providers reject messages with an empty text.
            Some(index) if self.is_open_empty => said_in(index, replacement, out),
            Some(index) => {
                stop(index, out);
                text_block(self.seen, replacement, out);
            }
            None => text_block(self.seen, replacement, out),
        }
        let delta = format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn","stop_sequence":null}},"usage":{{"output_tokens":{}}}}}"#,
            usage.output
        );
        out.extend(event_text(Some("message_delta"), &delta));
        out.extend(event_text(Some("message_stop"), r#"{"type":"message_stop"}"#));
    }
}

/// A complete answer.
pub(super) struct Message;

impl WholeAnswer for Message {
    fn read(&self, tree: &Json<'_>) -> Result<AnswerContent, LlmError> {
        let (mut calls, mut said, mut thought) = (Vec::new(), String::new(), String::new());
        for (index, block) in (0..).zip(tree.member("content").and_then(Json::as_array).unwrap_or_default()) {
            if let Some(at_provider) = call_kind(block) {
                let call = Call {
                    id: text(block, "id").unwrap_or_default(),
                    namespace: text(block, "server_name"),
                    name: text(block, "name").unwrap_or_default(),
                    arguments: block.member("input").map(Json::to_compact).unwrap_or_default(),
                    at_provider,
                };
                calls.push(((index, 0), call));
            }
            said.push_str(&text(block, "text").unwrap_or_default());
            thought.push_str(&text(block, "thinking").unwrap_or_default());
        }
        Ok((calls, vec![said, thought]))
    }

    fn without_refused_calls(&self, tree: &Json<'_>, rulings: &Rulings) -> Result<String, LlmError> {
        let blocks = tree.member("content").and_then(Json::as_array).unwrap_or_default();
        let blocks: Vec<String> = (0..)
            .zip(blocks)
            .map(|(index, block)| {
                let refused = reason(rulings, (index, 0)).map(|(call, why)| refusal(&call.name, why));
                let refused = refused.or_else(|| result_of(block).and_then(|id| is_blocked(rulings, &id)));
                match refused {
                    Some(said) => format!(r#"{{"type":"text","text":{}}}"#, quoted(&said)),
                    None => block.to_compact(),
                }
            })
            .collect();
        let mut changes = vec![("content", Some(format!("[{}]", blocks.join(","))))];
        if text(tree, "stop_reason").as_deref() == Some(AGENT_TOOL_USE) && !has_call(rulings) {
            changes.push(("stop_reason", Some(quoted("end_turn"))));
        }
        Ok(with_members(tree, &changes))
    }

    fn with_replacement(&self, tree: &Json<'_>, replacement: &str) -> String {
        let content = format!(r#"[{{"type":"text","text":{}}}]"#, quoted(replacement));
        with_members(tree, &[("content", Some(content)), ("stop_reason", Some(quoted("end_turn")))])
    }
}
