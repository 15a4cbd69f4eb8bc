//! Inserts agentsh's sentences before a server's text, in the format of the answer.

use crate::json::{self, Json};

/// The member for advice in an answer without texts.
const META: &str = "agentsh/advisory";

/// The member for facts about the server.
const ADVISORIES_MEMBER: &str = "agentsh/advisories";

/// Puts facts about the server into `_meta` of a result, replacing what the server put there.
pub(super) fn put_about<'a>(answer: &mut Json<'a>, about: Json<'a>) {
    if let Some(Json::Object(members)) = answer.member_mut("result") {
        put_meta(members, ADVISORIES_MEMBER, about);
    }
}

fn put_meta<'a>(members: &mut Vec<(&'a str, Json<'a>)>, name: &'a str, value: Json<'a>) {
    let known = members.iter_mut().find(|(name, _)| json::unescape(name) == "_meta");
    match known {
        Some((_, Json::Object(meta))) => {
            meta.retain(|(known, _)| json::unescape(known) != name);
            meta.push((name, value));
        }
        Some(_) => {}
        None => members.push(("_meta", Json::Object(vec![(name, value)]))),
    }
}

/// The sentences as JSON, and the position where they are inserted.
#[derive(Debug, Default)]
pub(super) struct Advice {
    blocks: Vec<String>,
    /// All sentences as one text.
    text: String,
    /// The error message with the sentences before it.
    message: Option<String>,
}

impl Advice {
    pub fn new(answer: &Json<'_>, sentences: &[String]) -> Self {
        if sentences.is_empty() {
            return Self::default();
        }
        let text = json::escape_text(&sentences.join("\n"));
        let message = match answer.member("error").and_then(|error| error.member("message")) {
            Some(Json::String(raw)) => Some(format!("{text}\\n\\n{raw}")),
            _ => None,
        };
        Self { blocks: sentences.iter().map(|text| json::escape_text(text)).collect(), text, message }
    }

    /// Inserts the sentences. `is_call`: a tool's result, which may have content.
    pub fn put<'a>(&'a self, answer: &mut Json<'a>, is_call: bool) {
        if self.blocks.is_empty() {
            return;
        }
        let string = Json::String;
        let block = |text: &'a String| Json::Object(vec![("type", string("text")), ("text", string(text))]);
        if let (Some(message), Some(error)) = (&self.message, answer.member_mut("error")) {
            if let Some(place) = error.member_mut("message") {
                *place = string(message);
            }
            return;
        }
        let Some(result) = answer.member_mut("result") else { return };
        if let Some(Json::Array(items)) = result.member_mut("content") {
            items.splice(0..0, self.blocks.iter().map(block));
        } else if let Some(Json::Array(messages)) = result.member_mut("messages") {
            let message =
                |text: &'a String| Json::Object(vec![("role", string("user")), ("content", block(text))]);
            messages.splice(0..0, self.blocks.iter().map(message));
        } else if let Some(Json::Array(contents)) = result.member_mut("contents") {
            let uri = contents.first().and_then(|first| first.member("uri")).cloned();
            let uri = uri.unwrap_or(string("agentsh:advisory"));
            let content = |text: &'a String| {
                Json::Object(vec![
                    ("uri", uri.clone()),
                    ("mimeType", string("text/plain")),
                    ("text", string(text)),
                ])
            };
            let blocks: Vec<Json<'a>> = self.blocks.iter().map(content).collect();
            contents.splice(0..0, blocks);
        } else if let Json::Object(members) = result {
            if is_call && !members.iter().any(|(name, _)| json::unescape(name) == "content") {
                members.push(("content", Json::Array(self.blocks.iter().map(block).collect())));
                return;
            }
            put_meta(members, META, string(&self.text));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn put(answer: &str, is_call: bool) -> String {
        let mut answer = json::read(answer.as_bytes()).unwrap();
        let advice = Advice::new(&answer, &["mind \"it\"".to_owned()]);
        advice.put(&mut answer, is_call);
        answer.to_compact()
    }

    #[test]
    fn advice_can_be_added_to_every_answer() {
        for (answer, is_call, expected) in [
            (
                r#"{"result":{"content":[{"type":"text","text":"x"}]}}"#,
                true,
                r#"{"result":{"content":[{"type":"text","text":"mind \"it\""},{"type":"text","text":"x"}]}}"#,
            ),
            (
                r#"{"result":{"messages":[]}}"#,
                false,
                r#"{"result":{"messages":[{"role":"user","content":{"type":"text","text":"mind \"it\""}}]}}"#,
            ),
            (
                r#"{"result":{"contents":[{"uri":"a:b","text":"x"}]}}"#,
                false,
                r#"{"result":{"contents":[{"uri":"a:b","mimeType":"text/plain","text":"mind \"it\""},{"uri":"a:b","text":"x"}]}}"#,
            ),
            (
                r#"{"result":{"structuredContent":{"a":1}}}"#,
                true,
                r#"{"result":{"structuredContent":{"a":1},"content":[{"type":"text","text":"mind \"it\""}]}}"#,
            ),
            (
                r#"{"error":{"code":1,"message":"x\n"}}"#,
                true,
                r#"{"error":{"code":1,"message":"mind \"it\"\n\nx\n"}}"#,
            ),
            (
                r#"{"result":{"completion":{"values":[]},"_meta":{"a":1}}}"#,
                false,
                r#"{"result":{"completion":{"values":[]},"_meta":{"a":1,"agentsh/advisory":"mind \"it\""}}}"#,
            ),
        ] {
            assert_eq!(put(answer, is_call), expected);
        }
    }
}
