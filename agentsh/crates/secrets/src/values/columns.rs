//! Secrets in tables (comma, tab, bar): the cells below a header that names a secret.

use super::entities::{Entity, Kind};
use crate::names::{is_secret_name, is_value};

/// Limits of a table: bytes of a line, and rows.
const MAX_LINE: usize = 1024;
const MAX_ROWS: usize = 4096;
/// Limit of a column's name.
const MAX_TITLE: usize = 40;

/// Reads the table at `at`, if there is one, and returns its end. Linear: a line that is too long is examined once.
pub(super) fn find(text: &str, at: usize, limit: usize, found: &mut Vec<Entity>) -> usize {
    let before = &text[text.floor_char_boundary(at.saturating_sub(MAX_LINE))..at];
    let begins = at - before.len();
    let start = match before.rfind('\n') {
        Some(line) => begins + line + 1,
        None if begins > 0 => return at + MAX_LINE,
        None => 0,
    };
    let Some(title) = line(text, start) else { return at + MAX_LINE };
    let mut end = start + title.len() + 1;
    let Some(separator) = ['|', '\t', ';', ','].into_iter().find(|separator| title.contains(*separator))
    else {
        return end;
    };
    let columns: Vec<usize> = title
        .split(separator)
        .enumerate()
        .filter(|(_, cell)| cell.len() <= MAX_TITLE && is_secret_name(unquoted_cell(cell)))
        .map(|(column, _)| column)
        .collect();
    let count = title.matches(separator).count();
    for _ in 0..MAX_ROWS {
        let row = line(text, end).filter(|row| row.matches(separator).count() == count);
        let Some(row) = row.filter(|_| !columns.is_empty()) else { break };
        for (column, cell) in row.split(separator).enumerate() {
            let value = unquoted_cell(cell);
            let is_whole = !value.contains(char::is_whitespace);
            if columns.contains(&column) && is_whole && is_value(value) && found.len() < limit {
                let start = value.as_ptr() as usize - text.as_ptr() as usize;
                found.push(Entity { kind: Kind::NamedSecret, start, end: start + value.len() });
            }
        }
        end += row.len() + 1;
    }
    end
}

/// The line at `start`; None if missing or too long.
fn line(text: &str, start: usize) -> Option<&str> {
    let rest = text.get(start..)?;
    let length = rest.as_bytes().iter().take(MAX_LINE + 1).position(|byte| *byte == b'\n');
    match length {
        Some(length) => rest.get(..length),
        None => Some(rest).filter(|rest| rest.len() <= MAX_LINE),
    }
}

/// A cell without quotes and spaces.
fn unquoted_cell(cell: &str) -> &str {
    cell.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '*'))
}
