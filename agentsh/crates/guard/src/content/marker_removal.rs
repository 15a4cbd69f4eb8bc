//! Removes markers from everything that a server receives.

use crate::decision::Rewrite;
use crate::json::{Json, escape_text, has_lone_surrogate, unescape};

/// Begins every marker: word joiner.
const MARKER_START: char = '\u{2060}';
const ESCAPED_LEAD: &str = "\\u2060";

/// The members of a request's parameters that an agent writes. Names of tools and addresses are judged as they are
/// spelled, so they are forwarded as they are spelled.
const AGENT_WRITTEN_MEMBERS: [&str; 2] = ["arguments", "argument"];

/// The replacements for strings that contain a marker. `clean` returns a text without markers, or None if it has none.
pub fn marker_rewrites(value: &Json<'_>, clean: impl Fn(&str) -> Option<String>) -> Vec<Rewrite> {
    let mut found = Vec::new();
    collect_rewrites(value, &mut Vec::new(), &clean, &mut found);
    found
}

/// Like [`marker_rewrites`], for the parameters of a request.
pub fn unmarked_params(params: &Json<'_>, clean: impl Fn(&str) -> Option<String>) -> Vec<Rewrite> {
    let mut found = Vec::new();
    for (at, (name, value)) in params.as_object().unwrap_or_default().iter().enumerate() {
        if AGENT_WRITTEN_MEMBERS.iter().any(|written| unescape(name) == *written) {
            collect_rewrites(value, &mut vec![at], &clean, &mut found);
        }
    }
    found
}

fn collect_rewrites(
    value: &Json<'_>,
    path: &mut Vec<usize>,
    clean: &impl Fn(&str) -> Option<String>,
    found: &mut Vec<Rewrite>,
) {
    match value {
        Json::String(raw) if raw.contains(MARKER_START) || raw.contains(ESCAPED_LEAD) => {
            if let Some(spelled) = cleaned(raw, clean) {
                found.push(Rewrite { path: path.clone(), spelled });
            }
        }
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                path.push(at);
                collect_rewrites(item, path, clean, found);
                path.pop();
            }
        }
        Json::Object(members) => {
            for (at, (_, value)) in members.iter().enumerate() {
                path.push(at);
                collect_rewrites(value, path, clean, found);
                path.pop();
            }
        }
        Json::String(_) | Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// A string as it is between quotes, without markers. Its escapes may be spelled in another way then.
