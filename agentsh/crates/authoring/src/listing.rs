//! The lines of `policy show`: a value, and its origin. In a terminal they fit its width, and a rule does not repeat
//! the key in front of it; elsewhere each is one whole line.

use std::io::{self, Write};
use std::path::Path;

use unicode_width::UnicodeWidthStr;

use agentsh_base::types::RuleRef;
use agentsh_terminal::style::{QUIET, paint};
use agentsh_terminal::table::wrap;

/// Indentation of a continued line.
const INDENT: &str = "    ";

pub struct Listing<'a> {
    pub out: &'a mut dyn Write,
    /// Columns of the terminal; None if it is not a terminal.
    pub columns: Option<usize>,
    /// The column of the rules' places, if the line has room.
    pub aligned: usize,
    pub home: &'a Path,
}

impl Listing<'_> {
    /// A line about the whole.
    pub fn head(&mut self, text: &str) -> io::Result<()> {
        let Some(columns) = self.columns else { return writeln!(self.out, "# {text}") };
        let room = columns.saturating_sub(2);
        for piece in wrap(&self.shorten_home(text), room, room) {
            writeln!(self.out, "{}", paint(QUIET, &format!("# {piece}")))?;
        }
        Ok(())
    }

    pub fn line(&mut self, part: &str, comment: &str) -> io::Result<()> {
        let aligned = self.aligned;
        let Some(columns) = self.columns else {
            return writeln!(self.out, "{part:<aligned$}  # {comment}");
        };
        let (part, comment) = (self.shorten_home(part), format!("# {}", self.shorten_home(comment)));
        // Aligned with the others if there is space.
        let room = columns.saturating_sub(comment.width() + 2);
        if part.width() <= room {
            let gap = " ".repeat(aligned.min(room).saturating_sub(part.width()) + 2);
            return writeln!(self.out, "{part}{gap}{}", paint(QUIET, &comment));
        }
        let indented = columns.saturating_sub(INDENT.len());
        for (number, piece) in wrap(&part, columns, indented).iter().enumerate() {
            writeln!(self.out, "{}{piece}", if number > 0 { INDENT } else { "" })?;
        }
        for piece in wrap(&comment, indented, indented) {
            writeln!(self.out, "{INDENT}{}", paint(QUIET, &piece))?;
        }
        Ok(())
    }

    /// The place of a rule, for a line about `key`.
    pub fn rule(&self, rule: &RuleRef, key: &str) -> String {
        let id = rule.id.strip_prefix("sandbox.").unwrap_or(&rule.id);
        let id = id.split_once('[').map_or(id, |(list, _)| list);
        // A key that enables a section is listed for the whole section.
        let is_said = key.starts_with(id);
        match rule.line {
            _ if self.columns.is_none() || !is_said => rule.to_string(),
            0 => rule.file.clone(),
            line => format!("{}:{line}", rule.file),
        }
    }

    /// Paths in the home by `~`.
    fn shorten_home(&self, text: &str) -> String {
        let home = self.home.display().to_string();
        if home.len() < 2 { text.to_owned() } else { text.replace(&(home + "/"), "~/") }
    }
}
