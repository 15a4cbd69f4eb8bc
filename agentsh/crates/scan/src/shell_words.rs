//! Commands in arguments as a shell reads them: with quotes, backslashes, and options in any order. Phrases find none of these.

use std::ops::Range;

const DELETES: &str = "delete-everything";
const OPENS: &str = "open-to-everybody";
const ROOT: &str = "become-root";
/// Words of a command that are looked at.
const MAX_WORDS: usize = 32;

/// The rule that each harmful command breaks, and its place. Linear time: each word is read once.
pub fn harmful(text: &str) -> Vec<(&'static str, Range<usize>)> {
    let mut found = Vec::new();
    let mut words: Vec<(Range<usize>, String)> = Vec::new();
    let mut at = 0;
    for part in text.split_inclusive(|letter: char| letter.is_whitespace() || is_separator(letter)) {
        let word = part.trim_end_matches(|letter: char| letter.is_whitespace() || is_separator(letter));
        if !word.is_empty() && words.len() < MAX_WORDS {
            let plain: String = word.chars().filter(|letter| !matches!(letter, '"' | '\'' | '\\')).collect();
            words.push((at..at + word.len(), plain.to_lowercase()));
        }
        at += part.len();
        if part.ends_with(|letter| letter == '\n' || is_separator(letter)) || at == text.len() {
            judge(&words, &mut found);
            words.clear();
        }
    }
    found
}

fn is_separator(letter: char) -> bool {
    matches!(letter, ';' | '|' | '&' | '(' | ')' | '`')
}

fn judge(words: &[(Range<usize>, String)], found: &mut Vec<(&'static str, Range<usize>)>) {
    for (at, (place, word)) in words.iter().enumerate() {
        let rest: Vec<&str> = words[at + 1..].iter().map(|(_, word)| word.as_str()).collect();
        let rule = match word.rsplit('/').next() {
            Some("rm") if deletes_everything(&rest) => DELETES,
            Some("chmod") if rest.iter().any(|word| opens(word)) => OPENS,
            Some("su") if matches!(rest.first(), Some(&("-" | "-l" | "--login"))) => ROOT,
            _ => continue,
        };
        let end = words.last().map_or(place.end, |(last, _)| last.end);
        found.push((rule, place.start..end));
        return;
    }
}

/// `-rf`, `-v -r --force`, and an operand below the root, the home or a variable, or the directory above.
fn deletes_everything(words: &[&str]) -> bool {
    let options: Vec<&&str> =
        words.iter().take_while(|word| **word != "--").filter(|word| word.starts_with('-')).collect();
    let has = |letter: char, long: &str| {
        options.iter().any(|option| match option.strip_prefix("--") {
            Some(name) => long.starts_with(name) && !name.is_empty(),
            None => option.contains(letter),
        })
    };
    let is_wide = |word: &&str| word.starts_with(['/', '~', '$']) || matches!(*word, ".." | "../" | "../*");
    has('r', "recursive") && has('f', "force") && words.iter().any(is_wide)
}

/// A mode with which everybody may write, or with which programs run as their owner.
fn opens(word: &str) -> bool {
    if word.len() >= 3 && word.bytes().all(|digit| matches!(digit, b'0'..=b'7')) {
        let mode = u32::from_str_radix(&word[word.len().saturating_sub(4)..], 8).unwrap_or_default();
        return mode & 0o002 != 0 && mode & 0o1000 == 0 || mode & 0o6000 != 0;
    }
    word.split(',').any(|clause| {
        let Some((who, what)) = clause.split_once(['+', '=']) else { return false };
        let is_who = who.bytes().all(|letter| matches!(letter, b'u' | b'g' | b'o' | b'a'));
        let is_what = !what.is_empty() && what.bytes().all(|letter| b"rwxst".contains(&letter));
        let is_open = what.contains('w') && (who.is_empty() || who.contains(['a', 'o']));
        is_who && is_what && (is_open || what.contains('s'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<&'static str> {
        harmful(text).into_iter().map(|(rule, _)| rule).collect()
    }

    #[test]
    fn commands_are_read_as_a_shell_reads_them() {
        for text in [
            "rm -rf \"/\"",
            "rm -rf '/'",
            "rm -rf \"$HOME\"",
            "rm -rf \\/",
            "rm -rf -- /",
            "rm -rfv /",
            "rm -v -rf /etc",
            "rm '-rf' /",
            "r\\m -rf /",
            "rm -rf ..",
            "cd /x && /bin/rm --recursive -f ~",
            "$(rm -fr /)",
            "x;rm -Rf /",
        ] {
            assert_eq!(rules(text), [DELETES], "{text}");
        }
        for text in ["chmod a=rwx /x", "chmod 7777 x", "chmod -R u+s,g-w x", "chmod o+w x", "chmod 0666 x"] {
            assert_eq!(rules(text), [OPENS], "{text}");
        }
        assert_eq!(rules("ls | su -"), [ROOT]);
        for text in [
            "rm -rf build/",
            "rm -rf node_modules dist && npm ci",
            "rm -r /tmp/x",
            "rm -f /tmp/x",
            "alarm -rf /",
            "farm rm",
            "chmod 644 x",
            "chmod +x x",
            "chmod 1777 /tmp",
            "chmod u=rw x",
            "su",
            "result -",
            "rm -rf -- build; ls /",
        ] {
            assert_eq!(rules(text), [""; 0], "{text}");
        }
    }
}
