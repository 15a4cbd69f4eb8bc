//! Where a marker may be placed.

use std::borrow::Cow;

use crate::decision::Rewrite;
use crate::json::{Json, escape_text, has_lone_surrogate, unescape};
use agentsh_dlp::taint::marker;

/// The length of marked texts in bytes: from that of `@exfil/canary`, up to where writing a result again takes longer than
/// reading it.
const MARKED_LENGTHS: std::ops::RangeInclusive<usize> = 50..=1 << 20;
/// A text of fewer words is a name or a path with a space in it.
const MIN_WORDS: usize = 4;

/// The texts of a result that may carry a marker: their places in `content`, and what they say. None in a result that has
/// a structured twin, which a client may compare with the text.
#[must_use]
pub fn markable_texts<'j>(result: &'j Json<'_>, position: marker::Position) -> Vec<(usize, Cow<'j, str>)> {
    let items = result.member("content").and_then(Json::as_array);
    let items = items.filter(|_| result.member("structuredContent").is_none()).unwrap_or_default();
    let each = items.iter().enumerate().filter_map(|(at, item)| {
        if item.member("type").and_then(Json::as_text).as_deref() != Some("text") {
            return None;
        }
        match item.member("text")? {
            // Written again it would not be the same.
            Json::String(raw) if !MARKED_LENGTHS.contains(&raw.len()) || has_lone_surrogate(raw) => None,
            text => text
                .as_text()
                .filter(|text| text.split_whitespace().nth(MIN_WORDS - 1).is_some())
                .filter(|text| marker::unmarkable_reason(text, position).is_none())
                .map(|text| (at, text)),
        }
    });
    each.collect()
}

/// Puts `text` in place of the text of an item of `content`, in a whole answer.
#[must_use]
pub fn mark_of(answer: &Json<'_>, item: usize, text: &str) -> Option<Rewrite> {
    let (result_at, result) = member_at(answer, "result")?;
    let (content_at, content) = member_at(result, "content")?;
    let (text_at, _) = member_at(content.as_array()?.get(item)?, "text")?;
    Some(Rewrite { path: vec![result_at, content_at, item, text_at], spelled: escape_text(text) })
}

fn member_at<'j, 'a>(value: &'j Json<'a>, name: &str) -> Option<(usize, &'j Json<'a>)> {
    let members = value.as_object()?;
    let at = members.iter().position(|(other, _)| unescape(other) == name)?;
    members.get(at).map(|(_, value)| (at, value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    const PROSE: &str = "The ferry leaves at nine, so please bring the tickets and something warm to wear. Who is late \
                         waits for the next one, which is slower and does not call at the small islands.";

    fn places(result: &str) -> Vec<usize> {
        let text = result.replace("PROSE", PROSE);
        let tree = crate::json::read(text.as_bytes()).unwrap();
        markable_texts(&tree, marker::Position::Suffix).into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn marker_is_added_only_to_separate_prose() {
        assert_eq!(
            places(r#"{"content":[{"type":"text","text":"PROSE"},{"type":"text","text":"PROSE"}]}"#),
            [0, 1]
        );
        assert_eq!(
            places(
                r#"{"content":[{"type":"text","text":"{\"a\":\"PROSE\"}"},{"type":"text","text":"PROSE"}]}"#
            ),
            [1]
        );
        for other in [
            r#"{"content":[{"type":"text","text":"The ferry leaves at nine, so bring the tickets."}]}"#,
            r#"{"content":[{"type":"text","text":"PROSE"}],"structuredContent":{"text":"PROSE"}}"#,
            r#"{"structuredContent":{"text":"PROSE"}}"#,
            r#"{"content":[{"type":"text","text":"{\"a\": \"PROSE\"}"}]}"#,
            r#"{"content":[{"type":"text","text":"\"PROSE\""}]}"#,
            r#"{"content":[{"type":"text","text":"<p>PROSE</p>"}]}"#,
            r#"{"content":[{"type":"text","text":"PROSE\n```\nPROSE\n```"}]}"#,
            r#"{"content":[{"type":"text","text":"name, PROSE\nother, PROSE\nthird, PROSE"}]}"#,
            r#"{"content":[{"type":"text","text":"PROSE \ud800"}]}"#,
            r#"{"content":[{"type":"resource","resource":{"uri":"x:1","text":"PROSE"}}]}"#,
            r#"{"content":[{"type":"image","text":"PROSE"}]}"#,
            r#"{"contents":[{"type":"text","text":"PROSE"}]}"#,
            r#"{"messages":[{"content":{"type":"text","text":"PROSE"}}]}"#,
        ] {
            assert_eq!(places(other), Vec::<usize>::new(), "{other}");
        }
    }
}
