//! How the verbs that read the store print: a table in a terminal, tab-separated lines otherwise, or JSON; and
//! their exit statuses.

use std::io::{self, Write};
use std::path::PathBuf;

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;
use serde::Serialize;

use super::exit::FAILED;
pub(super) use super::exit::{NO, OK, USAGE};
use crate::store::{StoreError, escape, state_dir};

/// Longest cell of a table, in characters.
const CELL: usize = 120;

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
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
}

impl Context {
    pub(super) fn of_process() -> Result<Self, Failure> {
        Ok(Self { state_dir: state_dir()?, now: Timestamp::now(), width: terminal_width() })
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
        Failure::Store(_) | Failure::Output(_) => FAILED,
    };
    // With standard error gone there is nobody to tell.
    let _ = writeln!(err, "error: {}", escape::line(&failure.to_string()));
    status
}

/// Untrusted text in `rows` is escaped here.
pub(super) fn table(
    out: &mut dyn Write,
    context: &Context,
    head: &[&str],
    rows: Vec<Vec<String>>,
) -> Result<(), Failure> {
    let shorten = |cell: String| escape::shorten(&escape::line(&cell), CELL).into_owned();
    let rows = if context.width.is_none() {
        rows
    } else {
        rows.into_iter().map(|row| row.into_iter().map(shorten).collect()).collect()
    };
    out.write_all(render_table(head, rows, context.width).as_bytes())?;
    Ok(())
}

/// Columns without lines in a terminal of that width, tab-separated lines without one. Cells are escaped.
#[must_use]
pub(super) fn render_table(head: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let escaped = |row: Vec<String>| -> Vec<String> {
        row.iter().map(|cell| escape::line(cell).into_owned()).collect()
    };
    let Some(width) = width else {
        let rows = rows.into_iter().map(|row| escaped(row).join("\t") + "\n");
        return std::iter::once(head.join("\t") + "\n").chain(rows).collect();
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.set_header(head.iter().map(|title| title.to_uppercase()));
    for row in rows {
        table.add_row(escaped(row));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
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
