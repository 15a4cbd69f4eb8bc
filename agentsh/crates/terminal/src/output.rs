//! Output of verbs that read the store: a table in a terminal, tab-separated lines otherwise, or JSON; and their exit
//! statuses.

use std::io::{self, Write};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use crate::exit::FAILED;
pub use crate::exit::{NO, OK, USAGE};
use crate::style::{BAD, paint};
use agentsh_base::escape;
use agentsh_base::types::RuleRef;
use agentsh_store::{StoreError, state_dir};

/// Longest cell of a table, in characters.
const MAX_CELL_CHARACTERS: usize = 120;
/// Shown of a hash in a table.
const HASH_DIGITS: usize = 13;

/// The state directory, the time and the width of the terminal. A value, so that tests choose it.
#[derive(Clone, Debug)]
pub struct Context {
    pub state_dir: PathBuf,
    pub now: Timestamp,
    /// Columns; None when standard output is not a terminal.
    pub width: Option<u16>,
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    No(String),
    /// The task could not be tried, or was interrupted.
    #[error("{0}")]
    Failed(String),
    /// A complete message with its line, printed unchanged.
    #[error("{0}")]
    Rendered(String),
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
}

impl Context {
    pub fn of_process() -> Result<Self, Failure> {
        Ok(Self { state_dir: state_dir()?, now: Timestamp::now(), width: terminal_width() })
    }

    /// A point in time, always in UTC: as people read it in a terminal; elsewhere as it is recorded.
    pub fn time(&self, recorded: &str) -> String {
        if self.width.is_some() { agentsh_store::shown_time(recorded) } else { recorded.to_owned() }
    }

    /// A rule in a terminal: its file by its name alone. Elsewhere as it is recorded.
    pub fn rule(&self, rule: &RuleRef) -> String {
        let name = rule.file.rsplit('/').next().unwrap_or_default();
        match self.width {
            Some(_) if rule.line > 0 => format!("{name}:{} ({})", rule.line, rule.id),
            _ => rule.to_string(),
        }
    }

    /// The beginning of a hash in a terminal, which is enough to tell two apart; elsewhere all of it.
    pub fn hash(&self, recorded: Option<&str>) -> String {
        let recorded = recorded.unwrap_or_default();
        match recorded.strip_prefix("sha256:") {
            Some(digits) if self.width.is_some() => escape::shorten(digits, HASH_DIGITS).into_owned(),
            _ => recorded.to_owned(),
        }
    }
}

/// Says what went wrong, if anything, and gives the exit status.
pub fn finish(result: Result<u8, Failure>, err: &mut dyn Write) -> u8 {
    let failure = match result {
        Ok(status) => return status,
        Err(failure) => failure,
    };
    let status = match &failure {
        // The reader of the output closed it.
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return OK,
        Failure::Store(StoreError::UnknownSession(_) | StoreError::AmbiguousSession(_))
        | Failure::Usage(_) => USAGE,
        Failure::No(_)
        | Failure::Store(
            StoreError::NoSession | StoreError::NoCandidate(_) | StoreError::OtherDigest { .. },
        ) => NO,
        Failure::Failed(_) | Failure::Rendered(_) | Failure::Store(_) | Failure::Output(_) => FAILED,
    };
    // Without standard error there is no way to report it.
    if let Failure::Rendered(text) = failure {
        let _ = err.write_all(text.as_bytes());
        return status;
    }
    let _ = writeln!(err, "{} {}", paint(BAD, "error:"), escape::line(&failure.to_string()));
    status
}

/// Untrusted text in `rows` is escaped here, and long cells are cut. Returns the number of rows; without rows nothing is
/// printed in a terminal.
pub fn table(
    out: &mut dyn Write,
    context: &Context,
    head: &[&str],
    rows: Vec<Vec<String>>,
) -> Result<usize, Failure> {
    let shorten = |cell: String| escape::shorten(&escape::line(&cell), MAX_CELL_CHARACTERS).into_owned();
    let rows = if context.width.is_none() {
        rows
    } else {
        rows.into_iter().map(|row| row.into_iter().map(shorten).collect()).collect()
    };
    whole_table(out, context, head, rows)
}

/// Like [`table`], with long cells in full.
pub fn whole_table(
    out: &mut dyn Write,
    context: &Context,
    head: &[&str],
    rows: Vec<Vec<String>>,
) -> Result<usize, Failure> {
    let count = rows.len();
    if count > 0 || context.width.is_none() {
        out.write_all(crate::table::render(head, rows, context.width).as_bytes())?;
    }
    Ok(count)
}

/// Like [`whole_table`], for lists without a head outside a terminal.
pub fn list(
    out: &mut dyn Write,
    width: Option<u16>,
    head: &[&str],
    rows: Vec<Vec<String>>,
) -> Result<(), Failure> {
    let text = crate::table::render(head, rows, width);
    let text = match width {
        Some(_) => text.as_str(),
        None => text.split_once('\n').map_or("", |(_, rows)| rows),
    };
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// For the end of a sentence that begins with "there".
pub fn list_of_ids(ids: &[String]) -> String {
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

/// Columns of the terminal on standard output; None if it is not a terminal.
pub fn terminal_width() -> Option<u16> {
    let stdout = io::stdout();
    let size = rustix::termios::isatty(&stdout).then(|| rustix::termios::tcgetwinsize(&stdout));
    size.map(|size| size.ok().map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(80))
}

/// Pretty-printed, with nothing in it that a terminal would obey.
pub fn json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from)?;
    writeln!(out, "{}", escape::json(&text))?;
    Ok(())
}

/// The text without colours.
#[must_use]
pub fn without_colour(text: Vec<u8>) -> String {
    String::from_utf8_lossy(&anstream::adapter::strip_bytes(&text).into_vec()).into_owned()
}
