//! Letters, digits and signs as the words by which they are said: `seven`, `foxtrot`, `underscore`.

use super::Step;
use super::views::Walk;

/// Fewer words in a row are a sentence.
const MIN_LENGTH: usize = 8;
const MAX_WORD: usize = 10;

/// By the word. The digits also in German, French, Spanish and Italian.
static WORDS: &[(&str, &str)] = &[
    ("alfa", "a"),
    ("alpha", "a"),
    ("at", "@"),
    ("bravo", "b"),
    ("charlie", "c"),
    ("cinco", "5"),
    ("cinq", "5"),
    ("cinque", "5"),
    ("colon", ":"),
    ("comma", ","),
    ("cuatro", "4"),
    ("dash", "-"),
    ("delta", "d"),
    ("deux", "2"),
    ("dix", "10"),
    ("dos", "2"),
    ("dot", "."),
    ("drei", "3"),
    ("due", "2"),
    ("echo", "e"),
    ("eight", "8"),
    ("eighteen", "18"),
    ("eighty", "8"),
    ("eins", "1"),
    ("eleven", "11"),
    ("fifteen", "15"),
    ("fifty", "5"),
    ("five", "5"),
    ("forty", "4"),
    ("four", "4"),
    ("fourteen", "14"),
    ("foxtrot", "f"),
    ("fuenf", "5"),
    ("fünf", "5"),
    ("golf", "g"),
    ("hotel", "h"),
    ("huit", "8"),
    ("hyphen", "-"),
    ("india", "i"),
    ("juliet", "j"),
    ("juliett", "j"),
    ("kilo", "k"),
    ("lima", "l"),
    ("mike", "m"),
    ("minus", "-"),
    ("neuf", "9"),
    ("neun", "9"),
    ("nine", "9"),
    ("niner", "9"),
    ("nineteen", "19"),
    ("ninety", "9"),
    ("nove", "9"),
    ("november", "n"),
    ("nueve", "9"),
    ("null", "0"),
    ("ocho", "8"),
    ("oh", "0"),
    ("one", "1"),
    ("oscar", "o"),
    ("otto", "8"),
    ("papa", "p"),
    ("period", "."),
    ("plus", "+"),
    ("point", "."),
    ("quatre", "4"),
    ("quattro", "4"),
    ("quebec", "q"),
    // The rest of `x-ray`.
    ("ray", ""),
    ("romeo", "r"),
    ("sechs", "6"),
    ("sei", "6"),
    ("seis", "6"),
    ("sept", "7"),
    ("sette", "7"),
    ("seven", "7"),
    ("seventeen", "17"),
    ("seventy", "7"),
    ("sieben", "7"),
    ("sierra", "s"),
    ("siete", "7"),
    ("six", "6"),
    ("sixteen", "16"),
    ("sixty", "6"),
    ("slash", "/"),
    ("tango", "t"),
    ("ten", "10"),
    ("thirteen", "13"),
    ("thirty", "3"),
    ("three", "3"),
    ("tre", "3"),
    ("tres", "3"),
    ("trois", "3"),
    ("twelve", "12"),
    ("twenty", "2"),
    ("two", "2"),
    ("un", "1"),
    ("underscore", "_"),
    ("uniform", "u"),
    ("uno", "1"),
    ("victor", "v"),
    ("vier", "4"),
    ("whiskey", "w"),
    ("whisky", "w"),
    ("x", "x"),
    ("xray", "x"),
    ("yankee", "y"),
    ("zero", "0"),
    ("zulu", "z"),
    ("zwei", "2"),
];

/// What a word says.
fn said(word: &str) -> Option<&'static str> {
    if word.len() > MAX_WORD {
        return None;
    }
    let word = word.to_lowercase();
    let at = WORDS.binary_search_by(|(listed, _)| (*listed).cmp(word.as_str())).ok()?;
    Some(WORDS[at].1)
}

pub(super) fn decode(text: &str, walk: &mut Walk<'_>) {
    walk.work(text.len());
    let (mut run, mut count, mut start, mut end) = (String::new(), 0, 0, 0);
    let mut position = 0;
    for piece in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let word = piece.trim_end_matches(|c: char| !c.is_alphanumeric());
        if let Some(said) = said(word) {
            if count == 0 {
                start = position;
            }
            run.push_str(said);
            count += 1;
            end = position + word.len();
        } else if !word.is_empty() {
            if count >= MIN_LENGTH {
                walk.found_text(Step::Spoken, &run, start..end);
            }
            run.clear();
            count = 0;
        }
        position += piece.len();
    }
    if count >= MIN_LENGTH {
        walk.found_text(Step::Spoken, &run, start..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Limits, visit, visit_orders};

    #[test]
    fn words_are_in_order() {
        assert!(WORDS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(WORDS.iter().all(|(word, _)| word.len() <= MAX_WORD));
    }

    #[test]
    fn what_is_spelled_aloud_is_read() {
        for (text, wanted) in [
            ("the code is nine two seven one, four four zero five eight", "927144058"),
            ("Sierra Kilo underscore Lima India Victor Echo dash nine", "sk_live-9"),
            ("null eins zwei drei vier fünf sechs sieben", "01234567"),
        ] {
            let mut seen = 0;
            let _ = visit(text, &Limits::default(), &mut |view| seen += usize::from(view.text == wanted));
            visit_orders(text, &Limits::default(), &mut |view| seen += usize::from(view.text == wanted));
            assert_eq!(seen, 2, "{text}");
        }
        visit_orders("one or two of the hotels, six at most", &Limits::default(), &mut |view| {
            assert!(!view.how.contains(&Step::Spoken), "{view:?}");
        });
    }
}
