//! What was there before a run: repositories, and files that run by themselves. Only they are left as they are at its end: no
//! git of the host obeys anything that was written inside.
//!
//! A repository is known by the directory itself, and not by its name: whoever takes one away, or renames another directory to
//! its name, has made a new one. Neither does a time say anything: a rename keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::fresh;
use crate::policy::builtin_paths;
use crate::sandbox::host::RealHost;
use crate::sandbox::layout::Layout;
use crate::sandbox::spec::PathRules;

/// What tells one directory from another one at the same path, even if it has got the same inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    device: u64,
    inode: u64,
    /// None where the file system does not say.
    born: Option<SystemTime>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Baseline {
    repositories: BTreeMap<PathBuf, Identity>,
    /// What a sandbox could not be given, and does not see.
    refused: BTreeSet<PathBuf>,
    /// Directories at whose top nothing that runs by itself may appear.
    worked_in: Vec<PathBuf>,
    /// Nor what instructs or configures.
    guards_all: bool,
    /// What runs by itself there and is guarded where it stands, or may be made by the policy.
    present: BTreeSet<PathBuf>,
}

/// As it is written down: a path is any bytes.
#[derive(Serialize, Deserialize)]
struct Stored {
    repositories: Vec<(Vec<u8>, Identity)>,
    refused: Vec<Vec<u8>>,
    #[serde(default)]
    worked_in: Vec<Vec<u8>>,
    #[serde(default)]
    guards_all: bool,
    #[serde(default)]
    present: Vec<Vec<u8>>,
}

impl From<Baseline> for Stored {
    fn from(baseline: Baseline) -> Self {
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        Self {
            repositories: baseline.repositories.into_iter().map(|(path, one)| (bytes(path), one)).collect(),
            refused: baseline.refused.into_iter().map(bytes).collect(),
            worked_in: baseline.worked_in.into_iter().map(bytes).collect(),
            guards_all: baseline.guards_all,
            present: baseline.present.into_iter().map(bytes).collect(),
        }
    }
}

impl From<Stored> for Baseline {
    fn from(stored: Stored) -> Self {
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        Self {
            repositories: stored.repositories.into_iter().map(|(bytes, one)| (path(bytes), one)).collect(),
            refused: stored.refused.into_iter().map(path).collect(),
            worked_in: stored.worked_in.into_iter().map(path).collect(),
            guards_all: stored.guards_all,
            present: stored.present.into_iter().map(path).collect(),
        }
    }
}

impl Baseline {
    /// To be taken before the program runs.
    #[must_use]
    pub fn of(layout: &Layout, rules: &PathRules, host: &RealHost) -> Self {
        let mut found =
            Self { worked_in: layout.worked_in.clone(), guards_all: rules.guard_all, ..Self::default() };
        // Stand-ins are made by now.
        found.present = found.arrivals();
        found.present.extend(rules.unmasked.iter().cloned());
        found.refused.extend(layout.refused.iter().map(|(path, _)| path.clone()));
        for entry in &layout.repositories {
            found.add(entry);
            for directory in fresh::directories_of(entry, host) {
                found.add(&directory);
            }
        }
        found
    }

    /// Directories at whose top nothing that runs by itself may appear.
    pub(super) fn worked_in(&self) -> &[PathBuf] {
        &self.worked_in
    }

    /// Whether a path means something that runs by itself and was not there before.
    pub(super) fn is_arrival(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| builtin_paths::guarded(name, self.guards_all).is_some())
            && path.parent().is_some_and(|above| self.worked_in.iter().any(|directory| directory == above))
            && !self.present.contains(path)
    }

    /// What stands there now that was not there before.
    pub(super) fn arrivals(&self) -> BTreeSet<PathBuf> {
        let entries = self.worked_in.iter().filter_map(|directory| std::fs::read_dir(directory).ok());
        entries.flatten().flatten().map(|entry| entry.path()).filter(|path| self.is_arrival(path)).collect()
    }

    pub(super) fn add(&mut self, path: &Path) {
        if let Some(identity) = identity(path) {
            self.repositories.insert(path.to_owned(), identity);
        }
    }

    /// Whether a sandbox could not be given a directory, or one around it.
    pub(super) fn is_refused(&self, directory: &Path) -> bool {
        directory.ancestors().any(|above| self.refused.contains(above))
    }

    /// Whether what lies at a path now was there before.
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        if self.refused.contains(path) {
            return true;
        }
        self.repositories.get(path).is_some_and(|before| identity(path).as_ref() == Some(before))
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let found = path.symlink_metadata().ok()?;
    Some(Identity { device: found.dev(), inode: found.ino(), born: found.created().ok() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::fs;

    use super::*;

    #[test]
    fn a_directory_is_known_by_itself_and_not_by_its_name() {
        let place = tempfile::tempdir().unwrap();
        let (git, other) = (place.path().join(".git"), place.path().join("other"));
        fs::create_dir(&git).unwrap();
        let mut baseline = Baseline::default();
        baseline.add(&git);
        baseline.add(&place.path().join("missing"));
        assert!(baseline.holds(&git));
        // What comes at a name that was free is new.
        fs::create_dir(place.path().join("missing")).unwrap();
        assert!(!baseline.holds(&place.path().join("missing")));
        // Made before, and renamed: the time of its birth says nothing.
        fs::create_dir(&other).unwrap();
        fs::remove_dir(&git).unwrap();
        fs::rename(&other, &git).unwrap();
        assert!(!baseline.holds(&git));
    }
}
