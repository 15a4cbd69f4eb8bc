//! Repositories and automatically run files that existed before a run. At its end everything else is disarmed, so that
//! git on the host obeys nothing that was written inside.
//!
//! A repository is identified by the inode of its directory: a moved one keeps its guards, and a directory renamed to
//! its path counts as new.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::disarm_new;
use super::git_obeys::{self, ObeyedFiles};
use super::thread::is_guard;
use agentsh_base::listing;
use agentsh_base::real_paths::real_path;
use agentsh_host::copies::{self, Copy};
use agentsh_policy::builtin_paths::{self, Tier};
use agentsh_sandbox::host::{OWNER_READS, RealHost, let_owner, normalised_path, repository_names};
use agentsh_sandbox::layout::Layout;
use agentsh_sandbox::spec::{NamedFile, NamedKind, PathRules};

/// Identity of a directory, also against a reused inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    /// None if the file system does not record it.
    born: Option<SystemTime>,
}

impl Identity {
    /// The key of the file at a path, links followed. None if nothing is there.
    pub fn of(path: &Path) -> Option<Self> {
        Some(Self::from(&path.metadata().ok()?))
    }

    pub fn device(&self) -> u64 {
        self.device
    }

    /// Whether two are equal, except that a disk may have been mounted again under another device number.
    fn is_of_same_object(&self, other: &Self) -> bool {
        *self == *other || self.born.is_some() && Self { device: other.device, ..*self } == *other
    }
}

impl From<&Metadata> for Identity {
    fn from(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino(), born: found.created().ok() }
    }
}

/// A directory that a sandbox could write, and where it is now.
pub(super) struct MovedDirectory {
    pub from: PathBuf,
    pub to: PathBuf,
    device_before: u64,
    device: u64,
}

impl MovedDirectory {
    /// None: the same directory is at none of these paths.
    pub fn find<'p>(
        from: &Path,
        was: Identity,
        mut paths: impl Iterator<Item = &'p PathBuf>,
    ) -> Option<Self> {
        paths.find_map(|to| {
            let is = Identity::of(to).filter(|is| was.is_of_same_object(is))?;
            let real = (to != from).then(|| to.canonicalize().ok()).flatten();
            let to = real.unwrap_or_else(|| to.clone());
            Some(Self { from: from.to_owned(), to, device_before: was.device, device: is.device })
        })
    }
}

/// Where a path is now, if one of these directories was moved.
pub(super) fn path_now(path: PathBuf, moved: &[MovedDirectory]) -> PathBuf {
    let around = moved.iter().filter(|moved| path.starts_with(&moved.from));
    let Some(MovedDirectory { from, to, .. }) = around.max_by_key(|moved| moved.from.as_os_str().len())
    else {
        return path;
    };
    let below = path.strip_prefix(from).unwrap_or(&path);
    to.iter().chain(below.iter()).collect()
}

#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// For each repository: its path, and the settings that git obeyed in it.
    repositories: BTreeMap<Identity, (PathBuf, ObeyedFiles)>,
    /// Directories that were refused to the sandbox and are invisible in it.
    refused: BTreeSet<PathBuf>,
    /// Directories at whose top no automatically run file may appear.
    worked_in: Vec<PathBuf>,
    /// Directories in which nothing may appear.
    closed: Vec<PathBuf>,
    /// Directories in which no file with a command's name may appear.
    commands: Vec<PathBuf>,
    /// PATH without directories that the sandbox may write.
    path: Vec<PathBuf>,
    /// Instruction and configuration files are guarded too.
    guards_all: bool,
    /// Hooks and programs that the user's git searches for in every repository.
    in_repositories: BTreeSet<PathBuf>,
    /// As in [`Layout::in_repository`].
    in_repository: BTreeSet<(PathBuf, PathBuf, PathBuf)>,
    /// Paths that were guarded from the start.
    guarded: BTreeSet<PathBuf>,
    /// Automatically run files that existed before, or that the policy allows.
    present: BTreeSet<PathBuf>,
    /// Missing paths that are in no table but that some program obeys.
    expected: BTreeMap<PathBuf, NamedFile>,
    /// Named files that stay writable, with who names them.
    told: BTreeMap<PathBuf, String>,
    /// Directories of agentsh's that a sandbox writes to by another path: package caches, and what an agent keeps.
    private: Vec<PathBuf>,
}

