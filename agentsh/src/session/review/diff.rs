//! Differences for a person: unified, bounded, and safe to show on a terminal.

use std::path::Path;

use similar::{ChangeTag, TextDiff};

use super::beneath::{Beneath, Kind, Stamp};
use super::changes::{Change, Trees};
use crate::store::escape;

/// A larger file is told by its size.
const MOST_BYTES: u64 = 1 << 20;
const MOST_COLUMNS: usize = 400;
/// Lines of one file.
const MOST_LINES: usize = 2_000;

/// What of one file is shown.
#[derive(Debug, Default)]
pub struct Diff {
    pub added: usize,
    pub removed: usize,
    /// Lines with their sign; safe to show.
    pub lines: Vec<String>,
}

/// Between the project as it is and the layer.
#[must_use]
pub fn of(trees: &Trees, change: &Change) -> Diff {
    let old = side(&trees.project, &change.path, change.was.as_ref());
    let new = match &change.merged {
        Some(text) => Side::Text(text.clone()),
        None => side(&trees.upper, &change.path, change.now.as_ref()),
    };
    let mut diff = match (&old, &new) {
        (Side::Text(old), Side::Text(new)) => texts(old, new),
        (Side::Nothing, Side::Text(new)) => texts("", new),
        (Side::Text(old), Side::Nothing) => texts(old, ""),
        (Side::Directory, Side::Nothing | Side::Directory) | (Side::Nothing, Side::Directory) => {
            Diff::default()
        }
        _ => Diff { lines: vec![format!("  {} -> {}", old.word(), new.word())], ..Diff::default() },
    };
    let modes = change.was.as_ref().zip(change.now.as_ref()).filter(|(was, now)| {
        was.kind == now.kind && now.kind != Kind::Link && was.given_mode() != now.given_mode()
    });
    if let Some((was, now)) = modes {
        diff.lines.insert(0, format!("  mode {:o} -> {:o}", was.given_mode(), now.given_mode()));
    }
    if change.now.as_ref().is_some_and(|now| now.kind == Kind::File && now.mode & 0o6000 != 0) {
        diff.lines.insert(0, "  its set-id bits are never applied".to_owned());
    }
    diff
}

enum Side {
    Nothing,
    Directory,
    Text(String),
    Other(String),
}

impl Side {
    fn word(&self) -> &str {
        match self {
            Self::Nothing => "nothing",
            Self::Directory => "a directory",
            Self::Text(_) => "a text",
            Self::Other(word) => word,
        }
    }
}

fn side(tree: &Beneath, path: &Path, stamp: Option<&Stamp>) -> Side {
    let Some(stamp) = stamp else { return Side::Nothing };
    match stamp.kind {
        Kind::File => match tree.content(path, MOST_BYTES) {
            Ok(Some(content)) => String::from_utf8(content)
                .ok()
                .filter(|text| !text.contains('\0'))
                .map_or_else(|| Side::Other(format!("binary, {} bytes", stamp.size)), Side::Text),
            Ok(None) => Side::Other(format!("{} bytes", stamp.size)),
            Err(_) => Side::Other("not readable".to_owned()),
        },
        Kind::Link => {
            let to = tree.link(path).unwrap_or_default();
            Side::Other(format!("a link to {}", escape::line(&to.to_string_lossy())))
        }
        Kind::Directory => Side::Directory,
        Kind::Whiteout | Kind::Special | Kind::Closed => Side::Other("a special file".to_owned()),
    }
}

fn texts(old: &str, new: &str) -> Diff {
    let diff = TextDiff::configure().timeout(std::time::Duration::from_millis(500)).diff_lines(old, new);
    let mut out = Diff::default();
    for group in diff.grouped_ops(3) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (old, new) =
            (first.old_range().start..last.old_range().end, first.new_range().start..last.new_range().end);
        let side = |range: &std::ops::Range<usize>| {
            format!("{},{}", range.start + usize::from(!range.is_empty()), range.len())
        };
        out.lines.push(format!("@@ -{} +{} @@", side(&old), side(&new)));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Insert => {
                    out.added += 1;
                    '+'
                }
                ChangeTag::Delete => {
                    out.removed += 1;
                    '-'
                }
            };
            let text = change.value().trim_end_matches('\n').replace('\t', "    ");
            out.lines.push(format!("{sign}{}", escape::line(&escape::shorten(&text, MOST_COLUMNS))));
        }
    }
    if out.lines.len() > MOST_LINES {
        let more = out.lines.len() - MOST_LINES;
        out.lines.truncate(MOST_LINES);
        out.lines.push(format!("… and {more} more lines"));
    }
    out
}
