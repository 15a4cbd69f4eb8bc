//! Recovery after agentsh was killed.
//!
//! One file for each watched sandbox lists its directories and repositories; it is locked during the run and removed
//! after the final check. The next start does that check for every unlocked file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::baseline::Baseline;
use super::disarm_new;
use super::final_check::{arrived, set_aside};
use super::restore;
use agentsh_base::listing;
use agentsh_host::copies::Copy;
use agentsh_host::undo::SavedVersions;
use agentsh_sandbox::stubs;

/// Longest file that is written and read. Of a sandbox without mounts it holds copies of all guarded files.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct UnfinishedWatch {
    session: String,
    directories: Vec<Vec<u8>>,
    baseline: Baseline,
    /// Guarded files that nothing protects, and what was there.
    #[serde(default)]
    unprotected: BTreeMap<PathBuf, Copy>,
}

/// The file of one watched sandbox, removed on drop; only a killed session leaves it.
pub struct CrashMarker {
    path: PathBuf,
    _locked: File,
}

impl CrashMarker {
    /// # Errors
    /// When it cannot be written: then nothing that may write may start.
    pub fn begin(
        state: &Path,
        session: &str,
        directories: &[PathBuf],
        baseline: &Baseline,
        unprotected: &BTreeMap<PathBuf, Copy>,
    ) -> io::Result<Self> {
        let place = place(state);
        let name = uuid::Uuid::now_v7();
        let (path, new) = (place.join(name.to_string()), place.join(format!("{name}.new")));
        let open = || fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
                open()?
            }
            file => file?,
        };
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        let left = UnfinishedWatch {
            session: session.to_owned(),
            directories: directories.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
            baseline: baseline.clone(),
            unprotected: unprotected.clone(),
        };
        let text = serde_json::to_vec(&left).map_err(io::Error::other)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(
                "the guarded files are too large to be kept for the case of a crash",
            ));
        }
        file.write_all(&text)?;
        // Readers see a complete and locked file.
        fs::rename(&new, &path)?;
        Ok(Self { path, _locked: file })
    }
}

impl Drop for CrashMarker {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn place(state: &Path) -> PathBuf {
    state.join("unfinished")
}

/// Does the final check of killed sessions. Returns messages.
#[must_use]
pub fn recover_all(state: &Path) -> Vec<String> {
    let files = listing::paths(&place(state)).unwrap_or_default();
    files.iter().flat_map(|path| finish(state, path)).collect()
}

fn finish(state: &Path, path: &Path) -> Vec<String> {
    let Ok(mut file) = File::open(path) else { return Vec::new() };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Vec::new();
    }
    let mut text = Vec::new();
    let read = Read::by_ref(&mut file).take(MAX_BYTES).read_to_end(&mut text);
    let left = read.ok().and_then(|_| serde_json::from_slice::<UnfinishedWatch>(&text).ok());
    let said = left.map(|left| last_look(state, &left)).unwrap_or_default();
    // Incomplete, or done.
    let _ = fs::remove_file(path);
    said
}

fn last_look(state: &Path, left: &UnfinishedWatch) -> Vec<String> {
    let aside = SavedVersions::new(state, &left.session);
    let directories: Vec<PathBuf> =
        left.directories.iter().map(|bytes| PathBuf::from(OsStr::from_bytes(bytes))).collect();
    let mut said = Vec::new();
    restore::restore(&left.unprotected, &aside, &mut |_, _, text| {
        said.push(format!("left by a killed session: {text}"));
    });
    for path in left.baseline.arrivals() {
        let copy = Copy::of_own(&path);
        if copy.is_nothing() && stubs::is_stub(state, &path) {
            continue;
        }
        if disarm_new::move_away(&path, &copy, &aside).is_ok() {
            let text = arrived(&path.display().to_string(), &path, left.baseline.why(&path));
            said.push(format!("left by a killed session: {text}"));
        }
    }
    let found = disarm_new::disarm_all(&directories, &left.baseline, &aside);
    for (entry, done) in found.iter().filter(|(_, done)| !done.is_empty()) {
        said.push(format!("left by a killed session: {}", set_aside(entry, done)));
    }
    said
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn a_killed_session_leaves_its_last_look_to_the_next() {
        let place = tempfile::tempdir().unwrap();
        let (state, project) = (place.path().join("state"), place.path().join("project"));
        let make = |name: &str| {
            let git = project.join(name).join(".git");
            fs::create_dir_all(git.join("hooks")).unwrap();
            fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
            fs::write(git.join("config"), "[core]\n\tfsmonitor = evil\n").unwrap();
            git
        };
        let old = make("old");
        let mut baseline = Baseline::default();
        baseline.add(&old);
        let begun =
            CrashMarker::begin(&state, "s", std::slice::from_ref(&project), &baseline, &BTreeMap::new())
                .unwrap();
        let new = make("new");
        // While it is watched, a live session owns it.
        assert!(recover_all(&state).is_empty());
        assert!(fs::read_to_string(new.join("config")).unwrap().contains("fsmonitor"));
        // A kill closes the descriptor and leaves the file.
        let path = begun.path.clone();
        let kept = place.path().join("kept");
        fs::copy(&path, &kept).unwrap();
        drop(begun);
        fs::rename(kept, &path).unwrap();
        assert_eq!(recover_all(&state).len(), 1);
        assert!(!fs::read_to_string(new.join("config")).unwrap().contains("fsmonitor"));
        assert!(fs::read_to_string(old.join("config")).unwrap().contains("fsmonitor"), "it was there before");
        assert!(!path.exists() && recover_all(&state).is_empty());
    }
}
