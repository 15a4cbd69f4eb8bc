//! The changes in an overlayfs layer: new, changed and deleted files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::base::Base;
use super::directory_handle::{DirectoryHandle, Kind, Stamp};
use super::guarded::Guarded;
use super::merge::merge;
use super::originals::{MAX_BYTES, Originals};

/// The kernel's marks on what is in a layer.
const OPAQUE: &str = "user.overlay.opaque";
const WHITEOUT: &str = "user.overlay.whiteout";
/// Extended attributes that our layers never have, because they refer to other paths.
const UNSUPPORTED_XATTRS: [&str; 2] = ["user.overlay.redirect", "user.overlay.metacopy"];

/// Directories inside each other that are read. A program can make more than there is stack for, as no path names them all.
const MAX_LEVELS: usize = 500;

/// One path that differs between the layer and the project.
#[derive(Clone, Debug)]
pub struct Change {
    pub path: PathBuf,
    /// When the run began.
    pub was: Option<Stamp>,
    pub now: Option<Stamp>,
    /// Runs by itself outside, and why.
    pub guarded: Option<String>,
    pub state: State,
    /// It was changed outside too: the merged text, which is what is applied.
    pub merged: Option<String>,
    /// Another name of the same file in the layer.
    pub same: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It can be applied.
    Clean,
    /// It, or a directory that it needs, was changed outside since.
    Conflict(&'static str),
    /// The change is never applied.
    Refused(&'static str),
}

impl Change {
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.now.as_ref().or(self.was.as_ref()).is_some_and(|stamp| stamp.kind == Kind::Directory)
    }

    #[must_use]
    pub fn kind_word(&self) -> &'static str {
        match (&self.was, &self.now) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        }
    }
}

pub struct Trees {
    pub project: DirectoryHandle,
    pub upper: DirectoryHandle,
    /// None while the run lasts.
    pub originals: Option<Originals>,
}

/// Everything in the layer that is not in the project yet, in order.
///
/// # Errors
/// When the layer cannot be read.
pub fn find(trees: &Trees, base: &Base, guarded: &Guarded) -> io::Result<Vec<Change>> {
    let mut walk = Walk { trees, base, found: Vec::new() };
    walk.directory(Path::new(""), false)?;
    let mut changes = Vec::new();
    // One name of each file that may have more.
    let mut names: BTreeMap<u64, PathBuf> = BTreeMap::new();
    for (path, was, now) in walk.found {
        let state = match &now {
            Some(stamp) if stamp.kind == Kind::Closed => {
                State::Refused("its permissions do not let even its owner read it")
            }
            Some(stamp) if stamp.kind == Kind::Special => {
                State::Refused("a socket, pipe or device is never applied")
            }
            Some(stamp) if stamp.is_too_long() => {
                State::Refused("it is longer than 64 GiB and is not read: copy it yourself")
            }
            _ => match state(trees, base, &path, was.as_ref(), now.as_ref()) {
                Ok(Some(state)) => state,
                Ok(None) => {
                    let file = now.filter(|now| now.kind == Kind::File);
                    if let Some(file) =
                        file.filter(|_| guarded.guard_reason(&path, Some(Kind::File), trees).is_none())
                    {
                        names.entry(file.inode).or_insert(path);
                    }
                    continue;
                }
                Err(_) => State::Conflict("it cannot be read"),
            },
        };
        let guarded = guarded.guard_reason(&path, now.as_ref().map(|stamp| stamp.kind), trees);
        let both = match &state {
            State::Conflict(_) => merge_texts(trees, &path, was.as_ref(), now.as_ref()),
            _ => None,
        };
        changes.push(match both {
            Some((there, text)) => Change {
                path,
                was: Some(there),
                now,
                guarded,
                state: State::Clean,
                merged: Some(text),
                same: None,
            },
            None => Change { path, was, now, guarded, state, merged: None, same: None },
        });
    }
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    stand_on_directories(trees, &mut changes);
    find_names(names, &mut changes);
    Ok(changes)
}

