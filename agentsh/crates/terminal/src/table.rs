//! Tables in a terminal: columns if they fit, otherwise one block for each row. Without a terminal, tab-separated
//! lines.

use unicode_width::UnicodeWidthStr;

use crate::style::{HEADING, QUIET, of_cell, paint};
use agentsh_base::escape;

/// Between two columns, and between two facts of a card.
const GAP: &str = "  ";
/// The last column may be wrapped down to this.
const MIN_LAST_COLUMN_WIDTH: usize = 24;

struct Column<'a> {
    title: &'a str,
    cells: Vec<String>,
    /// The width of the title and the widest cell.
    width: usize,
}

/// The rows, escaped, for a terminal of `width` columns or for none.
#[must_use]
pub fn render(head: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let escaped = |row: Vec<String>| -> Vec<String> {
        row.iter().map(|cell| escape::line(cell).into_owned()).collect()
    };
    let rows: Vec<Vec<String>> = rows.into_iter().map(escaped).collect();
    let Some(width) = width.map(usize::from) else {
        let rows = rows.into_iter().map(|row| row.join("\t") + "\n");
        return std::iter::once(head.join("\t") + "\n").chain(rows).collect();
    };
    let columns = columns(head, &rows);
    let Some(last) = columns.last() else { return String::new() };
    let total = columns.iter().map(|column| column.width + GAP.len()).sum::<usize>() - GAP.len();
    let before = total - last.width;
    if total <= width {
        lines(&columns, rows.len(), last.width)
    } else if before + MIN_LAST_COLUMN_WIDTH <= width {
        lines(&columns, rows.len(), width - before)
    } else {
        (0..rows.len()).map(|row| card(&columns, row, width)).collect()
    }
}

/// Empty columns are left out.
fn columns<'a>(head: &[&'a str], rows: &[Vec<String>]) -> Vec<Column<'a>> {
    let column = |(at, title): (usize, &&'a str)| {
        let cells: Vec<String> = rows.iter().map(|row| row.get(at).cloned().unwrap_or_default()).collect();
        let widest = cells.iter().map(|cell| cell.width()).max().unwrap_or(0);
        (widest > 0).then(|| Column { title, cells, width: widest.max(title.width()) })
    };
    head.iter().enumerate().filter_map(column).collect()
}

