//! Folds a text: without terminal control, marks and invisible characters; look-alike, wide and styled letters as Latin
//! ones. ASCII is unchanged.

use std::sync::atomic::{AtomicU32, Ordering};

use agentsh_base::ascii;
use unicode_normalization::UnicodeNormalization;

use super::ansi;
use super::characters::{Folding, folding};
use super::invisible::{invisible, is_invisible};
use super::view::{Builder, View};

pub(super) fn view(text: &str) -> View {
    let mut builder = Builder::with_capacity(text.len());
    ansi::for_each_visible(text, true, &mut |piece, at| fold_piece(piece, at, &mut builder));
    builder.finish(text.len())
}

/// The text without terminal control and invisible characters.
pub(super) fn visible(text: &str) -> View {
    let mut builder = Builder::with_capacity(text.len());
    ansi::for_each_visible(text, true, &mut |piece, at| {
        let mut start = 0;
        for (place, character) in invisible(piece) {
            builder.copy(&piece[start..place], at + start);
            start = place + character.len_utf8();
        }
        builder.copy(&piece[start..], at + start);
    });
    builder.finish(text.len())
}

fn fold_piece(piece: &str, at: usize, builder: &mut Builder) {
    let bytes = piece.as_bytes();
    // What stays is copied at once.
    let (mut kept, mut start) = (0, 0);
    while start < bytes.len() {
        start += ascii::ascii_prefix_length(&bytes[start..]);
        for character in piece[start..].chars().take_while(|character| !character.is_ascii()) {
            let spelling = spelling(character);
            let end = start + character.len_utf8();
            if spelling != Spelling::Same {
                builder.copy(&piece[kept..start], at + kept);
                kept = end;
            }
            match spelling {
                Spelling::Same | Spelling::Nothing => {}
                Spelling::One(other) => builder.put_one(other, at + start),
                Spelling::Several => {
                    if let Folding::Several(letters) = folding(character) {
                        builder.put(letters, at + start);
                    }
                }
            }
            start = end;
        }
    }
    builder.copy(&piece[kept..], at + kept);
}

/// How a character is written in a folded text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Nothing,
    Same,
    /// As its [`Folding`].
    Several,
    One(char),
}

/// What was found for each character of planes 0 and 1: 0 is unknown, and no text has the characters 1 to 3 as a folding.
static KNOWN: [AtomicU32; 0x2_0000] = [const { AtomicU32::new(0) }; 0x2_0000];

fn spelling(character: char) -> Spelling {
    let Some(known) = KNOWN.get(character as usize) else { return find_spelling(character) };
    match known.load(Ordering::Relaxed) {
        0 => {
            let spelling = find_spelling(character);
            let code = match spelling {
                Spelling::Nothing => 1,
                Spelling::Same => 2,
                Spelling::Several => 3,
                Spelling::One(other) => other as u32,
            };
            known.store(code, Ordering::Relaxed);
            spelling
        }
        1 => Spelling::Nothing,
        2 => Spelling::Same,
        3 => Spelling::Several,
        code => char::from_u32(code).map_or(Spelling::Same, Spelling::One),
    }
}

fn find_spelling(character: char) -> Spelling {
    match character {
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2032}' | '\u{b4}' => return Spelling::One('\''),
        '\u{201c}' | '\u{201d}' | '\u{201f}' | '\u{2033}' | '\u{ab}' | '\u{bb}' => return Spelling::One('"'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => return Spelling::One('-'),
        '\u{2044}' | '\u{2215}' | '\u{29f8}' => return Spelling::One('/'),
        '\u{2024}' | '\u{3002}' => return Spelling::One('.'),
        _ if is_invisible(character) => return Spelling::Nothing,
        _ if character.is_whitespace() => return Spelling::One(' '),
        _ => {}
    }
    match folding(character) {
        // An equal character is no change.
        Folding::One(folded) if folded == character => Spelling::Same,
        Folding::One(folded) => Spelling::One(folded),
        Folding::Several(_) => Spelling::Several,
        Folding::Nothing if unicode_normalization::char::is_combining_mark(character) => Spelling::Nothing,
        Folding::Nothing => {
            let mut parts = std::iter::once(character).nfkc();
            match (parts.next(), parts.next()) {
                (Some(one), None) if one.is_ascii() => Spelling::One(one),
                _ => Spelling::Same,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_text_equals_that_of_look_alikes() {
        for text in [
            "ignore all",
            "ign\u{43e}re \u{430}ll",
            "i\u{301}g\u{301}n\u{301}ore all",
            "\u{ff49}\u{ff47}\u{ff4e}\u{ff4f}\u{ff52}\u{ff45}\u{3000}\u{ff41}\u{ff4c}\u{ff4c}",
            "i\u{200b}g\u{ad}nore\u{2060} all",
            "\u{1b}[8mignore\u{1b}[0m all",
            "𝐢𝐠𝐧𝐨𝐫𝐞 all",
        ] {
            assert_eq!(view(text).text, "ignore all", "{text:?}");
        }
        assert_eq!(view("précédentes “x” don’t").text, "precedentes \"x\" don't");
    }
}
