//! Recovery after agentsh was killed.
//!
//! One file for each watched sandbox lists its directories and repositories; it is locked during the run and removed
//! after a final check in which nothing failed. The next start does that check for every unlocked file, in the same
//! directories, wherever they are then.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};

use super::baseline::{Identity, MovedDirectory, Stored, path_now};
use super::final_check::FinalCheck;
use super::name_watcher::Names;
use super::new_repositories::is_repository_name;
use super::thread::is_guard;
use agentsh_base::listing;
use agentsh_host::accepted_files;
use agentsh_host::copies::Copy;
use agentsh_sandbox::plan::Mount;
use agentsh_sandbox::spec::NamedFile;
use agentsh_store::words::GuardChange;

/// Longest file that is written and read. Of a sandbox without mounts it holds copies of all guarded files.
const MAX_BYTES: u64 = 64 << 20;
/// For a directory that is not there, or in which a check fails: it may be on a disk that is elsewhere.
const REMAINS_DAYS: u64 = 30;
/// Directories that the host moves out of the others and that are followed.
const MAX_MOVED_OUT: usize = 64;

#[derive(Serialize, Deserialize)]
struct UnfinishedWatch {
    session: String,
    roots: Vec<Root>,
    baseline: Stored,
    /// Guarded files that no mount protects, with their former content.
    #[serde(default)]
    unprotected: BTreeMap<PathBuf, Copy>,
    /// When it was reported that a check remains to be done.
    #[serde(default)]
    told: Option<SystemTime>,
}

/// A directory by its path, and which object it was.
type Root = (Vec<u8>, Identity);
/// Reports a text about a path.
pub type ReportChange<'s> = &'s mut dyn FnMut(&Path, GuardChange, String);

/// The file of one watched sandbox. A killed session leaves it.
#[derive(Debug)]
pub struct MarkerFile {
    path: PathBuf,
    locked: Mutex<File>,
}

impl MarkerFile {
    fn change(&self, change: impl FnOnce(&mut UnfinishedWatch)) -> io::Result<()> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = UnfinishedWatch::read(&File::open(&self.path)?)?;
        change(&mut left);
        *locked = left.write(&self.path)?;
        Ok(())
    }

    /// A repository is known no longer.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn forget(&self, lost: &Identity) -> io::Result<()> {
        self.change(|left| left.baseline.forget(lost))
    }

    #[cfg(test)]
    pub(super) fn knows(&self, entry: &Path) -> bool {
        let left = File::open(&self.path).and_then(|file| UnfinishedWatch::read(&file));
        left.is_ok_and(|left| left.baseline.with_current_paths(&[]).existed_before(entry))
    }

    /// What appears at a path is set aside.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn expect(&self, path: &Path, named: &NamedFile) -> io::Result<()> {
        self.change(|left| left.baseline.expect(path, named.clone()))
    }
}

/// What a run leaves if it is killed, and where its directories are.
pub struct CrashMarker {
    pub file: Arc<MarkerFile>,
    /// The kernel knows their current paths.
    roots: Vec<(Root, File)>,
    /// Directories that the host has moved out of them: who was inside can still write there.
    moved_out: Vec<(Root, File)>,
}

impl CrashMarker {
    /// # Errors
    /// When it cannot be written: then no sandbox that may write may start.
    pub fn begin(check: &FinalCheck, session: &str, guards: &[Mount], since: SystemTime) -> io::Result<Self> {
        let name = uuid::Uuid::now_v7().to_string();
        let path = record_directory(&check.state).join(&name);
        let roots = check.directories.iter().filter_map(|path| root(path)).collect::<Vec<_>>();
        let left = UnfinishedWatch {
            session: session.to_owned(),
            roots: roots.iter().map(|(root, _)| root.clone()).collect(),
            baseline: check.baseline.clone().into(),
            unprotected: check.unprotected.clone(),
            told: None,
        };
        let locked = left.write(&path)?;
        let guards = guards.iter().filter(|mount| is_guard(mount)).map(|mount| &mount.target);
        let guards: Vec<&PathBuf> = guards.chain(check.unprotected.keys()).collect();
        let is_kept = |path: &Path| guards.iter().any(|guard| path.starts_with(guard));
        accepted_files::began(&check.state, &name, &check.directories, since, is_kept)?;
        let file = Arc::new(MarkerFile { path, locked: Mutex::new(locked) });
        Ok(Self { file, roots, moved_out: Vec::new() })
    }

