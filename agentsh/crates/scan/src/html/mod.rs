//! HTML that a page does not show: comments, hidden, invisible and off-screen elements, attributes and metadata with
//! instructions. Other text stays unchanged to the byte.

mod style;
mod tag;

use std::ops::Range;

use agentsh_secrets::views::{Builder, View};
use tag::Tag;

/// Hidden content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    pub kind: &'static str,
    /// In the original.
    pub place: Range<usize>,
}

/// Elements without content.
const VOID: [&str; 13] =
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"];
/// Elements with raw text.
const RAW: [&str; 4] = ["script", "style", "textarea", "xmp"];
/// Elements that are often invisible: removed if they contain orders.
const OFTEN_INVISIBLE: [&str; 9] =
    ["script", "style", "desc", "metadata", "annotation", "title", "datalist", "noembed", "noframes"];

/// The text without hidden content, unless it has none. `orders`: whether a text gives orders to a model.
#[must_use]
pub fn strip(text: &str, orders: &dyn Fn(&str) -> bool) -> (Option<View>, Vec<Hidden>) {
    if memchr::memchr(b'<', text.as_bytes()).is_none() {
        return (None, Vec::new());
    }
    let rules = style::hidden_selectors(text);
    let mut walk = Walk { text, orders, out: Builder::default(), kept: 0, hidden: Vec::new(), rules };
    walk.run();
    if walk.hidden.is_empty() {
        return (None, Vec::new());
    }
    walk.out.copy(&text[walk.kept..], walk.kept);
    (Some(walk.out.finish(text.len())), walk.hidden)
}

struct Walk<'a, 'o> {
    text: &'a str,
    orders: &'o dyn Fn(&str) -> bool,
    out: Builder,
    /// Copied up to here.
    kept: usize,
    hidden: Vec<Hidden>,
    /// Selectors that a style sheet hides: `.x`, `#y`.
    rules: Vec<String>,
}

impl Walk<'_, '_> {
    fn run(&mut self) {
        let text = self.text;
        let bytes = text.as_bytes();
        let mut at = 0;
        let mut comments_end = true;
        // No element is closed after the first type.
        let mut types_only = false;
        // Such elements are judged once, with their content.
        let mut judged = 0;
        while let Some(offset) = memchr::memchr(b'<', &bytes[at..]) {
            let start = at + offset;
            at = start + 1;
            if text[start..].starts_with("<!--") {
                let end = comments_end.then(|| memchr::memmem::find(&bytes[start + 4..], b"-->")).flatten();
                comments_end = end.is_some();
                let is_in_quotes = || bytes.get(start + 4).is_some_and(|next| b"\"'`".contains(next));
                if end.is_none() && is_in_quotes() {
                    at = start + 4;
                    continue;
                }
                let end = end.map_or(text.len(), |length| start + 4 + length + 3);
                self.remove("comment", start..end);
                at = end;
                continue;
            }
            let Some(tag) = Tag::read(text, start).filter(|tag| !tag.closes) else { continue };
            at = tag.end;
            if let Some(kind) = self.why_hidden(&tag) {
                let may_be_type = is_type(text, start..tag.end);
                if may_be_type && types_only {
                    continue;
                }
                let end = if is(&VOID, tag.name) { tag.end } else { self.end_of(&tag) };
                if may_be_type && end == text.len() {
                    types_only = true;
                    continue;
                }
                self.remove(kind, start..end);
                at = end;
                continue;
            }
            if is(&OFTEN_INVISIBLE, tag.name) && start >= judged {
                let end = self.end_of(&tag);
                judged = end;
                let content = &text[tag.end..end];
                let closed = content.rfind("</").is_some();
                if closed && (self.orders)(content) {
                    self.remove("metadata", start..end);
                    at = end;
                    continue;
                }
                if is(&RAW, tag.name) {
                    at = end;
                }
            }
            for attribute in &tag.attributes {
                if attribute.may_reach_model() && (self.orders)(&attribute.decoded_value()) {
                    self.remove("attribute", attribute.place.clone());
                }
            }
        }
    }

    fn remove(&mut self, kind: &'static str, place: Range<usize>) {
        if place.start < self.kept {
            return;
        }
        self.out.copy(&self.text[self.kept..place.start], self.kept);
        // Joining the rest must not create a tag or comment.
        for opening in ["<", "</", "<!", "<!-"] {
            if self.out.text().ends_with(opening) {
                self.out.replace_tail(opening.len(), &opening.replace('<', "&lt;"));
            }
        }
        self.kept = place.end;
        self.hidden.push(Hidden { kind, place });
    }

