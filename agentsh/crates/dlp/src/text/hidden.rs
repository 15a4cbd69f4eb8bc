//! Text in characters that show nothing (tags, variation selectors), and encoded text in wide or styled letters.

use unicode_normalization::UnicodeNormalization;

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.high() < 12 {
        return;
    }
    // The first bytes of the characters that are looked for: tags and selectors, zero-width and fullwidth, styled.
    if !profile.any(&[0xf3, 0xe2, 0xef, 0xf0, 0xcc, 0xcd]) {
        return;
    }
    walk.work(text.len());
    let (mut tags, mut selectors) = (String::new(), Vec::new());
    let (mut plain, mut styled) = (String::new(), 0_usize);
    let mut place: Option<std::ops::Range<usize>> = None;
    for (position, character) in text.char_indices() {
        if character.is_ascii() {
            plain.push(character);
            continue;
        }
        let mut hidden = true;
        match character {
            '\u{e0020}'..='\u{e007e}' => tags.extend(char::from_u32(character as u32 - 0xe0000)),
            '\u{fe00}'..='\u{fe0f}' => selectors.extend(u8::try_from(character as u32 - 0xfe00)),
            '\u{e0100}'..='\u{e01ef}' => selectors.extend(u8::try_from(character as u32 - 0xe0100 + 16)),
            '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{180e}' => {}
            '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}' | '\u{2460}'..='\u{24ff}' => {
                plain.extend(std::iter::once(character).nfkc());
                styled += 1;
            }
            other => {
                plain.push(other);
                hidden = false;
            }
        }
        if hidden {
            place.get_or_insert(position..position).end = position + character.len_utf8();
        }
    }
    let Some(at) = place else { return };
    walk.found_text(Step::Invisible, &tags, at.clone());
    walk.found_bytes(Step::Invisible, &selectors, at.clone());
    if styled >= 8 {
        walk.found_text(Step::Invisible, &plain, at);
    }
}
