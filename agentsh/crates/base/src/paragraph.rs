//! Wraps messages in a terminal between words, and never inside text that a person copies.

use std::borrow::Cow;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use unicode_width::UnicodeWidthStr;

/// Before what continues a line.
const INDENT: usize = 2;

/// `text` for that stream: wrapped in a terminal, otherwise unchanged.
#[must_use]
pub fn wrap_for_stream<'t>(text: &'t str, stream: &impl AsFd) -> Cow<'t, str> {
    match columns(stream) {
        Some(columns) => wrap_lines(text, columns),
        None => Cow::Borrowed(text),
    }
}

/// A stream whose lines are folded when they are whole.
pub struct Folding<W: Write> {
    stream: W,
    /// None: nothing is folded.
    columns: Option<usize>,
    line: Vec<u8>,
}

impl<W: Write> Folding<W> {
    pub fn new(stream: W, columns: Option<usize>) -> Self {
        Self { stream, columns, line: Vec::new() }
    }
}

impl<W: Write> Write for Folding<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(columns) = self.columns else { return self.stream.write(bytes) };
        let (whole, rest) =
            bytes.split_at(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        self.line.extend_from_slice(whole);
        if !whole.is_empty() {
            let whole = std::mem::take(&mut self.line);
            self.stream.write_all(wrap_lines(&String::from_utf8_lossy(&whole), columns).as_bytes())?;
        }
        self.line.extend_from_slice(rest);
        Ok(bytes.len())
    }

    /// An incomplete line, such as a question, is written as it is.
    fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&std::mem::take(&mut self.line))?;
        self.stream.flush()
    }
}

impl<W: Write> Drop for Folding<W> {
    fn drop(&mut self) {
        // Without the stream there is no way to report it.
        let _ = self.flush();
    }
}

/// Whether a stream is a terminal. The standard streams, which stay what they are, are asked once in the life of a process.
#[must_use]
pub fn is_terminal(stream: &impl AsFd) -> bool {
    static STANDARD: [OnceLock<bool>; 3] = [const { OnceLock::new() }; 3];
    let stream = stream.as_fd();
    let known = usize::try_from(stream.as_raw_fd()).ok().and_then(|number| STANDARD.get(number));
    let ask = || rustix::termios::isatty(stream);
    known.map_or_else(ask, |known| *known.get_or_init(ask))
}

/// How wide the terminal is; None if the output is not a terminal.
#[must_use]
pub fn columns(stream: &impl AsFd) -> Option<usize> {
    if !is_terminal(stream) {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok();
    Some(size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80))
}

/// Lines of at most `columns` columns. What is between backticks, in braces or in brackets is kept together, since it
/// is there to be copied, and so is a line that is a command; where that alone is wider than a line, the terminal breaks it, which
/// copies well.
#[must_use]
pub fn wrap_lines(text: &str, columns: usize) -> Cow<'_, str> {
    if text.lines().all(|line| width(line) <= columns) {
        return Cow::Borrowed(text);
    }
    let mut folded = String::with_capacity(text.len() + text.len() / 16);
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        if width(line) <= columns || line.starts_with("  agentsh ") {
            folded.push_str(line);
        } else {
            push_folded(&mut folded, line, columns);
        }
        folded.push_str(end);
    }
    Cow::Owned(folded)
}

fn push_folded(folded: &mut String, line: &str, columns: usize) {
    let body = line.trim_start_matches(' ');
    let margin = line.len() - body.len();
    let indent = " ".repeat((margin + INDENT).min(columns / 2));
    folded.push_str(&line[..margin]);
    let mut used = margin;
    for (number, piece) in pieces(body).into_iter().enumerate() {
        let width = width(piece);
        if number > 0 && used + 1 + width > columns {
            folded.push('\n');
            folded.push_str(&indent);
            used = indent.len();
        } else if number > 0 {
            folded.push(' ');
            used += 1;
        }
        folded.push_str(piece);
        used += width;
    }
}

/// Columns that a text takes. Sequences for colour take none.
fn width(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    let shown = |part: &str| part.split_once('m').map_or(part, |(_, rest)| rest).width();
    first + parts.map(shown).sum::<usize>()
}

