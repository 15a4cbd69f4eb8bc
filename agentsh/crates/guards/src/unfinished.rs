//! What a run leaves to the next one when agentsh itself is killed: where repositories may have been made, and which were there.
//!
//! One file for each watched sandbox, locked while it is watched and removed after the last look. A file that nobody has locked
//! belongs to a run that never had its last look: it is had before anything else starts.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::baseline::Baseline;
use super::fresh;
use super::thread::{arrived, set_aside};
use agentsh_host::copies::Copy;
use agentsh_host::undo::SavedVersions;
use agentsh_sandbox::placeholders;

/// Longest file that is read.
const MAX_BYTES: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
struct UnfinishedWatch {
    session: String,
    directories: Vec<Vec<u8>>,
    baseline: Baseline,
}

/// The file of one watched sandbox. Dropped, it goes: only a killed session leaves it.
pub struct Unfinished {
    path: PathBuf,
    _locked: File,
}

impl Unfinished {
    /// # Errors
    /// When it cannot be written: nothing that may write should start then.
    pub fn begin(
        state: &Path,
        session: &str,
        directories: &[PathBuf],
        baseline: &Baseline,
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
        };
        file.write_all(&serde_json::to_vec(&left).map_err(io::Error::other)?)?;
        // Whoever reads it reads a whole one, and finds it locked.
        fs::rename(&new, &path)?;
        Ok(Self { path, _locked: file })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn place(state: &Path) -> PathBuf {
    state.join("unfinished")
}

/// Has the last look that killed sessions did not have. Gives what was done, one line for the user each.
#[must_use]
pub fn finish_all(state: &Path) -> Vec<String> {
    let files = fs::read_dir(place(state)).into_iter().flatten().flatten();
    files.flat_map(|entry| finish(state, &entry.path())).collect()
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
    // It was never whole, or is done.
    let _ = fs::remove_file(path);
    said
}

fn last_look(state: &Path, left: &UnfinishedWatch) -> Vec<String> {
    let aside = SavedVersions::new(state, &left.session);
    let directories: Vec<PathBuf> =
        left.directories.iter().map(|bytes| PathBuf::from(OsStr::from_bytes(bytes))).collect();
    let mut said = Vec::new();
    for path in left.baseline.arrivals() {
        let copy = Copy::of_own(&path);
        if copy.is_nothing() && placeholders::is_stand_in(state, &path) {
            continue;
        }
        let mut done = Vec::new();
        fresh::move_away(&path, &copy, &aside, &mut done);
        if !done.is_empty() {
            let text = arrived(&path.display().to_string(), &path);
            said.push(format!("left by a killed session: {text}"));
        }
    }
    let found = fresh::disarm_all(&directories, &left.baseline, &aside);
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
        let begun = Unfinished::begin(&state, "s", std::slice::from_ref(&project), &baseline).unwrap();
        let new = make("new");
        // While it is watched, it is somebody's.
        assert!(finish_all(&state).is_empty());
        assert!(fs::read_to_string(new.join("config")).unwrap().contains("fsmonitor"));
        // A kill closes the descriptor and leaves the file.
        let path = begun.path.clone();
        let kept = place.path().join("kept");
        fs::copy(&path, &kept).unwrap();
        drop(begun);
        fs::rename(kept, &path).unwrap();
        assert_eq!(finish_all(&state).len(), 1);
        assert!(!fs::read_to_string(new.join("config")).unwrap().contains("fsmonitor"));
        assert!(fs::read_to_string(old.join("config")).unwrap().contains("fsmonitor"), "it was there before");
        assert!(!path.exists() && finish_all(&state).is_empty());
    }
}
