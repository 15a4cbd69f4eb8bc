//! Globs over names: `*` is any run of characters (also none), `?` is exactly one. The whole name must match, and
//! upper and lower case differ.

/// Whether `name` matches `pattern`. Takes at most pattern x name steps and no memory, for any input.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut name = name.chars();
    // Where to go on when the last `*` has to take one more character. Only the last one counts: whatever an earlier
    // one could take more, the last one can take as well.
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let mut after = pattern.clone();
        match after.next() {
            Some('*') => {
                pattern = after;
                retry = Some((pattern.clone(), name.clone()));
                continue;
            }
            None if name.as_str().is_empty() => return true,
            wanted => {
                let found = name.next();
                let Some(found) = found else { return false };
                if wanted == Some('?') || wanted == Some(found) {
                    pattern = after;
                    continue;
                }
            }
        }
        let Some((star, rest)) = retry.as_mut() else { return false };
        if rest.next().is_none() {
            return false;
        }
        pattern = star.clone();
        name = rest.clone();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("read_file", "read_file", true),
            ("read_file", "read_files", false),
            ("read_file", "Read_file", false),
            ("read_*", "read_", true),
            ("read_*", "read_a/b", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("?", "", false),
            ("?", "é", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*_file", "read_file_file", true),
            ("*a*b", "xaxxb", true),
            ("*a*b", "xaxxbx", false),
            ("**", "x", true),
            ("*.", "a..", true),
            ("exec_*", "my_exec_x", false),
            ("[ab]", "a", false),
            ("[ab]", "[ab]", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_a_product() {
        assert!(!matches(&"*a".repeat(200), &"a".repeat(2_000).replace("aaaaaaaaaa", "aaaaaaaaab")));
        assert!(!matches(&("*a".repeat(100) + "b"), &"a".repeat(5_000)));
    }

    fn oracle(pattern: &[char], name: &[char]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some('*'), _) => {
                oracle(&pattern[1..], name) || (!name.is_empty() && oracle(pattern, &name[1..]))
            }
            (Some('?'), Some(_)) => oracle(&pattern[1..], &name[1..]),
            (Some(wanted), Some(found)) => wanted == found && oracle(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab?*]{0,8}", name in "[abc]{0,8}") {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &name), oracle(&letters(&pattern), &letters(&name)));
        }
    }
}