/// Finds names of the same file. A guarded name never shares a file with an unguarded one, because writing the second would
/// write the first.
fn find_names(mut names: BTreeMap<u64, PathBuf>, changes: &mut [Change]) {
    for change in changes.iter_mut().filter(|change| change.state == State::Clean) {
        let file = change.now.as_ref().filter(|now| now.kind == Kind::File);
        if let Some(file) = file.filter(|_| change.guarded.is_none() && change.merged.is_none()) {
            let first = names.entry(file.inode).or_insert_with(|| change.path.clone());
            change.same = (*first != change.path).then(|| first.clone());
        }
    }
}

/// A text that was changed on both sides, where the changes do not touch: what is outside, and what both say together.
fn merge_texts(
    trees: &Trees,
    path: &Path,
    was: Option<&Stamp>,
    now: Option<&Stamp>,
) -> Option<(Stamp, String)> {
    let (was, now) = was.zip(now)?;
    let original = trees.originals.as_ref()?.get(path, was)?;
    let there = trees.project.stamp(path).ok()??;
    let are_files = [was, now, &there].iter().all(|stamp| stamp.kind == Kind::File);
    if !are_files || was.given_mode() != there.given_mode() {
        return None;
    }
    let text = |tree: &DirectoryHandle| String::from_utf8(tree.content(path, MAX_BYTES).ok()??).ok();
    let both = merge(original, &text(&trees.upper)?, &text(&trees.project)?)?;
    // Only if the file did not change while it was read.
    (trees.project.stamp(path).ok()?? == there).then_some((there, both))
}

/// A new entry needs its directory, in the project or applied before it.
fn stand_on_directories(trees: &Trees, changes: &mut [Change]) {
    let mut can_stand: BTreeMap<PathBuf, bool> = BTreeMap::from([(PathBuf::new(), true)]);
    // In order, so that a directory comes before what is in it.
    for change in changes {
        let above = change.path.parent().unwrap_or(Path::new("")).to_owned();
        let is_there = *can_stand.entry(above.clone()).or_insert_with(|| {
            trees.project.stamp(&above).ok().flatten().is_some_and(|found| found.kind == Kind::Directory)
        });
        if change.now.is_some() && change.state == State::Clean && !is_there {
            change.state = State::Conflict("its directory is missing outside, or was replaced");
        }
        let is_directory = change.now.as_ref().is_some_and(|now| now.kind == Kind::Directory);
        if is_directory {
            can_stand.insert(change.path.clone(), change.state == State::Clean);
        }
    }
}

/// None when the project shows the same already.
fn state(
    trees: &Trees,
    base: &Base,
    path: &Path,
    was: Option<&Stamp>,
    now: Option<&Stamp>,
) -> io::Result<Option<State>> {
    let there = trees.project.stamp(path)?;
    if is_same(trees, path, there.as_ref(), now)? {
        return Ok(None);
    }
    let is_as_before = match (was, &there) {
        (None, None) => true,
        (Some(was), Some(there)) => base.is_unchanged(was, there),
        _ => false,
    };
    if is_as_before {
        return Ok(match base.merged_version(path) {
            None => Some(State::Clean),
            Some(layer) if now == Some(layer) => None,
            Some(_) => Some(State::Conflict("it was changed inside after it was merged")),
        });
    }
    Ok(Some(State::Conflict(match (was, &there) {
        (None, _) => "it was created outside since the session began",
        (_, None) => "it was removed outside since the session began",
        _ => "it was changed outside since the session began",
    })))
}

/// Whether the project shows what the layer does.
///
/// # Errors
/// When one of the two cannot be read.
pub fn is_same(trees: &Trees, path: &Path, there: Option<&Stamp>, now: Option<&Stamp>) -> io::Result<bool> {
    let (Some(there), Some(now)) = (there, now) else { return Ok(there.is_none() && now.is_none()) };
    if there.kind != now.kind || (now.kind != Kind::Link && there.given_mode() != now.given_mode()) {
        return Ok(false);
    }
    match now.kind {
        Kind::Directory => Ok(true),
        Kind::Link => Ok(trees.project.link(path)? == trees.upper.link(path)?),
        Kind::File => Ok(there.size == now.size && trees.upper.is_same_file(path, &trees.project)?),
        Kind::Whiteout | Kind::Special | Kind::Closed => Ok(false),
    }
}

struct Walk<'t> {
    trees: &'t Trees,
    base: &'t Base,
    found: Vec<(PathBuf, Option<Stamp>, Option<Stamp>)>,
}