/// Words, and several of them where they belong together. What is opened and not closed is taken as words.
fn pieces(line: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    let mut open = Open::default();
    while start < line.len() {
        let end = line[at..].find(' ').map_or(line.len(), |length| at + length);
        open.read(&line[at..end]);
        let is_key = line[end..].starts_with(" {") || line[end..].starts_with(" [");
        if end == line.len() || (open.is_closed() && !(is_key && line[at..end].ends_with(':'))) {
            if open.is_closed() {
                pieces.push(&line[start..end]);
            } else {
                pieces.extend(line[start..end].split(' '));
            }
            start = (end + 1).min(line.len());
            open = Open::default();
        }
        at = (end + 1).min(line.len());
    }
    pieces
}

#[derive(Default)]
struct Open {
    is_quoted: bool,
    brackets: usize,
}

impl Open {
    fn read(&mut self, word: &str) {
        let mut before = ' ';
        for character in word.chars() {
            match character {
                // The beginning of a colour.
                '[' if before == '\x1b' => {}
                '`' => self.is_quoted = !self.is_quoted,
                '{' | '[' => self.brackets += 1,
                '}' | ']' => self.brackets = self.brackets.saturating_sub(1),
                _ => {}
            }
            before = character;
        }
    }

    fn is_closed(&self) -> bool {
        !self.is_quoted && self.brackets == 0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn paragraph_lines_end_between_words() {
        assert_eq!(wrap_lines("one two three four", 9), "one two\n  three\n  four");
        assert_eq!(wrap_lines("  refused: one two three", 16), "  refused: one\n    two three");
        assert_eq!(wrap_lines("short\nand a longer line\n", 12), "short\nand a longer\n  line\n");
        assert!(matches!(wrap_lines("as it is\n", 80), Cow::Borrowed(_)));
    }

    #[test]
    fn commands_and_policy_pieces_stay_in_one_line() {
        assert_eq!(wrap_lines("  agentsh policy allow a b", 20), "  agentsh policy allow a b");
        let text = "refused by default; to allow it: agent: {network: {allow: [\"a.example\", b]}}; or `agentsh run --allow a.example`";
        let folded = wrap_lines(text, 50);
        let lines: Vec<&str> = folded.lines().collect();
        assert_eq!(
            lines,
            [
                "refused by default; to allow it:",
                "  agent: {network: {allow: [\"a.example\", b]}}; or",
                "  `agentsh run --allow a.example`",
            ]
        );
        // Wider than a line: left to the terminal.
        assert!(
            wrap_lines(text, 30)
                .lines()
                .any(|line| line == "  agent: {network: {allow: [\"a.example\", b]}};")
        );
    }

    #[test]
    fn colour_sequences_have_no_width() {
        assert_eq!(wrap_lines("\x1b[1;31merror:\x1b[0m one two", 14), "\x1b[1;31merror:\x1b[0m one two");
        assert_eq!(wrap_lines("\x1b[1;31merror:\x1b[0m one two", 10), "\x1b[1;31merror:\x1b[0m one\n  two");
    }

    #[test]
    fn paragraph_stream_is_folded_line_by_line() {
        let mut bytes = Vec::new();
        {
            let mut stream = Folding::new(&mut bytes, Some(10));
            for piece in ["one two ", "three\nfour five six", "\nwhat now? "] {
                stream.write_all(piece.as_bytes()).unwrap();
            }
        }
        assert_eq!(String::from_utf8(bytes).unwrap(), "one two\n  three\nfour five\n  six\nwhat now? ");
        let mut bytes = Vec::new();
        Folding::new(&mut bytes, None).write_all(b"one two three four").unwrap();
        assert_eq!(bytes, b"one two three four");
    }

    #[test]
    fn unclosed_backtick_or_bracket_is_folded_as_words() {
        assert_eq!(
            wrap_lines("it's [open and `never closed at all", 20),
            "it's [open and\n  `never closed at\n  all"
        );
        assert_eq!(wrap_lines("a  b", 2), "a \n b");
    }

    #[test]
    fn folding_keeps_every_word_in_linear_time() {
        let text = "[ word` {".repeat(20_000);
        let folded = wrap_lines(&text, 40);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&folded), words(&text));
    }
}
