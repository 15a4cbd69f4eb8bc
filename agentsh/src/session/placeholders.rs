//! Stand-ins for files that must not come into being: a mount needs something to lie on, so a file or directory
//! that says nothing is made on disk for the time of the run and removed afterwards.
//!
//! Several runs may share a project: each keeps a record, and the last one removes the stand-in. Records of a
//! killed run are swept by the next.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::policy::builtin_paths::stand_in_content;
use crate::sandbox::plan::Kind;

/// The stand-ins of one run; dropping it gives them up.
#[derive(Debug, Default)]
pub struct Placeholders {
    records: Vec<PathBuf>,
}

impl Placeholders {
    /// Makes what is missing. Paths that exist are left alone (and were bound as they are).
    ///
    /// # Errors
    /// When a stand-in cannot be made: the run must not start without it.
    pub fn make(state: &Path, wanted: &BTreeSet<(PathBuf, bool)>) -> io::Result<Self> {
        let directory = state.join("placeholders");
        let mut placeholders = Self::default();
        if wanted.is_empty() {
            return Ok(placeholders);
        }
        fs::create_dir_all(&directory)?;
        sweep(&directory);
        for (path, is_directory) in wanted {
            if fs::symlink_metadata(path).is_ok() && !is_stand_in(&directory, path) {
                continue;
            }
            let record = directory.join(format!("{}-{}-{}", key(path), next(), std::process::id()));
            // The record first: a stand-in without a record would never be removed.
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&record)?;
            file.write_all(path.as_os_str().as_bytes())?;
            placeholders.records.push(record);
            let made = if *is_directory { fs::create_dir(path) } else { write_new(path) };
            match made {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("cannot guard {}: {error}", path.display()),
                    ));
                }
                _ => {}
            }
        }
        Ok(placeholders)
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        for record in &self.records {
            give_up(record);
        }
    }
}

/// Whether what stands at the path is a stand-in: some run has a record of it.
fn is_stand_in(directory: &Path, path: &Path) -> bool {
    let key = key(path);
    let records = fs::read_dir(directory).into_iter().flatten().flatten();
    records.into_iter().any(|record| record.file_name().to_string_lossy().starts_with(&key))
}

/// Several sandboxes of one process may want the same stand-in, each with a record of its own.
fn next() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// As the session's set of wanted stand-ins: a directory is `true`.
#[must_use]
pub fn wanted(list: &[(PathBuf, Kind)]) -> BTreeSet<(PathBuf, bool)> {
    list.iter().map(|(path, kind)| (path.clone(), *kind == Kind::Directory)).collect()
}

fn key(path: &Path) -> String {
    let digest = Sha256::digest(path.as_os_str().as_bytes());
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// Gives up the records of processes that are gone.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.rsplit('-').next()).unwrap_or_default();
        if !Path::new("/proc").join(pid).exists() {
            give_up(&entry.path());
        }
    }
}

fn write_new(path: &Path) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(stand_in_content(path))
}

/// A run that was killed between making a stand-in and filling it leaves it empty.
fn is_untouched(path: &Path, length: u64) -> bool {
    let content = stand_in_content(path);
    length == 0 || (length == content.len() as u64 && fs::read(path).is_ok_and(|found| found == content))
}

/// Removes the record, and the stand-in when no other record wants it and nobody has put anything into it.
fn give_up(record: &Path) {
    let content = fs::read(record).unwrap_or_default();
    let _ = fs::remove_file(record);
    let (Some(directory), Some(name)) = (record.parent(), record.file_name().and_then(|name| name.to_str()))
    else {
        return;
    };
    let shared = name.split('-').next().unwrap_or(name);
    let others = fs::read_dir(directory).into_iter().flatten().flatten();
    if others.into_iter().any(|other| other.file_name().to_string_lossy().starts_with(shared)) {
        return;
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(&content));
    if !path.is_absolute() {
        return;
    }
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => drop(fs::remove_dir(path)),
        Ok(found) if found.is_file() && is_untouched(path, found.len()) => drop(fs::remove_file(path)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn stand_ins_come_and_go_and_what_existed_stays() {
        let place = tempfile::tempdir().unwrap();
        let (state, project) = (place.path().join("state"), place.path().join("project"));
        fs::create_dir(&project).unwrap();
        fs::write(project.join("kept"), "text").unwrap();
        let wanted = BTreeSet::from([
            (project.join(".mcp.json"), false),
            (project.join(".vscode"), true),
            (project.join("kept"), false),
            (project.join("commondir"), false),
        ]);
        let made = Placeholders::make(&state, &wanted).unwrap();
        assert!(project.join(".mcp.json").is_file() && project.join(".vscode").is_dir());
        assert_eq!(fs::read(project.join("commondir")).unwrap(), b".\n");
        drop(made);
        assert!(!project.join("commondir").exists());
        assert!(!project.join(".mcp.json").exists() && !project.join(".vscode").exists());
        assert_eq!(fs::read(project.join("kept")).unwrap(), b"text");
    }

    #[test]
    fn a_stand_in_stays_while_another_run_wants_it_and_is_swept_after_a_crash() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let path = place.path().join(".envrc");
        let wanted = BTreeSet::from([(path.clone(), false)]);
        let made = Placeholders::make(&state, &wanted).unwrap();
        // pid 1 lives as long as this test; no process has the largest number.
        let other = state.join("placeholders").join(format!("{}-1", key(&path)));
        fs::write(&other, path.as_os_str().as_bytes()).unwrap();
        drop(made);
        assert!(path.exists());
        fs::rename(&other, state.join("placeholders").join(format!("{}-4194999", key(&path)))).unwrap();
        sweep(&state.join("placeholders"));
        assert!(!path.exists());
    }
}