    /// The device of the directory around a path; None for one of them.
    pub fn device_around(&self, path: &Path) -> Option<u64> {
        let mut roots = self.roots.iter().map(|((root, identity), _)| (as_path(root.clone()), identity));
        let (root, identity) = roots.find(|(root, _)| path.starts_with(root))?;
        (path != root).then(|| identity.device())
    }

    /// Follows a directory that is no longer at a path, if the host has moved it out of the others.
    pub fn follow(&mut self, path: &Path, names: Option<&mut Names>) {
        let Some(held) = names.and_then(|names| names.moved_from(path)) else { return };
        let Some(now) = place_of(&held).filter(|_| self.moved_out.len() < MAX_MOVED_OUT) else { return };
        let mut roots = self.roots.iter().filter_map(|(_, root)| place_of(root));
        let Some(identity) = held.metadata().ok().map(|found| Identity::from(&found)) else { return };
        if roots.any(|root| now.starts_with(root)) {
            // It is watched and held again at its present path.
            return;
        }
        let root = (path.as_os_str().as_bytes().to_vec(), identity);
        // Where it cannot be written, a killed session leaves this out.
        let _ = self.file.change(|left| left.roots.push(root.clone()));
        self.moved_out.push((root, held));
    }

    /// Whether the directory around a path is where it was: the host may have moved it, and put another one in its place.
    pub fn is_in_place(&self, path: &Path) -> bool {
        let mut around = self.roots.iter().filter(|(root, _)| path.starts_with(as_path(root.0.clone())));
        around.all(|(root, _)| is_in_place(root))
    }

    /// Does the final check, at the present paths. What fails in it, or cannot be reached, remains to be done.
    pub fn close(self, check: FinalCheck, is_settled: impl Fn(&Path, &Copy) -> bool, say: ReportChange<'_>) {
        // The kernel knows the current path of each; removed ones are empty.
        let (moved, absent) = located(self.roots.iter().chain(&self.moved_out).filter_map(|(root, held)| {
            if is_in_place(root) {
                return Some((root.clone(), Vec::new()));
            }
            Some((root.clone(), vec![place_of(held)?]))
        }));
        for moved in moved.iter().filter(|moved| moved.from != moved.to) {
            let (from, to) = (moved.from.display(), moved.to.display());
            let text = format!("{from} was moved to {to} during the run; the sandbox could write there, too");
            say(&moved.to, GuardChange::Replaced, text);
        }
        absent.iter().for_each(|root| tell_absent(root, false, say));
        ended(&check.state, &self.file.path);
        let failed = checked(check.with_current_paths(&moved), is_settled, say);
        let remains = || {
            let left = UnfinishedWatch::read(&File::open(&self.file.path)?)?;
            left.with_current_paths(&moved).leave(&self.file.path, absent.clone(), &failed)
        };
        let is_done = failed.is_empty() && absent.is_empty();
        // If it is unreadable, the next start reports it.
        let _ = if is_done { fs::remove_file(&self.file.path) } else { remains() };
    }
}

/// If the end cannot be written, the sandbox counts as running.
fn ended(state: &Path, marker: &Path) {
    let name = marker.file_name().unwrap_or_default().to_string_lossy();
    let _ = accepted_files::ended(state, &name);
}

/// None: the directory was removed.
fn place_of(held: &File) -> Option<PathBuf> {
    held.metadata().ok().filter(|found| found.nlink() > 0)?;
    fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).ok()
}

fn is_in_place(root: &Root) -> bool {
    Identity::of(&as_path(root.0.clone())) == Some(root.1)
}

/// The current paths of directories, from their possible paths; and the directories at none of these.
fn located(roots: impl Iterator<Item = (Root, Vec<PathBuf>)>) -> (Vec<MovedDirectory>, Vec<Root>) {
    let (mut moved, mut absent) = (Vec::new(), Vec::new());
    for (root, others) in roots {
        let from = as_path(root.0.clone());
        let around = path_now(from.clone(), &moved);
        match MovedDirectory::find(&from, root.1, [from.clone(), around].iter().chain(&others)) {
            Some(found) => moved.push(found),
            None => absent.push(root),
        }
    }
    (moved, absent)
}

