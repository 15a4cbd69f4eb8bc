//! Turns: everything between two messages of the user. An agent sends its conversation with every request; a turn
//! begins when a known conversation has more user messages. Other conversations (a title, a subagent) belong to the
//! current turn.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::json::Json;
use crate::request::each_text;
use crate::route::Provider;

/// Limit of distinguished conversations; turns of others are unknown.
const MAX_COUNT: usize = 1024;

/// The identity of a request's conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// A hash of the user's first message.
    first: [u8; 32],
    /// User messages without tool results.
    messages: usize,
}

/// The turns of one session.
#[derive(Debug, Default)]
pub struct Turns {
    number: u64,
    known: BTreeMap<[u8; 32], usize>,
}

impl Turns {
    /// The turn of a request, from 1.
    pub fn number_turn(&mut self, said: Conversation) -> u64 {
        let is_first = self.known.is_empty();
        let has_room = self.known.len() < MAX_COUNT;
        match self.known.get_mut(&said.first) {
            Some(before) if said.messages > *before => {
                *before = said.messages;
                self.number += 1;
            }
            // A conversation may continue from an earlier point.
            Some(before) => *before = said.messages,
            None if has_room => {
                self.known.insert(said.first, said.messages);
                self.number += u64::from(is_first);
            }
            None => {}
        }
        self.number
    }
}

/// None: it has no messages.
pub(crate) fn read_conversation(provider: Provider, tree: &Json<'_>) -> Option<Conversation> {
    let (messages, inner) = match provider {
        Provider::Anthropic | Provider::OpenAiChat | Provider::Ollama => ("messages", "content"),
        Provider::OpenAiResponses => ("input", "content"),
        Provider::Google => ("contents", "parts"),
    };
    let messages = tree.member(messages)?;
    // A plain text is the user's whole message.
    let whole = std::slice::from_ref(messages);
    let mut first = None;
    let mut count = 0;
    for message in messages.as_array().unwrap_or(whole) {
        let content = match message {
            Json::String(_) => Some(message),
            _ if is_users(message) => message.member(inner).filter(|content| !has_result(content)),
            _ => None,
        };
        let Some(content) = content else { continue };
        count += 1;
        first.get_or_insert_with(|| {
            let mut hash = Sha256::new();
            each_text(Some(content), &mut |text| {
                hash.update(text.as_bytes());
                hash.update([0xff]);
            });
            hash.finalize().into()
        });
    }
    Some(Conversation { first: first?, messages: count })
}

fn is_users(message: &Json<'_>) -> bool {
    message.member("role").and_then(Json::as_text).is_some_and(|role| role == "user")
}

/// Tool results have the user's role at providers without another.
fn has_result(content: &Json<'_>) -> bool {
    content.as_array().unwrap_or_default().iter().any(|block| {
        block.member("functionResponse").is_some()
            || block.member("type").and_then(Json::as_text).is_some_and(|kind| kind == "tool_result")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::request::read;

    fn heard(turns: &mut Turns, provider: Provider, body: &str) -> u64 {
        turns.number_turn(read(provider, "/", body.as_bytes()).unwrap().said.unwrap())
    }

    #[test]
    fn results_of_tools_do_not_end_a_turn() {
        let call = r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{}}]}"#;
        let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"},{"type":"text","text":"remember"}]}"#;
        let user = r#"{"role":"user","content":[{"type":"text","text":"go on","cache_control":{"type":"ephemeral"}}]}"#;
        let first = r#"{"role":"user","content":"go on"}"#;
        let mut turns = Turns::default();
        let mut heard = |messages: &[&str]| {
            let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
            heard(&mut turns, Provider::Anthropic, &body)
        };
        assert_eq!(heard(&[first]), 1);
        assert_eq!(heard(&[first, call, result]), 1);
        assert_eq!(heard(&[first, call, result, call, result]), 1);
        assert_eq!(heard(&[user, call, result, call, result, user]), 2, "markers of a cache are no text");
        // A request for a title comes in between.
        assert_eq!(heard(&[r#"{"role":"user","content":"a title"}"#]), 2);
        assert_eq!(heard(&[first, call, result, call, result, user, call, result]), 2);
        assert_eq!(heard(&[first, call, result, call, result, user, call, result, user]), 3);
    }

    #[test]
    fn every_provider_has_turns() {
        for (provider, one, two) in [
            (
                Provider::OpenAiChat,
                r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"tool","content":"r"}]}"#,
                r#"{"messages":[{"role":"user","content":"a"},{"role":"tool","content":"r"},{"role":"user","content":"b"}]}"#,
            ),
            (
                Provider::OpenAiResponses,
                r#"{"input":[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call_output","output":"r"}]}"#,
                r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"role":"user","content":"b"}]}"#,
            ),
            (
                Provider::Google,
                r#"{"contents":[{"role":"user","parts":[{"text":"a"}]},{"role":"user","parts":[{"functionResponse":{}}]}]}"#,
                r#"{"contents":[{"role":"user","parts":[{"text":"a"}]},{"role":"user","parts":[{"text":"b"}]}]}"#,
            ),
        ] {
            let mut turns = Turns::default();
            assert_eq!(heard(&mut turns, provider, one), 1, "{provider:?}");
            assert_eq!(heard(&mut turns, provider, one), 1, "{provider:?}");
            assert_eq!(heard(&mut turns, provider, two), 2, "{provider:?}");
        }
        let mut turns = Turns::default();
        assert_eq!(heard(&mut turns, Provider::OpenAiResponses, r#"{"input":"a"}"#), 1);
        assert_eq!(read(Provider::Anthropic, "/", br#"{"model":"m"}"#).unwrap().said, None);
    }

    #[test]
    fn turn_memory_is_bounded() {
        let mut turns = Turns::default();
        for number in 0..MAX_COUNT + 10 {
            let mut first = [0; 32];
            first[..8].copy_from_slice(&number.to_le_bytes());
            turns.number_turn(Conversation { first, messages: 1 });
        }
        assert_eq!((turns.known.len(), turns.number), (MAX_COUNT, 1));
    }
}
