//! Stubs: empty files and directories on disk that a guard can be mounted on, if the guarded path does not exist.
//! Removed after the run.
//!
//! Sandboxes that share a project each have a record, and the last one removes the stub. The next run removes what a
//! killed run left. A lock protects the records.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};

use crate::layout::Stub;
use crate::listing;
use crate::mount_calls::open_without_links;
use crate::policy::builtin_paths::stub_content;

/// The stubs of one sandbox. Dropping it releases them.
#[derive(Debug, Default)]
pub struct StubFiles {
    /// The record of created stubs, with the paths that it names.
    record: Option<(PathBuf, Vec<PathBuf>)>,
    /// The directories in which they were created, held open in case the user moves one.
    directories: Vec<(PathBuf, OwnedFd)>,
}

/// Limit of directories that are held open.
const MAX_DIRECTORIES: usize = 64;

impl StubFiles {
    /// Creates missing paths. Existing ones are unchanged.
    ///
    /// # Errors
    /// When a stub cannot be created: the run must not start without it.
    pub fn make(state: &Path, wanted: &BTreeSet<(PathBuf, Stub)>) -> io::Result<Self> {
        let directory = records(state);
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let _turn = match lock_records(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&directory)?;
                lock_records(&directory)?
            }
            turn => turn?,
        };
        // A released stub is missing, and created again.
        let standing = if release_ended(&directory) { recorded_paths(&directory) } else { BTreeSet::new() };
        let missing: Vec<_> = wanted
            .iter()
            .filter(|(path, _)| standing.contains(path) || fs::symlink_metadata(path).is_err())
            .collect();
        if missing.is_empty() {
            return Ok(Self::default());
        }
        let record = directory.join(format!("{}-{}", next(), std::process::id()));
        // The record first: a stub without a record would never be removed.
        write_record(&record, missing.iter().map(|(path, _)| path))?;
        let paths: Vec<PathBuf> = missing.iter().map(|(path, _)| path.clone()).collect();
        let mut directories: Vec<(PathBuf, OwnedFd)> = Vec::new();
        for (path, kind) in missing {
            let above = path.parent().unwrap_or(path);
            let known =
                directories.last().filter(|(known, _)| known == above).map(|(_, directory)| directory);
            match make_one(path, *kind, known) {
                Ok(Some(directory)) if directories.len() < MAX_DIRECTORIES => {
                    directories.push((above.to_owned(), directory));
                }
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    give_up(&record, &paths);
                    return Err(io::Error::new(
                        error.kind(),
                        format!("cannot guard {}: {error}", path.display()),
                    ));
                }
                _ => {}
            }
        }
        Ok(Self { record: Some((record, paths)), directories })
    }
}

impl Drop for StubFiles {
    fn drop(&mut self) {
        if let Some((record, paths)) = &self.record {
            // If the lock cannot be taken, the next run removes what this one leaves.
            if let Some(Ok(_turn)) = record.parent().map(lock_records) {
                give_up(record, paths);
                self.directories.iter().for_each(|(path, directory)| give_up_moved(path, directory, paths));
            }
        }
    }
}

/// Removes stubs in a directory that is not where it was.
fn give_up_moved(path: &Path, directory: &OwnedFd, stubs: &[PathBuf]) {
    if path.symlink_metadata().is_ok() {
        return;
    }
    let now = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    for stub in stubs.iter().filter(|stub| stub.parent() == Some(path)) {
        if let Some(name) = stub.file_name() {
            remove_untouched(&now.join(name), stub_content(stub));
        }
    }
}

/// Locks the records; unlocked when the descriptor is closed.
fn lock_records(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&directory, FlockOperation::LockExclusive))?;
    Ok(directory)
}

/// Several sandboxes of one process each have a record.
fn next() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Ends a path in a record, since no path contains it.
const END: u8 = 0;

fn write_record<'p>(record: &Path, paths: impl Iterator<Item = &'p PathBuf>) -> io::Result<()> {
    let mut content = Vec::new();
    for path in paths {
        content.extend_from_slice(path.as_os_str().as_bytes());
        content.push(END);
    }
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(record)?;
    file.write_all(&content)
}

