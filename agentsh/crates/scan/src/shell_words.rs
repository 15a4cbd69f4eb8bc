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

/// The rule that each harmful command breaks, and its place. Linear time; of a command only what it does is kept, not its words.
pub fn harmful(text: &str) -> Vec<(&'static str, Range<usize>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    let (mut command, mut place) = (Command::None, 0..0);
    for part in text.split_inclusive(|letter: char| letter.is_whitespace() || is_separator(letter)) {
        let word = part.trim_end_matches(|letter: char| letter.is_whitespace() || is_separator(letter));
        if !word.is_empty() && word != "\\" {
            let plain: String = word.chars().filter(|letter| !matches!(letter, '"' | '\'' | '\\')).collect();
            if matches!(command, Command::None) {
                place.start = at;
            }
            place.end = at + word.len();
            command.take(&plain);
        }
        at += part.len();
        // A line goes on behind a backslash.
        let ends_line = part.ends_with('\n') && !part.trim_end_matches(['\n', '\r']).ends_with('\\');
        if ends_line || part.ends_with(is_separator) || at == text.len() {
            found.extend(command.rule().map(|rule| (rule, place.clone())));
            command = Command::None;
        }
    }
    found
}

/// A command so far.
enum Command {
    None,
    Rm {
        recursive: bool,
        force: bool,
        is_wide: bool,
        only_operands: bool,
    },
    /// The mode is the first operand.
    Chmod {
        opens: Option<bool>,
    },
    /// The words, but for more than are allowed.
    Su(Vec<String>),
    Other,
}

impl Command {
    fn take(&mut self, word: &str) {
        match self {
            Self::None if WRAPPERS.contains(&word) || word.contains('=') || word.starts_with('-') => {}
            Self::None => {
                *self = match word.rsplit('/').next() {
                    Some("rm") => {
                        Self::Rm { recursive: false, force: false, is_wide: false, only_operands: false }
                    }
                    Some("chmod") => Self::Chmod { opens: None },
                    Some("su") => Self::Su(Vec::new()),
                    _ => Self::Other,
                };
            }
            Self::Rm { recursive, force, is_wide, only_operands } => match word.strip_prefix('-') {
                _ if *only_operands => *is_wide |= self::is_wide(word),
                None => *is_wide |= self::is_wide(word),
                Some("-") => *only_operands = true,
                Some(flags) => {
                    let has = |letter: char, long: &str| match flags.strip_prefix('-') {
                        Some(name) => long.starts_with(name),
                        None => flags.to_lowercase().contains(letter),
                    };
                    *recursive |= has('r', "recursive");
                    *force |= has('f', "force");
                }
            },
            Self::Chmod { opens } => {
                if opens.is_none() && !is_option(word) {
                    *opens = Some(self::opens(word));
                }
            }
            Self::Su(words) if words.len() < 3 => words.push(word.to_owned()),
            Self::Su(_) | Self::Other => {}
        }
    }

    fn rule(&self) -> Option<&'static str> {
        let words = |words: &[String]| match words {
            [login] => matches!(login.as_str(), "-" | "-l" | "--login"),
            [login, user] => matches!(login.as_str(), "-" | "-l" | "--login") && user == "root",
            _ => false,
        };
        match self {
            Self::Rm { recursive: true, force: true, is_wide: true, .. } => Some(DELETES),
            Self::Chmod { opens: Some(true) } => Some(OPENS),
            Self::Su(said) if words(said) => Some(ROOT),
            _ => None,
        }
    }
}

fn is_separator(letter: char) -> bool {
    matches!(letter, ';' | '|' | '&' | '(' | ')' | '`')
}

/// `-x` is also a mode.
fn is_option(word: &str) -> bool {
    word.starts_with("--")
        || word.strip_prefix('-').is_some_and(|flags| flags.bytes().all(|flag| b"Rcfv".contains(&flag)))
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
        // However many operands are before it.
        assert_eq!(rules(&format!("rm -rf {} /", "a ".repeat(10_000))), [DELETES]);
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
