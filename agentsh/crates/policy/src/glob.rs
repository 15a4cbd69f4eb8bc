//! Glob patterns of names: servers, tools, environment variables. `*` is any text, `?` is one character; the whole
//! name must match, with its case. There are no other wildcards.

/// Whether `text` matches. Takes at most `pattern.len() * text.len()` steps, without recursion or allocation.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    run(pattern, text, |wanted, found| wanted == '?' || wanted == found)
}

/// Whether everything that `inner` can match is matched by `outer` too. May say no where the answer is yes.
#[must_use]
pub fn covers(outer: &str, inner: &str) -> bool {
    // A wildcard of `inner` is a character here: `*` is matched only by a `*`, and `?` by either wildcard.
    run(outer, inner, |wanted, found| match wanted {
        '?' => found != '*',
        _ => wanted == found && found != '?',
    })
}

/// Whether the pattern has no wildcard.
#[must_use]
pub fn is_literal(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

/// Greedy matching: after a mismatch only the last `*` is worth trying again, one character further.
fn run(pattern: &str, text: &str, same: impl Fn(char, char) -> bool) -> bool {
    let (mut rest_pattern, mut rest) = (pattern, text);
    let mut retry: Option<(&str, &str)> = None;
    loop {
        let mut pattern_tail = rest_pattern.chars();
        let mut text_tail = rest.chars();
        match (pattern_tail.next(), text_tail.next()) {
            (Some('*'), _) => {
                rest_pattern = pattern_tail.as_str();
                retry = Some((rest_pattern, rest));
                continue;
            }
            (Some(wanted), Some(found)) if same(wanted, found) => {
                rest_pattern = pattern_tail.as_str();
                rest = text_tail.as_str();
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        let Some((after_star, from)) = retry else { return false };
        let mut shorter = from.chars();
        if shorter.next().is_none() {
            return false;
        }
        rest_pattern = after_star;
        rest = shorter.as_str();
        retry = Some((after_star, rest));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn glob_matches_the_texts_of_the_table() {
        for (pattern, text, expected) in [
            ("read_*", "read_file", true),
            ("read_*", "read_", true),
            ("read_*", "xread_file", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?", "", false),
            ("?", "é", true),
            ("*_TOKEN", "GITHUB_TOKEN", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("Read", "read", false),
            ("a.c", "abc", false),
            ("[ab]", "a", false),
            ("*?*?*", "x", false),
            ("a*", "a/b", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn glob_covers_the_narrower_globs_of_the_table() {
        for (outer, inner, expected) in [
            ("*", "a*b", true),
            ("a*", "ab*", true),
            ("ab*", "a*", false),
            ("?", "*", false),
            ("?", "?", true),
            ("a", "?", false),
            ("*", "*", true),
            ("a?", "ab", true),
        ] {
            assert_eq!(covers(outer, inner), expected, "{outer} over {inner}");
        }
    }

    #[test]
    fn glob_with_many_stars_is_fast() {
        let pattern = "*a".repeat(400) + "b";
        assert!(!matches(&pattern, &"a".repeat(20_000)));
    }

    /// The definition, written the slow way.
    fn oracle(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => {
                oracle(rest, text) || text.split_first().is_some_and(|(_, tail)| oracle(pattern, tail))
            }
            (Some((wanted, rest)), Some((found, tail))) => {
                (*wanted == '?' || wanted == found) && oracle(rest, tail)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn glob_agrees_with_its_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches(&pattern, &text), oracle(&p, &t));
        }

        #[test]
        fn glob_covering_is_sound(outer in "[ab*?]{0,6}", inner in "[ab*?]{0,6}", text in "[ab]{0,6}") {
            if covers(&outer, &inner) && matches(&inner, &text) {
                prop_assert!(matches(&outer, &text), "{} {} {}", outer, inner, text);
            }
        }
    }
}
