//! Google Generate Content: candidates with parts, some of which are calls; a call is always one event. Code Assist
//! (Gemini CLI with a login) wraps requests and answers in an envelope.

use super::{
    AnswerContent, Dialect, EventContent, EventTarget, Key, Piece, Rulings, WholeAnswer, holds_only,
    open_envelope, parse, quoted, text, with_members, with_opened,
};
use crate::engine::Ruling;
use crate::json::Json;
use crate::sse::{Frame, event_text};
use crate::usage::Usage;
use crate::{Call, LlmError, refusal};

#[derive(Default)]
pub(super) struct Google {
    events: u64,
    has_envelope: bool,
}

/// The answer in Code Assist's envelope.
const ENVELOPE: &str = "response";

/// The answer with other candidates, in its envelope.
fn with_candidates(tree: &Json<'_>, candidates: String) -> String {
    with_opened(
        tree,
        ENVELOPE,
        with_members(open_envelope(tree, ENVELOPE), &[("candidates", Some(candidates))]),
    )
}

/// Without the namespace of Gemini's own, which many clients take off.
fn own_name(name: &str) -> &str {
    ["default_api:", "default_api."].iter().find_map(|own| name.strip_prefix(own)).unwrap_or(name)
}

/// A member in one of two spellings; an empty one is no call, and counts for none at another place.
fn non_empty_member<'a, 'b>(part: &'b Json<'a>, names: [&str; 2]) -> Option<&'b Json<'a>> {
    names.iter().filter_map(|name| part.member(name)).find(|member| member.as_object() != Some(&[]))
}

/// Calls at the agent, and what ran at the provider.
fn call(part: &Json<'_>) -> Option<Call> {
    if let Some(called) = non_empty_member(part, ["functionCall", "function_call"]) {
        return Some(Call {
            id: text(called, "id").unwrap_or_default(),
            namespace: None,
            name: own_name(&text(called, "name").unwrap_or_default()).to_owned(),
            arguments: called.member("args").map(Json::to_compact).unwrap_or_default(),
            at_provider: false,
        });
    }
    let code = non_empty_member(part, ["executableCode", "executable_code"])?;
    Some(Call {
        id: String::new(),
        namespace: None,
        name: "code_execution".to_owned(),
        arguments: code.to_compact(),
        at_provider: true,
    })
}

fn candidates<'a, 'b>(tree: &'b Json<'a>) -> impl Iterator<Item = (u64, &'b [Json<'a>])> {
    let all = open_envelope(tree, ENVELOPE).member("candidates").and_then(Json::as_array).unwrap_or_default();
    (0..).zip(all).map(|(place, candidate)| {
        let place = super::number(candidate, "index").unwrap_or(place);
        (place, parts(candidate))
    })
}

fn parts<'a, 'b>(candidate: &'b Json<'a>) -> &'b [Json<'a>] {
    candidate
        .member("content")
        .and_then(|content| content.member("parts"))
        .and_then(Json::as_array)
        .unwrap_or_default()
}

fn channel(candidate: u64, part: &Json<'_>) -> (u64, u8) {
    (candidate, u8::from(matches!(part.member("thought"), Some(Json::Bool(true)))))
}

/// An equal call has the same ruling everywhere.
fn refusal_text(part: &Json<'_>, rulings: &Rulings) -> Option<String> {
    let wanted = call(part)?;
    rulings.values().find_map(|(known, ruling)| match ruling {
        Ruling::Block(why) if *known == wanted => Some(refusal(&known.name, why)),
        _ => None,
    })
}

