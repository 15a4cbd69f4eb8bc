//! Files that this process read as the user's word, such as policies and credentials: no sandbox may write them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

static READ: Mutex<BTreeMap<PathBuf, &'static str>> = Mutex::new(BTreeMap::new());

/// Call where such a file is read; `what` follows "it is".
pub fn note(path: &Path, what: &'static str) {
    if let Ok(path) = std::path::absolute(path) {
        READ.lock().unwrap_or_else(PoisonError::into_inner).insert(path, what);
    }
}

/// All that were noted, as they were named.
#[must_use]
pub fn noted() -> BTreeMap<PathBuf, &'static str> {
    READ.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
