//! Original texts of the project, copied while the agent works: the base for a merge. A file that is too large, or was
//! not copied in time, is a conflict as before.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::base::Base;
use super::directory_handle::{DirectoryHandle, Kind, Stamp, bytes};
use agentsh_sandbox::control::{decode, encoded};

pub const NAME: &str = "originals";
/// Maximum size of one file.
pub const MAX_BYTES: u64 = 256 << 10;
/// Maximum size of all together.
const MAX_TOGETHER: u64 = 64 << 20;
/// Directories that can be generated again, and git's.
const SKIPPED_DIRECTORIES: [&str; 4] = [".git", "node_modules", "target", ".venv"];

#[derive(Serialize, Deserialize)]
struct Original {
    #[serde(with = "bytes")]
    path: PathBuf,
    stamp: Stamp,
    text: String,
}

/// Copies until it is dropped.
pub struct Copying {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A copy that failed is missing, which is a conflict at most.
            let _ = thread.join();
        }
    }
}

impl Copying {
    /// Begins to copy what the base names.
    #[must_use]
    pub fn begin(project: &Path, directory: &Path, base: &Base) -> Self {
        let is_small = |stamp: &Stamp| stamp.kind == Kind::File && stamp.size <= MAX_BYTES;
        let is_left =
            |path: &Path| path.iter().any(|part| SKIPPED_DIRECTORIES.iter().any(|name| part == *name));
        let wanted: Vec<(PathBuf, Stamp)> = base
            .subtree(Path::new(""))
            .filter(|(path, stamp)| is_small(stamp) && !is_left(path))
            .map(|(path, stamp)| (path.to_owned(), stamp.clone()))
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let (project, place, asked) = (project.to_owned(), directory.join(NAME), Arc::clone(&stop));
        let copy = move || {
            // If this fails there is a conflict at most.
            let _ = copy(&project, &place, &wanted, &asked);
        };
        let thread = std::thread::Builder::new().name("originals".to_owned()).spawn(copy).ok();
        Self { stop, thread }
    }
}

fn copy(project: &Path, place: &Path, wanted: &[(PathBuf, Stamp)], stop: &AtomicBool) -> io::Result<()> {
    let tree = DirectoryHandle::open(project)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(place)?;
    let (mut out, mut together) = (BufWriter::new(file), 0);
    for (path, stamp) in wanted {
        together += stamp.size;
        if stop.load(Ordering::Relaxed) || together > MAX_TOGETHER {
            break;
        }
        let Ok(Some(content)) = tree.content(path, MAX_BYTES) else { continue };
        let Ok(text) = String::from_utf8(content) else { continue };
        // It may have been changed before or while it was read.
        let is_it = tree.stamp(path).is_ok_and(|now| now.is_some_and(|now| stamp.is_unchanged(&now)));
        if !is_it || text.contains('\0') {
            continue;
        }
        let record = encoded(&Original { path: path.clone(), stamp: stamp.clone(), text })?;
        out.write_all(&u32::try_from(record.len()).map_err(io::Error::other)?.to_le_bytes())?;
        out.write_all(&record)?;
    }
    out.flush()
}

/// The copied originals, loaded on first use.
#[derive(Debug)]
pub struct Originals {
    place: PathBuf,
    read: std::cell::OnceCell<BTreeMap<PathBuf, (Stamp, String)>>,
}

impl Originals {
    #[must_use]
    pub fn of(directory: &Path) -> Self {
        Self { place: directory.join(NAME), read: std::cell::OnceCell::new() }
    }

    /// The content of a file when it had this stamp.
    #[must_use]
    pub fn get(&self, path: &Path, stamp: &Stamp) -> Option<&str> {
        let (known, text) = self.read.get_or_init(|| read(&self.place)).get(path)?;
        known.is_unchanged(stamp).then_some(text.as_str())
    }
}

/// Reads complete entries: the copying process may have been killed.
fn read(place: &Path) -> BTreeMap<PathBuf, (Stamp, String)> {
    let mut found = BTreeMap::new();
    let Ok(mut file) = File::open(place).map(io::BufReader::new) else { return found };
    let mut length = [0; 4];
    while file.read_exact(&mut length).is_ok() {
        let length = u64::from(u32::from_le_bytes(length));
        let mut record = Vec::new();
        if length > 2 * MAX_BYTES || file.by_ref().take(length).read_to_end(&mut record).is_err() {
            break;
        }
        let Ok(Original { path, stamp, text }) = decode(&record) else { break };
        found.insert(path, (stamp, text));
    }
    found
}
