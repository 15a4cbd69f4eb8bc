//! The project files that the user approved: one key per line in the state directory, which no sandbox sees.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;

/// Longest list that is read: 64 bytes are one agreement.
const MAX_BYTES: u64 = 1 << 20;
const NAME: &str = "agreed";

/// Every agreement. A list that cannot be read agrees to nothing.
#[must_use]
pub fn load(state: &Path) -> BTreeSet<String> {
    let mut text = String::new();
    let read =
        std::fs::File::open(state.join(NAME)).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    if read.is_err() {
        return BTreeSet::new();
    }
    text.lines().map(str::to_owned).collect()
}

/// Remembers one more.
///
/// # Errors
/// When the list cannot be written.
pub fn add(state: &Path, key: &str) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if load(state).contains(key) {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    let mut list =
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(state.join(NAME))?;
    list.write_all(format!("{key}\n").as_bytes())
}

/// Takes one back.
///
/// # Errors
/// When the list cannot be written.
pub fn remove(state: &Path, key: &str) -> std::io::Result<()> {
    let left: String =
        load(state).iter().filter(|other| *other != key).map(|key| format!("{key}\n")).collect();
    let new = state.join(format!("{NAME}.new"));
    std::fs::write(&new, left)?;
    std::fs::rename(new, state.join(NAME))
}
