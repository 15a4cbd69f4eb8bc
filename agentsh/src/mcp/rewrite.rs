//! Texts that are replaced on their way: markers go into results, and come out of what a server is handed.

use crate::guard::Rewrite;
use crate::json::{Json, has_lone_surrogate, spell, unescape};

/// Begins every marker: word joiner.
const LEAD: char = '\u{2060}';
const ESCAPED_LEAD: &str = "\\u2060";

/// What of a message an agent hands over: a member, and members of it; none stands for all. Names of tools and
/// addresses are judged as they are spelled, so they are forwarded as they are spelled.
pub(super) type Part = (&'static str, &'static [&'static str]);
pub(super) const REQUEST: Part = ("params", &["arguments", "argument"]);
pub(super) const ANSWER: Part = ("result", &[]);

/// A text that stands for another one: the how manieth string of a part it is, and how it is spelled between quotes.
pub(super) type Replaced = Vec<(usize, String)>;

/// The strings of a part that hold a marker, without it. `clean` gives a text without markers; None: it has none.
pub(super) fn unmarked(message: &Json<'_>, part: Part, clean: impl Fn(&str) -> Option<String>) -> Replaced {
    let mut found = Vec::new();
    let mut at = 0;
    for value in values(message, part) {
        each(value, &mut |raw| {
            if (raw.contains(LEAD) || raw.contains(ESCAPED_LEAD))
                && let Some(text) = cleaned(raw, &clean)
            {
                found.push((at, text));
            }
            at += 1;
        });
    }
    found
}

/// The message with these strings in place of its own.
pub(super) fn with<'a>(message: &Json<'a>, part: Part, replaced: &'a Replaced) -> Json<'a> {
    let mut message = message.clone();
    let mut left = replaced.iter();
    let mut next = left.next();
    let mut at = 0;
    let (name, members) = part;
    let Some(value) = message.member_mut(name) else { return message };
    let mut visit = |raw: &mut &'a str| {
        if let Some((_, text)) = next.filter(|(place, _)| *place == at) {
            *raw = text;
            next = left.next();
        }
        at += 1;
    };
    match members {
        [] => each_mut(value, &mut visit),
        members => {
            for member in members {
                if let Some(value) = value.member_mut(member) {
                    each_mut(value, &mut visit);
                }
            }
        }
    }
    message
}

/// How the texts of `content` that are replaced are spelled.
pub(super) fn spelled(rewrites: Vec<Rewrite>) -> Replaced {
    rewrites.into_iter().map(|Rewrite { item, text }| (item, spell(&text))).collect()
}

/// Puts them into the answer.
pub(super) fn apply<'a>(answer: &mut Json<'a>, spelled: &'a Replaced) {
    let content = answer.member_mut("result").and_then(|result| result.member_mut("content"));
    let Some(Json::Array(items)) = content else { return };
    for (item, text) in spelled {
        if let Some(place) = items.get_mut(*item).and_then(|item| item.member_mut("text")) {
            *place = Json::String(text);
        }
    }
}

/// A string as it stands between quotes, without markers. Its escapes may be spelled in another way then.
fn cleaned(raw: &str, clean: impl Fn(&str) -> Option<String>) -> Option<String> {
    if !raw.contains('\\') || has_lone_surrogate(raw) {
        return clean(raw);
    }
    clean(&unescape(raw)).map(|text| spell(&text))
}

fn values<'t, 'a>(message: &'t Json<'a>, (name, members): Part) -> Vec<&'t Json<'a>> {
    match (message.member(name), members) {
        (None, _) => Vec::new(),
        (Some(value), []) => vec![value],
        (Some(value), members) => members.iter().filter_map(|name| value.member(name)).collect(),
    }
}

fn each<'a>(value: &Json<'a>, visit: &mut dyn FnMut(&'a str)) {
    match value {
        Json::String(raw) => visit(raw),
        Json::Array(items) => items.iter().for_each(|item| each(item, visit)),
        Json::Object(members) => members.iter().for_each(|(_, value)| each(value, visit)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn each_mut<'a>(value: &mut Json<'a>, visit: &mut dyn FnMut(&mut &'a str)) {
    match value {
        Json::String(raw) => visit(raw),
        Json::Array(items) => items.iter_mut().for_each(|item| each_mut(item, visit)),
        Json::Object(members) => members.iter_mut().for_each(|(_, value)| each_mut(value, visit)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::guard::content::markable;
    use crate::guard::flow::{Config, Flow};
    use crate::guard::taint::marker::Position;
    use crate::guard::taint::{Leaves, Origin};

    /// What a server says comes back to it as what it said, whatever of it was marked.
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
        let id = flow.remember(origin, &Leaves::of(result), &crate::guard::taint::judge::Plain).id;
        let mark = |(item, text): (usize, std::borrow::Cow<'_, str>)| {
            Some(Rewrite { item, text: flow.mark(id, &text, position, random)? })
        };
        let rewrites: Vec<Rewrite> = markable(result).and_then(mark).into_iter().collect();
        let count = rewrites.len();
        let spelled = spelled(rewrites);
        apply(&mut answer, &spelled);
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
        let tree = crate::json::read(call.as_bytes()).unwrap();
        let replaced = unmarked(&tree, REQUEST, |text| flow.unmarked(text));
        assert_eq!(replaced.len(), count);
        let handed: Value = serde_json::from_str(&with(&tree, REQUEST, &replaced).to_compact()).unwrap();
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
    fn a_marker_goes_in_and_comes_out() {
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
    fn names_of_tools_and_markers_of_others_stay() {
        let mut flow = flow();
        let call = "{\"id\":2,\"params\":{\"name\":\"a\u{2060}\u{fe01}\u{fe02}\u{fe03}\u{fe04}\",\"arguments\":{\"a\":\"b\u{2060}\u{fe01}\u{fe02}\u{fe03}\u{fe04}\"}}}";
        let tree = crate::json::read(call.as_bytes()).unwrap();
        assert_eq!(unmarked(&tree, REQUEST, |text| flow.unmarked(text)), []);
        let all = unmarked(&tree, REQUEST, |text| text.contains('\u{fe01}').then(String::new));
        assert_eq!(all, [(0, String::new())]);
        assert!(with(&tree, REQUEST, &all).to_compact().contains("\"name\":\"a\u{2060}"));
        let _ = flow.mark(crate::guard::taint::OriginId(0), "", Position::Suffix, 0);
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
