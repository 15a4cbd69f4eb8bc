//! All decoded texts of a text, however nested, within limits.

use super::limits::{Limits, Outcome};
use super::profile::Profile;
use super::readable::MIN_LENGTH;
use super::runs::word_ranges;
use super::step::Step;
use super::walk::{View, Walk};
use super::{
    base85, encoded_words, escapes, hidden, interspersed, looks_encoded, morse, numbers, radix, rearranged,
};

/// Passes the text to `sink`, then every text that decodes from it.
///
/// Time and the bytes of all views are in proportion to the text (see [`Limits`]). What was left out is said in
/// the outcome.
pub fn visit(text: &str, limits: &Limits, sink: &mut dyn FnMut(View<'_>)) -> Outcome {
    sink(View { text, how: &[], at: 0..text.len() });
    let mut walk = Walk::new(text, limits, limits.max_view_bytes(text), expand, sink);
    expand(text, &mut walk);
    walk.outcome()
}

/// Like [`visit`], for what programs write for each other: escapes, base64 and hex. Without the text itself.
pub fn visit_plainly(text: &str, limits: &Limits, sink: &mut dyn FnMut(View<'_>)) {
    let mut walk = Walk::new(text, limits, limits.max_view_bytes(text), expand_plainly, sink);
    expand_plainly(text, &mut walk);
}

fn expand_plainly(text: &str, walk: &mut Walk<'_>) {
    if text.len() < MIN_LENGTH || !walk.is_outermost() && is_periodic(text.as_bytes()) {
        return;
    }
    let profile = Profile::of(text.as_bytes());
    escapes::decode(text, &profile, walk);
    let explained = radix::decode_base64(text, &profile, walk);
    if !is_all_base64(&profile, explained) {
        radix::decode_hex(text, &profile, &word_ranges(text.as_bytes()), walk);
    }
}

/// Gives `sink` a text in which nothing is encoded in other alphabets and orders. Not the text itself.
pub fn visit_orders(text: &str, limits: &Limits, sink: &mut dyn FnMut(View<'_>)) {
    if text.len() < MIN_LENGTH {
        return;
    }
    let mut walk = Walk::new(text, limits, text.len().saturating_mul(64), expand, sink);
    let profile = Profile::of(text.as_bytes());
    rearranged::decode(text, &profile, &mut walk);
}

/// Every decoder on one text.
fn expand(text: &str, walk: &mut Walk<'_>) {
    if text.len() < MIN_LENGTH || !walk.is_outermost() && is_periodic(text.as_bytes()) {
        return;
    }
    let profile = Profile::of(text.as_bytes());
    walk.work(text.len());
    // First, since what decodes by chance may be much.
    if walk.permutations() == 0 {
        rearranged::decode(text, &profile, walk);
    }
    if !walk.is_outermost() && !looks_encoded(text) {
        return;
    }
    escapes::decode(text, &profile, walk);
    hidden::decode(text, &profile, walk);
    decode_alphabets(text, &profile, walk);
    encoded_words::decode(text, &profile, walk);
    numbers::decode(text, &profile, walk);
    morse::decode(text, &profile, walk);
    if walk.last_step() != Some(Step::Interspersed) {
        interspersed::decode(text, &profile, walk);
    }
}

fn decode_alphabets(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let explained = radix::decode_base64(text, profile, walk);
    if is_all_base64(profile, explained) {
        return;
    }
    let words = word_ranges(text.as_bytes());
    radix::decode_hex(text, profile, &words, walk);
    radix::decode(text, profile, &words, walk);
    base85::decode(text, profile, walk);
}

/// Whether a text repeats one pattern of a few bytes: decoding it is useless.
fn is_periodic(bytes: &[u8]) -> bool {
    // A bound on time: each period is one more comparison with the whole text.
    const MAX_LENGTH: usize = 8;
    // Fewer repetitions are a repeated word.
    const REPEATS: usize = 4;
    let longest = MAX_LENGTH.min(bytes.len() / REPEATS);
    (1..=longest).any(|period| bytes[period..] == bytes[..bytes.len() - period])
}

/// Whether a text is entirely base64, judged by the number of its symbols that decode to text. A few may be left over
/// at its ends, fewer than could hide a secret in another alphabet.
fn is_all_base64(profile: &Profile, explained: usize) -> bool {
    const LEFT_OVER: usize = 8;
    let signs = [b'+', b'/', b'-', b'_'].map(|sign| profile.count(sign)).iter().sum::<usize>();
    let symbols = profile.letters_and_digits() + signs;
    explained > 0
        && symbols + profile.white() + profile.count(b'=') == profile.length
        && explained + LEFT_OVER >= symbols
}