fn tell_absent(root: &Root, is_over: bool, say: ReportChange<'_>) {
    let shown = as_path(root.0.clone());
    let then = match is_over {
        true => format!("agentsh gave it up after {REMAINS_DAYS} days"),
        false => {
            format!("the next run in it within {REMAINS_DAYS} days does the check, even if it was moved")
        }
    };
    let text = format!(
        "the final check of {} is not done, because that directory is missing: {then}",
        shown.display()
    );
    say(&shown, GuardChange::NotPutBack, text);
}

/// Returns where something failed.
fn checked(
    check: FinalCheck,
    is_settled: impl Fn(&Path, &Copy) -> bool,
    say: ReportChange<'_>,
) -> BTreeSet<PathBuf> {
    let mut failed = BTreeSet::new();
    check.run(is_settled, &mut |path, what, text| {
        failed.extend((what == GuardChange::NotPutBack).then(|| path.to_owned()));
        say(path, what, text);
    });
    failed
}

fn root(path: &Path) -> Option<(Root, File)> {
    let held =
        fs::OpenOptions::new().read(true).custom_flags(OFlags::PATH.bits().cast_signed()).open(path).ok()?;
    let identity = Identity::from(&held.metadata().ok()?);
    Some(((path.as_os_str().as_bytes().to_vec(), identity), held))
}

impl UnfinishedWatch {
    fn read(mut file: &File) -> io::Result<Self> {
        let mut text = Vec::new();
        Read::by_ref(&mut file).take(MAX_BYTES).read_to_end(&mut text)?;
        serde_json::from_slice(&text).map_err(io::Error::from)
    }

    /// Returns the locked file.
    fn write(&self, path: &Path) -> io::Result<File> {
        let new = path.with_extension("new");
        let open = || fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap_or(path))?;
                open()?
            }
            file => file?,
        };
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("the guarded files are too large for a copy that survives a crash"));
        }
        file.write_all(&text)?;
        // Readers see a complete and locked file.
        fs::rename(&new, path)?;
        Ok(file)
    }

    /// The same with the current paths of the directories.
    fn with_current_paths(self, moved: &[MovedDirectory]) -> Self {
        let unprotected = self.unprotected.into_iter();
        Self {
            baseline: self.baseline.with_current_paths(moved).into(),
            unprotected: unprotected.map(|(path, copy)| (path_now(path, moved), copy)).collect(),
            ..self
        }
    }

    /// Leaves what remains to be done: what is around these paths, and directories that are not there.
    fn leave(mut self, path: &Path, absent: Vec<Root>, failed: &BTreeSet<PathBuf>) -> io::Result<()> {
        let around =
            failed.iter().filter_map(|failed| match failed.is_dir() && !is_repository_name(failed) {
                true => Some(failed.as_path()),
                false => failed.parent(),
            });
        self.roots = around.filter_map(root).map(|(root, _)| root).chain(absent).collect();
        if self.roots.is_empty() {
            return fs::remove_file(path);
        }
        let is_left = |path: &Path| {
            failed.contains(path)
                || self.roots.iter().any(|(root, _)| path.starts_with(as_path(root.clone())))
        };
        self.unprotected.retain(|path, _| is_left(path));
        self.told.get_or_insert_with(SystemTime::now);
        self.write(path).map(drop)
    }
}

fn as_path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

fn record_directory(state: &Path) -> PathBuf {
    state.join("unfinished")
}

/// Does the final check of killed sessions, also in directories that this session may write and that were moved.
pub fn recover_all(state: &Path, writable: &[&Path], say: ReportChange<'_>) {
    for path in listing::paths(&record_directory(state)).unwrap_or_default() {
        if let Err(error) = recover(state, &path, writable, say) {
            let text =
                format!("the final check of a killed session is not done: {}: {error}", path.display());
            say(&path, GuardChange::NotPutBack, text);
        }
    }
}

