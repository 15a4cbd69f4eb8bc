//! Secrets in tables: what stands below the name of one, between commas, tabs or bars.

use super::entities::{Entity, Kind};
use super::names::{is_secret_name, is_value};

/// Longest line of a table, in bytes, and its most rows.
const MAX_LINE: usize = 1024;
const MAX_ROWS: usize = 4096;
/// Longest name of a column.
const MAX_TITLE: usize = 40;

/// Reads the table whose first line `at` lies in, if it is one. Gives where it ends: what stands before is read.
pub(super) fn find(text: &str, at: usize, limit: usize, found: &mut Vec<Entity>) -> usize {
    let before = &text[text.floor_char_boundary(at.saturating_sub(MAX_LINE))..at];
    let start = at - before.len() + before.rfind('\n').map_or(0, |line| line + 1);
    let title = line(text, start);
    let mut end = start + title.len() + 1;
    let Some(separator) = ['|', '\t', ';', ','].into_iter().find(|separator| title.contains(*separator))
    else {
        return end;
    };
    let columns: Vec<usize> = title
        .split(separator)
        .enumerate()
        .filter(|(_, cell)| cell.len() <= MAX_TITLE && is_secret_name(plain(cell)))
        .map(|(column, _)| column)
        .collect();
    let count = title.matches(separator).count();
    for _ in 0..MAX_ROWS {
        let row = if end < text.len() { line(text, end) } else { "" };
        if columns.is_empty() || row.matches(separator).count() != count {
            break;
        }
        for (column, cell) in row.split(separator).enumerate() {
            let value = plain(cell);
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

/// The line that begins at `start`, as far as it is read.
fn line(text: &str, start: usize) -> &str {
    let rest = &text[start..text.floor_char_boundary(start + MAX_LINE)];
    &rest[..rest.find('\n').unwrap_or(rest.len())]
}

/// A cell without its quotes and spaces.
fn plain(cell: &str) -> &str {
    cell.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '*'))
}