/// An object without refused calls. None: none was refused.
fn without_refused(tree: &Json<'_>, rulings: &Rulings) -> Option<String> {
    let all = open_envelope(tree, ENVELOPE).member("candidates").and_then(Json::as_array)?;
    let mut changed = false;
    let candidates: Vec<String> = all
        .iter()
        .map(|candidate| {
            let Some(content) = candidate.member("content") else { return candidate.to_compact() };
            let parts = parts(candidate).iter().map(|part| match refusal_text(part, rulings) {
                Some(said) => {
                    changed = true;
                    format!(r#"{{"text":{}}}"#, quoted(&said))
                }
                None => part.to_compact(),
            });
            let parts = format!("[{}]", parts.collect::<Vec<_>>().join(","));
            if content.member("parts").is_none() {
                return candidate.to_compact();
            }
            with_members(candidate, &[("content", Some(with_members(content, &[("parts", Some(parts))])))])
        })
        .collect();
    changed.then(|| with_candidates(tree, format!("[{}]", candidates.join(","))))
}

fn replacement_part(replacement: &str) -> String {
    let said = quoted(replacement);
    format!(
        r#"[{{"content":{{"parts":[{{"text":{said}}}],"role":"model"}},"finishReason":"STOP","index":0}}]"#
    )
}

impl Dialect for Google {
    fn take(&mut self, _event: &str, data: &str) -> Result<EventContent, LlmError> {
        let tree = parse(data)?;
        if tree.as_object().is_none() {
            return Err(LlmError::Shape("an event must be an object"));
        }
        let mut taken = EventContent { usage: Usage::of(&tree), ..EventContent::default() };
        self.events += 1;
        self.has_envelope = !std::ptr::eq(open_envelope(&tree, ENVELOPE), &raw const tree);
        let mut place = 0;
        for (candidate, parts) in candidates(&tree) {
            for part in parts {
                taken.texts.extend(text(part, "text").map(|said| (channel(candidate, part), said)));
                let Some(Call { id, name, arguments, at_provider, .. }) = call(part) else { continue };
                let key: Key = (self.events, place);
                place += 1;
                taken.at.keys.push(key);
                taken.complete.push(key);
                taken.pieces.push(Piece {
                    key,
                    id: Some(id),
                    name: Some(name),
                    arguments,
                    is_whole: true,
                    at_provider,
                    ..Piece::default()
                });
            }
        }
        holds_only(&tree, taken.pieces.len())?;
        Ok(taken)
    }

    fn rewrite(
        &mut self,
        frame: &Frame,
        _at: &EventTarget,
        rulings: &Rulings,
        out: &mut Vec<u8>,
    ) -> Result<bool, LlmError> {
        let (event, data) = (frame.event.as_str(), frame.data.as_deref().unwrap_or_default());
        let Some(left) = without_refused(&parse(data)?, rulings) else { return Ok(false) };
        out.extend(event_text((!event.is_empty()).then_some(event), &left));
        Ok(true)
    }

    fn note_sent(&mut self, _frame: &Frame, _at: &EventTarget) -> Result<(), LlmError> {
        Ok(())
    }

    fn leak(&mut self, replacement: &str, usage: Usage, out: &mut Vec<u8>) {
        let counted = format!(
            r#"{{"promptTokenCount":{},"candidatesTokenCount":{},"totalTokenCount":{}}}"#,
            usage.input,
            usage.output,
            usage.input.saturating_add(usage.output)
        );
        let said = format!(r#"{{"candidates":{},"usageMetadata":{counted}}}"#, replacement_part(replacement));
        let said = if self.has_envelope { format!(r#"{{"{ENVELOPE}":{said}}}"#) } else { said };
        out.extend(event_text(None, &said));
    }
}

/// A complete answer: an object, or a list of objects.
pub(super) struct Generated;

fn pieces<'a, 'b>(tree: &'b Json<'a>) -> &'b [Json<'a>] {
    tree.as_array().unwrap_or(std::slice::from_ref(tree))
}

impl WholeAnswer for Generated {
    fn read(&self, tree: &Json<'_>) -> Result<AnswerContent, LlmError> {
        let (mut calls, mut texts) = (Vec::new(), std::collections::BTreeMap::<(u64, u8), String>::new());
        for (event, piece) in (0..).zip(pieces(tree)) {
            let mut place = 0;
            for (candidate, parts) in candidates(piece) {
                for part in parts {
                    let said = text(part, "text").unwrap_or_default();
                    texts.entry(channel(candidate, part)).or_default().push_str(&said);
                    if let Some(call) = call(part) {
                        calls.push(((event, place), call));
                        place += 1;
                    }
                }
            }
        }
        Ok((calls, texts.into_values().collect()))
    }

    fn without_refused_calls(&self, tree: &Json<'_>, rulings: &Rulings) -> Result<String, LlmError> {
        let one = |tree: &Json<'_>| without_refused(tree, rulings).unwrap_or_else(|| tree.to_compact());
        Ok(match tree.as_array() {
            Some(list) => format!("[{}]", list.iter().map(one).collect::<Vec<_>>().join(",")),
            None => one(tree),
        })
    }

    fn with_replacement(&self, tree: &Json<'_>, replacement: &str) -> String {
        match tree.as_array() {
            Some(_) => format!(r#"[{{"candidates":{}}}]"#, replacement_part(replacement)),
            None => with_candidates(tree, replacement_part(replacement)),
        }
    }
}
