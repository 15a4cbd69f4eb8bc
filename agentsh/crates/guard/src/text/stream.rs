//! Further spellings of a folded text in which whole-text disguises disappear. What is looked for and where it is
//! looked for have to be brought into the same one.

use super::fold::Folded;

/// A spelling that ignores one more disguise than [`super::fold()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Digits and signs that stand for letters become those letters: `0 1 3 4 5 7 8 9 @ $ ! | +`. Letters that
    /// such a sign could stand for both (`i` and `l`) become one.
    Leet,
    /// The distance of every letter to the letter before it, on a circle of 26 and without its sign, as `a`
    /// (same letter) to `n`; other characters as they are. The same for every letter shift of a text and for
    /// atbash. The first letter has no distance: leave it out of what is looked for with [`Stream::stable`].
    Shift,
}

/// Signs that leetspeak uses and that a fold drops.
const SIGNS: [(u8, u8); 5] = [(b'@', b'a'), (b'$', b's'), (b'!', b'l'), (b'|', b'l'), (b'+', b't')];

impl Stream {
    /// Brings `original` into this spelling. `folded` is its fold; only [`Stream::Leet`] looks at `original`.
    /// Positions in [`Stream::Shift`] of an ASCII fold are those of the fold. Linear.
    #[must_use]
    pub fn of(self, original: &str, folded: &Folded) -> String {
        match self {
            Self::Leet => leet(original, folded),
            Self::Shift => shift(&folded.text),
        }
    }

    /// The part of a stream that does not depend on what stands before it: what to look for.
    #[must_use]
    pub fn stable(self, stream: &str) -> &str {
        match self {
            Self::Leet => stream,
            Self::Shift => {
                let first = stream.bytes().position(|byte| byte.is_ascii_lowercase());
                first.and_then(|first| stream.get(first + 1..)).unwrap_or("")
            }
        }
    }
}

fn leet(original: &str, folded: &Folded) -> String {
    let letter = |byte: u8| match byte {
        b'0' => b'o',
        b'1' | b'i' => b'l',
        b'2' => b'z',
        b'3' => b'e',
        b'4' => b'a',
        b'5' => b's',
        b'6' | b'9' => b'g',
        b'7' => b't',
        b'8' => b'b',
        other => other,
    };
    let signed = original.bytes().any(|byte| SIGNS.iter().any(|(sign, _)| *sign == byte));
    let source: String = if signed {
        let spelled: String = original
            .chars()
            .map(|c| SIGNS.iter().find(|(sign, _)| char::from(*sign) == c).map_or(c, |(_, l)| char::from(*l)))
            .collect();
        super::fold(&spelled).text
    } else {
        folded.text.clone()
    };
    // Only ASCII bytes are replaced, each by another one: still UTF-8.
    String::from_utf8(source.bytes().map(letter).collect()).unwrap_or_default()
}

fn shift(folded: &str) -> String {
    let mut before: Option<u8> = None;
    let mut out = Vec::with_capacity(folded.len());
    for byte in folded.bytes() {
        if !byte.is_ascii_lowercase() {
            out.push(byte);
            continue;
        }
        let distance = before.map_or(0, |before| byte.abs_diff(before));
        out.push(b'a' + distance.min(26 - distance));
        before = Some(byte);
    }
    String::from_utf8(out).unwrap_or_default()
}