impl Walk<'_> {
    /// With `opaque`, nothing of the project is seen through the directory.
    fn directory(&mut self, directory: &Path, opaque: bool) -> io::Result<()> {
        if directory.components().count() > MAX_LEVELS {
            return Err(io::Error::other(format!(
                "it has directories more than {MAX_LEVELS} levels deep, so its changes cannot be shown or \
                 applied; `--discard` deletes it"
            )));
        }
        let names = self.trees.upper.names(directory)?;
        if opaque {
            let hidden: Vec<PathBuf> = self.base.names_in(directory).map(Path::to_owned).collect();
            let is_there = |path: &PathBuf| {
                names
                    .binary_search_by(|(name, _)| name.as_os_str().cmp(path.file_name().unwrap_or_default()))
                    .is_ok()
            };
            hidden.iter().filter(|path| !is_there(path)).for_each(|path| self.record_removed_tree(path));
        }
        for (name, stamp) in names {
            let path = directory.join(name);
            match stamp.kind {
                Kind::Whiteout => self.record_removed_tree(&path),
                Kind::File if stamp.size == 0 && self.has(&path, WHITEOUT)? => {
                    self.record_removed_tree(&path)
                }
                Kind::Directory => self.inner(&path, stamp)?,
                Kind::File | Kind::Link | Kind::Special | Kind::Closed => {
                    self.refuse_foreign(&path, stamp.kind)?;
                    self.record_replaced_directory(&path, &stamp);
                    self.found.push((path.clone(), self.base.get(&path).cloned(), Some(stamp)));
                }
            }
        }
        Ok(())
    }

    fn inner(&mut self, path: &Path, stamp: Stamp) -> io::Result<()> {
        self.refuse_foreign(path, stamp.kind)?;
        let opaque = self.has(path, OPAQUE)?;
        let was = self.base.get(path).cloned();
        if was
            .as_ref()
            .is_none_or(|was| was.kind != Kind::Directory || was.given_mode() != stamp.given_mode())
        {
            self.found.push((path.to_owned(), was.clone(), Some(stamp.clone())));
        }
        match self.directory(path, opaque) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.found.retain(|(found, ..)| found != path);
                self.found.push((path.to_owned(), was, Some(Stamp { kind: Kind::Closed, ..stamp })));
                Ok(())
            }
            done => done,
        }
    }

    fn has(&self, path: &Path, name: &str) -> io::Result<bool> {
        Ok(self.trees.upper.attribute(path, name)?.is_some())
    }

    fn refuse_foreign(&self, path: &Path, kind: Kind) -> io::Result<()> {
        if kind == Kind::Link {
            return Ok(());
        }
        for name in UNSUPPORTED_XATTRS {
            if self.has(path, name)? {
                return Err(io::Error::other(format!(
                    "{} has the attribute {name}: it is not a layer of agentsh",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// A directory was replaced by something else: its content is removed.
    fn record_replaced_directory(&mut self, path: &Path, now: &Stamp) {
        if now.kind != Kind::Directory {
            self.record_removals(self.base.subtree(path).skip(1).map(owned).collect());
        }
    }

    fn record_removed_tree(&mut self, path: &Path) {
        self.record_removals(self.base.subtree(path).map(owned).collect());
    }

    fn record_removals(&mut self, paths: Vec<(PathBuf, Stamp)>) {
        self.found.extend(paths.into_iter().map(|(path, stamp)| (path, Some(stamp), None)));
    }
}

fn owned((path, stamp): (&Path, &Stamp)) -> (PathBuf, Stamp) {
    (path.to_owned(), stamp.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn a_layer_that_is_too_deep_is_refused_and_can_be_thrown_away() {
        let place = tempfile::tempdir().unwrap();
        let upper = place.path().join("upper");
        std::fs::create_dir(&upper).unwrap();
        let mut at = rustix::fs::open(&upper, OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..8_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", OFlags::PATH, Mode::empty()).unwrap();
        }
        let open = || DirectoryHandle::open(&upper).unwrap();
        let trees = Trees { project: open(), upper: open(), originals: None };
        let mut walk = Walk { trees: &trees, base: &Base::default(), found: Vec::new() };
        let error = walk.directory(Path::new(""), false).unwrap_err();
        assert!(error.to_string().contains("--discard"), "{error}");
        super::super::tree::remove(&upper).unwrap();
        assert!(!upper.exists());
    }
}
