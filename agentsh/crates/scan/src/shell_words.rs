//! Commands in arguments as a shell reads them: with quotes, backslashes, and options in any order. Phrases find none of these.

use std::ops::Range;

const DELETES: &str = "delete-everything";
const OPENS: &str = "open-to-everybody";
const ROOT: &str = "become-root";
/// Words before a command that run it.
const WRAPPERS: [&str; 14] = [
    "sudo", "doas", "env", "xargs", "exec", "nohup", "time", "command", "then", "do", "else", "!", "-exec",
    "{",
];
/// Directories of the system.
const TOP: [&str; 16] = [
    "bin", "boot", "dev", "etc", "home", "lib", "lib64", "opt", "proc", "root", "run", "sbin", "srv", "sys",
    "usr", "var",
];

/// The rule that each harmful command breaks, and its place. Linear time: each word is read once.
pub fn harmful(text: &str) -> Vec<(&'static str, Range<usize>)> {
    let mut found = Vec::new();
    let mut words: Vec<(Range<usize>, String)> = Vec::new();
    let mut at = 0;
    for part in text.split_inclusive(|letter: char| letter.is_whitespace() || is_separator(letter)) {
        let word = part.trim_end_matches(|letter: char| letter.is_whitespace() || is_separator(letter));
        if !word.is_empty() && word != "\\" {
            let plain: String = word.chars().filter(|letter| !matches!(letter, '"' | '\'' | '\\')).collect();
            words.push((at..at + word.len(), plain));
        }
        at += part.len();
        // A line goes on behind a backslash.
        let ends_line = part.ends_with('\n') && !part.trim_end_matches(['\n', '\r']).ends_with('\\');
        if ends_line || part.ends_with(is_separator) || at == text.len() {
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
    let is_before = |word: &str| WRAPPERS.contains(&word) || word.contains('=') || word.starts_with('-');
    let first = words.iter().position(|(_, word)| !is_before(word)).unwrap_or_default();
    let Some((place, command)) = words.get(first) else { return };
    let rest: Vec<&str> = words[first + 1..].iter().map(|(_, word)| word.as_str()).collect();
    let rule = match command.rsplit('/').next() {
        Some("rm") if deletes_everything(&rest) => DELETES,
        Some("chmod") if rest.iter().find(|word| !is_option(word)).is_some_and(|mode| opens(mode)) => OPENS,
        Some("su") if matches!(rest[..], ["-" | "-l" | "--login"] | ["-" | "-l" | "--login", "root"]) => ROOT,
        _ => return,
    };
    let end = words.last().map_or(place.end, |(last, _)| last.end);
    found.push((rule, place.start..end));
}

/// `-x` is also a mode.
fn is_option(word: &str) -> bool {
    word.starts_with("--")
        || word.strip_prefix('-').is_some_and(|flags| flags.bytes().all(|flag| b"Rcfv".contains(&flag)))
}

/// `-rf`, `-v -r --force`, and an operand that is wide.
fn deletes_everything(words: &[&str]) -> bool {
    let options: Vec<&&str> =
        words.iter().take_while(|word| **word != "--").filter(|word| word.starts_with('-')).collect();
    let has = |letter: char, long: &str| {
        options.iter().any(|option| match option.strip_prefix("--") {
            Some(name) => long.starts_with(name) && !name.is_empty(),
            None => option.to_lowercase().contains(letter),
        })
    };
    has('r', "recursive") && has('f', "force") && words.iter().any(|word| is_wide(word))
}

/// The root, a directory of the system, the home, or a directory above.
fn is_wide(word: &str) -> bool {
    let place = word.trim_end_matches('*').trim_end_matches('/');
    let is_above = !place.is_empty() && place.split('/').all(|part| part == "..");
    let is_top = place.strip_prefix('/').is_some_and(|name| TOP.contains(&name));
    is_above || is_top || matches!(word, "/" | "/*") || matches!(place, "~" | "$HOME" | "${HOME}")
}

/// A mode with which everybody may write, or with which programs run as their owner.
fn opens(word: &str) -> bool {
    if word.len() >= 3 && word.bytes().all(|digit| matches!(digit, b'0'..=b'7')) {
        let mode = u32::from_str_radix(&word[word.len().saturating_sub(4)..], 8).unwrap_or_default();
        return mode & 0o002 != 0 && mode & 0o1000 == 0 || mode & 0o4000 != 0;
    }
    word.split(',').any(|clause| {
        let Some((who, what)) = clause.split_once(['+', '=']) else { return false };
        let is_who = who.bytes().all(|letter| matches!(letter, b'u' | b'g' | b'o' | b'a'));
        let is_what = !what.is_empty() && what.bytes().all(|letter| b"rwxst".contains(&letter));
        let is_open = what.contains('w') && who.contains(['a', 'o']);
        is_who && is_what && (is_open || what.contains('s') && who != "g")
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
            "rm -rf ../..",
            "rm -rf \\\n /",
            "sudo X=1 rm -rf /usr/*",
            "xargs -0 rm -rf /",
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
            "chmod +w file",
            "chmod 644 report 2026",
            "chmod 2775 shared",
            "opening hours: Su - Sa closed",
            "The suffix of su -",
            "rm -rf \"${dir}\"",
            "git rm -r -f --cached $FILE",
            "rm -rfv /tmp/x",
            "trap 'rm -rf \"$tmp\"' EXIT",
        ] {
            assert_eq!(rules(text), [""; 0], "{text}");
        }
    }
}
