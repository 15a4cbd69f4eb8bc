//! Unified differences, bounded, and safe to show on a terminal.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use similar::{ChangeTag, TextDiff};

use super::changes::{Change, Trees};
use super::directory_handle::{DirectoryHandle, Kind, Stamp, hash};
use super::journal::Mark;
use agentsh_store::escape;

/// For a larger file, only size and hash are shown.
const MAX_BYTES: u64 = 1 << 20;
/// Characters of the first line of a script that is not text.
const MAX_COLUMNS: usize = 120;

/// The shown difference of one file.
#[derive(Debug, Default)]
pub struct Diff {
    pub added: usize,
    pub removed: usize,
    /// Lines with their sign; safe to show. All of them, and whole: what is not shown would be applied unseen.
    pub lines: Vec<String>,
    /// The new state as shown; None: removed.
    pub mark: Option<Mark>,
}

/// Between the project as it is and the layer.
#[must_use]
pub fn of(trees: &Trees, change: &Change) -> Diff {
    let (old, _) = side(&trees.project, &change.path, change.was.as_ref());
    let (new, hash) = match &change.merged {
        Some(text) => (DiffSide::Text(text.clone()), hash_line(text.as_bytes())),
        None => side(&trees.upper, &change.path, change.now.as_ref()),
    };
    let mut diff = match (&old, &new) {
        (DiffSide::Text(old), DiffSide::Text(new)) => texts(old, new),
        (DiffSide::Nothing, DiffSide::Text(new)) => texts("", new),
        (DiffSide::Text(old), DiffSide::Nothing) => texts(old, ""),
        (DiffSide::Directory, DiffSide::Nothing | DiffSide::Directory)
        | (DiffSide::Nothing, DiffSide::Directory) => Diff::default(),
        _ => Diff {
            lines: vec![format!("  {} -> {}", old.description(), new.description())],
            ..Diff::default()
        },
    };
    diff.mark = change.now.as_ref().map(|now| Mark { kind: now.kind, mode: now.given_mode(), hash });
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

enum DiffSide {
    Nothing,
    Directory,
    Text(String),
    Other(String),
}

impl DiffSide {
    fn description(&self) -> &str {
        match self {
            Self::Nothing => "nothing",
            Self::Directory => "a directory",
            Self::Text(_) => "a text",
            Self::Other(word) => word,
        }
    }
}

/// The content, and the hash of the same bytes.
fn side(tree: &DirectoryHandle, path: &Path, stamp: Option<&Stamp>) -> (DiffSide, String) {
    let Some(stamp) = stamp else { return (DiffSide::Nothing, String::new()) };
    let no_hash = |word: &str| (DiffSide::Other(word.to_owned()), "unknown".to_owned());
    match stamp.kind {
        Kind::File if stamp.is_too_long() => no_hash("a file of more than 64 GiB"),
        Kind::File => match tree.content(path, MAX_BYTES) {
            Ok(Some(content)) => (text(&content), hash_line(&content)),
            Ok(None) => match tree.file(path).and_then(hash) {
                Ok(hash) => (DiffSide::Other(format!("{} bytes, sha256 {hash}", stamp.size)), hash),
                Err(_) => no_hash("not readable"),
            },
            Err(_) => no_hash("not readable"),
        },
        Kind::Link => {
            let to = tree.link(path).unwrap_or_default();
            let shown = format!("a link to {}", escape::line(&to.to_string_lossy()));
            (DiffSide::Other(shown), hash_line(to.as_bytes()))
        }
        Kind::Directory => (DiffSide::Directory, String::new()),
        Kind::Whiteout | Kind::Special | Kind::Closed => no_hash("a special file"),
    }
}

/// A NUL in a script, or a byte of another encoding, does not make a file binary, because interpreters read past them.
fn text(content: &[u8]) -> DiffSide {
    if let Ok(text) = std::str::from_utf8(content) {
        return DiffSide::Text(text.to_owned());
    }
    if content.contains(&0) {
        let first = content.split(|byte| *byte == b'\n').next().filter(|line| line.starts_with(b"#!"));
        let script = first.map(|line| {
            let line: String = String::from_utf8_lossy(line).chars().take(MAX_COLUMNS).collect();
            format!(", begins with `{}`", escape::line(&line))
        });
        let size = content.len();
        let hash = hash_line(content);
        return DiffSide::Other(format!("binary, {size} bytes, sha256 {hash}{}", script.unwrap_or_default()));
    }
    let mut text = String::with_capacity(content.len());
    for chunk in content.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    DiffSide::Text(text)
}

fn hash_line(content: &[u8]) -> String {
    // Reading from memory does not fail.
    hash(content).unwrap_or_default()
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
            out.lines.push(format!("{sign}{}", escape::line(&text)));
        }
    }
    out
}
