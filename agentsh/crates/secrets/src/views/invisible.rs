//! Invisible characters: legitimate uses, and text smuggled in them.

use agentsh_base::ascii;

use super::view::{Builder, View};

/// An invisible character.
#[must_use]
pub fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e01ef}')
}

/// Bytes that begin an invisible character: nearly all other characters begin otherwise.
static BEGINS: [bool; 256] = {
    let mut table = [false; 256];
    let firsts = [0xc2, 0xcd, 0xd8, 0xe1, 0xe2, 0xe3, 0xef, 0xf0, 0xf3];
    let mut at = 0;
    while at < firsts.len() {
        table[firsts[at]] = true;
        at += 1;
    }
    table
};

/// Invisible characters and their places.
pub(super) fn invisible(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let bytes = text.as_bytes();
    let mut from = 0;
    let places = std::iter::from_fn(move || {
        loop {
            let byte = *bytes.get(from)?;
            if byte.is_ascii() {
                from += ascii::ascii_prefix_length(&bytes[from..]);
                continue;
            }
            from += 1;
            if BEGINS[usize::from(byte)] {
                return Some(from - 1);
            }
        }
    });
    let is_near = move |at: &usize| match bytes[*at] {
        0xc2 => bytes.get(at + 1) == Some(&0xad),
        0xe2 => bytes.get(at + 1).is_some_and(|next| matches!(next, 0x80 | 0x81)),
        _ => true,
    };
    let character = move |at| text.get(at..)?.chars().next().filter(|c| is_invisible(*c)).map(|c| (at, c));
    places.filter(is_near).filter_map(character)
}

/// Places of invisible characters that no script, emoji or flag needs, at most `limit`.
#[must_use]
pub fn suspicious(text: &str, limit: usize) -> Vec<std::ops::Range<usize>> {
    let mut places = Vec::new();
    let mut flags = memchr::memmem::find_iter(text.as_bytes(), "\u{1f3f4}").peekable();
    let (mut flag_until, mut right_to_left) = (0, None);
    // The preceding character, as far as read.
    let (mut read, mut before) = (0, None);
    for (at, character) in invisible(text) {
        while let Some(flag) = flags.next_if(|flag| *flag < at) {
            flag_until = flag + 4 + registered_flag(&text[flag + 4..]);
        }
        let is_modifier = |c: &char| matches!(c, '\u{fe0e}' | '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}');
        before = text[read..at].chars().rev().find(|c| !is_modifier(c)).or(before);
        read = at;
        if at < flag_until {
            continue;
        }
        let right_to_left = *right_to_left.get_or_insert_with(|| text.chars().any(is_right_to_left));
        if !is_honest(character, before, text[at..].chars().nth(1), right_to_left, at) {
            places.push(at..at + character.len_utf8());
            if places.len() >= limit {
                break;
            }
        }
    }
    places
}

fn is_honest(
    character: char,
    before: Option<char>,
    after: Option<char>,
    right_to_left: bool,
    at: usize,
) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| is_joining_script(c) || is_pictograph(c));
    match character {
        '\u{feff}' => at == 0,
        // Between emoji, and in joining scripts.
        '\u{200d}' => joins(before) && joins(after),
        '\u{200c}' => before.is_some_and(is_joining_script) || after.is_some_and(is_joining_script),
        // Direction marks are at changes of direction.
        '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2066}'..='\u{2069}' => right_to_left,
        '\u{fe0e}' | '\u{fe0f}' => {
            before.is_some_and(|c| is_pictograph(c) || is_keycap(c) || !c.is_alphanumeric())
        }
        '\u{fe00}'..='\u{fe02}' => before.is_some_and(|c| c > '\u{2190}'),
        '\u{e0100}'..='\u{e01ef}' => before.is_some_and(is_han),
        '\u{180b}'..='\u{180e}' => before.is_some_and(|c| matches!(c, '\u{1800}'..='\u{18af}')),
        '\u{115f}' | '\u{1160}' => after.is_some_and(|c| matches!(c, '\u{1100}'..='\u{11ff}')),
        '\u{17b4}' | '\u{17b5}' => before.is_some_and(|c| matches!(c, '\u{1780}'..='\u{17ff}')),
        _ => false,
    }
}

/// Length of the tags that make a black flag England's, Scotland's or Wales'.
fn registered_flag(rest: &str) -> usize {
    const FLAGS: [&str; 3] = ["gbeng", "gbsct", "gbwls"];
    let tags: String =
        rest.chars().take(6).filter_map(|c| char::from_u32((c as u32).checked_sub(0xe0000)?)).collect();
    let is_flag = tags.strip_suffix('\u{7f}').is_some_and(|name| FLAGS.contains(&name));
    if is_flag { rest.chars().take(6).map(char::len_utf8).sum() } else { 0 }
}

