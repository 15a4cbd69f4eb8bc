//! Plain text whose letters or words stand in another order, or are other letters: words backwards, rot47, letters upside
//! down. Cheap enough to be shown without a sign that they were used.

use super::Step;
use super::profile::Profile;
use super::upturned;
use super::walk::Walk;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let whole = 0..text.len();
    upturned::decode(text, walk);
    if looks_like_rot47(profile) {
        walk.found_text(Step::Rot47, &rot47(text), whole.clone());
    }
    if profile.white() >= 5 {
        walk.work(text.len());
        let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
        words.reverse();
        walk.found_order(Step::ReversedWords, &words.join(" "), whole.clone());
    }
}

/// Rot47 turns small letters into the signs and digits from `2` to `K`.
fn looks_like_rot47(profile: &Profile) -> bool {
    let turned = profile.range(b'2'..=b'K');
    let shown = profile.length - profile.white();
    let marks = shown - profile.letters_and_digits();
    shown >= 12
        && (turned * 10 >= shown * 7 && marks * 20 >= shown
            || shown <= 128 && profile.white() == 0 && marks * 6 >= shown)
}

fn rot47(text: &str) -> String {
    let turned = |c: char| match u8::try_from(c) {
        Ok(byte @ 33..=126) => char::from(33 + (byte - 33 + 47) % 94),
        _ => c,
    };
    text.chars().map(turned).collect()
}
