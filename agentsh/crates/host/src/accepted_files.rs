//! Files that a command line named, such as `--policy FILE` and `agentsh proxy --config FILE`, where a sandbox may write: their
//! content counts as it was accepted (decisions 840 and 858).
//!
//! The state directory holds which files were read so, with their hashes, and when sandboxes could write where. Later runs guard these
//! files. A content that is new, of a file that was changed while a sandbox could write it, is refused until the user accepts it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::agreements;
use agentsh_agents::agreement;
use agentsh_base::types::FileKey;
use agentsh_base::{small_file, users_files};

const FILES: &str = "users-files";
const MAX_FILES: usize = 200;
const WRITERS_DIRECTORY: &str = "writers";
/// Size limit of each of these lists. The older half of the second is dropped.
const MAX_BYTES: u64 = 256 << 10;
/// The kernel's time of a change may lag behind the clock by this much; it is never ahead of it.
const CLOCK_TICK: u64 = 20_000_000;

type Files = BTreeMap<PathBuf, AcceptedFile>;

#[derive(Serialize, Deserialize)]
struct AcceptedFile {
    what: String,
    sha256: String,
}

/// One sandbox: where it could write, and which of the files it could not.
#[derive(Serialize, Deserialize)]
struct Writer {
    id: String,
    roots: Vec<PathBuf>,
    kept: Vec<PathBuf>,
    start: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Began(Writer),
    Ended { id: String, end: u64 },
}

/// Judges from now on what this process reads as the user's word.
pub fn judge_by(state: &Path) {
    let state = state.to_owned();
    users_files::judge_by(Box::new(move |path, what, content| judge(&state, path, what, content)));
}

fn judge(state: &Path, path: &Path, what: &'static str, content: &[u8]) -> Result<(), String> {
    let real = path.canonicalize().map_err(|error| error.to_string())?;
    let sha256 = hash(content);
    if load(state).get(&real).is_some_and(|known| known.sha256 == sha256) {
        return Ok(());
    }
    if let Some(root) = written_in(state, path) {
        let text = String::from_utf8_lossy(content);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        if !agreements::load(state).contains(&agreement::key(&real, text)) {
            return Err(format!(
                "it was changed while a sandbox could write in {}: look at it; to accept it as it is: `{}`",
                agentsh_base::escape::line(&root.to_string_lossy()),
                agreement::command(&real)
            ));
        }
    }
    // If it cannot be stored, no session starts, because the journal cannot be written either.
    let _ = remember(state, path, what, content);
    Ok(())
}

/// Records that a file has the content that the user wants.
///
/// # Errors
/// When the list cannot be written.
pub fn remember(state: &Path, path: &Path, what: &str, content: &[u8]) -> io::Result<()> {
    let mut files = load(state);
    for path in [std::path::absolute(path)?, path.canonicalize()?] {
        files.insert(path, AcceptedFile { what: what.to_owned(), sha256: hash(content) });
    }
    while files.len() > MAX_FILES {
        // A file that no longer exists, if there is one.
        let gone = files.keys().find(|path| !path.exists()).or_else(|| files.keys().next()).cloned();
        gone.map(|gone| files.remove(&gone));
    }
    let text = serde_json::to_vec(&files).map_err(io::Error::other)?;
    small_file::replace(&state.join(FILES), &text)
}

/// All of them, with what they are.
pub(super) fn accepted_files(state: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    load(state).into_iter().map(|(path, known)| (path, known.what))
}

fn load(state: &Path) -> Files {
    let text = small_file::read(state.join(FILES), MAX_BYTES).ok().flatten();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn hash(content: &[u8]) -> String {
    agentsh_base::hex(&Sha256::digest(content))
}

/// Notes that a sandbox may write in these directories from then on, except where `is_kept`.
///
/// # Errors
/// When it cannot be noted: then no sandbox that may write may start.
pub fn began(
    state: &Path,
    id: &str,
    roots: &[PathBuf],
    since: SystemTime,
    is_kept: impl Fn(&Path) -> bool,
) -> io::Result<()> {
    let kept = load(state).into_keys().filter(|path| is_kept(path)).collect();
    let roots = roots.iter().filter(|root| root.to_str().is_some()).cloned().collect();
    append(state, &Line::Began(Writer { id: id.to_owned(), roots, kept, start: nanoseconds(since) }))
        .map(drop)
}

/// Notes that it has ended.
///
/// # Errors
/// When it cannot be noted: it counts as running then.
pub fn ended(state: &Path, id: &str) -> io::Result<()> {
    let list = append(state, &Line::Ended { id: id.to_owned(), end: nanoseconds(SystemTime::now()) })?;
    if list.metadata()?.len() <= MAX_BYTES / 2 {
        return Ok(());
    }
    let path = state.join(WRITERS_DIRECTORY);
    let text = small_file::text(&path, MAX_BYTES).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let newer = lines.get(lines.len() / 2..).unwrap_or_default().join("\n") + "\n";
    small_file::replace(&path, newer.as_bytes())
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn append(state: &Path, line: &Line) -> io::Result<File> {
    let mut list =
        File::options().append(true).create(true).mode(0o600).open(state.join(WRITERS_DIRECTORY))?;
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    list.write_all(&text)?;
    Ok(list)
}

/// The directory in which a sandbox could write a file when it was changed last.
pub(super) fn written_in(state: &Path, path: &Path) -> Option<PathBuf> {
    let text = small_file::text(state.join(WRITERS_DIRECTORY), MAX_BYTES)?;
    let real = path.canonicalize().ok()?;
    let changed = [path.symlink_metadata(), real.metadata()].into_iter().flatten();
    let changed = changed.map(|found| FileKey::from(&found).ctime_ns).max()?;
    let changed = u64::try_from(changed).unwrap_or_default();
    let (mut writers, mut ends) = (Vec::new(), BTreeMap::new());
    for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match line {
            Line::Began(writer) => writers.push(writer),
            Line::Ended { id, end } => drop(ends.insert(id, end)),
        }
    }
    let named = std::path::absolute(path).ok()?;
    writers.into_iter().find_map(|writer| {
        let is_alive =
            writer.start <= changed + CLOCK_TICK && ends.get(&writer.id).is_none_or(|end| *end >= changed);
        let could = is_alive && !writer.kept.iter().any(|kept| *kept == named || *kept == real);
        let mut roots = writer.roots.into_iter().filter(|_| could);
        roots.find(|root| named.starts_with(root) || real.starts_with(root))
    })
}
