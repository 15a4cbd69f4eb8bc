//! Shifted letters: a copy behind a shift of the alphabet, a mirrored alphabet or read backwards, by the distances between
//! its letters, which all of these leave as they are.
//!
//! Numbers: of a passage two grams of 24 distances on one line (`hash`), so that chance has no part in it; of a secret two
//! of 12, of which every second is kept; 8,192 places in one text, a bound on its time. A text of at most 64 bytes with a
//! digit is read in all 27 alphabets instead: longer ones have enough letters. Cost: a second hash for each letter, and 27
//! looks at a short text. Alone it finds 5 of 207 attempts, four of them easy to make. It missed other tables of letters.

use std::collections::BTreeMap;
use std::ops::Range;

use super::blocks::{BLOCK, Grams};
use super::detector::Detector;
use super::grams::{Intervals, Unit};
use super::hash::{self, Hasher, LONG_STEPS, STEPS};
use super::hits::{Hit, Hits, Text, What};
use super::moved::Moved;
use super::origin::OriginId;
use super::placed::Placed;
use super::print::{Print, SHIFTED, SHIFTED_SECRETS};
use super::sought::Sought;
use agentsh_secrets::values::Kind;

/// Places that are compared in one text.
const MAX_PLACES: usize = 8192;
/// Of the grams of a secret one in so many is kept.
const SECRET_STEP: usize = 2;
/// Longest text that is read in every alphabet, in bytes.
const MAX_SHIFTED: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Shifted {
    passages: Sought,
    secrets: Sought,
}

/// The tags that are kept of a secret: of these letters of a result.
pub(super) fn of_secret(hasher: &Hasher, letters: &[u8], at: &Range<usize>, into: &mut Vec<(u32, u32)>) {
    hasher.each_interval_gram(&letters[at.clone()], |inside, gram| {
        if inside.is_multiple_of(SECRET_STEP) {
            into.push((hash::tag(gram), (at.start + inside) as u32));
        }
    });
}

/// A short text in every other alphabet and backwards, each with how: its digits and signs lie between no letters.
pub(super) fn turned(text: &str) -> Vec<(String, &'static str)> {
    if text.len() > MAX_SHIFTED || !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let shifted = (1..26).map(|places| (lettered(text, |letter| (letter + places) % 26), "caesar"));
    let mirrored = (lettered(text, |letter| 25 - letter), "atbash");
    shifted.chain([mirrored, (text.chars().rev().collect(), "reversed")]).collect()
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

impl Detector for Shifted {
    type Brought = ();

    fn remember(&mut self, placed: &Placed<'_>, print: &Print) {
        placed.letters(&mut self.passages.index, &print.tags[SHIFTED]);
        placed.letters(&mut self.secrets.index, &print.tags[SHIFTED_SECRETS]);
    }

    fn moved(&mut self, moved: &Moved) {
        moved.letters(&mut self.passages.index, true);
        moved.letters(&mut self.secrets.index, false);
    }

    fn size(&self) -> usize {
        self.passages.index.size() + self.secrets.index.size()
    }

    #[inline]
    fn see(&mut self, grams: &Grams<'_>) {
        if !self.secrets.index.is_empty() {
            self.secrets.see(grams.at, grams.own().iter().map(|gram| hash::tag(*gram)));
        }
        let mut tags = [0; BLOCK];
        let (start, count) = Intervals::long_of(grams, &mut tags);
        self.passages.see(start, tags[..count].iter().copied());
    }

    /// Only of what leaves: every long text has many of these grams by itself.
    fn look(&mut self, text: &Text<'_>, hits: &mut Hits) {
        for (sought, length, kind) in [
            (&mut self.secrets, STEPS + 1, Some(Kind::HighEntropy)),
            (&mut self.passages, LONG_STEPS + 1, None),
        ] {
            let mut places = Places::default();
            sought.each(text.memory.letter_floor(), |at, _, place| places.add(text, at, place));
            places.report(length, kind, hits);
        }
    }
}

/// Where grams were found, by origin and by the line on which they lie: the difference of the two positions for a text
/// that runs forwards, their sum for one that runs backwards.
#[derive(Default)]
struct Places {
    lines: BTreeMap<(OriginId, bool, u32), (usize, usize, u32)>,
    count: usize,
}

impl Places {
    fn add(&mut self, text: &Text<'_>, at: usize, place: u32) {
        if self.count >= MAX_PLACES {
            return;
        }
        let Some((origin, entry)) = text.memory.entry_at_letter(place) else { return };
        if !(text.leaving)(&entry.origin) {
            return;
        }
        self.count += 1;
        let position = at as u32;
        for (backwards, line) in [(false, place.wrapping_sub(position)), (true, place.wrapping_add(position))]
        {
            let line = self.lines.entry((origin, backwards, line)).or_insert((at, at, 0));
            if line.2 == 0 || at > line.1 {
                *line = (line.0, at, line.2 + 1);
            }
        }
    }

    fn report(self, length: usize, kind: Option<Kind>, hits: &mut Hits) {
        for ((origin, ..), (first, last, count)) in self.lines {
            if count >= 2 && hits.has_room_for_shifted() {
                let (end, what) = (last + length, What::Shifted(kind));
                hits.push(Hit { start: first, end, origin, leaves: true, what });
            }
        }
    }
}