type StoredObeyed = Vec<(Vec<u8>, Vec<u8>)>;

/// The serialised form; paths may be any bytes.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Stored {
    repositories: Vec<(Vec<u8>, Identity, StoredObeyed)>,
    refused: Vec<Vec<u8>>,
    #[serde(default)]
    worked_in: Vec<Vec<u8>>,
    #[serde(default)]
    closed: Vec<Vec<u8>>,
    #[serde(default)]
    commands: Vec<Vec<u8>>,
    #[serde(default)]
    path: Vec<Vec<u8>>,
    #[serde(default)]
    guards_all: bool,
    #[serde(default)]
    in_repositories: Vec<Vec<u8>>,
    #[serde(default)]
    in_repository: Vec<[Vec<u8>; 3]>,
    #[serde(default)]
    guarded: Vec<Vec<u8>>,
    #[serde(default)]
    present: Vec<Vec<u8>>,
    #[serde(default)]
    expected: Vec<(Vec<u8>, NamedFile)>,
    #[serde(default)]
    told: Vec<(Vec<u8>, String)>,
    #[serde(default)]
    private: Vec<Vec<u8>>,
}

impl From<Baseline> for Stored {
    fn from(baseline: Baseline) -> Self {
        let bytes = |path: PathBuf| path.into_os_string().into_vec();
        let obeyed =
            |obeyed: ObeyedFiles| obeyed.into_iter().map(|(name, content)| (bytes(name), content)).collect();
        let repositories = baseline.repositories.into_iter();
        Self {
            repositories: repositories.map(|(one, (path, was))| (bytes(path), one, obeyed(was))).collect(),
            refused: baseline.refused.into_iter().map(bytes).collect(),
            worked_in: baseline.worked_in.into_iter().map(bytes).collect(),
            closed: baseline.closed.into_iter().map(bytes).collect(),
            commands: baseline.commands.into_iter().map(bytes).collect(),
            path: baseline.path.into_iter().map(bytes).collect(),
            guards_all: baseline.guards_all,
            in_repositories: baseline.in_repositories.into_iter().map(bytes).collect(),
            in_repository: baseline
                .in_repository
                .into_iter()
                .map(|(git, named, users)| [bytes(git), bytes(named), bytes(users)])
                .collect(),
            guarded: baseline.guarded.into_iter().map(bytes).collect(),
            present: baseline.present.into_iter().map(bytes).collect(),
            expected: baseline.expected.into_iter().map(|(path, named)| (bytes(path), named)).collect(),
            told: baseline.told.into_iter().map(|(path, why)| (bytes(path), why)).collect(),
            private: baseline.private.into_iter().map(bytes).collect(),
        }
    }
}

impl Stored {
    pub fn forget(&mut self, lost: &Identity) {
        self.repositories.retain(|(_, known, _)| known != lost);
    }

    pub fn expect(&mut self, path: &Path, named: NamedFile) {
        self.expected.push((path.as_os_str().as_bytes().to_vec(), named));
    }

