//! Plain text whose letters or words stand in another order, between others, or as signs: words backwards, rot47,
//! first letters of words, every second or third letter, leetspeak. Cheap enough to be shown without a sign that they were used.

use super::Step;
use super::permuted::rot47;
use super::profile::Profile;
use super::spoken;
use super::upturned;
use super::views::Walk;

/// Longer texts with tags are documents, whose words stand between few of them.
const MAX_MARKED: usize = 64 * 1024;
/// Longest tag, in bytes.
const MAX_TAG: usize = 256;
/// Fewer tags and comments hide nothing.
const MIN_TAGS: usize = 3;
/// Longer texts are not looked at for letters between letters: that would double the work on every document.
const MAX_INTERLEAVED: usize = 2048;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let whole = 0..text.len();
    if is_signed(profile) {
        walk.work(text.len());
        let letters: String = text.chars().map(|c| signed(c).unwrap_or(c)).collect();
        walk.found_order(Step::Leet, &letters, whole.clone());
    }
    if text.len() <= MAX_MARKED && profile.count(b'<').min(profile.count(b'>')) >= MIN_TAGS {
        walk.work(text.len());
        if let Some(plain) = without_markup(text) {
            walk.found_order(Step::Markup, &plain, whole.clone());
        }
    }
    upturned::decode(text, walk);
    if looks_like_rot47(profile) {
        walk.found_text(Step::Rot47, &rot47(text), whole.clone());
    }
    if profile.white() >= 5 {
        if text.len() <= MAX_MARKED {
            spoken::decode(text, walk);
        }
        walk.work(text.len());
        let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
        let initials: String =
            words.iter().filter_map(|word| word.chars().find(|c| c.is_alphanumeric())).collect();
        if initials.len() >= 12 {
            walk.found_order(Step::Initials, &initials, whole.clone());
        }
        words.reverse();
        walk.found_order(Step::ReversedWords, &words.join(" "), whole.clone());
    }
    if text.len() <= MAX_INTERLEAVED && text.len() >= 24 && profile.white() * 20 < text.len() {
        for every in [2, 3] {
            for offset in 0..every {
                let letters: String = text.chars().skip(offset).step_by(every).collect();
                walk.found_order(Step::Interleaved, &letters, whole.clone());
            }
        }
    }
}

/// What is left without tags and comments. None: there are hardly any, or none of them ends anything, as in the types of
/// programs (`Map<string, T>`).
fn without_markup(text: &str) -> Option<String> {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    let (mut removed, mut closing) = (0, 0);
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        plain.push_str(before);
        let end = match tag.as_bytes() {
            // Without an end, it hides all that comes.
            [b'<', b'!', b'-', b'-', ..] => Some(tag.find("-->").map_or(tag.len(), |end| end + 3)),
            [b'<', b'/' | b'a'..=b'z' | b'A'..=b'Z', ..] => {
                let end = tag.bytes().skip(1).take(MAX_TAG).position(|byte| matches!(byte, b'<' | b'>'));
                end.map(|end| end + 2).filter(|end| tag.as_bytes()[end - 1] == b'>')
            }
            _ => None,
        };
        removed += usize::from(end.is_some());
        closing += usize::from(end.is_some() && matches!(tag.as_bytes()[1], b'/' | b'!'));
        let keep = if end.is_some() { "" } else { "<" };
        plain.push_str(keep);
        rest = &tag[end.unwrap_or(1)..];
    }
    plain.push_str(rest);
    (removed >= MIN_TAGS && closing * 3 >= removed).then_some(plain)
}

/// Signs that stand for letters, beside the digits that always do.
fn signed(character: char) -> Option<char> {
    Some(match character {
        '@' => 'a',
        '$' => 's',
        '!' | '|' => 'i',
        '+' => 't',
        '(' => 'c',
        '&' => 'b',
        '€' => 'e',
        _ => return None,
    })
}

/// So many of them that they are part of the words.
fn is_signed(profile: &Profile) -> bool {
    let signs: usize = [b'@', b'$', b'!', b'|', b'+'].map(|sign| profile.count(sign)).iter().sum();
    signs >= 4 && signs * 12 >= profile.letters_and_digits()
}

/// Rot47 turns small letters into the signs and digits from `2` to `K`.
fn looks_like_rot47(profile: &Profile) -> bool {
    let turned = profile.range(b'2'..=b'K');
    let shown = profile.length - profile.white();
    let marks = shown - profile.letters_and_digits();
    shown >= 12
        && (turned * 10 >= shown * 7 && marks * 20 >= shown
            || shown <= 128 && profile.white() == 0 && marks * 6 >= shown)
}
