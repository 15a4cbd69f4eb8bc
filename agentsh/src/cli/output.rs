//! How the verbs that read the store print: a table in a terminal, tab-separated lines otherwise, or JSON; and
//! their exit statuses.

use std::io::{self, Write};
use std::path::PathBuf;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use jiff::Timestamp;
use serde::Serialize;

use super::exit::FAILED;
pub(super) use super::exit::{NO, OK, USAGE};
use crate::store::{StoreError, escape, state_dir};

/// Longest cell of a table, in characters.
const CELL: usize = 120;
/// Shown of a hash in a table.
const HASH_DIGITS: usize = 13;
/// A longer word may be broken where there is no room for it.
const LONG_WORD: usize = 24;

/// Where to read, when it is, and how wide the terminal is. A value, so that tests choose it.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub state_dir: PathBuf,
    pub now: Timestamp,
    /// Columns; None when standard output is no terminal.
    pub width: Option<u16>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    No(String),
    /// What was to be done could not be tried, or broke off.
    #[error("{0}")]
    Failed(String),
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
}

impl Context {
    pub(super) fn of_process() -> Result<Self, Failure> {
        Ok(Self { state_dir: state_dir()?, now: Timestamp::now(), width: terminal_width() })
    }

    /// A point in time, always in UTC: as people read it in a terminal; elsewhere as it stands on record.
    pub(super) fn time(&self, recorded: &str) -> String {
        match recorded.parse::<Timestamp>() {
            Ok(time) if self.width.is_some() => time.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            _ => recorded.to_owned(),
        }
    }

    /// The beginning of a hash in a terminal, which is enough to tell two apart; elsewhere all of it.
    pub(super) fn hash(&self, recorded: Option<&str>) -> String {
        let recorded = recorded.unwrap_or_default();
        match recorded.strip_prefix("sha256:") {
            Some(digits) if self.width.is_some() => escape::shorten(digits, HASH_DIGITS).into_owned(),
            _ => recorded.to_owned(),
        }
    }
}

/// Says what went wrong, if anything, and gives the exit status.
pub(super) fn finish(result: Result<u8, Failure>, err: &mut dyn Write) -> u8 {
    let failure = match result {
        Ok(status) => return status,
        Err(failure) => failure,
    };
    let status = match &failure {
        // Who reads the output has had enough.
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return OK,
        Failure::Store(StoreError::UnknownSession(_) | StoreError::AmbiguousSession(_))
        | Failure::Usage(_) => USAGE,
        Failure::No(_)
        | Failure::Store(
            StoreError::NoSession | StoreError::NoCandidate(_) | StoreError::OtherDigest { .. },
        ) => NO,
        Failure::Failed(_) | Failure::Store(_) | Failure::Output(_) => FAILED,
    };
    // With standard error gone there is nobody to tell.
    let _ = writeln!(err, "error: {}", escape::line(&failure.to_string()));
    status
}

/// Untrusted text in `rows` is escaped here. Gives the number of rows; none of them is no table in a terminal.
pub(super) fn table(
    out: &mut dyn Write,
    context: &Context,
    head: &[&str],
    rows: Vec<Vec<String>>,
) -> Result<usize, Failure> {
    let count = rows.len();
    if count == 0 && context.width.is_some() {
        return Ok(0);
    }
    let shorten = |cell: String| escape::shorten(&escape::line(&cell), CELL).into_owned();
    let rows = if context.width.is_none() {
        rows
    } else {
        rows.into_iter().map(|row| row.into_iter().map(shorten).collect()).collect()
    };
    out.write_all(render_table(head, rows, context.width).as_bytes())?;
    Ok(count)
}

/// Columns without lines in a terminal of that width, one row below the other where it is too narrow for columns, and
/// tab-separated lines without a terminal. Cells are escaped.
#[must_use]
pub(super) fn render_table(head: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let escaped = |row: Vec<String>| -> Vec<String> {
        row.iter().map(|cell| escape::line(cell).into_owned()).collect()
    };
    let rows: Vec<Vec<String>> = rows.into_iter().map(escaped).collect();
    let Some(width) = width else {
        let rows = rows.into_iter().map(|row| row.join("\t") + "\n");
        return std::iter::once(head.join("\t") + "\n").chain(rows).collect();
    };
    let needed: Vec<usize> = head.iter().enumerate().map(|(at, title)| narrowest(title, &rows, at)).collect();
    // With a space on either side of each column.
    if needed.iter().map(|column| column + 2).sum::<usize>() > usize::from(width) {
        return stacked(head, &rows);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(head.iter().map(|title| title.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    for (column, needed) in table.column_iter_mut().zip(needed) {
        let columns = u16::try_from(needed + 2).unwrap_or(u16::MAX);
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(columns)));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Characters below which a column would break a word that is not very long.
fn narrowest(title: &str, rows: &[Vec<String>], column: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(column));
    let words = cells.flat_map(|cell| cell.split(' ')).map(|word| word.chars().count().min(LONG_WORD));
    words.max().unwrap_or(0).max(title.chars().count())
}

fn stacked(head: &[&str], rows: &[Vec<String>]) -> String {
    let widest = head.iter().map(|title| title.chars().count()).max().unwrap_or(0);
    let one = |row: &Vec<String>| -> String {
        let cells = head.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        cells.map(|(title, cell)| format!("{title:<widest$}  {cell}\n")).collect()
    };
    rows.iter().map(one).collect::<Vec<_>>().join("\n")
}

/// For the end of a sentence that begins with "there".
pub(super) fn named(ids: &[String]) -> String {
    const SHOWN: usize = 20;
    let more = if ids.len() > SHOWN { ", …" } else { "" };
    match ids {
        [] => "is none".to_owned(),
        [only] => format!("is '{only}'"),
        several => {
            let shown: Vec<String> = several.iter().take(SHOWN).map(|id| format!("'{id}'")).collect();
            format!("are {}{more}", shown.join(", "))
        }
    }
}

/// Columns of the terminal that standard output is; None when it is none.
pub(super) fn terminal_width() -> Option<u16> {
    let stdout = io::stdout();
    let size = rustix::termios::isatty(&stdout).then(|| rustix::termios::tcgetwinsize(&stdout));
    size.map(|size| size.ok().map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(80))
}

/// Pretty-printed, with nothing in it that a terminal would obey.
pub(super) fn json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    writeln!(out, "{}", escape::json(&text))?;
    Ok(())
}
