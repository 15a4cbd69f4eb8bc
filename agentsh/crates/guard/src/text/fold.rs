//! One spelling for texts that read the same: letters and digits alone, in lower case, without marks, look-alikes
//! as the letters they look like.

use std::ops::Range;

use super::characters::{Folding, folding};

/// The folded text, and the way back to the text it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Letters and digits in lower case. ASCII for every text in Latin letters.
    pub text: String,
    /// `marks[n]`: length of `text` when the original was read up to its first character at or after byte
    /// `n * BLOCK`. One mark for each block keeps the map at a sixteenth of the text.
    marks: Vec<u32>,
}

/// Bytes of the original between two marks.
const BLOCK: usize = 64;

/// What an ASCII byte folds to; 0 for what is dropped.
const ASCII: [u8; 128] = {
    let mut table = [0; 128];
    let mut byte = 0_u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() {
            table[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    table
};

/// Folds a text of at most 4 GiB; what lies beyond is left out. Linear; about a nanosecond a byte.
#[must_use]
pub fn fold(original: &str) -> Folded {
    let mut folded = Folded::default();
    fold_into(original, &mut folded);
    folded
}

/// As [`fold`], into a value whose memory is used again.
pub fn fold_into(original: &str, folded: &mut Folded) {
    let mut out = std::mem::take(&mut folded.text).into_bytes();
    out.clear();
    out.reserve(original.len());
    folded.marks.clear();
    let bytes = original.as_bytes();
    let mut position = 0;
    let mut block = [0_u8; BLOCK];
    while position < bytes.len() {
        let Ok(length) = u32::try_from(out.len()) else { break };
        folded.marks.push(length);
        let end = (position / BLOCK + 1) * BLOCK;
        let rest = &bytes[position..end.min(bytes.len())];
        if rest.is_ascii() {
            // Every byte is written and only kept ones move the end: no branch that a text could make slow.
            let mut count = 0;
            for byte in rest {
                let small = ASCII[usize::from(*byte & 0x7f)];
                block[count] = small;
                count += usize::from(small != 0);
            }
            out.extend_from_slice(&block[..count]);
            position += rest.len();
        } else {
            for character in original[position..].chars() {
                if position >= end {
                    break;
                }
                push(character, &mut out);
                position += character.len_utf8();
            }
        }
        // A character that reaches over a whole block does not exist, so that every block has its mark.
    }
    folded.text = String::from_utf8(out).unwrap_or_default();
}

impl Folded {
    /// The bytes of `original` (the text that was folded) that `folded`, a range of [`Self::text`], came from,
    /// with everything between them that was dropped. Empty at the end for a range outside of the text.
    #[must_use]
    pub fn original_range(&self, original: &str, folded: Range<usize>) -> Range<usize> {
        let start = self.original_of(original, folded.start).map_or(original.len(), |(start, _)| start);
        let last = folded.end.saturating_sub(1).max(folded.start);
        let end = self.original_of(original, last).map_or(original.len(), |(_, end)| end);
        start..end.max(start)
    }

    /// Where the character stands whose folding holds byte `wanted`.
    fn original_of(&self, original: &str, wanted: usize) -> Option<(usize, usize)> {
        if wanted >= self.text.len() {
            return None;
        }
        let after =
            self.marks.partition_point(|mark| usize::try_from(*mark).is_ok_and(|mark| mark <= wanted));
        let block = after.checked_sub(1)?;
        let mut length = usize::try_from(*self.marks.get(block)?).ok()?;
        let mut start = block * BLOCK;
        while !original.is_char_boundary(start) {
            start += 1;
        }
        let mut single = Vec::with_capacity(16);
        for character in original[start..].chars() {
            single.clear();
            push(character, &mut single);
            length += single.len();
            let end = start + character.len_utf8();
            if length > wanted {
                return Some((start, end));
            }
            start = end;
        }
        None
    }
}

fn push(character: char, out: &mut Vec<u8>) {
    if let Some(small) = ASCII.get(character as usize) {
        if *small != 0 {
            out.push(*small);
        }
        return;
    }
    match folding(character) {
        Folding::Nothing => {}
        Folding::One(folded) => out.extend_from_slice(folded.encode_utf8(&mut [0; 4]).as_bytes()),
        Folding::Several(folded) => out.extend_from_slice(folded.as_bytes()),
    }
}
