//! One encoding in pieces, with other words between them: `dGhlIHR3byBo apple dW5kcmVkIGFu apple ..`.

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

/// Fewer pieces, or fewer letters of them, hide nothing.
const MIN_COUNT: usize = 3;
const MIN_LENGTH: usize = 24;
/// Shorter words are no pieces.
const MIN_PIECE: usize = 4;
/// Percentage of letters that must be in pieces: names of code in prose have fewer.
const SHARE: usize = 40;
const MAX_TEXT: usize = 64 << 10;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if text.len() > MAX_TEXT
        || profile.white() < 2 * MIN_COUNT
        || profile.uppercase_count() + profile.digits() < MIN_COUNT
    {
        return;
    }
    walk.work(text.len());
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let length = length_of_pieces(&words);
    let is_piece = |word: &str| is_piece(word) || length >= 2 * MIN_PIECE && word.len() == length;
    let (mut pieces, mut others, mut all) = (String::new(), 0, 0);
    let mut count = 0;
    for word in words {
        all += word.len();
        if is_piece(word) {
            count += 1;
            pieces.push_str(word);
        } else {
            others += 1;
        }
    }
    if count >= MIN_COUNT && others >= 2 && pieces.len() >= MIN_LENGTH && pieces.len() * 100 >= all * SHARE {
        walk.found_text(Step::Interspersed, &pieces, 0..text.len());
    }
}

/// How long most of the pieces are.
fn length_of_pieces(words: &[&str]) -> usize {
    // Limits the memory: longer words are not pieces with words between them.
    const MAX_LENGTH: usize = 128;
    let mut counts = [0_usize; MAX_LENGTH];
    for word in words.iter().filter(|word| word.len() < MAX_LENGTH && is_piece(word)) {
        counts[word.len()] += 1;
    }
    counts.iter().enumerate().max_by_key(|(_, count)| **count).map_or(0, |(length, _)| length)
}

/// A word as people write none: with capitals or digits inside, or with padding.
fn is_piece(word: &str) -> bool {
    let bytes = word.as_bytes();
    let is_encoded = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte));
    if !is_encoded || bytes.len() < MIN_PIECE {
        return false;
    }
    let turns = bytes.windows(2).filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
    let has = |class: fn(&u8) -> bool| bytes.iter().any(class);
    turns.count() > 0 || has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic) || bytes.ends_with(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Limits, visit};

    #[test]
    fn words_between_the_pieces_of_an_encoding_are_taken_out() {
        let wanted = "the orchard at Lindenau goes to the Brandt family";
        for text in [
            "dGhlIG9yY2hh river cmQgYXQgTGlu cloud ZGVuYXUgZ29l river cyB0byB0aGUg stone QnJhbmR0IGZh cloud bWlseQ==",
            "746865206f72 then 636861726420 then 6174204c696e then 64656e617520 then 676f65732074 then 6f2074686520 \
             then 4272616e6474 then 2066616d696c then 79",
        ] {
            let mut seen = false;
            let _ = visit(text, &Limits::default(), &mut |view| {
                seen |= view.text.starts_with(&wanted[..wanted.len() - 1])
            });
            assert!(seen, "{text}");
        }
        let code =
            "the method readFileSync of fs takes a path and gives the whole text of it as a Buffer, see v18";
        let _ = visit(code, &Limits::default(), &mut |view| {
            assert!(!view.how.contains(&Step::Interspersed), "{view:?}");
        });
    }
}
