//! YAML front matter of instruction files. Parsed only as far as whole keys can be removed.

/// One key with its value.
pub(crate) struct Block<'t> {
    /// The key as written.
    pub key: String,
    value: &'t str,
    more: &'t [&'t str],
}

impl<'t> Block<'t> {
    fn of(lines: &'t [&'t str]) -> Option<Self> {
        let (first, more) = lines.split_first()?;
        let (key, value) = first.split_once(':')?;
        Some(Self { key: key.trim().to_owned(), value, more })
    }

    /// Whether this is the key, whatever its case and however its words are joined. `plain` is in lower case.
    pub fn is(&self, plain: &str) -> bool {
        crate::plain_key(&self.key) == plain
    }

    /// Whether the value is a word, or a list of words in any YAML notation, and all of them match.
    pub fn is_list_of(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        let inline = self.value.split(" #").next().unwrap_or_default().trim();
        let listed = inline.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(inline);
        let is_listed = |line: &&str| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line.strip_prefix('-').is_some_and(&is_wanted)
        };
        let is_none = listed.is_empty();
        (is_none || listed.split(',').all(&is_wanted)) && self.more.iter().all(is_listed)
    }
}

/// Servers with a command or a URL of their own, and not only names.
pub(crate) fn is_declaration(block: &Block<'_>) -> bool {
    block.is("mcpservers") && !block.is_list_of(is_name)
}

fn is_name(word: &str) -> bool {
    let word = word.trim().trim_matches(['"', '\'']);
    word.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | ' '))
}

/// The text without the keys that are `unwanted`; None if it is unchanged. Front matter is removed as a whole if keys
/// in it could be spelled in a way that is not understood here.
pub(crate) fn without_keys(text: &str, mut unwanted: impl FnMut(&Block<'_>) -> bool) -> Option<String> {
    let body = text.trim_start_matches('\u{feff}');
    let is_mark = |line: &str, mark: &str| {
        line.trim_end_matches(|letter: char| letter.is_whitespace() || letter == '\u{feff}') == mark
    };
    let mut lines = body.split_inclusive('\n');
    let first = lines.next().filter(|line| is_mark(line, "---"))?;
    let (mut front, mut rest, mut is_closed) = (Vec::new(), String::new(), false);
    for line in lines {
        if is_closed {
            rest.push_str(line);
        } else if is_mark(line, "---") || is_mark(line, "...") {
            is_closed = true;
            rest.push_str(line);
        } else {
            front.push(line);
        }
    }
    if !is_closed {
        // For Claude Code three dashes end it anywhere.
        let text = body.strip_prefix(first).unwrap_or_default();
        return text.contains("---").then(|| text.to_owned());
    }
    // If no key is at the margin, a line that begins with a space is a key, and not a continued value.
    let is_at_margin = front
        .iter()
        .find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .is_none_or(|line| !line.starts_with(char::is_whitespace));
    let breaks = ['\u{85}', '\u{2028}', '\u{2029}'];
    let is_one_line =
        |line: &&str| !line.trim_end_matches(['\r', '\n']).contains('\r') && !line.contains(breaks);
    // A key that is not a plain word is not understood here: nothing of such a file passes.
    if !is_at_margin || !front.iter().all(|line| is_plain(line) && is_one_line(line)) {
        return Some(rest.split_once('\n').map(|(_, body)| body.to_owned()).unwrap_or_default());
    }
    let (mut kept, mut taken, mut block) = (String::new(), false, Vec::new());
    let mut flush = |block: &mut Vec<&str>, kept: &mut String| {
        if Block::of(block).is_some_and(|block| unwanted(&block)) {
            taken = true;
        } else {
            kept.extend(block.iter().copied());
        }
        block.clear();
    };
    for line in front {
        let is_key = line.starts_with(|letter: char| letter.is_ascii_alphabetic());
        if is_key {
            flush(&mut block, &mut kept);
        }
        block.push(line);
    }
    flush(&mut block, &mut kept);
    taken.then(|| format!("{first}{kept}{rest}"))
}

/// `key: value`, a comment, an empty line, or the continuation of the line above.
fn is_plain(line: &str) -> bool {
    let Some(letter) = line.chars().next() else { return true };
    if letter.is_whitespace() || matches!(letter, '#' | '-') {
        return true;
    }
    let key = line.split(':').next().unwrap_or_default();
    letter.is_ascii_alphabetic()
        && line.contains(':')
        && key.trim_end().chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
}
