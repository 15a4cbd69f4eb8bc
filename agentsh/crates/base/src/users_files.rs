//! Files that this process read as the user's word, such as policies and credentials: no sandbox may write them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

static READ: Mutex<BTreeMap<PathBuf, &'static str>> = Mutex::new(BTreeMap::new());

/// Call where such a file is read; `what` follows "it is".
pub fn note(path: &Path, what: &'static str) {
    if let Ok(path) = std::path::absolute(path) {
        READ.lock().unwrap_or_else(PoisonError::into_inner).insert(path, what);
    }
}

type Judge = Box<dyn Fn(&Path, &'static str, &[u8]) -> Result<(), String> + Send + Sync>;

static JUDGE: OnceLock<Judge> = OnceLock::new();

/// Who decides whether what was read counts. Until it is set, everything does.
pub fn judge_by(judge: Judge) {
    let _ = JUDGE.set(judge);
}

/// Like [`note`], with what the file holds.
///
/// # Errors
/// Why it does not count as the user's word.
pub fn judged(path: &Path, what: &'static str, content: &[u8]) -> Result<(), String> {
    note(path, what);
    JUDGE.get().map_or(Ok(()), |judge| judge(path, what, content))
}

/// All noted files, under the names given.
#[must_use]
pub fn noted_files() -> BTreeMap<PathBuf, &'static str> {
    READ.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
