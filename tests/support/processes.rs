//! The host's processes, as the host sees them.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Processes whose arguments contain the mark.
pub fn find(mark: &str) -> Vec<i32> {
    pids().filter(|pid| arguments(*pid).contains(mark) && !is_zombie(*pid)).collect()
}

/// Kills what carries the mark: marks are unique to one test.
pub fn end(mark: &str) {
    for pid in find(mark) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Kills what has its current directory below a path.
pub fn end_below(directory: &Path) {
    let is_below =
        |pid: &i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
    for pid in pids().filter(is_below) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    // Their locks are released once they have ended.
    super::eventually(|| !pids().any(|pid| is_below(&pid)));
}

/// All descendants of a process.
pub fn below(pid: u32) -> Vec<i32> {
    let mut found = vec![i32::try_from(pid).unwrap()];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(pids().filter(|pid| parent_of(*pid) == Some(parent)));
        at += 1;
    }
    found.remove(0);
    found
}

/// Real, effective, saved and file system uid on the host.
pub fn uids(pid: i32) -> Vec<u32> {
    status(pid, "Uid:").split_whitespace().filter_map(|uid| uid.parse().ok()).collect()
}

/// The most bytes of memory that a process ever had.
pub fn peak_memory(pid: u32) -> u64 {
    let text = status(i32::try_from(pid).unwrap(), "VmHWM:");
    text.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

pub fn arguments(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

pub fn namespace(pid: i32, kind: &str) -> String {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).map(|path| path.display().to_string()).unwrap_or_default()
}

fn parent_of(pid: i32) -> Option<i32> {
    status(pid, "PPid:").trim().parse().ok()
}

fn is_zombie(pid: i32) -> bool {
    status(pid, "State:").trim().starts_with('Z')
}

fn status(pid: i32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().to_owned()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