    /// The same with the current paths of these directories.
    pub fn with_current_paths(self, moved: &[MovedDirectory]) -> Baseline {
        let stored = self;
        let as_path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        let path = |bytes| path_now(as_path(bytes), moved);
        let repository = |(bytes, mut one, obeyed): (_, Identity, StoredObeyed)| {
            let on = moved.iter().find(|moved| moved.device_before == one.device);
            one.device = on.map_or(one.device, |moved| moved.device);
            let obeyed = obeyed.into_iter().map(|(name, content)| (as_path(name), content));
            (one, (path(bytes), obeyed.collect()))
        };
        Baseline {
            repositories: stored.repositories.into_iter().map(repository).collect(),
            refused: stored.refused.into_iter().map(path).collect(),
            worked_in: stored.worked_in.into_iter().map(path).collect(),
            closed: stored.closed.into_iter().map(path).collect(),
            commands: stored.commands.into_iter().map(path).collect(),
            path: stored.path.into_iter().map(path).collect(),
            guards_all: stored.guards_all,
            in_repositories: stored.in_repositories.into_iter().map(path).collect(),
            in_repository: stored
                .in_repository
                .into_iter()
                .map(|[git, named, users]| (path(git), as_path(named), path(users)))
                .collect(),
            guarded: stored.guarded.into_iter().map(path).collect(),
            present: stored.present.into_iter().map(path).collect(),
            expected: stored.expected.into_iter().map(|(bytes, named)| (path(bytes), named)).collect(),
            told: stored.told.into_iter().map(|(bytes, why)| (path(bytes), why)).collect(),
            private: stored.private.into_iter().map(path).collect(),
        }
    }
}

impl Baseline {
    /// Call before the program runs.
    #[must_use]
    pub fn of(layout: &Layout, rules: &PathRules, host: &RealHost, path: &str) -> Self {
        // Relative entries of PATH are resolved by the shell's directory, usually the project.
        let path = path.split(':').map(|directory| normalised_path(&rules.project.join(directory)));
        let is_written =
            |directory: &PathBuf| layout.instructed.iter().any(|root| directory.starts_with(root));
        let (written, path): (Vec<PathBuf>, Vec<PathBuf>) = path.partition(is_written);
        let mut found = Self {
            worked_in: layout.worked_in.clone(),
            closed: layout.closed.clone(),
            commands: layout.commands.iter().cloned().chain(written).collect(),
            path,
            guards_all: rules.guard_all,
            expected: layout.expected.clone(),
            told: layout.told.clone(),
            ..Self::default()
        };
        if !layout.in_repositories.is_empty() || !layout.in_repository.is_empty() {
            found.in_repository.clone_from(&layout.in_repository);
            found.in_repositories.clone_from(&layout.in_repositories);
            let read_only = layout.guards.iter().filter(|mount| is_guard(mount));
            found.guarded = read_only.map(|mount| mount.target.clone()).collect();
        }
        found.refused.extend(layout.refused.iter().map(|(path, _)| path.clone()));
        for entry in &layout.repositories {
            if !host.is_missing(entry) && found.add(entry) {
                for directory in disarm_new::directories_of(entry, host).iter().filter(|one| *one != entry) {
                    found.add(directory);
                }
            }
        }
        // The stubs exist at this point.
        found.present = found.find_arrivals(&|_| false, true);
        found.present.extend(found.expected.keys().filter_map(|path| copies::no_directory_above(path)));
        found.present.extend(rules.unmasked.iter().cloned());
        found
    }

    /// Adds what a sandbox sees at a different path than the host does.
    #[must_use]
    pub fn with_private(self, directories: impl Iterator<Item = PathBuf>) -> Self {
        let real = directories.filter_map(|directory| real_path(&directory).ok());
        Self { private: real.collect(), ..self }
    }

    /// The host removed the entry: the next one at this path is new.
    pub(super) fn forget(&mut self, path: &Path) {
        self.present.remove(path);
    }

    /// The identity of a known repository.
    pub(super) fn known_identity(&self, entry: &Path) -> Option<Identity> {
        identity(entry).filter(|found| self.repositories.contains_key(found))
    }

    /// A repository is known no longer.
    pub(super) fn forget_repository(&mut self, lost: &Identity) {
        if let Some((directory, _)) = self.repositories.remove(lost) {
            self.unguard(directory.parent().unwrap_or(&directory));
        }
    }

    /// Nothing guards what is at or below a path from now on.
    pub(super) fn unguard(&mut self, path: &Path) {
        self.guarded.retain(|guarded| !guarded.starts_with(path));
    }

    /// Whether a link leads to a private directory, which is never searched because nobody works in it.
    pub(super) fn is_private(&self, link: &Path) -> bool {
        let end = link.canonicalize().ok().filter(|end| end.is_dir());
        end.is_some_and(|end| self.private.iter().any(|private| end.starts_with(private)))
    }

