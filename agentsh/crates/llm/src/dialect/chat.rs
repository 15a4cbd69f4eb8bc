//! OpenAI Chat Completions: choices, each with a text and a list of calls.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AnswerContent, Dialect, EventContent, EventTarget, Key, Piece, Rulings, WholeAnswer, holds_only, is_cut,
    number, parse, quoted, reason, text, with_members,
};
use crate::arguments::ArgumentsState;
use crate::engine::{DONE, Ruling};
use crate::json::Json;
use crate::sse::{Frame, event_text};
use crate::usage::Usage;
use crate::{Call, LlmError, refusal};

/// The index of the single call of the old API.
const LEGACY_CALL_INDEX: u64 = u64::MAX;
const CALL_FINISH_REASONS: [&str; 2] = ["tool_calls", "function_call"];

#[derive(Default)]
pub(super) struct Chat {
    /// Started calls per choice.
    calls: BTreeMap<u64, Calls>,
    /// Calls that clients could parse differently: each is rewritten as one, from the judged version.
    ambiguous: BTreeSet<Key>,
    /// The calls that the agent already has.
    written: BTreeSet<Key>,
    /// Members of every chunk, from the last one.
    frame: Option<String>,
    /// Choices that the agent knows.
    known: BTreeSet<u64>,
    /// How many refusals of a choice were sent: some gateways write a finish reason into every chunk.
    told: BTreeMap<u64, usize>,
    /// The choice of the first call, and that of each id.
    caller: Option<u64>,
    owners: BTreeMap<String, u64>,
    expects_choices: bool,
    /// A chunk repeated calls in a whole message, which is not forwarded.
    has_repeats: bool,
}

/// The calls of one choice. Some gateways use one index for several calls, or none.
#[derive(Default)]
struct Calls {
    /// The call that an index currently means.
    open: BTreeMap<u64, OpenCall>,
    /// Number of started calls.
    begun: u64,
}

/// A started call.
struct OpenCall {
    place: u64,
    id: String,
    name: String,
    arguments: ArgumentsState,
}

impl Calls {
    /// The call of a piece, and whether every client agrees.
    fn call_index(&mut self, index: u64, has_index: bool, piece: &Piece) -> (u64, bool) {
        let id = piece.id.as_deref().unwrap_or_default();
        let name = piece.name.as_deref().unwrap_or_default();
        let known = self.open.get_mut(&index).filter(|open| {
            // Some gateways repeat the name, or all of the call, in every piece.
            if name == open.name && open.arguments.is_in_object() {
                return true;
            }
            // Some gateways make up an id for every piece; official clients go by the index.
            let is_another = !id.is_empty() && !open.id.is_empty() && id != open.id && !name.is_empty();
            // Some gateways repeat the id in every piece.
            let is_repeated = !id.is_empty() && id == open.id && name == open.name;
            !is_another && (is_repeated || !open.arguments.has_any || name.is_empty())
        });
        if let Some(open) = known {
            // Some clients join repeated values, others replace them.
            let is_plain = (name.is_empty() || open.name.is_empty()) && (id.is_empty() || open.id.is_empty());
            if name != open.name {
                open.name.push_str(name);
            }
            open.arguments.extend(&piece.arguments);
            if open.id.is_empty() {
                id.clone_into(&mut open.id);
            }
            return (open.place, is_plain);
        }
        let place = if index == LEGACY_CALL_INDEX { LEGACY_CALL_INDEX } else { self.begun };
        self.begun += u64::from(index != LEGACY_CALL_INDEX);
        let mut open = OpenCall {
            place,
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: ArgumentsState::default(),
        };
        open.arguments.extend(&piece.arguments);
        self.open.insert(index, open);
        (place, index == LEGACY_CALL_INDEX || (has_index && place == index))
    }
}

