//! Parses `~/.netrc`. Pure.

use super::Secret;

/// The login of `machine HOST`, else that of `default`.
pub(super) fn find(text: &str, host: &str) -> Option<Secret> {
    let mut words = split_words(text).into_iter();
    let (mut best, mut is_own, mut is_default) = (None, false, false);
    let (mut user, mut secret) = (None, None);
    loop {
        let word = words.next();
        let ends = matches!(word.as_deref(), None | Some("machine" | "default" | "macdef"));
        if ends && let Some(secret) = secret.take() {
            let found = Secret { user: user.take(), secret };
            match (is_own, is_default) {
                (true, _) => return Some(found),
                (false, true) if best.is_none() => best = Some(found),
                _ => {}
            }
        }
        match word.as_deref() {
            None => return best,
            Some("machine") => {
                (is_own, is_default) = (words.next()?.eq_ignore_ascii_case(host), false);
                (user, secret) = (None, None);
            }
            Some("default") => {
                (is_own, is_default) = (false, true);
                (user, secret) = (None, None);
            }
            Some("login") => user = words.next(),
            Some("password") => secret = words.next(),
            Some("account") => drop(words.next()),
            Some(_) => {}
        }
    }
}

/// Words between spaces, or between double quotes with `\` as escape. `#` begins a comment at the beginning of a word, and a
/// `macdef` extends to the next empty line.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut in_macro = false;
    for line in text.lines() {
        if in_macro {
            in_macro = !line.trim().is_empty();
            continue;
        }
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next().filter(|first| *first != '#') {
            let (word, left) = if first == '"' { split_quoted_word(rest) } else { split_bare_word(rest) };
            in_macro |= word == "macdef";
            words.push(word);
            rest = left.trim_start();
        }
    }
    words
}

fn split_bare_word(text: &str) -> (String, &str) {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word.to_owned(), rest)
}

fn split_quoted_word(text: &str) -> (String, &str) {
    let (mut word, mut is_escaped) = (String::new(), false);
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return (word, text.get(at + 1..).unwrap_or_default()),
            _ => {
                word.push(letter);
                is_escaped = false;
            }
        }
    }
    (word, "")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use proptest::prelude::*;

    fn of(text: &str, host: &str) -> Option<(Option<String>, String)> {
        find(text, host).map(|found| (found.user, found.secret))
    }

    #[test]
    fn netrc_entries_are_found_by_host() {
        let text = "# mine\nmachine a.example login ada password p1\nmachine b.example\n  login bob\n  password \"p \\\"2\"\n\
                    macdef init\nmachine c.example password no\n\nmachine d.example password p4 default login x password p5\n";
        let pair = |user: &str, secret: &str| Some((Some(user.to_owned()), secret.to_owned()));
        assert_eq!(of(text, "a.example"), pair("ada", "p1"));
        assert_eq!(of(text, "B.example"), pair("bob", "p \"2"));
        assert_eq!(of(text, "d.example"), Some((None, "p4".to_owned())));
        assert_eq!(of(text, "c.example"), pair("x", "p5"));
        assert_eq!(of("machine a.example login x", "a.example"), None);
        assert_eq!(of("machine", "a.example"), None);
        assert_eq!(of("machine a.example password \"open", "a.example"), Some((None, "open".to_owned())));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(machine |default |login |password |macdef |[a-z\"\\\\# \n]){0,60}") {
            let _ = of(&text, "a");
        }
    }
}
