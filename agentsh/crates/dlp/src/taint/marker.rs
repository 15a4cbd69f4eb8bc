//! A short invisible marker in prose: five characters that copies keep and readers do not see.

use std::ops::Range;

pub use crate::policy::MarkerPlace as Position;

/// Begins a marker: word joiner.
const LEAD: char = '\u{2060}';
/// A marker's number is written in these, four bits each.
const FIRST_DIGIT: u32 = 0xFE00;
const DIGITS: usize = 4;
/// Bytes of a marker in UTF-8.
const LENGTH: usize = 3 * (DIGITS + 1);
/// So many digits in a row without a lead are a damaged marker: ordinary text has at most one, after a character.
const MIN_PARTIAL: usize = 3;
/// Shortest text that is marked, in bytes and in words.
const MIN_TEXT: usize = 50;
const MIN_WORDS: usize = 8;

/// A marker in a text, whole or what is left of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// None for a damaged one. One that stands backwards, as a whole text may, is whole.
    pub number: Option<u16>,
    /// Bytes of the text.
    pub at: Range<usize>,
}

/// The text with the marker in it. None when it is [`unmarkable_reason`]. `random`: any number, for [`Position::Between`].
#[must_use]
pub fn mark(text: &str, number: u16, position: Position, random: u64) -> Option<String> {
    if unmarkable_reason(text, position).is_some() {
        return None;
    }
    let marker = marker_text(number);
    Some(match position {
        Position::Suffix => format!("{text}{marker}"),
        Position::Prefix => format!("{marker}{text}"),
        Position::Both => format!("{marker}{text}{marker}"),
        Position::Between => {
            let spaces = memchr::memchr_iter(b' ', text.as_bytes()).count();
            let chosen = (random % spaces.max(1) as u64) as usize;
            let at = memchr::memchr_iter(b' ', text.as_bytes()).nth(chosen).unwrap_or(0);
            format!("{}{marker}{}", &text[..at], &text[at..])
        }
    })
}

/// The text without the markers that `is_ours` knows. None when there is none.
#[must_use]
pub fn strip(text: &str, is_ours: impl Fn(u16) -> bool) -> Option<String> {
    let mut stripped = String::new();
    let mut from = 0;
    for mark in find(text) {
        if mark.number.is_some_and(&is_ours) {
            stripped.push_str(&text[from..mark.at.start]);
            from = mark.at.end;
        }
    }
    (from > 0).then(|| stripped + &text[from..])
}

/// Every marker in the text, whole or damaged.
#[must_use]
pub fn find(text: &str) -> Vec<Mark> {
    let mut marks = Vec::new();
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(at) = memchr::memchr2(0xE2, 0xEF, &bytes[from..]).map(|offset| from + offset) {
        let rest = &text[at..];
        let has_lead = rest.starts_with(LEAD);
        let digits =
            rest[if has_lead { 3 } else { 0 }..].chars().map_while(digit).take(64).collect::<Vec<_>>();
        let length = digits.len() * 3 + if has_lead { 3 } else { 0 };
        from = at + length.max(3);
        if has_lead && digits.len() >= DIGITS {
            let number = digits[..DIGITS].iter().fold(0, |number, digit| number << 4 | digit);
            marks.push(Mark { number: Some(number), at: at..at + LENGTH });
            from = at + LENGTH;
        } else if digits.len() >= DIGITS && text[from..].starts_with(LEAD) {
            let number = digits.iter().rev().take(DIGITS).fold(0, |number, digit| number << 4 | digit);
            marks.push(Mark { number: Some(number), at: from - 3 * DIGITS..from });
        } else if digits.len() >= MIN_PARTIAL {
            marks.push(Mark { number: None, at: at..at + length });
        }
    }
    marks
}

/// Why a text carries no marker: a program that reads the text would read something else, or taking the marker out again
/// could not be exact. None: it may carry one.
#[must_use]
pub fn unmarkable_reason(text: &str, position: Position) -> Option<&'static str> {
    let trimmed = text.trim();
    let (Some(first), Some(last)) = (trimmed.chars().next(), trimmed.chars().next_back()) else {
        return Some("it is empty");
    };
    let begins = matches!(position, Position::Prefix | Position::Both);
    let lines = || trimmed.lines().map(str::trim_end);
    let is_code = |line: &str| {
        line.ends_with([';', '{', '}']) || [" = ", "=>", "->", "::"].iter().any(|sign| line.contains(sign))
    };
    if text.contains(|character| character == LEAD || digit(character).is_some()) {
        Some("it has such characters already")
    } else if !trimmed.contains(char::is_whitespace) {
        Some("it is one word, which may be a name, a number or an address")
    } else if matches!((first, last), ('{', '}') | ('[', ']') | ('"', '"')) {
        Some("it looks like JSON")
    } else if matches!(first, '<' | '%') {
        Some("it looks like markup")
    } else if first == '-' && trimmed.starts_with("---")
        || ["diff ", "@@ ", "#!"].iter().any(|start| trimmed.starts_with(start))
    {
        Some("it begins like a file format")
    } else if begins && !(first.is_alphanumeric() || first == '\'' || first == '(') {
        Some("its first character may be markup")
    } else if text.contains("```") || lines().any(|line| line.starts_with([' ', '\t']) || is_code(line)) {
        Some("it looks like code")
    } else if is_table(trimmed) {
        Some("it looks like a table")
    } else {
        let (letters, others) = weights(trimmed);
        (others * 2 > letters).then_some("it has more symbols and digits than words")
    }
}

