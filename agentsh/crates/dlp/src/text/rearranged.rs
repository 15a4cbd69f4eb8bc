//! Plain text whose letters or words stand in another order or between others: words backwards, rot47, every second or
//! third letter. Cheap enough to be shown without a sign that they were used.

use super::Step;
use super::profile::Profile;
use super::upturned;
use super::walk::Walk;

/// Longer texts are not looked at for letters between letters: that would double the work on every document.
const MAX_INTERLEAVED: usize = 2048;

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
    if text.len() <= MAX_INTERLEAVED && text.len() >= 24 && profile.white() * 20 < text.len() {
        for every in [2, 3] {
            for offset in 0..every {
                let letters: String = text.chars().skip(offset).step_by(every).collect();
                walk.found_order(Step::Interleaved, &letters, whole.clone());
            }
        }
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