    /// Directories in which something may appear that is set aside.
    pub(super) fn watched_directories(&self) -> BTreeSet<PathBuf> {
        let below = self.directories_below();
        let mut found: BTreeSet<PathBuf> = self.top_directories().cloned().collect();
        found.extend(self.expected.keys().filter_map(|path| path.parent()).map(Path::to_owned));
        for top in &self.worked_in {
            // One list instead of a look at each; what is made later is seen in the top.
            let _ = listing::for_each_entry(top, |name, _| {
                let inner = below.iter().filter(|above| above.iter().next() == Some(name));
                found.extend(inner.map(|above| top.join(above)));
                ControlFlow::Continue(())
            });
        }
        found
    }

    /// Adds paths that are obeyed since the run began.
    pub(super) fn expect(&mut self, more: BTreeMap<PathBuf, NamedFile>) {
        self.expected.extend(more);
    }

    /// Named files that stay writable, with who names them.
    pub(super) fn named_writable_files(&self) -> impl Iterator<Item = (&PathBuf, &String)> {
        self.told.iter()
    }

    /// The reason why a path that is in no table is obeyed.
    pub(super) fn obeyed_reason(&self, path: &Path) -> Option<&str> {
        let named = self.expected.get(path).or_else(|| self.tree_behind(path));
        named.map(|named| named.why.as_str())
    }

    /// The working tree of a repository at or below a path.
    fn tree_behind(&self, path: &Path) -> Option<&NamedFile> {
        let below = self.expected.range(path.to_owned()..).take_while(|(tree, _)| tree.starts_with(path));
        below.map(|(_, named)| named).find(|named| named.kind == NamedKind::Tree)
    }

    fn top_directories(&self) -> impl Iterator<Item = &PathBuf> {
        self.worked_in.iter().chain(&self.closed).chain(&self.commands)
    }