fn choices<'a, 'b>(tree: &'b Json<'a>) -> impl Iterator<Item = (u64, &'b Json<'a>)> {
    let all = tree.member("choices").and_then(Json::as_array).unwrap_or_default();
    (0..).zip(all).map(|(place, choice)| (number(choice, "index").unwrap_or(place), choice))
}

/// The choices of a whole answer, numbered as clients do.
fn numbered_choices<'a, 'b>(tree: &'b Json<'a>) -> impl Iterator<Item = (u64, &'b Json<'a>)> {
    (0..).zip(tree.member("choices").and_then(Json::as_array).unwrap_or_default())
}

/// The calls in a delta or message, in order.
fn calls<'a, 'b>(message: &'b Json<'a>) -> &'b [Json<'a>] {
    message.member("tool_calls").and_then(Json::as_array).unwrap_or_default()
}

/// The calls of a whole message in a chunk. Some gateways repeat in it what the pieces say, and one of the official clients
/// takes it.
fn repeated_calls<'a, 'b>(choice: &'b Json<'a>) -> &'b [Json<'a>] {
    choice.member("message").map(calls).unwrap_or_default()
}

/// Whether a choice ends; an empty reason does not count.
fn end(choice: &Json<'_>) -> bool {
    match choice.member("finish_reason") {
        None | Some(Json::Null) => false,
        Some(word) => word.as_text().is_none_or(|word| !word.is_empty()),
    }
}

fn legacy<'a, 'b>(message: &'b Json<'a>) -> Option<&'b Json<'a>> {
    message.member("function_call").filter(|call| call.as_object().is_some_and(|members| !members.is_empty()))
}

fn piece(key: Key, call: &Json<'_>) -> Piece {
    // A custom tool has free text instead of arguments.
    let function = call.member("function").or_else(|| call.member("custom")).unwrap_or(call);
    let input = text(function, "input").map(|input| quoted(&input));
    // Ollama and others write the object itself.
    let object = || function.member("arguments").filter(|it| it.as_object().is_some()).map(Json::to_compact);
    Piece {
        key,
        is_text: input.is_some(),
        id: text(call, "id"),
        // Some send an empty name in all later pieces.
        name: text(function, "name").filter(|name| !name.is_empty()),
        arguments: text(function, "arguments").or(input).or_else(object).unwrap_or_default(),
        ..Piece::default()
    }
}

fn texts(choice: u64, message: &Json<'_>) -> Vec<((u64, u8), String)> {
    let content = match message.member("content") {
        Some(Json::Array(parts)) => {
            Some(parts.iter().filter_map(|part| text(part, "text")).collect::<String>())
        }
        _ => text(message, "content"),
    };
    let said = [
        (0, content),
        (0, text(message, "refusal")),
        (1, text(message, "reasoning_content")),
        (1, text(message, "reasoning")),
    ];
    said.into_iter().filter_map(|(kind, said)| said.map(|said| ((choice, kind), said))).collect()
}

fn refusal_texts(rulings: &Rulings, choice: u64) -> Vec<String> {
    let of_choice = rulings.iter().filter(|((of, _), _)| *of == choice);
    let said = of_choice.filter_map(|(_, (call, ruling))| match ruling {
        Ruling::Block(why) => Some(refusal(&call.name, why)),
        Ruling::Allow => None,
    });
    said.collect()
}

fn has_call(rulings: &Rulings, choice: u64) -> bool {
    rulings.iter().any(|((of, _), (_, ruling))| *of == choice && *ruling == Ruling::Allow)
}

/// The number of allowed calls before this one.
fn rank(rulings: &Rulings, (choice, place): Key) -> usize {
    let before = rulings.range((choice, 0)..(choice, place));
    before.filter(|(_, (_, ruling))| *ruling == Ruling::Allow).count()
}