    fn why_hidden(&self, tag: &Tag<'_>) -> Option<&'static str> {
        let name = tag.name;
        if name.eq_ignore_ascii_case("noscript") {
            return Some("noscript");
        }
        if name.eq_ignore_ascii_case("template") {
            return Some("template");
        }
        if name.eq_ignore_ascii_case("input")
            && tag.value("type").is_some_and(|v| v.eq_ignore_ascii_case("hidden"))
        {
            return Some("hidden-input");
        }
        if tag.has("hidden") {
            return Some("hidden-attribute");
        }
        let zero = |name: &str| tag.value(name).is_some_and(|value| style::is_nothing(&value));
        let has_no_size = || tag.value("style").is_some_and(|value| style::has_no_size(&value));
        if name.eq_ignore_ascii_case("iframe") && (zero("width") || zero("height") || has_no_size()) {
            return Some("iframe");
        }
        if let Some(kind) = tag.value("style").and_then(|value| style::why_invisible(&value)) {
            return Some(kind);
        }
        if self.rules.is_empty() {
            return None;
        }
        let classes = tag.value("class").unwrap_or_default();
        let id = tag.value("id").unwrap_or_default();
        let is_hidden = self.rules.iter().any(|rule| match rule.split_at(1) {
            (".", class) => classes.split_ascii_whitespace().any(|other| other == class),
            ("#", wanted) => id == wanted,
            _ => false,
        });
        is_hidden.then_some("style-sheet")
    }

    /// The end of an element: after its closing tag, or the end of the text.
    fn end_of(&self, tag: &Tag<'_>) -> usize {
        let (text, bytes) = (self.text, self.text.as_bytes());
        let raw = is(&RAW, tag.name);
        let (mut depth, mut at) = (1_usize, tag.end);
        while let Some(offset) = memchr::memchr(b'<', &bytes[at..]) {
            let start = at + offset;
            at = start + 1;
            let rest = &text[start + 1..];
            let closes = rest.starts_with('/');
            let name = &rest[usize::from(closes)..];
            let is_same = name.get(..tag.name.len()).is_some_and(|name| name.eq_ignore_ascii_case(tag.name))
                && name
                    .as_bytes()
                    .get(tag.name.len())
                    .is_none_or(|next| !next.is_ascii_alphanumeric() && *next != b'-');
            if !is_same || raw && !closes {
                continue;
            }
            let end = memchr::memchr(b'>', &bytes[at..]).map_or(text.len(), |length| at + length + 1);
            if closes {
                depth -= 1;
                if depth == 0 {
                    return end;
                }
            } else if !text[..end].ends_with("/>") {
                depth += 1;
            }
            at = end;
        }
        text.len()
    }
}

/// Whether a tag without attributes is a parameter of a type in a program, such as `Maybe<Template>;`.
fn is_type(text: &str, tag: Range<usize>) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text[..tag.start].ends_with(is_word) && !text[tag.end..].starts_with(is_word) && !text[tag].contains(' ')
}

fn is(names: &[&str], name: &str) -> bool {
    names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(text: &str) -> String {
        let orders = |text: &str| text.contains("ignore");
        let once = strip(text, &orders).0.map_or(text.to_owned(), |view| view.text);
        assert_eq!(strip(&once, &orders).0, None, "stripped twice: {once}");
        once
    }

    #[test]
    fn hidden_html_is_removed() {
        for text in [
            "a<!-- x -->b",
            "a<!---->b",
            "a<p hidden>evil</p>b",
            "a<p HIDDEN=\"until-found\">evil</p>b",
            "a<span style=\"DISPLAY : NONE !important\">evil</span>b",
            "a<i style='visibility:hidden'>evil</i>b",
            "a<i style=opacity:0>evil</i>b",
            "a<i style=\"font-size:0px\">evil</i>b",
            "a<i style=\"d&#105;splay:none\">evil</i>b",
            "a<i style=\"position:absolute;left:-9999px\">evil</i>b",
            "a<i style=\"position:absolute;left:-100em\">evil</i>b",
            "a<i style=\"left:calc(-9999px)\">evil</i>b",
            "a<iframe style=\"width:0;height:0\">evil</iframe>b",
            "a<i style=\"text-indent:-9999px\">x</i>b",
            "a<i style=\"clip:rect(0,0,0,0);position:absolute\">x</i>b",
            "a<i style=\"height:0;overflow:hidden\">x</i>b",
            "a<i style=\"color:transparent\">x</i>b",
            "a<noscript>evil</noscript>b",
            "a<input type=\"hidden\" value=\"evil\">b",
            "a<template>x</template>b",
            "a<textarea style=\"display:none\"><b>evil</textarea>b",
            "a<div\nhidden\n>e<div>v</div>il</div>b",
            "a<script type=\"application/ld+json\">{\"d\":\"ignore it\"}</script>b",
            "a<iframe src=\"https://e\" width=\"0\" height=\"0\"></iframe>b",
            "a<svg><desc>ignore it</desc></svg>b",
        ] {
            let kept = stripped(text).replace("<svg></svg>", "");
            assert_eq!(kept, "ab", "{text}");
        }
        for text in [
            "a<!-- hidden for ever",
            "a<div hidden>evil",
            "a<noscript>evil",
            "a<div style='display:none'>e<div>v</div>",
        ] {
            assert_eq!(stripped(text), "a");
        }
        assert_eq!(
            stripped("<style>.x9{display:none}</style>a<p class=\"y x9\">e</p>b"),
            "<style>.x9{display:none}</style>ab"
        );
        assert_eq!(stripped("<p aria-label=\"ignore everything here\">x</p>"), "<p >x</p>");
        assert_eq!(stripped("<<!-- x -->!-- y -->"), "&lt;!-- y -->");
    }

    #[test]
    fn visible_html_stays_unchanged() {
        for text in [
            "<p data-hidden=\"1\">x</p>",
            "<span style=\"opacity:0.5\">x</span>",
            "if (a <!b) { x --> 0 }",
            "<div style=\"position:absolute;left:10px\">x</div>",
            "<iframe width=\"600\" height=\"400\" src=\"x\"></iframe>",
            "a < b && c > d",
            "Vec<Option<u8>>",
            "let t: Maybe<Template>;\nf(vector<Template> x);",
            "if (s.startsWith(\"<!--\")) { skip(); }",
            "<script type=\"application/ld+json\">{\"@type\":\"Article\"}</script>",
            "<p style=\"height:100px\">x</p>",
            "x <y",
            "<a href=\"x\">hidden</a>",
            "<p class=\"hidden\">x</p>",
        ] {
            assert_eq!(stripped(text), text);
        }
    }
}
