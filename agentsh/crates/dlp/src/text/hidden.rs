//! Text in characters that show nothing: tags, and variation selectors.

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    // The first bytes of tags and selectors, of which each is three or four.
    if profile.count(0xf3) + profile.count(0xef) < 4 {
        return;
    }
    walk.work(text.len());
    let (mut tags, mut selectors) = (String::new(), Vec::new());
    let mut place: Option<std::ops::Range<usize>> = None;
    for (position, character) in text.char_indices() {
        match character {
            '\u{e0020}'..='\u{e007e}' => tags.extend(char::from_u32(character as u32 - 0xe0000)),
            '\u{fe00}'..='\u{fe0f}' => selectors.extend(u8::try_from(character as u32 - 0xfe00)),
            '\u{e0100}'..='\u{e01ef}' => selectors.extend(u8::try_from(character as u32 - 0xe0100 + 16)),
            _ => continue,
        }
        place.get_or_insert(position..position).end = position + character.len_utf8();
    }
    let Some(at) = place else { return };
    walk.found_text(Step::Invisible, &tags, at.clone());
    walk.found_bytes(Step::Invisible, &selectors, at);
}