/// A judged call, with its new index, and what else its first piece has: Gemini wants its signature of a thought back.
fn judged_call(first: &Json<'_>, call: &Call, place: usize) -> String {
    let (kind, content) = match first.member("custom") {
        Some(_) => ("custom", "input"),
        None => ("function", "arguments"),
    };
    let arguments = if kind == "custom" { call.arguments.clone() } else { quoted(&call.arguments) };
    let function = format!(r#"{{"name":{},"{content}":{arguments}}}"#, quoted(&call.name));
    let changes = [
        ("index", Some(place.to_string())),
        ("id", Some(quoted(&call.id))),
        ("type", Some(quoted(kind))),
        (kind, Some(function)),
    ];
    with_members(first, &changes)
}

/// The message without refused calls; `places` are those of its calls, `instead` what replaces a call, None for
/// nothing.
fn strip(
    message: &Json<'_>,
    choice: u64,
    places: &[u64],
    rulings: &Rulings,
    mut instead: impl FnMut(Key, &Json<'_>) -> Option<Option<String>>,
) -> String {
    let mut changes = Vec::new();
    let listed = calls(message);
    if !listed.is_empty() {
        let mut left = Vec::new();
        for (call, place) in listed.iter().zip(places) {
            let key = (choice, *place);
            if reason(rulings, key).is_some() {
                continue;
            }
            match instead(key, call) {
                Some(written) => left.extend(written),
                None => left.push(match call.member("index") {
                    Some(_) => with_members(call, &[("index", Some(rank(rulings, key).to_string()))]),
                    None => call.to_compact(),
                }),
            }
        }
        let list = (!left.is_empty()).then(|| format!("[{}]", left.join(",")));
        changes.push(("tool_calls", list));
    }
    if legacy(message).is_some() && reason(rulings, (choice, LEGACY_CALL_INDEX)).is_some() {
        changes.push(("function_call", None));
    }
    with_members(message, &changes)
}

/// The finish reason once no call remains.
fn ending(choice: &Json<'_>, number: u64, rulings: &Rulings) -> Option<String> {
    let calls =
        text(choice, "finish_reason").is_some_and(|word| CALL_FINISH_REASONS.contains(&word.as_str()));
    (calls && !has_call(rulings, number)).then(|| quoted("stop"))
}

impl Dialect for Chat {
    fn take(&mut self, _event: &str, data: &str) -> Result<EventContent, LlmError> {
        let mut taken = EventContent::default();
        if data.trim() == DONE {
            taken.is_last = true;
            return Ok(taken);
        }
        let tree = parse(data)?;
        if tree.as_object().is_none() {
            return Err(LlmError::Shape("a chunk must be an object"));
        }
        taken.usage = Usage::of(&tree);
        taken.is_cut = is_cut(&tree);
        let mut repeats = 0;
        for (choice, part) in choices(&tree) {
            let none = Json::Null;
            let delta = part.member("delta").unwrap_or(&none);
            taken.texts.extend(texts(choice, delta));
            let listed = (0..).zip(calls(delta)).map(|(place, call)| (number(call, "index"), place, call));
            let listed =
                listed.chain(legacy(delta).map(|call| (Some(LEGACY_CALL_INDEX), LEGACY_CALL_INDEX, call)));
            let known = self.calls.entry(choice).or_default();
            for (index, counted, call) in listed {
                let mut piece = piece((choice, 0), call);
                let begun = known.begun;
                let (place, is_plain) = known.call_index(index.unwrap_or(counted), index.is_some(), &piece);
                // Clients that do not tell choices apart join the calls of one index.
                let id = piece.id.as_ref().filter(|id| !id.is_empty());
                let is_its_own = match id {
                    Some(id) => *self.owners.entry(id.clone()).or_insert(choice) == choice,
                    None => known.begun == begun && place != LEGACY_CALL_INDEX,
                };
                let is_another = *self.caller.get_or_insert(choice) != choice;
                if is_another && !(self.expects_choices && is_its_own) {
                    return Err(LlmError::Choices);
                }
                piece.key = (choice, place);
                if !is_plain || is_another {
                    self.ambiguous.insert(piece.key);
                }
                taken.at.keys.push(piece.key);
                taken.pieces.push(piece);
            }
            if end(part) {
                // A call after the end is a new one; what is incomplete may continue.
                let complete = known.open.extract_if(.., |_, open| open.arguments.is_complete());
                taken.complete.extend(complete.map(|(_, open)| (choice, open.place)));
            }
            let is_known = |id: String| self.owners.get(&id) == Some(&choice);
            repeats +=
                repeated_calls(part).iter().filter(|call| text(call, "id").is_some_and(is_known)).count();
        }
        self.has_repeats |= repeats > 0;
        holds_only(&tree, taken.pieces.len() + repeats)?;
        Ok(taken)
    }

    fn is_ambiguous(&self) -> bool {
        self.has_repeats || !self.ambiguous.is_empty()
    }

    fn expect_choices(&mut self) {
        self.expects_choices = true;
    }

    fn rewrite(
        &mut self,
        frame: &Frame,
        at: &EventTarget,
        rulings: &Rulings,
        out: &mut Vec<u8>,
    ) -> Result<bool, LlmError> {
        let data = frame.data.as_deref().unwrap_or_default();
        if data.trim() == DONE {
            return Ok(false);
        }
        let tree = parse(data)?;
        let event = (!frame.event.is_empty()).then_some(frame.event.as_str());
        let (mut parts, mut changed, mut keys) = (Vec::new(), false, at.keys.iter());
        for (choice, part) in choices(&tree) {
            let none = Json::Null;
            let delta = part.member("delta").unwrap_or(&none);
            let count = calls(delta).len() + usize::from(legacy(delta).is_some());
            let places: Vec<u64> = keys.by_ref().take(count).map(|(_, place)| *place).collect();
            let refused = refusal_texts(rulings, choice);
            let is_odd = places.iter().any(|place| self.ambiguous.contains(&(choice, *place)));
            let has_repeats = !repeated_calls(part).is_empty();
            if refused.is_empty() && !is_odd && !has_repeats {
                parts.push(part.to_compact());
                continue;
            }
            changed = true;
            let mut changes = Vec::new();
            let instead = |key: Key, piece: &Json<'_>| {
                let (call, _) = rulings.get(&key).filter(|_| self.ambiguous.contains(&key))?;
                Some(self.written.insert(key).then(|| judged_call(piece, call, rank(rulings, key))))
            };
            let stripped = part.member("delta").map(|delta| strip(delta, choice, &places, rulings, instead));
            let told = self.told.entry(choice).or_default();
            if end(part) && refused.len() > *told {
                // The refusal is sent before the choice ends.
                let said = quoted(&refused.get(*told..).unwrap_or_default().join("\n"));
                *told = refused.len();
                let said =
                    format!(r#"[{{"index":{choice},"delta":{{"content":{said}}},"finish_reason":null}}]"#);
                let chunk = with_members(&tree, &[("choices", Some(said)), ("usage", None)]);
                out.extend(event_text(event, &chunk));
            }
            if end(part) {
                changes.extend(ending(part, choice, rulings).map(|word| ("finish_reason", Some(word))));
            }
            changes.extend(stripped.map(|delta| ("delta", Some(delta))));
            changes.extend(has_repeats.then_some(("message", None)));
            parts.push(with_members(part, &changes));
        }
        if changed {
            out.extend(event_text(
                event,
                &with_members(&tree, &[("choices", Some(format!("[{}]", parts.join(","))))]),
            ));
        }
        Ok(changed)
    }

    fn note_sent(&mut self, frame: &Frame, _at: &EventTarget) -> Result<(), LlmError> {
        let Some(data) = frame.data.as_deref().filter(|data| data.trim() != DONE) else { return Ok(()) };
        let tree = parse(data)?;
        self.known.extend(choices(&tree).map(|(choice, _)| choice));
        if self.frame.is_none() {
            self.frame = Some(with_members(&tree, &[("choices", Some("[]".to_owned())), ("usage", None)]));
        }
        Ok(())
    }

    fn leak(&mut self, replacement: &str, _usage: Usage, out: &mut Vec<u8>) {
        let frame = self.frame.clone().unwrap_or_else(|| {
            r#"{"id":"chatcmpl-withheld","object":"chat.completion.chunk","created":0,"model":"withheld","choices":[]}"#.to_owned()
        });
        let Ok(tree) = parse(&frame) else { return };
        // Without an earlier chunk, the role is missing.
        let role = if self.known.is_empty() { r#""role":"assistant","# } else { "" };
        if self.known.is_empty() {
            self.known.insert(0);
        }
        for choice in &self.known {
            let said = format!(
                r#"[{{"index":{choice},"delta":{{{role}"content":{}}},"finish_reason":null}}]"#,
                quoted(replacement)
            );
            let end = format!(r#"[{{"index":{choice},"delta":{{}},"finish_reason":"stop"}}]"#);
            out.extend(event_text(None, &with_members(&tree, &[("choices", Some(said))])));
            out.extend(event_text(None, &with_members(&tree, &[("choices", Some(end))])));
        }
        out.extend(event_text(None, DONE));
    }
}

/// A complete answer.
pub(super) struct Completion;

impl WholeAnswer for Completion {
    fn read(&self, tree: &Json<'_>) -> Result<AnswerContent, LlmError> {
        let (mut found, mut said) = (Vec::new(), Vec::new());
        for (choice, part) in numbered_choices(tree) {
            let Some(message) = part.member("message") else { continue };
            said.extend(texts(choice, message).into_iter().map(|(_, said)| said));
            let listed =
                (0..).zip(calls(message)).chain(legacy(message).map(|call| (LEGACY_CALL_INDEX, call)));
            for (place, call) in listed {
                let Piece { key, id, namespace, name, arguments, .. } = piece((choice, place), call);
                let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
                found.push((key, Call { id, namespace, name, arguments, at_provider: false }));
            }
        }
        Ok((found, said))
    }

    fn without_refused_calls(&self, tree: &Json<'_>, rulings: &Rulings) -> Result<String, LlmError> {
        let mut parts = Vec::new();
        for (choice, part) in numbered_choices(tree) {
            let refused = refusal_texts(rulings, choice).join("\n");
            let Some(message) = part.member("message").filter(|_| !refused.is_empty()) else {
                parts.push(part.to_compact());
                continue;
            };
            let places: Vec<u64> = (0..calls(message).len() as u64).collect();
            let stripped = strip(message, choice, &places, rulings, |_, _| None);
            let content = match text(message, "content").filter(|said| !said.is_empty()) {
                Some(said) => format!("{said}\n{refused}"),
                None => refused,
            };
            let stripped = parse(&stripped)?;
            let message = with_members(&stripped, &[("content", Some(quoted(&content)))]);
            let mut changes = vec![("message", Some(message))];
            changes.extend(ending(part, choice, rulings).map(|word| ("finish_reason", Some(word))));
            parts.push(with_members(part, &changes));
        }
        Ok(with_members(tree, &[("choices", Some(format!("[{}]", parts.join(","))))]))
    }

    fn with_replacement(&self, tree: &Json<'_>, replacement: &str) -> String {
        let message = format!(r#"{{"role":"assistant","content":{}}}"#, quoted(replacement));
        let parts: Vec<String> = numbered_choices(tree)
            .map(|(_, part)| {
                with_members(
                    part,
                    &[
                        ("message", Some(message.clone())),
                        ("finish_reason", Some(quoted("stop"))),
                        ("logprobs", None),
                    ],
                )
            })
            .collect();
        with_members(tree, &[("choices", Some(format!("[{}]", parts.join(","))))])
    }
}
