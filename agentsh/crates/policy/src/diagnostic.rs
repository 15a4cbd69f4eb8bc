//! Mistakes in a policy file, shown with their place.

use std::fmt::Write as _;

use crate::types::RuleRef;

/// Longest piece of a source line that a message repeats, in characters.
const LINE_SHOWN: usize = 160;

/// One error, with everything needed to print it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub file: String,
    /// Counted from 1; 0 when the mistake is not at one line.
    pub line: u64,
    /// In characters, counted from 1.
    pub column: u64,
    /// Characters to underline.
    pub width: u64,
    pub message: String,
    /// Stands next to the underline; may be empty.
    pub label: String,
    pub help: Option<String>,
    source_line: String,
}

/// Why a policy cannot be used. `Display` is one line; [`PolicyError::render`] shows the source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot read the policy {file}: {why}")]
    Unreadable { file: String, why: String },
    #[error("there is no policy `{name}`: {help}")]
    Unknown { name: String, help: String },
    #[error("there is no profile `{name}`: {help}")]
    UnknownProfile { name: String, help: String },
    #[error("{}: {}", printable(flag), printable(why))]
    Flag { flag: String, why: String },
    #[error("{}", summary(.0))]
    Invalid(Vec<Diagnostic>),
}

/// A place in a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextPosition {
    pub line: u64,
    pub column: u64,
    pub width: u64,
}

/// The text of a policy file, kept to quote from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'t> {
    pub name: &'t str,
    pub text: &'t str,
}

impl PolicyError {
    /// Every mistake with its source line underlined, ready for a terminal: control characters of the file are
    /// replaced. Ends with a line break.
    #[must_use]
    pub fn render(&self) -> String {
        match self {
            Self::Invalid(diagnostics) => {
                diagnostics.iter().map(Diagnostic::render).collect::<Vec<_>>().join("\n")
            }
            other => format!("error: {other}\n"),
        }
    }

    /// The mistakes one by one; empty when the file could not be read at all.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Invalid(diagnostics) => diagnostics,
            _ => &[],
        }
    }
}

impl Diagnostic {
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let _ = writeln!(out, "error: {}", printable(&self.message));
        if self.line == 0 {
            let _ = writeln!(out, " --> {}", printable(&self.file));
        } else {
            let underline = "^".repeat(usize::try_from(self.width.clamp(1, 80)).unwrap_or(1));
            let indent = " ".repeat(usize::try_from(self.column.saturating_sub(1).min(200)).unwrap_or(0));
            let _ = writeln!(out, "{margin}--> {}:{}:{}", printable(&self.file), self.line, self.column);
            let _ = writeln!(out, "{margin} |");
            let _ = writeln!(out, "{number} | {}", self.source_line);
            let marked = format!("{margin} | {indent}{underline} {}", printable(&self.label));
            let _ = writeln!(out, "{}", marked.trim_end());
        }
        if let Some(help) = &self.help {
            let _ = writeln!(out, "{margin} = help: {}", printable(help));
        }
        out
    }
}

impl Source<'_> {
    pub fn diagnostic(
        &self,
        place: TextPosition,
        message: impl Into<String>,
        label: impl Into<String>,
        help: Option<String>,
    ) -> Diagnostic {
        let line = usize::try_from(place.line).unwrap_or(0);
        let source_line = line.checked_sub(1).and_then(|index| self.text.lines().nth(index)).unwrap_or("");
        Diagnostic {
            file: self.name.to_owned(),
            line: place.line,
            column: place.column,
            width: place.width,
            message: message.into(),
            label: label.into(),
            help,
            source_line: printable(&source_line.chars().take(LINE_SHOWN).collect::<String>()),
        }
    }

    /// For a rule whose line is known and whose column is not: underlines the whole line.
    pub fn diagnostic_for_rule(
        &self,
        rule: &RuleRef,
        message: impl Into<String>,
        help: Option<String>,
    ) -> Diagnostic {
        let index = usize::try_from(rule.line).unwrap_or(0).checked_sub(1);
        let line = index.and_then(|index| self.text.lines().nth(index)).unwrap_or("");
        let body = line.trim_start();
        let column = (line.chars().count() - body.chars().count()) as u64 + 1;
        let width = body.trim_end().chars().take(LINE_SHOWN).count() as u64;
        self.diagnostic(TextPosition { line: rule.line, column, width }, message, "", help)
    }
}

/// The closest of `known` to what was written, if it is close enough to be a slip of the finger.
pub(super) fn closest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let short: String = written.chars().take(64).collect();
    known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&short, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count() / 4)
        .min()
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` or `c`.
pub(super) fn one_of(known: &[&str]) -> String {
    let quoted: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}

/// A policy may come from a cloned repository: what it says must not drive the terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            // Marks that reorder or hide text.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                '\u{fffd}'
            }
            c => c,
        })
        .collect()
}

fn summary(diagnostics: &[Diagnostic]) -> String {
    let Some(first) = diagnostics.first() else { return "the policy is invalid".to_owned() };
    let mut line = printable(&first.file);
    if first.line > 0 {
        let _ = write!(line, ":{}:{}", first.line, first.column);
    }
    let _ = write!(line, ": {}", printable(&first.message));
    if let Some(help) = &first.help {
        let _ = write!(line, " ({})", printable(help));
    }
    if diagnostics.len() > 1 {
        let _ = write!(line, ", and {} more", diagnostics.len() - 1);
    }
    line
}