/// Text that people read: no JSON, no XML, no code, no table, no list of numbers.
#[must_use]
pub fn is_prose(text: &str) -> bool {
    let trimmed = text.trim();
    if trimmed.len() < MIN_TEXT
        || trimmed.starts_with(['{', '[', '<', '"', '#', '%', '-'])
        || text.contains("```")
    {
        return false;
    }
    let (letters, others) = weights(trimmed);
    memchr::memchr_iter(b' ', trimmed.as_bytes()).count() >= MIN_WORDS
        && others * 8 <= letters
        && !trimmed.lines().any(|line| line.starts_with([' ', '\t']))
        && !is_table(trimmed)
}

/// Counts letters and other characters; signs that are rare in prose count four times.
fn weights(text: &str) -> (usize, usize) {
    let (mut letters, mut others) = (0_usize, 0_usize);
    for character in text.chars() {
        match character {
            ',' | '.' | '\'' | '!' | '?' | ':' | '-' | '(' | ')' => {}
            '{' | '}' | '<' | '>' | ';' | '=' | '|' | '\\' | '[' | ']' => others += 4,
            ' ' => {}
            other if other.is_alphabetic() => letters += 1,
            _ => others += 1,
        }
    }
    (letters, others)
}

/// Several lines with the same number of separators: another character would change the last field. Two sentences with a comma
/// each are not a table.
fn is_table(text: &str) -> bool {
    [(b',', 3), (b';', 2), (b'\t', 2), (b':', 2)].iter().any(|(separator, rows)| {
        let lines = text.lines().filter(|line| !line.is_empty());
        let mut counts = lines.map(|line| memchr::memchr_iter(*separator, line.as_bytes()).count());
        let first = counts.next().unwrap_or(0);
        let mut seen = 1;
        first > 0 && counts.inspect(|_| seen += 1).all(|count| count == first) && seen >= *rows
    })
}

fn marker_text(number: u16) -> String {
    let digits =
        (0..DIGITS).rev().filter_map(|at| char::from_u32(FIRST_DIGIT + u32::from(number >> (4 * at) & 15)));
    std::iter::once(LEAD).chain(digits).collect()
}

fn digit(character: char) -> Option<u16> {
    u16::try_from(u32::from(character).checked_sub(FIRST_DIGIT)?).ok().filter(|digit| *digit < 16)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    const PROSE: &str =
        "The committee met on Monday and agreed that nothing of it should be told to anybody outside.";
    const POSITIONS: [Position; 4] = [Position::Suffix, Position::Prefix, Position::Both, Position::Between];

    #[test]
    fn marker_is_added_to_prose_only() {
        assert!(is_prose(PROSE));
        for text in
            ["Lunch is at noon", "CONFIDENTIAL: Client=Acme Corp, key=sk-abc123...", "- bread\n- two onions"]
        {
            assert!(mark(text, 7, Position::Suffix, 0).is_some(), "{text}");
        }
        assert_eq!(mark("- bread\n- two onions", 7, Position::Prefix, 0), None);
        for text in [
            "{\"a\": \"one two three four five six seven eight nine ten eleven twelve\"}",
            "<p>one two three four five six seven eight nine ten eleven twelve thirteen</p>",
            "def one():\n    return two three four five six seven eight nine ten eleven twelve\n",
            "Here is code that you asked me for, use it as you like, my friend: ```x = 1```",
            "short",
            "let total = price * count",
            "\"a string\"",
            "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28",
        ] {
            assert_eq!(mark(text, 7, Position::Suffix, 0), None, "{text}");
        }
    }

    #[test]
    fn a_damaged_marker_is_still_seen_and_emoji_are_not() {
        let marked = mark(PROSE, 0xBEEF, Position::Suffix, 0).unwrap();
        assert_eq!(find(&marked)[0].number, Some(0xBEEF));
        assert_eq!(find(&marked.replace(LEAD, ""))[0].number, None);
        let mut cut = marked;
        cut.pop();
        assert_eq!(find(&cut)[0].number, None);
        let backwards: String = mark(PROSE, 0xBEEF, Position::Suffix, 0).unwrap().chars().rev().collect();
        assert_eq!(find(&backwards).iter().map(|mark| mark.number).collect::<Vec<_>>(), [Some(0xBEEF)]);
        assert_eq!(find("Great \u{2764}\u{fe0f} \u{2600}\u{fe0f}\u{2060} day"), []);
    }

    proptest! {
        #[test]
        fn marking_then_stripping_is_the_identity(
            words in proptest::collection::vec("[a-zA-Zéñ世]{1,9}[.,]?", 12..40),
            number: u16, random: u64, at in 0_usize..4,
        ) {
            let text = words.join(" ");
            if let Some(marked) = mark(&text, number, POSITIONS[at], random) {
                prop_assert_eq!(strip(&marked, |found| found == number).unwrap(), text);
                prop_assert_eq!(strip(&marked, |found| found != number), None);
            }
        }

        #[test]
        fn any_text_can_be_searched(text in "(\\PC|[\u{2060}\u{fe00}-\u{fe0f}]){0,60}") {
            for mark in find(&text) {
                prop_assert!(text.get(mark.at).is_some());
            }
        }
    }
}
