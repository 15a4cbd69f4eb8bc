//! Splits a text as a shell does: commands, quotes, simple variables.

use std::collections::BTreeMap;

/// Stands for what only the running shell knows: `$(date)`, an unknown variable.
pub(super) const UNKNOWN: char = '\u{1}';
/// Variables that are remembered, and how long their values may be.
const MAX_VARIABLES: usize = 64;
const MAX_VALUE: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Word {
    pub text: String,
    /// The position of its first byte.
    pub at: usize,
    /// The word was quoted and contains spaces: perhaps a nested command.
    pub spaced: bool,
}

/// Splits into commands. Linear; what is filled in is bounded by the length of the text.
pub(super) fn commands(text: &str) -> Vec<Vec<Word>> {
    let mut reader = Reader { room: text.len() + 1024, ..Reader::default() };
    let mut characters = text.char_indices().peekable();
    let mut quote: Option<char> = None;
    // Quotes around the substitutions that are open, and which of them were opened by a backtick.
    let mut around: Vec<(Option<char>, bool)> = Vec::new();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        match (quote, character) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                reader.begin(at);
            }
            (Some('"') | None, '\\') if next.is_some() => {
                if let Some((_, escaped)) = characters.next()
                    && escaped != '\n'
                {
                    reader.push(escaped, at);
                }
            }
            (Some('"') | None, '$') if next == Some('(') => {
                characters.next();
                reader.substitution(at);
                around.push((quote.take(), false));
            }
            (Some('"') | None, '`') => {
                if let Some((before, _)) = around.pop_if(|(_, tick)| *tick) {
                    reader.end_substitution();
                    quote = before;
                } else {
                    reader.substitution(at);
                    around.push((quote.take(), true));
                }
            }
            (None, ')') if !around.is_empty() => {
                reader.end_substitution();
                quote = around.pop().and_then(|(before, _)| before);
            }
            (Some('"') | None, '$') => {
                let braced = next == Some('{');
                if braced {
                    characters.next();
                }
                let mut name = String::new();
                while let Some((_, part)) =
                    characters.peek().filter(|(_, c)| c.is_ascii_alphanumeric() || *c == '_')
                {
                    if name.len() < 64 {
                        name.push(*part);
                    }
                    characters.next();
                }
                if braced {
                    while characters.next().is_some_and(|(_, c)| c != '}' && c != '\n') {}
                }
                reader.variable(&name, at);
            }
            (Some(_), other) => {
                if other.is_whitespace() {
                    reader.word.spaced = true;
                }
                reader.push(other, at);
            }
            (None, ' ' | '\t' | '<' | '>') => reader.end_word(),
            (None, ';' | '|' | '&' | '\n' | '\r' | '(' | ')') => reader.end_command(),
            (None, other) => reader.push(other, at),
        }
    }
    while !reader.outer.is_empty() {
        reader.end_substitution();
    }
    reader.end_command();
    reader.commands
}

#[derive(Default)]
struct Reader {
    commands: Vec<Vec<Word>>,
    command: Vec<Word>,
    word: Word,
    open: bool,
    /// Commands around a substitution that is being read, each with its word.
    outer: Vec<(Vec<Word>, Word)>,
    variables: BTreeMap<String, String>,
    /// Bytes that variables may still fill in.
    room: usize,
}

impl Reader {
    fn begin(&mut self, at: usize) {
        if !self.open {
            self.open = true;
            self.word.at = at;
        }
    }

    fn push(&mut self, character: char, at: usize) {
        self.begin(at);
        self.word.text.push(character);
    }

    fn variable(&mut self, name: &str, at: usize) {
        self.begin(at);
        let value = self.variables.get(name).filter(|value| value.len() <= self.room);
        if let Some(value) = value {
            self.room -= value.len();
            self.word.text.push_str(value);
        } else {
            self.word.text.push(UNKNOWN);
        }
    }

    fn substitution(&mut self, at: usize) {
        self.begin(at);
        self.word.text.push(UNKNOWN);
        self.open = false;
        self.outer.push((std::mem::take(&mut self.command), std::mem::take(&mut self.word)));
    }

    fn end_substitution(&mut self) {
        self.end_command();
        if let Some((command, word)) = self.outer.pop() {
            (self.command, self.word, self.open) = (command, word, true);
        }
    }

    fn end_word(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let word = std::mem::take(&mut self.word);
        if self.command.is_empty()
            && let Some((name, value)) = word.text.split_once('=')
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            if value.len() <= MAX_VALUE
                && (self.variables.len() < MAX_VARIABLES || self.variables.contains_key(name))
            {
                self.variables.insert(name.to_owned(), value.to_owned());
            }
            return;
        }
        self.command.push(word);
    }

    fn end_command(&mut self) {
        self.end_word();
        let command = std::mem::take(&mut self.command);
        if !command.is_empty() {
            self.commands.push(command);
        }
    }
}