/// An incomplete last path was being written when its run was killed, before the stub was created.
fn read_record(record: &Path) -> Vec<PathBuf> {
    let mut content = fs::read(record).unwrap_or_default();
    content.truncate(content.iter().rposition(|byte| *byte == END).unwrap_or(0));
    let paths = content.split(|byte| *byte == END).map(|path| std::ffi::OsString::from_vec(path.to_vec()));
    paths.map(PathBuf::from).filter(|path| path.is_absolute()).collect()
}

/// The paths in some run's record.
fn recorded_paths(directory: &Path) -> BTreeSet<PathBuf> {
    listing::paths(directory).unwrap_or_default().iter().flat_map(|record| read_record(record)).collect()
}

/// Whether a live run has a stub at a path.
#[must_use]
pub fn is_stub(state: &Path, path: &Path) -> bool {
    recorded_paths(&records(state)).contains(path)
}

/// The set of wanted stubs.
#[must_use]
pub fn wanted_stubs(list: &[(PathBuf, Stub)]) -> BTreeSet<(PathBuf, Stub)> {
    list.iter().cloned().collect()
}

/// The directory with the records of stubs.
#[must_use]
pub fn records(state: &Path) -> PathBuf {
    state.join("placeholders")
}

/// Releases the records of one ended process.
pub fn clean_up_after(directory: &Path, pid: u32) {
    // As after every run that was not killed.
    if listing::paths(directory).is_ok_and(|records| records.is_empty()) {
        return;
    }
    let Ok(_turn) = lock_records(directory) else { return };
    for record in listing::paths(directory).unwrap_or_default() {
        if pid_of(&record) == pid.to_string() {
            give_up(&record, &read_record(&record));
        }
    }
}

/// A record is named after the process that made it.
fn pid_of(record: &Path) -> &str {
    let name = record.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit('-').next().unwrap_or_default()
}

/// Releases the records of ended processes. Returns whether there may be others.
fn release_ended(directory: &Path) -> bool {
    let Ok(records) = listing::paths(directory) else { return true };
    for record in &records {
        if !Path::new("/proc").join(pid_of(record)).exists() {
            give_up(record, &read_record(record));
        }
    }
    !records.is_empty()
}

/// In a writable directory a parent may have become a link: links are not followed. Returns the parent if it is not the known one.
fn make_one(path: &Path, kind: Stub, known: Option<&OwnedFd>) -> io::Result<Option<OwnedFd>> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let opened = match known {
        Some(_) => None,
        None => Some(open_without_links(above, OFlags::PATH | OFlags::DIRECTORY)?),
    };
    let Some(parent) = known.or(opened.as_ref()) else { return Ok(None) };
    match kind {
        Stub::Directory => rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777))?,
        Stub::Socket => rustix::fs::mknodat(parent, name, FileType::Socket, Mode::from_raw_mode(0o644), 0)?,
        Stub::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o666))?;
            fs::File::from(file).write_all(stub_content(path))?;
        }
    }
    Ok(opened)
}

/// A run killed between creating and filling a stub leaves it empty.
fn is_untouched(path: &Path, length: u64, content: &[u8]) -> bool {
    length == 0 || (length == content.len() as u64 && fs::read(path).is_ok_and(|found| found == content))
}

/// Removes the record, and each stub that no other record wants and that is still empty.
fn give_up(record: &Path, paths: &[PathBuf]) {
    let _ = fs::remove_file(record);
    let wanted = record.parent().map(recorded_paths).unwrap_or_default();
    // One may be in another.
    let unwanted = paths.iter().rev().filter(|path| !wanted.contains(*path));
    unwanted.for_each(|path| remove_untouched(path, stub_content(path)));
}

/// Whether a directory could be removed once its stubs are.
#[must_use]
pub fn has_only_stubs(state: &Path, directory: &Path) -> bool {
    let found = listing::paths(directory).unwrap_or_default();
    let recorded = if found.is_empty() { BTreeSet::new() } else { recorded_paths(&records(state)) };
    found.iter().all(|path| recorded.contains(path))
}

