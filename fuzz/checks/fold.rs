//! A text folds character by character, to a bounded length, and every place leads back to where it came from; both
//! normalisers agree that what folds to nothing is nothing.

use super::guard::taint::symbols;
use super::guard::text::{Folded, Stream, fold, fold_into};

/// Bytes that one byte may become: U+FDFA, of three, is the longest.
const LONGEST: usize = 12;

pub fn check(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    let cut = text.floor_char_boundary(usize::from(*cut) * text.len() / 255);
    let (front, back) = text.split_at(cut);
    let folded = fold(&text);
    assert_eq!(fold(front).text + &fold(back).text, folded.text, "the whole is not its parts");
    assert!(folded.text.len() <= text.len() * LONGEST);
    assert!(folded.text.chars().all(char::is_alphanumeric), "{}", folded.text);
    assert_eq!(fold(&folded.text).text, folded.text, "folded again it is something else");
    let mut used =
        fold("something of before, that is longer than one block of the map: so that it has several");
    fold_into(&text, &mut used);
    assert_eq!(used, folded);
    places(&text, &folded);
    streams(&text, &folded);
    symbols_of(&text, front, back);
}

fn places(text: &str, folded: &Folded) {
    let length = folded.text.len();
    let step = length / 64 + 1;
    for start in (0..length).step_by(step) {
        let end = (start + step).min(length);
        let at = folded.original_range(text, start..end);
        let Some(original) = text.get(at.clone()) else { panic!("{at:?} of {}", text.len()) };
        let again = fold(original).text;
        if let Some(wanted) = folded.text.get(start..end) {
            assert!(again.contains(wanted), "{wanted} is not in {original:?}");
        }
    }
    assert_eq!(folded.original_range(text, length..length), text.len()..text.len());
    assert_eq!(folded.original_range(text, length + 1..usize::MAX), text.len()..text.len());
}

fn streams(text: &str, folded: &Folded) {
    let leet = Stream::Leet.of(text, folded);
    assert!(leet.len() <= text.len() * LONGEST);
    assert_eq!(Stream::Leet.of(&leet, &fold(&leet)), leet, "read twice it is something else");
    let shift = Stream::Shift.of(text, folded);
    assert_eq!(shift.len(), folded.text.len());
    assert!(shift.ends_with(Stream::Shift.stable(&shift)));
    assert!(shift.bytes().all(|byte| !(b'o'..=b'z').contains(&byte)));
    let turned: String = folded
        .text
        .chars()
        .map(|letter| match letter {
            'a'..='z' => char::from((letter as u8 - b'a' + 13) % 26 + b'a'),
            other => other,
        })
        .collect();
    assert_eq!(Stream::Shift.of(&turned, &fold(&turned)), shift, "a letter shift is seen");
}

fn symbols_of(text: &str, front: &str, back: &str) {
    let whole = symbols::Folded::of(text);
    let mut parts = symbols::Folded::of(front);
    parts.push(back);
    assert_eq!((&parts.symbols, &parts.letters), (&whole.symbols, &whole.letters));
    assert!(whole.letters.len() <= whole.symbols.len() && whole.symbols.len() <= text.len());
    assert!(whole.letters.iter().all(|letter| *letter < 26));
    assert!(whole.symbols.iter().all(|symbol| *symbol != 0));
    let loud = symbols::Folded::of(&text.to_ascii_uppercase());
    assert_eq!((loud.symbols, loud.letters), (whole.symbols, whole.letters), "case is seen");
}
