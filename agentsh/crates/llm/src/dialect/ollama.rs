//! Ollama's API: an answer is one object, or one line per piece. A call is always complete.

use super::{
    AnswerContent, Dialect, EventContent, EventTarget, Piece, Rulings, WholeAnswer, holds_only, parse,
    quoted, reason, text, with_members,
};
use crate::json::Json;
use crate::sse::Frame;
use crate::usage::Usage;
use crate::{Call, LlmError, refusal};

#[derive(Default)]
pub(super) struct Ollama {
    lines: u64,
    first: Option<String>,
}

fn calls<'a, 'b>(tree: &'b Json<'a>) -> &'b [Json<'a>] {
    let message = tree.member("message");
    message.and_then(|message| message.member("tool_calls")).and_then(Json::as_array).unwrap_or_default()
}

fn call(entry: &Json<'_>) -> Call {
    let function = entry.member("function").unwrap_or(entry);
    let arguments = function.member("arguments");
    Call {
        id: text(entry, "id").unwrap_or_default(),
        namespace: None,
        name: text(function, "name").unwrap_or_default(),
        arguments: text(function, "arguments")
            .or_else(|| arguments.map(Json::to_compact))
            .unwrap_or_default(),
        at_provider: false,
    }
}

/// Spoken and thought text, in a message or, for completions, next to it.
fn texts(tree: &Json<'_>) -> [Option<String>; 2] {
    let inner = tree.member("message").unwrap_or(tree);
    [text(inner, "content").or_else(|| text(inner, "response")), text(inner, "thinking")]
}

/// Without the refused calls of this line. None: none was refused.
fn without_refused(tree: &Json<'_>, line: u64, rulings: &Rulings) -> Option<String> {
    let message = tree.member("message")?;
    let (mut kept, mut said) = (Vec::new(), Vec::new());
    said.extend(text(message, "content").filter(|content| !content.is_empty()));
    let before = said.len();
    for (place, entry) in (0..).zip(calls(tree)) {
        match reason(rulings, (line, place)) {
            Some((call, why)) => said.push(refusal(&call.name, why)),
            None => kept.push(entry.to_compact()),
        }
    }
    if said.len() == before {
        return None;
    }
    let list = (!kept.is_empty()).then(|| format!("[{}]", kept.join(",")));
    let message = with_members(message, &[("content", Some(quoted(&said.join("\n")))), ("tool_calls", list)]);
    Some(with_members(tree, &[("message", Some(message))]))
}

fn with_replacement(tree: &Json<'_>, replacement: &str) -> String {
    let said = Some(quoted(replacement));
    let changes = match tree.member("message") {
        Some(message) => {
            let changes = [("content", said), ("thinking", None), ("tool_calls", None)];
            [("message", Some(with_members(message, &changes))), ("thinking", None)]
        }
        None => [("response", said), ("thinking", None)],
    };
    with_members(tree, &changes)
}

impl Dialect for Ollama {
    fn take(&mut self, _event: &str, data: &str) -> Result<EventContent, LlmError> {
        let mut taken = EventContent::default();
        // Other programs answer at such paths too. Some clients look for an object behind other bytes.
        if !data.starts_with('{') {
            let inner = data.find(['{', '[']).and_then(|start| parse(data.get(start..)?).ok());
            inner.map_or(Ok(()), |inner| holds_only(&inner, 0))?;
            return Ok(taken);
        }
        let tree = parse(data)?;
        self.first.get_or_insert_with(|| data.to_owned());
        self.lines += 1;
        taken.usage = Usage::of(&tree);
        taken.is_last = matches!(tree.member("done"), Some(Json::Bool(true)));
        let said = (0..).zip(texts(&tree));
        taken.texts = said.filter_map(|(kind, text)| text.map(|text| ((0, kind), text))).collect();
        for (place, entry) in (0..).zip(calls(&tree)) {
            let key = (self.lines, place);
            let Call { id, name, arguments, .. } = call(entry);
            taken.at.keys.push(key);
            taken.complete.push(key);
            let (id, name) = (Some(id), Some(name));
            taken.pieces.push(Piece { key, id, name, arguments, is_whole: true, ..Piece::default() });
        }
        holds_only(&tree, taken.pieces.len())?;
        Ok(taken)
    }

    fn rewrite(
        &mut self,
        frame: &Frame,
        at: &EventTarget,
        rulings: &Rulings,
        out: &mut Vec<u8>,
    ) -> Result<bool, LlmError> {
        let Some((line, _)) = at.keys.first() else { return Ok(false) };
        let data = frame.data.as_deref().unwrap_or_default();
        let Some(left) = without_refused(&parse(data)?, *line, rulings) else { return Ok(false) };
        out.extend_from_slice(left.as_bytes());
        out.push(b'\n');
        Ok(true)
    }

    fn note_sent(&mut self, _frame: &Frame, _at: &EventTarget) -> Result<(), LlmError> {
        Ok(())
    }

    fn leak(&mut self, replacement: &str, usage: Usage, out: &mut Vec<u8>) {
        let Ok(first) = parse(self.first.as_deref().unwrap_or("{}")) else { return };
        let counts = [
            ("done", Some("true".to_owned())),
            ("done_reason", Some(quoted("stop"))),
            ("prompt_eval_count", Some(usage.input.to_string())),
            ("eval_count", Some(usage.output.to_string())),
        ];
        let last = with_members(&first, &counts);
        let Ok(last) = parse(&last) else { return };
        out.extend_from_slice(with_replacement(&last, replacement).as_bytes());
        out.push(b'\n');
    }
}

/// A complete answer.
pub(super) struct Reply;

impl WholeAnswer for Reply {
    fn read(&self, tree: &Json<'_>) -> Result<AnswerContent, LlmError> {
        let found = (0..).zip(calls(tree)).map(|(place, entry)| ((0, place), call(entry)));
        Ok((found.collect(), texts(tree).into_iter().flatten().collect()))
    }

    fn without_refused_calls(&self, tree: &Json<'_>, rulings: &Rulings) -> Result<String, LlmError> {
        Ok(without_refused(tree, 0, rulings).unwrap_or_else(|| tree.to_compact()))
    }

    fn with_replacement(&self, tree: &Json<'_>, replacement: &str) -> String {
        with_replacement(tree, replacement)
    }
}
