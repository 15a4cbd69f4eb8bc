//! A short text in every alphabet of shifted letters and backwards, and values that are all of a text.
//!
//! At most 64 bytes with a digit: longer ones have enough letters for the distances between them (`hash`). It costs 27 looks
//! at a short text, and finds 1 of 207 attempts alone. It misses other tables of letters.

use super::findings::Search;
use super::judge::Judge;
use super::symbols::Folded;
use agentsh_secrets::values::{self, Kind};

/// Longest text that is read in every alphabet, in bytes.
const MAX_SHIFTED: usize = 64;

impl Judge {
    /// Letters from another alphabet or backwards are found by what lies between them; the digits and signs of a short
    /// text are not.
    pub(super) fn shifted(&mut self, text: &str, leaf: usize, search: &mut Search<'_, '_>) {
        if text.len() > MAX_SHIFTED || !text.bytes().any(|byte| byte.is_ascii_digit()) {
            return;
        }
        for places in 1..26 {
            self.view(&lettered(text, |letter| (letter + places) % 26), leaf, &|| vec!["caesar"], search);
        }
        self.view(&lettered(text, |letter| 25 - letter), leaf, &|| vec!["atbash"], search);
        self.view(&text.chars().rev().collect::<String>(), leaf, &|| vec!["reversed"], search);
    }

    /// Values of a text that is little more than one of them.
    pub(super) fn short_values(
        &self,
        text: &str,
        leaf: usize,
        folded: &mut Folded,
        search: &mut Search<'_, '_>,
    ) {
        if text.len() <= 256 {
            for entity in
                values::find_sought(text, 16).into_iter().filter(|entity| !entity.kind.is_reference())
            {
                self.value(entity.kind, entity.start..entity.end, leaf, text, folded, search);
            }
            self.value(Kind::HighEntropy, 0..text.len(), leaf, text, folded, search);
        }
    }
}

/// The text with each letter of ASCII, counted from 0, in place of another one.
fn lettered(text: &str, other: impl Fn(u8) -> u8) -> String {
    let of = |c: char, a: u8| char::from(a + other(c as u8 - a));
    let turned = |c: char| match c {
        'a'..='z' => of(c, b'a'),
        'A'..='Z' => of(c, b'A'),
        _ => c,
    };
    text.chars().map(turned).collect()
}
