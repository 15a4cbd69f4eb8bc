//! Text that is turned upside down: some letters are others then, some look like no letter but themselves.

use super::Step;
use super::walk::Walk;

/// Signs that are letters upside down, and nothing else.
const SIGNS: &[(char, char)] = &[
    ('ɐ', 'a'),
    ('ɔ', 'c'),
    ('ǝ', 'e'),
    ('ə', 'e'),
    ('ɟ', 'f'),
    ('ƃ', 'g'),
    ('ɓ', 'g'),
    ('ɥ', 'h'),
    ('ᴉ', 'i'),
    ('ı', 'i'),
    ('ɾ', 'j'),
    ('ſ', 'j'),
    ('ʞ', 'k'),
    ('ʃ', 'l'),
    ('ꞁ', 'l'),
    ('ɯ', 'm'),
    ('ɹ', 'r'),
    ('ʇ', 't'),
    ('ʌ', 'v'),
    ('ʍ', 'w'),
    ('ʎ', 'y'),
    ('∀', 'A'),
    ('Ɐ', 'A'),
    ('ᗺ', 'B'),
    ('Ɔ', 'C'),
    ('ᗡ', 'D'),
    ('Ǝ', 'E'),
    ('Ⅎ', 'F'),
    ('⅁', 'G'),
    ('ſ', 'J'),
    ('⅂', 'L'),
    ('Ԁ', 'P'),
    ('ᴚ', 'R'),
    ('┴', 'T'),
    ('∩', 'U'),
    ('Λ', 'V'),
    ('⅄', 'Y'),
    ('Ɩ', '1'),
    ('ᄅ', '2'),
    ('Ɛ', '3'),
    ('ㄣ', '4'),
    ('ϛ', '5'),
    ('ㄥ', '7'),
    ('˙', '.'),
    ('¿', '?'),
    ('¡', '!'),
];

/// Letters and digits that are others upside down.
const PAIRS: &[(char, char)] =
    &[('b', 'q'), ('d', 'p'), ('n', 'u'), ('M', 'W'), ('6', '9'), ('(', ')'), ('[', ']'), ('{', '}')];

/// So many signs, and so many of a hundred letters, are no quotation.
const MIN_COUNT: usize = 4;
const SHARE: usize = 20;

/// Shows the text the right way up, read from both ends.
pub(super) fn decode(text: &str, walk: &mut Walk<'_>) {
    if text.is_ascii() {
        return;
    }
    walk.work(text.len());
    let (mut signs, mut letters) = (0, 0);
    let turned: String = text
        .chars()
        .map(|character| {
            letters += usize::from(character.is_alphanumeric());
            let sign = SIGNS.iter().find(|(sign, _)| *sign == character && !character.is_ascii());
            signs += usize::from(sign.is_some_and(|(_, letter)| letter.is_alphanumeric()));
            sign.map_or_else(|| paired(character), |(_, letter)| *letter)
        })
        .collect();
    if signs >= MIN_COUNT && signs * 100 >= letters * SHARE {
        walk.found_order(Step::Upturned, &turned, 0..text.len());
        let backwards: String = turned.chars().rev().collect();
        walk.found_order(Step::Upturned, &backwards, 0..text.len());
    }
}

fn paired(character: char) -> char {
    let other = PAIRS.iter().find_map(|(one, other)| match character {
        _ if *one == character => Some(*other),
        _ if *other == character => Some(*one),
        _ => None,
    });
    other.unwrap_or(character)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Limits, visit, visit_orders};

    #[test]
    fn text_that_stands_on_its_head_is_read() {
        for (text, wanted) in
            [("plos sᴉ pɹɐɥɔɹo ǝɥʇ", "the orchard is sold"), ("ʇɥǝ oɹɔɥɐɹp ᴉs solp", "the orchard is sold")]
        {
            let mut seen = 0;
            let _ = visit(text, &Limits::default(), &mut |view| seen += usize::from(view.text == wanted));
            visit_orders(text, &Limits::default(), &mut |view| seen += usize::from(view.text == wanted));
            assert_eq!(seen, 2, "{text}");
        }
        let phonetic = "the word is written \"ɹaɪt\" there, and that is an ordinary sentence about it";
        visit_orders(phonetic, &Limits::default(), &mut |view| {
            assert!(!view.how.contains(&Step::Upturned), "{view:?}");
        });
    }
}