fn lines(columns: &[Column<'_>], rows: usize, last: usize) -> String {
    let mut text = String::new();
    let end = columns.len().saturating_sub(1);
    let pad = |text: &str, width: usize| " ".repeat(width.saturating_sub(text.width()));
    for (at, column) in columns.iter().enumerate() {
        let title = column.title.to_uppercase();
        text.push_str(&paint(HEADING, &title));
        text.push_str(&if at == end { "\n".to_owned() } else { pad(&title, column.width) + GAP });
    }
    let indent = columns.iter().take(end).map(|column| column.width + GAP.len()).sum();
    for row in 0..rows {
        let mut line = String::new();
        for (at, column) in columns.iter().enumerate() {
            let cell = column.cells.get(row).map(String::as_str).unwrap_or_default();
            let style = of_cell(column.title, cell);
            if at < end {
                line.push_str(&paint(style, cell));
                line.push_str(&(pad(cell, column.width) + GAP));
                continue;
            }
            for (number, piece) in wrap(cell, last, last).iter().enumerate() {
                if number > 0 {
                    line = line.trim_end().to_owned() + "\n" + &" ".repeat(indent);
                }
                line.push_str(&paint(style, piece));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The first cell, then the others as `title cell`, as many in a line as there is room for.
fn card(columns: &[Column<'_>], row: usize, width: usize) -> String {
    const INDENT: usize = 2;
    let mut text = String::new();
    let mut used = 0;
    let cells = columns
        .iter()
        .map(|column| (column.title, column.cells.get(row).map(String::as_str).unwrap_or_default()));
    for (at, (title, cell)) in cells.filter(|(_, cell)| !cell.is_empty()).enumerate() {
        let style = of_cell(title, cell);
        if at == 0 {
            let pieces = wrap(cell, width, width - INDENT.min(width));
            text.push_str(&pieces.iter().map(|piece| paint(HEADING, piece)).collect::<Vec<_>>().join("\n"));
            used = pieces.last().map_or(0, |piece| piece.width());
            continue;
        }
        let wanted = title.width() + 1 + cell.width();
        if used + GAP.len() + wanted <= width {
            text.push_str(GAP);
            used += GAP.len() + wanted;
        } else {
            text.push('\n');
            text.push_str(&" ".repeat(INDENT));
            used = INDENT + wanted;
        }
        text.push_str(&paint(QUIET, title));
        text.push(' ');
        let room = width.saturating_sub(2 * INDENT).max(1);
        let pieces = wrap(cell, width.saturating_sub(used - cell.width()).max(1), room);
        for (number, piece) in pieces.iter().enumerate() {
            if number > 0 {
                text.push('\n');
                text.push_str(&" ".repeat(2 * INDENT));
                used = 2 * INDENT + piece.width();
            }
            text.push_str(&paint(style, piece));
        }
    }
    text.push('\n');
    text
}

/// Behind these a long word is broken: between the parts of a path, the members of JSON.
const JOINTS: [char; 5] = ['/', ',', ':', ';', '='];

/// Pieces of at most `first` columns, then of at most `wait_for_room`. Only a word that has no room at all is broken, behind one
/// of [`JOINTS`] where there is one.
#[must_use]
pub fn wrap(text: &str, first: usize, room: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut left = first.max(1);
    for word in text.split(' ') {
        let mut word = word;
        let is_first = pieces.last().is_none_or(String::is_empty);
        let space = usize::from(!is_first);
        if word.width() + space > left && !is_first {
            pieces.push(String::new());
            left = room.max(1);
        } else if !is_first {
            if let Some(piece) = pieces.last_mut() {
                piece.push(' ');
            }
            left -= space;
        }
        while word.width() > left {
            let (front, rest) = word.split_at(breaking(word, left));
            if let Some(piece) = pieces.last_mut() {
                piece.push_str(front);
            }
            pieces.push(String::new());
            left = room.max(1);
            word = rest;
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push_str(word);
        }
        left = left.saturating_sub(word.width());
    }
    pieces
}

/// The byte at which to break a word that is wider than `room`: never before its first character.
fn breaking(word: &str, room: usize) -> usize {
    let (mut used, mut end, mut joint) = (0, 0, None);
    for (at, character) in word.char_indices() {
        used += character.to_string().width();
        if used > room && end > 0 {
            break;
        }
        end = at + character.len_utf8();
        if JOINTS.contains(&character) && at > 0 {
            joint = Some(end);
        }
    }
    joint.filter(|at| *at < word.len()).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn some() -> (Vec<&'static str>, Vec<Vec<String>>) {
        let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
        let rows = vec![
            row(["fs", "exited", "", "policy.yaml:3 (sandbox.mcp.tool_policy)", "/usr/bin/node"]),
            row(["git", "refused", "", "", "/home/user/.local/share/agentsh/store/trees/of/a/package"]),
        ];
        (vec!["server", "status", "never", "rule", "program"], rows)
    }

    fn plain(width: Option<u16>) -> String {
        let (head, rows) = some();
        anstream::adapter::strip_str(&render(&head, rows, width)).to_string()
    }

    #[test]
    fn table_is_printed_as_columns_or_cards() {
        insta::assert_snapshot!(plain(Some(120)), @r"
        SERVER  STATUS   RULE                                     PROGRAM
        fs      exited   policy.yaml:3 (sandbox.mcp.tool_policy)  /usr/bin/node
        git     refused                                           /home/user/.local/share/agentsh/store/trees/of/a/package
        ");
        insta::assert_snapshot!(plain(Some(90)), @r"
        SERVER  STATUS   RULE                                     PROGRAM
        fs      exited   policy.yaml:3 (sandbox.mcp.tool_policy)  /usr/bin/node
        git     refused                                           /home/user/.local/share/agentsh/
                                                                  store/trees/of/a/package
        ");
        insta::assert_snapshot!(plain(Some(60)), @r"
        fs  status exited
          rule policy.yaml:3 (sandbox.mcp.tool_policy)
          program /usr/bin/node
        git  status refused
          program /home/user/.local/share/agentsh/store/trees/of/a/
            package
        ");
        assert_eq!(plain(None).lines().next().unwrap(), "server\tstatus\tnever\trule\tprogram");
    }

    #[test]
    fn long_words_are_broken_between_their_parts() {
        let json = r#"{"name":"a.example.com","action":"block","reason":"name-not-allowed"}"#;
        assert_eq!(
            wrap(json, 30, 26),
            [r#"{"name":"a.example.com","#, r#""action":"block","reason":"#, r#""name-not-allowed"}"#]
        );
        assert_eq!(wrap("0123456789", 4, 4), ["0123", "4567", "89"]);
    }

    #[test]
    fn table_colours_only_state_cells() {
        let (head, mut rows) = some();
        rows[0][0] = "\u{1b}[31mfs".to_owned();
        let text = render(&head, rows, Some(120));
        assert!(
            text.contains("\u{1b}[31mrefused\u{1b}[0m") || text.contains("\u{1b}[1m\u{1b}[31mrefused"),
            "{text:?}"
        );
        assert!(text.contains("\\u{1b}[31mfs"), "{text:?}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 4..130_u16 {
            let text = plain(Some(width));
            let widest = text.lines().map(UnicodeWidthStr::width).max().unwrap();
            assert!(widest <= usize::from(width).max(12), "{width}: {text}");
        }
    }
}
