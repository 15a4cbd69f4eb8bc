//! Folds a text: without terminal control, marks and invisible characters; look-alike, wide and styled letters as Latin
//! ones. ASCII is unchanged.

use unicode_normalization::UnicodeNormalization;

use super::ansi;
use super::characters::{Folding, folding};
use super::invisible::is_invisible;
use super::view::{Builder, View};

pub(super) fn view(text: &str) -> View {
    let mut builder = Builder::with_capacity(text.len());
    ansi::each(text, true, &mut |piece, at| fold(piece, at, &mut builder));
    builder.finish(text.len())
}

fn fold(piece: &str, at: usize, builder: &mut Builder) {
    let bytes = piece.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        let plain = bytes[start..].iter().take_while(|byte| byte.is_ascii()).count();
        builder.copy(&piece[start..start + plain], at + start);
        start += plain;
        for character in piece[start..].chars() {
            if character.is_ascii() {
                break;
            }
            put(character, at + start, builder);
            start += character.len_utf8();
        }
    }
}

fn put(character: char, at: usize, builder: &mut Builder) {
    let mut buffer = [0; 4];
    match character {
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2032}' | '\u{b4}' => return builder.put("'", at),
        '\u{201c}' | '\u{201d}' | '\u{201f}' | '\u{2033}' | '\u{ab}' | '\u{bb}' => {
            return builder.put("\"", at);
        }
        '\u{2010}'..='\u{2015}' | '\u{2212}' => return builder.put("-", at),
        '\u{2044}' | '\u{2215}' | '\u{29f8}' => return builder.put("/", at),
        '\u{2024}' | '\u{3002}' => return builder.put(".", at),
        _ if is_invisible(character) => return,
        _ if character.is_whitespace() => return builder.put(" ", at),
        _ => {}
    }
    match folding(character) {
        // An equal character is no change.
        Folding::One(folded) if folded == character => builder.copy(folded.encode_utf8(&mut buffer), at),
        Folding::One(folded) => builder.put(folded.encode_utf8(&mut buffer), at),
        Folding::Several(folded) => builder.put(folded, at),
        Folding::Nothing if unicode_normalization::char::is_combining_mark(character) => {}
        Folding::Nothing => {
            let mut parts = std::iter::once(character).nfkc();
            match (parts.next(), parts.next()) {
                (Some(one), None) if one.is_ascii() => builder.put(one.encode_utf8(&mut buffer), at),
                _ => builder.copy(character.encode_utf8(&mut buffer), at),
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