fn recover(state: &Path, path: &Path, writable: &[&Path], say: ReportChange<'_>) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    // It is running, or another process has done it.
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
        || file.metadata()?.nlink() == 0
    {
        return Ok(());
    }
    let mut left = match UnfinishedWatch::read(&file) {
        Err(error)
            if error.kind() == io::ErrorKind::InvalidData || error.kind() == io::ErrorKind::UnexpectedEof =>
        {
            fs::remove_file(path)?;
            // Killed before it was complete, and before anything ran.
            return if path.extension().is_some() { Ok(()) } else { Err(error) };
        }
        left => left?,
    };
    if left.told.is_none() {
        ended(state, path);
    }
    let others: Vec<PathBuf> = writable.iter().map(|path| path.to_path_buf()).collect();
    let roots = std::mem::take(&mut left.roots).into_iter();
    let (moved, absent) = located(roots.map(|root| (root, others.clone())));
    let check = FinalCheck {
        unprotected: left.unprotected.clone(),
        ..FinalCheck::of(state, &left.session, Vec::new(), left.baseline.clone().with_current_paths(&[]))
    };
    let (check, left) = (check.with_current_paths(&moved), left.with_current_paths(&moved));
    let (is_told, age) = (left.told.is_some(), left.told.and_then(|told| told.elapsed().ok()));
    let failed = checked(check, |_, _| false, &mut |path, what, text| {
        if !is_told || what != GuardChange::NotPutBack {
            say(path, what, format!("left by a killed session: {text}"));
        }
    });
    let is_over = age.is_some_and(|age| age > Duration::from_secs(REMAINS_DAYS * 24 * 60 * 60));
    absent.iter().filter(|_| !is_told || is_over).for_each(|root| tell_absent(root, is_over, say));
    if is_over { fs::remove_file(path) } else { left.leave(path, absent, &failed) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::super::baseline::Baseline;
    use super::*;

    #[test]
    fn final_check_of_a_killed_session_runs_in_the_next_one() {
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
        let check = FinalCheck::of(&state, "s", vec![project.clone()], baseline);
        let begun = CrashMarker::begin(&check, "s", &[], SystemTime::now()).unwrap();
        make("new");
        let recovered = |writable: &[&Path]| {
            let mut said = Vec::new();
            recover_all(&state, writable, &mut |_, _, text| said.push(text));
            said
        };
        // While it is watched, a live session owns it.
        assert!(recovered(&[]).is_empty());
        assert!(fs::read_to_string(project.join("new/.git/config")).unwrap().contains("fsmonitor"));
        // A kill closes the descriptor and leaves the file.
        let path = begun.file.path.clone();
        drop(begun);
        // What is not there, or is another directory, is reported once.
        let moved = place.path().join("moved");
        fs::rename(&project, &moved).unwrap();
        let said = recovered(&[]);
        assert!(said.len() == 1 && said[0].contains("is missing"), "{said:?}");
        fs::create_dir_all(project.join("new/.git/hooks")).unwrap();
        assert!(recovered(&[]).is_empty() && path.exists());
        let config = |name: &str| fs::read_to_string(moved.join(name).join(".git/config")).unwrap();
        assert!(config("new").contains("fsmonitor"));
        assert_eq!(recovered(&[&moved]).len(), 1);
        assert!(!config("new").contains("fsmonitor"));
        assert!(config("old").contains("fsmonitor"), "it was there before");
        assert!(!path.exists() && recovered(&[&moved]).is_empty());
    }

    #[test]
    fn recovery_of_a_vanished_directory_is_given_up_after_a_month() {
        let place = tempfile::tempdir().unwrap();
        let gone = place.path().join("gone");
        fs::create_dir(&gone).unwrap();
        let check = FinalCheck::of(place.path(), "s", vec![gone.clone()], Baseline::default());
        let path = CrashMarker::begin(&check, "s", &[], SystemTime::now()).unwrap().file.path.clone();
        fs::remove_dir(&gone).unwrap();
        let mut left = UnfinishedWatch::read(&File::open(&path).unwrap()).unwrap();
        left.told = Some(SystemTime::now() - Duration::from_secs(31 * 24 * 60 * 60));
        left.write(&path).unwrap();
        let mut said = Vec::new();
        recover_all(place.path(), &[], &mut |_, _, text| said.push(text));
        assert!(said.len() == 1 && said[0].contains("gave it up") && !path.exists(), "{said:?}");
    }
}