    /// Directories of automatically run files, relative to those in which people work.
    fn directories_below(&self) -> BTreeSet<&'static Path> {
        self.rows_below().filter_map(Path::parent).collect()
    }

    /// Automatically run files below a directory in which people work. Repositories are handled separately.
    fn rows_below(&self) -> impl Iterator<Item = &'static Path> {
        let rows = builtin_paths::PROJECT_READ_ONLY.iter();
        let rows = rows.filter(|row| row.tier == Tier::Runs || self.guards_all);
        rows.map(|row| Path::new(row.path)).filter(|path| {
            let above = path.iter().next().filter(|_| path.iter().nth(1).is_some());
            above.is_some_and(|above| repository_names().all(|name| above != name))
        })
    }

    /// Files in known repositories that are obeyed and could be created.
    fn in_known(&self) -> impl Iterator<Item = PathBuf> {
        let files = |directory: &PathBuf| -> Vec<PathBuf> {
            obeyed_files(directory).iter().map(|file| directory.join(file)).collect()
        };
        let paths = self.repositories.values().flat_map(move |(directory, _)| files(directory));
        paths.filter(|path| path.symlink_metadata().is_ok())
    }

    /// Whether a path would run automatically and did not exist before.
    pub(super) fn is_arrival(&self, path: &Path) -> bool {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let is_in = |directories: &[PathBuf]| directories.iter().any(|directory| directory == above);
        let is_guarded = |name: &OsStr| {
            name.to_str().is_some_and(|name| builtin_paths::guarded(name, self.guards_all).is_some())
        };
        let is_command = |name: &OsStr| self.path.iter().any(|directory| directory.join(name).exists());
        let is_below = || {
            let below = self.worked_in.iter().filter_map(|top| path.strip_prefix(top).ok());
            below.into_iter().any(|below| self.rows_below().any(|row| row == below))
        };
        let (_, directories) = builtin_paths::GIT_OBEYED;
        let git = match above.file_name() {
            Some(last) if directories.iter().any(|name| last == *name) => above.parent(),
            _ => Some(above).filter(|above| obeyed_files(above).iter().any(|file| name == *file)),
        };
        (is_in(&self.worked_in) && is_guarded(name)
            || is_below()
            || git.is_some_and(|git| self.repositories.values().any(|(known, _)| known == git))
            || is_in(&self.closed)
            || is_in(&self.commands) && is_command(name)
            || self.expected.get(path).is_some_and(|named| match named.kind {
                NamedKind::File => !path.is_dir(),
                NamedKind::Tree => false,
                _ => true,
            })
            || self.leads_away(path))
            && !self.present.contains(path)
    }

    /// Whether a link is in the place of a working tree or on the way to one.
    pub(super) fn leads_away(&self, path: &Path) -> bool {
        self.tree_behind(path).is_some() && path.is_symlink()
    }

    /// New files among these, when nothing runs inside: what is closed to its owner is opened.
    pub(super) fn last_arrivals(&self) -> BTreeSet<PathBuf> {
        self.find_arrivals(&|directory| let_owner(directory, OWNER_READS), false)
    }

    /// New files among these.
    pub(super) fn arrivals(&self) -> BTreeSet<PathBuf> {
        self.find_arrivals(&|_| false, false)
    }

    /// At the start with the links on the way: those of the user.
    fn find_arrivals(&self, open_up: &dyn Fn(&Path) -> bool, is_start: bool) -> BTreeSet<PathBuf> {
        let (_, directories) = builtin_paths::GIT_OBEYED;
        let of_git =
            self.repositories.values().flat_map(|(git, _)| directories.iter().map(|name| git.join(name)));
        let below = self.directories_below();
        let expected = self.expected.iter().flat_map(|(path, named)| {
            path.ancestors().take(if named.kind == NamedKind::Tree { usize::MAX } else { 1 })
        });
        let expected = expected.filter(|path| path.symlink_metadata().is_ok());
        let mut found: BTreeSet<_> = self.in_known().chain(expected.map(Path::to_owned)).collect();
        found.retain(|path| self.is_arrival(path));
        let mut links = Vec::new();
        let mut open: BTreeSet<_> = self.top_directories().cloned().chain(of_git).collect();
        while let Some(directory) = open.pop_last() {
            let is_worked_in = self.worked_in.contains(&directory);
            let mut see = |name: &OsStr, _| {
                let path = directory.join(name);
                if is_worked_in {
                    let inner = below.iter().filter(|above| above.iter().next() == Some(name));
                    open.extend(inner.map(|above| directory.join(above)));
                }
                if self.is_arrival(&path) {
                    found.insert(path);
                }
                ControlFlow::Continue(())
            };
            let mut listed = listing::each_without_links(&directory, &mut see);
            if listed.as_ref().is_err_and(|error| error.raw_os_error() == Some(Errno::LOOP.raw_os_error())) {
                match copies::no_directory_above(&directory.join("entry")) {
                    // A new link is set aside itself.
                    Some(link) if !is_start && !self.present.contains(&link) => {
                        found.insert(link);
                        continue;
                    }
                    link => {
                        links.extend(link);
                        listed = listing::for_each_entry(&directory, &mut see);
                    }
                }
            }
            if listed.is_err() && open_up(&directory) {
                listed = listing::for_each_entry(&directory, &mut see);
            }
            if listed.is_err() && is_worked_in {
                open.extend(below.iter().map(|above| directory.join(above)));
            }
        }
        found.extend(links.into_iter().filter(|_| is_start));
        found
    }

    /// The path to set aside for an arrival, with a copy: a new link or file on the way to it, or behind a link of the user the file
    /// that a sandbox may have written.
    pub(super) fn found_at(&self, path: &Path, roots: &[PathBuf]) -> (PathBuf, Copy) {
        let copy = Copy::of(path);
        let Copy::Unreachable { there, as_is } = copy else { return (path.to_owned(), copy) };
        let is_written = |path: &Path| roots.iter().any(|root| path.starts_with(root) && path != root);
        if is_written(&there) && !self.present.contains(&there) {
            return (there, *as_is);
        }
        let above = path.parent().and_then(|above| above.canonicalize().ok()).unwrap_or_default();
        let real = above.join(path.file_name().unwrap_or_default());
        let copy = if is_written(&real) { Copy::of_own(&real) } else { Copy::Absent };
        (real, copy)
    }

    /// Relative paths of hooks and programs in a repository that uses these directories, with what that is for the user if a known
    /// one names it.
    pub(super) fn in_repository(&self, directories: &[PathBuf]) -> BTreeSet<(&Path, Option<&Path>)> {
        let known: Vec<_> = directories.iter().filter(|directory| self.existed_before(directory)).collect();
        let of_known = self.in_repository.iter().filter(|(git, ..)| known.contains(&git));
        let of_known = of_known.map(|(_, named, users)| (named.as_path(), Some(users.as_path())));
        of_known.chain(self.in_repositories.iter().map(|named| (named.as_path(), None))).collect()
    }

    /// Whether the configuration of a repository that existed before names a path for hooks or as a program.
    pub(super) fn is_named(&self, path: &Path) -> bool {
        self.in_repository.iter().any(|(.., users)| path.starts_with(users))
    }

    /// Whether nothing inside could change a path, from the start.
    pub(super) fn is_guarded(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.guarded.contains(above))
    }

    /// False: nothing is there.
    pub(super) fn add(&mut self, path: &Path) -> bool {
        let Ok(found) = path.symlink_metadata() else { return false };
        let obeyed = if found.is_dir() { git_obeys::obeyed_files(path) } else { ObeyedFiles::new() };
        self.repositories.insert(Identity::from(&found), (path.to_owned(), obeyed));
        true
    }

    /// Directories in which people work.
    pub(super) fn worked_in(&self) -> impl Iterator<Item = &Path> {
        self.worked_in.iter().map(PathBuf::as_path)
    }

    /// Where the known repositories were.
    pub(super) fn repositories(&self) -> impl Iterator<Item = &Path> {
        self.repositories.values().map(|(path, _)| path.as_path())
    }

    /// The files that git obeyed in a repository before the run. None: the repository is new.
    pub(super) fn obeyed_git_files(&self, repository: &Path) -> Option<&ObeyedFiles> {
        self.repositories.get(&identity(repository)?).map(|(_, obeyed)| obeyed)
    }

    /// Whether a directory, or one above it, was refused to the sandbox.
    pub(super) fn is_refused(&self, directory: &Path) -> bool {
        directory.ancestors().any(|above| self.refused.contains(above))
    }

    /// Whether the object at a path existed before.
    #[must_use]
    pub fn existed_before(&self, path: &Path) -> bool {
        self.refused.contains(path)
            || identity(path).is_some_and(|found| self.repositories.contains_key(&found))
    }
}

