//! Letter shifts, reversal and the like over something encoded. They fit every text, so a sample decides whether
//! anything decodes behind one of them before the whole text is turned.

use super::Step;
use super::profile::Profile;
use super::views::Walk;

/// The words that are tried, and how much of each.
const WORDS: usize = 8;
const SAMPLE: usize = 160;
/// Words that are shorter hide nothing that could be told from chance.
const MIN_LENGTH: usize = 20;
/// More than an alphabet's decoder joins over.
const APART: &str = "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n";

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let marked = profile.upper() + profile.digits();
    if marked < 4 || text.len() < MIN_LENGTH {
        return;
    }
    let dense = marked * 5 > profile.letters_and_digits();
    walk.work(text.len());
    let samples = samples(text, dense);
    if samples.is_empty() {
        return;
    }
    let all = samples.join(APART);
    for step in [Step::Reversed, Step::Caesar(13), Step::Atbash, Step::Rot47, Step::SwappedCase] {
        if walk.decodes(&turned(step, &all)) {
            walk.found_text(step, &turned(step, text), 0..text.len());
        }
    }
    // The other 24 shifts are only tried on what looks like base64 of base64's own letters.
    let shifted: Vec<&str> = samples.iter().copied().filter(|word| is_mixed(word)).take(2).collect();
    if shifted.is_empty() {
        return;
    }
    let head = shifted.join(APART);
    for places in (1..26).filter(|places| *places != 13) {
        let step = Step::Caesar(places);
        if walk.decodes(&turned(step, &head)) {
            walk.found_text(step, &turned(step, text), 0..text.len());
        }
    }
}

/// The longest words; for a dense text also its beginning, middle and end.
fn samples(text: &str, dense: bool) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::with_capacity(WORDS + 1);
    for word in text.split_ascii_whitespace() {
        if word.len() < MIN_LENGTH
            || !word.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
        {
            continue;
        }
        let place = words.partition_point(|known| known.len() >= word.len());
        if place < WORDS {
            words.insert(place, word);
            words.truncate(WORDS);
        }
    }
    let mut samples: Vec<&str> = words.into_iter().map(|word| window(word, 0)).collect();
    if dense {
        let last = text.len().saturating_sub(SAMPLE);
        samples.extend([0, last / 2, last].map(|start| window(text, start)));
        samples.dedup();
    }
    samples.retain(|sample| sample.len() >= MIN_LENGTH);
    samples
}

fn window(text: &str, start: usize) -> &str {
    let (start, end) = (text.floor_char_boundary(start), text.floor_char_boundary(start + SAMPLE));
    &text[start..end]
}

fn is_mixed(word: &str) -> bool {
    let count = |is: fn(&u8) -> bool| word.bytes().filter(is).count();
    word.len() >= 24 && count(u8::is_ascii_uppercase) >= 3 && count(u8::is_ascii_lowercase) >= 3
}

/// `text` with one permutation undone.
#[must_use]
pub fn turned(step: Step, text: &str) -> String {
    match step {
        Step::Reversed => text.chars().rev().collect(),
        Step::Caesar(places) => map(text, |byte| rotate(byte, 26 - places % 26)),
        Step::Atbash => map(text, |byte| match byte {
            b'a'..=b'z' => b'a' + (b'z' - byte),
            b'A'..=b'Z' => b'A' + (b'Z' - byte),
            other => other,
        }),
        Step::SwappedCase => map(text, |byte| if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { byte }),
        _ => rot47(text),
    }
}

pub(super) fn rot47(text: &str) -> String {
    map(text, |byte| if (33..=126).contains(&byte) { 33 + (byte - 33 + 47) % 94 } else { byte })
}

fn rotate(byte: u8, places: u8) -> u8 {
    match byte {
        b'a'..=b'z' => b'a' + (byte - b'a' + places) % 26,
        b'A'..=b'Z' => b'A' + (byte - b'A' + places) % 26,
        other => other,
    }
}

/// Replaces ASCII bytes by ASCII bytes.
fn map(text: &str, replaced: impl Fn(u8) -> u8) -> String {
    let bytes = text.bytes().map(|byte| if byte.is_ascii() { replaced(byte) } else { byte }).collect();
    String::from_utf8(bytes).unwrap_or_default()
}