fn cleaned(raw: &str, clean: &impl Fn(&str) -> Option<String>) -> Option<String> {
    if !raw.contains('\\') || has_lone_surrogate(raw) {
        return clean(raw);
    }
    clean(&unescape(raw)).map(|text| escape_text(&text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::content::{mark_of, markable_texts};
    use agentsh_dlp::flow::{Config, Flow};
    use agentsh_dlp::taint::marker::Position;
    use agentsh_dlp::taint::{Leaves, Origin};

    /// A server gets its own text back as it sent it, without the markers that were put in.
    fn round_trip(flow: &mut Flow, texts: &[String], position: Position, random: u64, escape: bool) -> usize {
        let items: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        let said = json!({"jsonrpc": "2.0", "id": 1, "result": {"content": items}}).to_string();
        let mut answer = crate::json::read(said.as_bytes()).unwrap();
        let origin = Origin {
            server: crate::types::ServerId("one".to_owned()),
            tool: "read".to_owned(),
            call: "1".to_owned(),
            time: Duration::from_secs(1000),
            private: true,
        };
        let result = answer.member("result").unwrap();
        let id = flow.remember(origin, &Leaves::of(result), &agentsh_dlp::Views::NONE).id;
        let mark = |(item, text): (usize, std::borrow::Cow<'_, str>)| {
            mark_of(&answer, item, &flow.mark(id, &text, position, random)?)
        };
        let rewrites: Vec<Rewrite> = markable_texts(result, position).into_iter().filter_map(mark).collect();
        let count = rewrites.len();
        Rewrite::apply(&rewrites, &mut answer);
        let heard: Value = serde_json::from_str(&answer.to_compact()).unwrap();
        if count == 0 {
            assert_eq!(answer.to_compact(), said);
        }
        let texts: Vec<&Value> =
            heard["result"]["content"].as_array().unwrap().iter().map(|item| &item["text"]).collect();
        let mut call = json!({"id": 2, "method": "tools/call", "params": {"name": "w", "arguments": {"a": texts, "b": 7}}})
            .to_string();
        if escape {
            call = call
                .chars()
                .map(|character| match u32::from(character) {
                    code @ 0x80..=0xFFFF => format!("\\u{code:04x}"),
                    _ => character.to_string(),
                })
                .collect();
        }
        let mut tree = crate::json::read(call.as_bytes()).unwrap();
        let replaced = unmarked_params(tree.member("params").unwrap(), |text| flow.without_markers(text));
        assert_eq!(replaced.len(), count);
        Rewrite::apply(&replaced, tree.member_mut("params").unwrap());
        let handed: Value = serde_json::from_str(&tree.to_compact()).unwrap();
        let original: Value = serde_json::from_str(&said).unwrap();
        let said: Vec<&Value> =
            original["result"]["content"].as_array().unwrap().iter().map(|item| &item["text"]).collect();
        assert_eq!(handed["params"]["arguments"], json!({"a": said, "b": 7}));
        count
    }

    fn flow() -> Flow {
        Flow::new(Config::default(), &[9; 32])
    }

    #[test]
    fn marker_is_added_and_removed() {
        let prose = "The ferry leaves at nine, so please bring the tickets and \"something\" warm to wear.\nWho is late \
             waits for the next one, which is slower and does not call at the small islands.";
        for escape in [false, true] {
            for position in [Position::Suffix, Position::Prefix, Position::Both, Position::Between] {
                assert_eq!(round_trip(&mut flow(), &[prose.to_owned()], position, 5, escape), 1);
            }
        }
        assert_eq!(round_trip(&mut flow(), &["{\"a\":1}".to_owned()], Position::Suffix, 5, false), 0);
    }

    #[test]
    fn marker_removal_keeps_tool_names_and_foreign_markers() {
        let mut flow = flow();
        let call = "{\"id\":2,\"params\":{\"name\":\"a\u{2060}\u{fe01}\u{fe02}\u{fe03}\u{fe04}\",\"arguments\":{\"a\":\"b\u{2060}\u{fe01}\u{fe02}\u{fe03}\u{fe04}\"}}}";
        let mut tree = crate::json::read(call.as_bytes()).unwrap();
        let params = tree.member_mut("params").unwrap();
        assert_eq!(unmarked_params(params, |text| flow.without_markers(text)), []);
        let all = unmarked_params(params, |text| text.contains('\u{fe01}').then(String::new));
        assert_eq!(all, [Rewrite { path: vec![1, 0], spelled: String::new() }]);
        Rewrite::apply(&all, params);
        assert!(tree.to_compact().contains("\"name\":\"a\u{2060}"));
        let _ = flow.mark(agentsh_dlp::taint::OriginId(0), "", Position::Suffix, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn marking_then_handing_back_is_the_identity(
            texts in prop::collection::vec(prop_oneof![
                prop::collection::vec("[a-zA-Zéñ世\\\\\"]{1,9}[.,]?", 20..60).prop_map(|words| words.join(" ")),
                "(\\PC|[\u{2060}\u{fe00}-\u{fe0f}\n\"\\\\]){0,60}",
            ], 0..4),
            at in 0_usize..4, random: u64, escape: bool,
        ) {
            let positions = [Position::Suffix, Position::Prefix, Position::Both, Position::Between];
            round_trip(&mut flow(), &texts, positions[at], random, escape);
        }
    }
}
