//! Writes HTML and escapes it: names of elements and attributes are constants, everything else is text.

use crate::Href;
use crate::escape::{is_odd_space, is_unsafe};

/// A piece of a page.
#[derive(Debug, Default)]
pub struct Html {
    text: String,
    /// The page is a single file: its links are written as text.
    is_alone: bool,
}

/// Digits of a hash that are shown.
const SHOWN_DIGITS: usize = 12;

/// Characters after which a word may be broken at a sign.
const WORD: usize = 16;

/// Attributes of an element: constant names, arbitrary values.
pub type Attributes<'a> = &'a [(&'static str, &'a str)];

impl Html {
    #[must_use]
    pub fn new(is_alone: bool) -> Self {
        Self { text: String::with_capacity(16 << 10), is_alone }
    }

    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }

    /// An element with what `inside` writes in it.
    pub fn element(
        &mut self,
        name: &'static str,
        attributes: Attributes<'_>,
        inside: impl FnOnce(&mut Self),
    ) {
        self.start(name, attributes);
        inside(self);
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// A void element, which has no content and no end tag.
    pub fn void_element(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.start(name, attributes);
    }

    /// An element with one text in it.
    pub fn leaf(&mut self, name: &'static str, class: &'static str, text: &str) {
        let attributes: Attributes<'_> = if class.is_empty() { &[] } else { &[("class", class)] };
        self.element(
            name,
            attributes,
            |html| if name == "title" { html.text_only(text) } else { html.text(text) },
        );
    }

    /// Untrusted text on one line: what would be markup, a line break or invisible is shown as what it is, and a hash by its
    /// first digits.
    pub fn text(&mut self, text: &str) {
        let mut rest = text;
        while let Some((before, hash, after)) = split_at_hash(rest) {
            self.write_visible(before, false);
            self.hash(hash);
            rest = after;
        }
        self.write_visible(rest, false);
    }

    /// Arbitrary text where no element is allowed: in a title, an option or a drawing.
    pub fn text_only(&mut self, text: &str) {
        for character in text.chars() {
            if is_unsafe(character) {
                self.text.push_str(&visible_form(character));
            } else {
                self.character(character);
            }
        }
    }

    /// A hash by its first digits; all of them are its title.
    pub fn hash(&mut self, hash: &str) {
        let digits = hash.rfind(':').map_or(0, |colon| colon + 1) + SHOWN_DIGITS;
        match hash.get(..digits).filter(|short| short.len() < hash.len()) {
            Some(short) => {
                self.element("code", &[("title", hash)], |html| html.text_only(&format!("{short}\u{2026}")));
            }
            None => self.code(hash),
        }
    }

    /// Like [`Html::text`], with line breaks. For the content of a `pre`.
    pub fn lines(&mut self, text: &str) {
        self.write_visible(text, true);
    }

    pub fn link(&mut self, to: &Href, text: &str) {
        if self.is_alone {
            return self.text(text);
        }
        self.element("a", &[("href", to.as_str())], |html| html.text(text));
    }

    /// A piece of a program or a policy, on one line.
    pub fn code(&mut self, text: &str) {
        self.element("code", &[], |html| html.write_visible(text, false));
    }

    /// Markup of this crate itself.
    pub(crate) fn trusted_markup(&mut self, markup: &'static str) {
        self.text.push_str(markup);
    }

    fn start(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.text.push('<');
        self.text.push_str(name);
        for (name, value) in attributes {
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            for character in value.chars() {
                // A form has to send the value back unchanged.
                if is_unsafe(character) && *name != "value" {
                    self.text.push_str(&visible_form(character));
                } else {
                    self.character(character);
                }
            }
            self.text.push('"');
        }
        self.text.push('>');
    }

    fn write_visible(&mut self, text: &str, keeps_lines: bool) {
        let mut unbroken = 0;
        for character in text.chars() {
            unbroken = if character == ' ' { 0 } else { unbroken + 1 };
            if keeps_lines && matches!(character, '\n' | '\t') {
                self.text.push(character);
            } else if is_unsafe(character) || is_odd_space(character) {
                self.text.push_str("<span class=\"unseen\">");
                self.text.push_str(&visible_form(character));
                self.text.push_str("</span>");
            } else {
                self.character(character);
                // A path or a key may be broken there, and not within a word.
                if !keeps_lines && unbroken > WORD && matches!(character, '/' | '.' | '_' | ':' | ',' | '=') {
                    self.text.push_str("<wbr>");
                    unbroken = 0;
                }
            }
        }
    }

    fn character(&mut self, character: char) {
        match character {
            '&' => self.text.push_str("&amp;"),
            '<' => self.text.push_str("&lt;"),
            '>' => self.text.push_str("&gt;"),
            '"' => self.text.push_str("&quot;"),
            '\'' => self.text.push_str("&#39;"),
            other => self.text.push(other),
        }
    }
}

