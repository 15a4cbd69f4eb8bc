//! Where no cgroup can hold memory: watch the sandbox's processes and kill it when together they exceed the limit.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Between two looks. A process that takes memory as fast as the kernel gives it gains about 200 MB in this time.
pub const INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of memory of a process and all its descendants: resident pages, and pages of memory files (memfd) that they
/// hold open without mapping them. Shared pages count for each: the sum errs on the side of the limit. Not counted:
/// System V segments that nobody is attached to, and files that lie in a socket's queue, where nobody can ask for them.
#[must_use]
pub fn used_bytes(pid: u32) -> u64 {
    let (mut resident, mut shared) = (0, 0);
    let mut files = BTreeMap::new();
    let mut open = vec![pid];
    // A process tree is finite; the bound only guards against one that grows while it is walked.
    for _ in 0..4096 {
        let Some(pid) = open.pop() else { break };
        let directory = Path::new("/proc").join(pid.to_string());
        let statm = fs::read_to_string(directory.join("statm")).unwrap_or_default();
        let mut pages = statm.split(' ').skip(1).map(|pages| pages.parse::<u64>().unwrap_or(0));
        resident += pages.next().unwrap_or(0) * PAGE;
        shared += pages.next().unwrap_or(0) * PAGE;
        memory_files(&directory, &mut files);
        let Ok(tasks) = fs::read_dir(directory.join("task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    // What of the files is mapped stands among the shared pages already.
    resident + files.values().sum::<u64>().saturating_sub(shared)
}

const PAGE: u64 = 4096;

/// Adds the memory files that a process holds open, each once however often it is held.
fn memory_files(process: &Path, files: &mut BTreeMap<(u64, u64), u64>) {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return };
    for descriptor in descriptors.flatten() {
        let path = descriptor.path();
        if !fs::read_link(&path).is_ok_and(|name| name.as_os_str().as_bytes().starts_with(b"/memfd:")) {
            continue;
        }
        if let Ok(found) = fs::metadata(&path) {
            // Blocks of 512 bytes, whatever the file system (stat(2)).
            files.insert((found.dev(), found.ino()), found.blocks() * 512);
        }
    }
}
