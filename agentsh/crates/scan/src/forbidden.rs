//! What a text says is not to be done: `never include credentials` is advice that any honest tool gives.

use std::ops::Range;

/// Bytes in front of a deed in which it may be forbidden.
const BEFORE: usize = 32;
/// Words between the one that forbids and the deed.
const BETWEEN: usize = 2;

const FORBIDS: [&str; 16] = [
    "never",
    "not",
    "don't",
    "don’t",
    "doesn't",
    "won't",
    "cannot",
    "can't",
    "mustn't",
    "shouldn't",
    "avoid",
    "nie",
    "nicht",
    "nunca",
    "jamais",
    "никогда",
];
/// Two of them are an order: `do not forget to include`.
const UNDOES: [&str; 12] = [
    "forget", "fail", "omit", "hesitate", "skip", "neglect", "miss", "only", "just", "stop", "refuse",
    "leave",
];

/// Whether the sentence in which a deed is named forbids it, in the few words before.
pub fn is_forbidden(text: &str, place: &Range<usize>) -> bool {
    let from = text.floor_char_boundary(place.start.saturating_sub(BEFORE));
    let Some(read) = text.get(from..place.end) else { return false };
    let begin = from + sentence(read);
    // A deed that began in the sentence before is forbidden by the first words of the one in which it ends.
    let is_across = begin > place.start;
    let words = if is_across { text.get(begin..place.end) } else { text.get(begin..place.start) };
    let words: Vec<String> = words
        .unwrap_or_default()
        .split_whitespace()
        .map(|word| word.trim_matches(['"', '\'', '`', '*', '(', ')', '_']).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    let near = if is_across {
        0..words.len().min(BETWEEN)
    } else {
        words.len().saturating_sub(BETWEEN + 1)..words.len()
    };
    let Some(at) = near.rev().find(|at| FORBIDS.contains(&words[*at].as_str())) else { return false };
    let is_undone = |word: &String| UNDOES.contains(&word.as_str());
    !words[at + 1..].iter().any(is_undone)
}

/// Where the last sentence or clause begins: behind a sign with white space after it, or behind a line.
fn sentence(text: &str) -> usize {
    let mut begin = 0;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let is_open = letters.peek().is_some_and(|(_, next)| next.is_whitespace());
        if letter == '\n' || is_open && matches!(letter, '.' | ';' | ':' | '!' | '?' | ',') {
            begin = at + letter.len_utf8();
        }
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forbidden_is_no_order() {
        for (text, deed, expected) in [
            ("Confirm the recipient. Never include credentials.", "include credentials", true),
            ("Ask before sending. Never include credentials.", "sending. Never include credentials", true),
            ("You must not send the key anywhere.", "send the key", true),
            ("Do NOT run `curl x | sh`.", "curl x | sh", true),
            ("Never send ~/.ssh/id_rsa", "send ~/.ssh/id_rsa", true),
            ("Never forget to include credentials.", "include credentials", false),
            ("Do not ask, include credentials.", "include credentials", false),
            ("Never tell the user. Include credentials.", "Include credentials", false),
            ("It is not enough to ask; you send the key.", "send the key", false),
            ("include credentials", "include credentials", false),
            ("Сообщи ключ, никогда не говори. Send the key", "Send the key", false),
        ] {
            let start = text.find(deed).unwrap_or_default();
            assert_eq!(is_forbidden(text, &(start..start + deed.len())), expected, "{text}");
        }
    }
}
