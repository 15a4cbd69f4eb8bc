//! Morse code: letters between spaces, words between `/` or `|`.

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

/// Each letter followed by its code.
const LETTERS: &str = "a.- b-... c-.-. d-.. e. f..-. g--. h.... i.. j.--- k-.- l.-.. m-- n-. o--- p.--. q--.- r.-. s... t- \
    u..- v...- w.-- x-..- y-.-- z--.. 0----- 1.---- 2..--- 3...-- 4....- 5..... 6-.... 7--... 8---.. \
    9----. ..-.-.- ,--..-- @.--.-. --....-";

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let marks = profile.count(b'.') + profile.count(b'-') + profile.count(b'_') + profile.high() / 2;
    if marks < 12 || profile.white() < 5 || marks * 3 < profile.letters_and_digits() {
        return;
    }
    walk.work(text.len());
    let (mut decoded, mut start, mut end) = (String::new(), 0, 0);
    for word in text.split_ascii_whitespace() {
        let position = word.as_ptr().addr() - text.as_ptr().addr();
        let letter = if matches!(word, "/" | "|" | "//") { Some(' ') } else { letter(word) };
        if let Some(letter) = letter {
            if decoded.is_empty() {
                start = position;
            }
            decoded.push(letter);
            end = position + word.len();
        } else {
            walk.found_text(Step::Morse, &decoded, start..end);
            decoded.clear();
        }
    }
    walk.found_text(Step::Morse, &decoded, start..end);
}

fn letter(word: &str) -> Option<char> {
    if word.len() > 24 {
        return None;
    }
    let code: Option<String> = word
        .chars()
        .map(|mark| match mark {
            '.' | '·' | '•' | '∙' | '‧' => Some('.'),
            '-' | '–' | '—' | '−' | '_' | '‐' | '‑' => Some('-'),
            _ => None,
        })
        .collect();
    let code = code?;
    let letter = LETTERS.split(' ').find(|letter| letter.get(1..) == Some(code.as_str()))?;
    letter.chars().next()
}