/// Names in a repository's directory that are obeyed; not each of them can have a stub.
fn obeyed_files(directory: &Path) -> &'static [&'static str] {
    let mut others = builtin_paths::OTHER_REPOSITORIES.iter();
    let other = others.find(|(name, _)| directory.file_name() == Some(name.as_ref()));
    other.map_or(std::slice::from_ref(&builtin_paths::GIT_OBEYED.0), |(_, files)| files)
}

fn identity(path: &Path) -> Option<Identity> {
    Some(Identity::from(&path.symlink_metadata().ok()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::fs;

    use super::*;

    #[test]
    fn baseline_identifies_a_directory_by_inode_and_not_by_name() {
        let place = tempfile::tempdir().unwrap();
        let (git, other) = (place.path().join(".git"), place.path().join("other"));
        fs::create_dir(&git).unwrap();
        let mut baseline = Baseline::default();
        baseline.add(&git);
        baseline.add(&place.path().join("missing"));
        assert!(baseline.existed_before(&git));
        // A file at a name that was free is new.
        fs::create_dir(place.path().join("missing")).unwrap();
        assert!(!baseline.existed_before(&place.path().join("missing")));
        // It was made before, and then renamed: its time of birth says nothing.
        fs::create_dir(&other).unwrap();
        fs::rename(&git, place.path().join("moved")).unwrap();
        assert!(baseline.existed_before(&place.path().join("moved")));
        fs::rename(&other, &git).unwrap();
        assert!(!baseline.existed_before(&git));
    }
}
