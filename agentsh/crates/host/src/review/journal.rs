//! The journal of an apply, line by line, from which a killed one is finished or reverted, and a finished one undone.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::directory_handle::{Kind, Stamp, bytes};
use super::hard_links::UnlinkedName;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Begin(ApplyHeader),
    /// These are about to be written next to their places.
    Stage(Vec<Staged>),
    /// A file that is about to be put in place: everything for it is on disk.
    About(About),
    Done(AppliedChange),
    /// Not done after all.
    Dropped {
        number: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<UnlinkedName>,
    },
    End,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ApplyHeader {
    /// The selection; empty for everything.
    pub selected: Vec<Staged>,
    pub guarded: bool,
    pub is_undo: bool,
    /// The number of steps.
    pub total: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Staged {
    pub number: u32,
    #[serde(with = "bytes")]
    pub path: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    pub number: u32,
    #[serde(with = "bytes")]
    pub path: PathBuf,
    pub old: Option<Stamp>,
    pub new: Option<Mark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
}

/// The applied file contains a change of the layer and one from outside. The layer's own version contains only the first, so
/// it must never be applied over both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merged {
    Done(Stamp),
    Undone(Stamp),
}

impl Merged {
    #[must_use]
    pub fn reversed(&self) -> Self {
        match self {
            Self::Done(stamp) => Self::Undone(stamp.clone()),
            Self::Undone(stamp) => Self::Done(stamp.clone()),
        }
    }
}

/// The metadata by which an applied file is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub kind: Kind,
    pub mode: u32,
    /// SHA-256 of a file's content, or of where a link leads.
    pub hash: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppliedChange {
    pub number: u32,
    #[serde(with = "bytes")]
    pub path: PathBuf,
    pub was: Option<Stamp>,
    pub now: Option<Stamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
    /// The old file, if it has other names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<UnlinkedName>,
}

const JOURNAL: &str = "journal";
const OLD: &str = "old";
const PREFIX: &str = "apply-";

/// One apply or undo.
pub struct Run {
    pub number: u32,
    directory: PathBuf,
    file: File,
    pub lines: Vec<Line>,
}

impl Run {
    /// # Errors
    /// When it cannot be written.
    pub fn begin(review: &Path, begin: ApplyHeader) -> io::Result<Self> {
        let number = numbers(review).last().map_or(1, |last| last + 1);
        let directory = review.join(format!("{PREFIX}{number}"));
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        fs::DirBuilder::new().mode(0o700).create(directory.join(OLD))?;
        let file =
            fs::OpenOptions::new().append(true).create_new(true).mode(0o600).open(directory.join(JOURNAL))?;
        let mut run = Self { number, directory, file, lines: Vec::new() };
        run.write(vec![Line::Begin(begin)], true)?;
        Ok(run)
    }

    /// Reads an earlier one. A line that was cut off by a kill is ignored.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(review: &Path, number: u32) -> io::Result<Self> {
        let directory = review.join(format!("{PREFIX}{number}"));
        let path = directory.join(JOURNAL);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty()).map(serde_json::from_slice);
        let lines = lines.collect::<Result<Vec<Line>, _>>().map_err(io::Error::other)?;
        let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        file.set_len(whole as u64)?;
        Ok(Self { number, directory, file, lines })
    }

    /// Every one of a review, in order.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn all(review: &Path) -> io::Result<Vec<Self>> {
        numbers(review).into_iter().map(|number| Self::read(review, number)).collect()
    }

    /// The newest one of a review.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn last(review: &Path) -> io::Result<Option<Self>> {
        numbers(review).last().map(|number| Self::read(review, *number)).transpose()
    }

    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, lines: Vec<Line>, durable: bool) -> io::Result<()> {
        let mut text = Vec::new();
        for line in &lines {
            serde_json::to_writer(&mut text, line).map_err(io::Error::other)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)?;
        if durable {
            self.file.sync_data()?;
        }
        self.lines.extend(lines);
        Ok(())
    }

    /// Where the earlier versions are kept, by number.
    #[must_use]
    pub fn earlier_versions(&self) -> PathBuf {
        self.directory.join(OLD)
    }

    /// The path of a kept version, below the review's directory.
    #[must_use]
    pub fn earlier_version(&self, number: u32) -> PathBuf {
        Path::new(&format!("{PREFIX}{}", self.number)).join(OLD).join(number.to_string())
    }

    #[must_use]
    pub fn began(&self) -> ApplyHeader {
        let begin = self.lines.iter().find_map(|line| match line {
            Line::Begin(begin) => Some(begin.clone()),
            _ => None,
        });
        begin.unwrap_or_default()
    }

    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.lines.iter().any(|line| matches!(line, Line::End))
    }

    pub fn done(&self) -> impl DoubleEndedIterator<Item = &AppliedChange> {
        self.lines.iter().filter_map(|line| match line {
            Line::Done(done) => Some(done),
            _ => None,
        })
    }

    /// The unfinished steps of a killed apply.
    #[must_use]
    pub fn unfinished_steps(&self) -> Vec<About> {
        let is_settled = |number: u32| {
            self.lines.iter().any(|line| match line {
                Line::Done(done) => done.number == number,
                Line::Dropped { number: dropped, .. } => *dropped == number,
                _ => false,
            })
        };
        let about = self.lines.iter().filter_map(|line| match line {
            Line::About(about) => Some(about),
            _ => None,
        });
        // In one batch at the end: what came before is settled.
        let tail: Vec<&About> = about.rev().take(super::apply::BATCH).collect();
        tail.into_iter().rev().filter(|about| !is_settled(about.number)).cloned().collect()
    }

    /// Temporary files that the last batch may have written.
    #[must_use]
    pub fn staged(&self) -> Vec<Staged> {
        let last = self.lines.iter().rev().find_map(|line| match line {
            Line::Stage(staged) => Some(staged.clone()),
            _ => None,
        });
        last.unwrap_or_default()
    }
}

fn numbers(review: &Path) -> Vec<u32> {
    let entries = fs::read_dir(review).into_iter().flatten().flatten();
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix(PREFIX)?.parse().ok();
    let mut numbers: Vec<u32> = entries.filter_map(|entry| number(entry.file_name())).collect();
    numbers.sort_unstable();
    numbers
}
