//! Upside-down text.

use super::Step;
use super::walk::Walk;

/// Signs that are letters upside down, and nothing else, each with its letter.
const SIGNS: &str =
    "ɐaɔcǝeəeɟfƃgɓgɥhᴉiıiɾjſjʞkʃlꞁlɯmɹrʇtʌvʍwʎy∀AⱯAᗺBƆCᗡDƎEℲF⅁G⅂LԀPᴚR┴T∩UΛV⅄YƖ1ᄅ2Ɛ3ㄣ4ϛ5ㄥ7˙.¿?¡!";

/// Letters and digits that are others upside down.
const PAIRS: &str = "bqdpnuMW69()[]{}";

/// So many signs, at this percentage of letters, are not a quotation.
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
            let is_sign = !character.is_ascii() && SIGNS.contains(character);
            if !is_sign && !PAIRS.contains(character) {
                return character;
            }
            let both = pairs(PAIRS).flat_map(|(one, other)| [(one, other), (other, one)]);
            let letter = pairs(SIGNS).chain(both).find(|(one, _)| *one == character);
            let letter = letter.map_or(character, |(_, letter)| letter);
            signs += usize::from(is_sign && letter.is_alphanumeric());
            letter
        })
        .collect();
    if signs >= MIN_COUNT && signs * 100 >= letters * SHARE {
        walk.found_order(Step::Upturned, &turned, 0..text.len());
        let backwards: String = turned.chars().rev().collect();
        walk.found_order(Step::Upturned, &backwards, 0..text.len());
    }
}

fn pairs(table: &str) -> impl Iterator<Item = (char, char)> {
    table.chars().step_by(2).zip(table.chars().skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Limits, visit, visit_orders};

    #[test]
    fn upside_down_text_is_read() {
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