fn is_right_to_left(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{61b}' | '\u{61d}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{10800}'..='\u{10fff}')
}

fn is_joining_script(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{8ff}' | '\u{900}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{18af}'
        | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}

fn is_pictograph(c: char) -> bool {
    matches!(c, '\u{a9}' | '\u{ae}' | '\u{203c}'..='\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

fn is_keycap(c: char) -> bool {
    matches!(c, '0'..='9' | '#' | '*')
}

fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Texts encoded in tags, variation selectors or zero-width characters, and text reversed by a direction override.
#[must_use]
pub fn smuggled_texts(text: &str) -> Vec<View> {
    let (mut tags, mut selectors, mut bits) = (Builder::default(), Vec::new(), Vec::new());
    let mut place: Option<std::ops::Range<usize>> = None;
    let mut views = Vec::new();
    for (at, character) in invisible(text) {
        match character {
            '\u{e0020}'..='\u{e007e}' => {
                if let Some(plain) = char::from_u32(character as u32 - 0xe0000) {
                    tags.put(plain.encode_utf8(&mut [0; 4]), at);
                }
                continue;
            }
            '\u{fe00}'..='\u{fe0f}' => selectors.push((character as u32 - 0xfe00) as u8),
            '\u{e0100}'..='\u{e01ef}' => selectors.push((character as u32 - 0xe0100 + 16) as u8),
            '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' => bits.push(character),
            '\u{202e}' => {
                views.extend(backwards(text, at));
                continue;
            }
            _ => continue,
        }
        place.get_or_insert(at..at).end = at + character.len_utf8();
    }
    views.push(tags.finish(text.len()));
    if let Some(place) = place {
        views.push(View::standing_for(readable_text(&selectors), place.clone()));
        if let Some(first) = bits.first().filter(|_| bits.len() >= 48) {
            for one in [0, 1] {
                let values = bits.iter().map(|c| u8::from(c == first) ^ one).collect::<Vec<u8>>();
                let bytes: Vec<u8> = values
                    .chunks_exact(8)
                    .map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit))
                    .collect();
                views.push(View::standing_for(readable_text(&bytes), place.clone()));
            }
        }
    }
    views.retain(|view| view.text.len() >= 4);
    views
}

/// Empty if it is not text.
#[must_use]
pub fn readable_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let bad = text.chars().filter(|c| *c == '\u{fffd}' || c.is_control() && !c.is_whitespace()).count();
    if bad * 10 > text.chars().count() { String::new() } else { text.into_owned() }
}

/// Limit in bytes of text reversed by one override; later overrides are read separately.
const MAX_LENGTH: usize = 8192;

fn backwards(text: &str, at: usize) -> Option<View> {
    let start = at + '\u{202e}'.len_utf8();
    let limit = text.floor_char_boundary(text.len().min(start + MAX_LENGTH));
    let end = text[start..limit].find(['\u{202c}', '\u{202e}', '\n']).map_or(limit, |length| start + length);
    (end > start).then(|| View::standing_for(text[start..end].chars().rev().collect(), start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_of_scripts_and_emoji_are_no_finding() {
        for text in [
            "می\u{200c}خواهم",
            "\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f} Scotland",
            "👩\u{200d}👩\u{200d}👧\u{200d}👦 and 👨🏽\u{200d}💻 and 🏳\u{fe0f}\u{200d}🌈",
            "क\u{94d}\u{200d}ष श\u{94d}र\u{200c}ी",
            "\u{feff}text",
            "1\u{fe0f}\u{20e3} ❤\u{fe0f} ✓\u{fe0e}",
            "葛\u{e0100}城",
            "שלום\u{200f} abc",
            "عدد \u{61c}12-3",
            "plain",
        ] {
            assert!(suspicious(text, 9).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn byte_search_misses_no_invisible_character() {
        for character in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            let text = format!("{}{character}", "a".repeat(63));
            let found: Vec<_> = invisible(&text).collect();
            let wanted = is_invisible(character).then_some((63, character));
            assert_eq!(found, wanted.into_iter().collect::<Vec<_>>(), "{character:?}");
        }
    }

    #[test]
    fn invisible_characters_without_a_purpose_are_suspicious() {
        for character in "\u{200b}\u{200c}\u{200d}\u{200e}\u{ad}\u{2060}\u{2063}\u{202a}\u{202e}\u{2066}\u{2069}\u{34f}\u{61c}\u{e0001}\u{1d173}\u{fff9}\u{3164}\u{feff}\u{fe0f}\u{e0100}".chars() {
            assert_eq!(suspicious(&format!("ab{character}cd"), 9).len(), 1, "{character:?}");
        }
        // A black flag followed by arbitrary tags is not a flag.
        assert!(!suspicious("\u{1f3f4}\u{e0067}\u{e0062}\u{e0061}\u{e0061}\u{e0061}\u{e007f}", 9).is_empty());
    }
}
