//! Escapes text of untrusted processes for display.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with everything that a terminal would obey, or that a reader could not see, written as `\u{…}`: control
/// characters (line breaks too), ANSI escapes, bidirectional overrides, zero-width and tag characters.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            unsafe_one if is_unsafe(unsafe_one) => {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(unsafe_one));
            }
            plain => shown.push(plain),
        }
    }
    Cow::Owned(shown)
}

/// JSON text with the same characters as `\uXXXX`: the value stays what it was. Line breaks between the elements
/// of pretty-printed JSON stay.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    let foreign = |character: char| is_unsafe(character) && character != '\n';
    if !text.chars().any(foreign) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if foreign(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// At most `characters` of `text`, with `…` for what was cut.
#[must_use]
pub fn shorten(text: &str, characters: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters) {
        None => Cow::Borrowed(text),
        Some(_) => {
            let kept: String = text.chars().take(characters.saturating_sub(1)).collect();
            Cow::Owned(kept + "…")
        }
    }
}

/// Whether a terminal would obey a character, or a reader not see it.
#[must_use]
pub fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            u32::from(character),
            0xAD | 0x34F | 0x61C | 0x115F | 0x1160 | 0x17B4 | 0x17B5 | 0x180E | 0x200B..=0x200F | 0x2028..=0x202E
                | 0x2060..=0x206F | 0x2800 | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF9..=0xFFFB
                | 0xE0000..=0xE0FFF
        )
}

/// Whether a character looks like an ordinary space but is another one.
#[must_use]
pub fn is_odd_space(character: char) -> bool {
    matches!(u32::from(character), 0xA0 | 0x1680 | 0x2000..=0x200A | 0x202F | 0x205F | 0x3000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn control_and_invisible_characters_are_escaped_in_a_line() {
        let hostile = "a\u{1b}[31mred\u{9b}2J\r\n\t\u{202e}evil\u{200b}\u{e0041}\u{7f}";
        let shown = line(hostile);
        assert_eq!(shown, "a\\u{1b}[31mred\\u{9b}2J\\r\\n\\t\\u{202e}evil\\u{200b}\\u{e0041}\\u{7f}");
        assert!(matches!(line("schön 日本"), Cow::Borrowed(_)));
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!({"k": "a\u{1b}\u{9b}\u{202e}\u{e0041}\n", "n": [1, 2]});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = json(&text);
        assert!(shown.is_ascii());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn shortening_counts_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }
}
