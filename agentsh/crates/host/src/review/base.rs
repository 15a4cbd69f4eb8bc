//! The state of the project when its layer was mounted: a stamp for every file. A file with another stamp was changed
//! outside and is never overwritten.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::directory_handle::{DirectoryHandle, Kind, Stamp, bytes};
use super::hard_links::Names;
use super::journal::{AppliedChange, Merged, Run};
use agentsh_sandbox::control::{decode, encoded};

/// Entries of a project that can be reviewed.
const MAX_ENTRIES: usize = 2_000_000;
const NAME: &str = "base";

#[derive(Debug, Default)]
pub struct Base {
    entries: BTreeMap<PathBuf, Stamp>,
    /// Files that were applied together with a change from outside.
    merged: BTreeMap<PathBuf, MergedStamp>,
    names: Names,
}

#[derive(Debug)]
struct MergedStamp {
    /// The stamp of the layer's version in it.
    layer: Stamp,
    /// The state when the layer was mounted.
    first: Option<Stamp>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(with = "bytes")]
    path: PathBuf,
    stamp: Stamp,
}

impl Base {
    /// Looks at everything in a project. What cannot be listed has no stamps: it cannot be changed inside either.
    ///
    /// # Errors
    /// When there is too much of it.
    pub fn of(project: &Path) -> io::Result<Self> {
        let tree = DirectoryHandle::open(project)?;
        let mut entries = BTreeMap::new();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            let Ok(names) = tree.names(&directory) else { continue };
            for (name, stamp) in names {
                let path = directory.join(name);
                if stamp.kind == Kind::Directory {
                    open.push(path.clone());
                }
                entries.insert(path, stamp);
            }
            if entries.len() > MAX_ENTRIES {
                return Err(io::Error::other(format!("it contains more than {MAX_ENTRIES} files")));
            }
        }
        Ok(Self { entries, ..Self::default() })
    }

    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let entries: Vec<Entry> = self
            .entries
            .iter()
            .map(|(path, stamp)| Entry { path: path.clone(), stamp: stamp.clone() })
            .collect();
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(NAME))?;
        file.write_all(&encoded(&entries)?)?;
        file.sync_all()
    }

    /// # Errors
    /// When it is missing or not whole.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let entries: Vec<Entry> = decode(&fs::read(directory.join(NAME))?)?;
        let entries = entries.into_iter().map(|entry| (entry.path, entry.stamp)).collect();
        Ok(Self { entries, ..Self::default() })
    }

    #[must_use]
    pub fn get(&self, path: &Path) -> Option<&Stamp> {
        self.entries.get(path)
    }

    /// Follows an apply or undo.
    pub fn follow(&mut self, run: &Run) {
        run.lines.iter().for_each(|line| self.names.follow(line));
        run.done().for_each(|done| self.done(done));
    }

    /// Whether the file is still the one that was seen.
    #[must_use]
    pub fn is_unchanged(&self, was: &Stamp, now: &Stamp) -> bool {
        self.names.is_unchanged(was, now)
    }

    /// An applied state is the new base. A merge that was undone has to be merged again.
    fn done(&mut self, done: &AppliedChange) {
        let known = self.merged.remove(&done.path);
        let mut stands = done.now.clone();
        match &done.merged {
            Some(Merged::Done(layer)) => {
                let first = known.map_or_else(|| self.entries.get(&done.path).cloned(), |known| known.first);
                self.merged.insert(done.path.clone(), MergedStamp { layer: layer.clone(), first });
            }
            Some(Merged::Undone(_)) => stands = known.map_or(stands, |known| known.first),
            None => {}
        }
        self.set(done.path.clone(), stands);
    }

    /// The layer's version of a file that is there together with a change from outside.
    #[must_use]
    pub fn merged_version(&self, path: &Path) -> Option<&Stamp> {
        self.merged.get(path).map(|both| &both.layer)
    }

    fn set(&mut self, path: PathBuf, stamp: Option<Stamp>) {
        match stamp {
            Some(stamp) => drop(self.entries.insert(path, stamp)),
            None => drop(self.entries.remove(&path)),
        }
    }

    /// A path and what was below it, in order.
    pub fn subtree<'b>(&'b self, path: &'b Path) -> impl Iterator<Item = (&'b Path, &'b Stamp)> {
        let entries = self.entries.range(path.to_owned()..);
        entries
            .map(|(found, stamp)| (found.as_path(), stamp))
            .take_while(move |(found, _)| found.starts_with(path))
    }

    /// Names directly in a directory.
    pub fn names_in<'b>(&'b self, directory: &'b Path) -> impl Iterator<Item = &'b Path> {
        self.subtree(directory).map(|(path, _)| path).filter(move |path| path.parent() == Some(directory))
    }
}