/// Removes all stubs at the top of a directory that a program removes.
pub fn remove_in(state: &Path, directory: &Path) {
    let recorded = recorded_paths(&records(state));
    let in_it = recorded.iter().filter(|path| path.parent() == Some(directory));
    in_it.for_each(|path| remove_untouched(path, stub_content(path)));
}

fn remove_untouched(path: &Path, content: &[u8]) {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => drop(fs::remove_dir(path)),
        Ok(found) if found.file_type().is_socket() => drop(fs::remove_file(path)),
        Ok(found) if found.is_file() && is_untouched(path, found.len(), content) => {
            drop(fs::remove_file(path))
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn stubs_are_made_and_removed_and_existing_files_stay() {
        let place = tempfile::tempdir().unwrap();
        let (state, project) = (place.path().join("state"), place.path().join("project"));
        fs::create_dir(&project).unwrap();
        fs::write(project.join("kept"), "text").unwrap();
        let wanted = BTreeSet::from([
            (project.join(".mcp.json"), Stub::Socket),
            (project.join(".vscode"), Stub::Directory),
            (project.join("kept"), Stub::File),
            (project.join("commondir"), Stub::File),
        ]);
        let made = StubFiles::make(&state, &wanted).unwrap();
        assert!(
            fs::symlink_metadata(project.join(".mcp.json")).unwrap().file_type().is_socket()
                && project.join(".vscode").is_dir()
        );
        assert_eq!(fs::read(project.join("commondir")).unwrap(), b"./\n");
        drop(made);
        assert!(!project.join("commondir").exists());
        assert!(!project.join(".mcp.json").exists() && !project.join(".vscode").exists());
        assert_eq!(fs::read(project.join("kept")).unwrap(), b"text");
    }

    #[test]
    fn stub_stays_while_another_run_uses_it_and_is_removed_after_a_crash() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let path = place.path().join(".envrc");
        let wanted = BTreeSet::from([(path.clone(), Stub::File)]);
        let made = StubFiles::make(&state, &wanted).unwrap();
        // pid 1 lives as long as this test; no process has the largest number.
        let other = state.join("placeholders").join("0-1");
        write_record(&other, [&path].into_iter()).unwrap();
        drop(made);
        assert!(path.exists());
        fs::rename(&other, state.join("placeholders").join("0-4194999")).unwrap();
        release_ended(&state.join("placeholders"));
        assert!(!path.exists());
    }

    #[test]
    fn stub_changes_of_concurrent_runs_are_serialised() {
        let place = tempfile::tempdir().unwrap();
        let (state, path) = (place.path().join("state"), place.path().join(".gitmodules"));
        let wanted = BTreeSet::from([(path.clone(), Stub::File)]);
        let directory = state.join("placeholders");
        fs::create_dir_all(&directory).unwrap();
        let waits = |work: &mut (dyn FnMut() + Send)| {
            let other = lock_records(&directory).unwrap();
            std::thread::scope(|scope| {
                let run = scope.spawn(work);
                std::thread::sleep(std::time::Duration::from_millis(50));
                let is_waiting = !run.is_finished();
                drop(other);
                is_waiting
            })
        };
        let mut made = None;
        assert!(waits(&mut || made = Some(StubFiles::make(&state, &wanted).unwrap())));
        assert!(path.exists());
        assert!(waits(&mut || made = None));
        assert!(!path.exists());
    }

    #[test]
    fn truncated_stub_record_names_only_whole_paths() {
        let place = tempfile::tempdir().unwrap();
        let (whole, cut) = (place.path().join("whole"), place.path().join("c"));
        let record = place.path().join("record");
        write_record(&record, [&whole, &place.path().join("cut")].into_iter()).unwrap();
        let content = fs::read(&record).unwrap();
        fs::write(&record, &content[..content.len() - 3]).unwrap();
        assert_eq!(read_record(&record), [whole]);
        // The truncated path does not name a stub.
        fs::write(&cut, "").unwrap();
        give_up(&record, &read_record(&record));
        assert!(cut.exists());
    }
}
