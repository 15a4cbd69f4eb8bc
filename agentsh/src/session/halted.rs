//! Processes of a sandbox that do nothing for a while: stopped from outside, which none of them can prevent.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Each turn stops what the one before did not see: children of processes that were about to be stopped.
const MOST_TURNS: usize = 50;

/// Everything below a pid 1, which itself goes on. Dropped: it goes on where it was stopped by this.
pub struct Halted(Vec<OwnedFd>);

impl Halted {
    /// None: something always ran on. Reads `/proc`, so it is nothing for a thread that others wait for.
    #[must_use]
    pub fn begin(init: u32) -> Option<Self> {
        let mut halted = Self(Vec::new());
        let mut known = BTreeSet::new();
        for _ in 0..MOST_TURNS {
            let mut is_quiet = true;
            for (pid, is_stopped) in below(init) {
                // One that was stopped before, by somebody inside, stays so: nobody is left who could wake it.
                if known.contains(&pid) || (is_stopped && known.insert(pid)) {
                    continue;
                }
                let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
                // One that is gone runs no more.
                let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { continue };
                is_quiet = false;
                if pidfd_send_signal(&handle, Signal::STOP).is_ok() {
                    known.insert(pid);
                    halted.0.push(handle);
                }
            }
            if is_quiet {
                return Some(halted);
            }
        }
        None
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        for process in &self.0 {
            // It may have been killed meanwhile.
            let _ = pidfd_send_signal(process, Signal::CONT);
        }
    }
}

/// All descendants of a process but those that are dead, and whether each is stopped.
fn below(init: u32) -> Vec<(u32, bool)> {
    let mut children: BTreeMap<u32, Vec<(u32, char)>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name before the last parenthesis may hold anything.
        let mut rest = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let state = rest.next().and_then(|word| word.chars().next()).unwrap_or('?');
        let Some(parent) = rest.next().and_then(|word| word.parse().ok()) else { continue };
        children.entry(parent).or_default().push((pid, state));
    }
    let (mut found, mut open) = (Vec::new(), vec![init]);
    while let Some(parent) = open.pop() {
        for (pid, state) in children.remove(&parent).unwrap_or_default() {
            open.push(pid);
            if !matches!(state, 'Z' | 'X') {
                found.push((pid, state == 'T'));
            }
        }
    }
    found
}