/// The text before the first hash, the hash with the name of its algorithm, and the text after it.
fn split_at_hash(text: &str) -> Option<(&str, &str, &str)> {
    let mut start = 0;
    loop {
        start += text.get(start..)?.find(|c: char| c.is_ascii_hexdigit())?;
        let rest = text.get(start..)?;
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        let before = text.get(..start)?;
        if matches!(length, 40 | 64)
            && !before.ends_with(char::is_alphanumeric)
            && word.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            let before = before.strip_suffix("sha256:").unwrap_or(before);
            return Some((before, text.get(before.len()..start + length)?, after));
        }
        start += length.max(1);
    }
}

/// How a character is shown that could not be seen.
fn visible_form(character: char) -> String {
    match character {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        other => format!("\\u{{{:x}}}", u32::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_text_and_attributes_are_escaped() {
        let hostile = "<script>alert(1)</script>\"'&\u{202e}\u{0}\n\u{a0}é";
        let mut html = Html::new(false);
        html.element("p", &[("title", hostile)], |html| html.text(hostile));
        let text = html.finish();
        assert_eq!(
            text,
            "<p title=\"&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\\u{202e}\\u{0}\\n\u{a0}é\">\
             &lt;script&gt;alert(1)&lt;/<wbr>script&gt;&quot;&#39;&amp;<span class=\"unseen\">\\u{202e}</span>\
             <span class=\"unseen\">\\u{0}</span><span class=\"unseen\">\\n</span><span class=\"unseen\">\\u{a0}</span>é</p>"
        );
    }

    #[test]
    fn a_hash_is_short_and_whole_in_its_title_and_a_long_path_breaks_at_its_signs() {
        let hash = "0123456789abcdef".repeat(4);
        let mut html = Html::new(false);
        html.text(&format!("was sha256:{hash}, is {} in /home/somebody/a_project/x", &hash[..40]));
        html.code(&hash);
        let short = "0123456789ab\u{2026}</code>";
        assert_eq!(
            html.finish(),
            format!(
                "was <code title=\"sha256:{hash}\">sha256:{short}, is <code title=\"{}\">{short} in \
                 /home/somebody/a_<wbr>project/x<code>{hash}</code>",
                &hash[..40]
            )
        );
        for other in ["x".repeat(64), format!("g{hash}"), hash[..41].to_owned()] {
            assert_eq!(split_at_hash(&other), None);
        }
    }

    #[test]
    fn form_value_keeps_invisible_characters() {
        let mut html = Html::new(false);
        html.void_element("input", &[("value", "a\u{200b}\"b")]);
        assert_eq!(html.finish(), "<input value=\"a\u{200b}&quot;b\">");
    }

    #[test]
    fn standalone_page_has_no_links() {
        let mut html = Html::new(true);
        html.link(&Href::to(&["server", "x"]), "x");
        assert_eq!(html.finish(), "x");
    }
}
