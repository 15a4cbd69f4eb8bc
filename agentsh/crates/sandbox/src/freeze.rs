//! Nothing in a sandbox runs while its guards are made again.
//!
//! By its control group where there is one, else by signals: from the top of the process tree to the bottom, and back from
//! the bottom to the top, so that no program ever finds its child stopped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A process that waits for a disk stops when it has what it waits for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who waits in the kernel for longer has its signal waiting too: it does nothing of its own before it stops. A parent in
/// `vfork` waits for its child, which is stopped.
const LONG_WAIT: Duration = Duration::from_millis(100);
const A_MOMENT: Duration = Duration::from_micros(200);

/// How one sandbox is stopped.
#[derive(Debug)]
pub enum Freezer {
    /// The directory of its version 2 control group.
    Group(PathBuf),
    /// Its pid 1, and which of its processes were stopped. Pid 1 is the first to stop and the last to go on: it would tell
    /// the session that the program was stopped.
    Signals { pid: u32, stopped: Vec<Pid> },
}

impl Freezer {
    /// # Errors
    /// When something still runs after a while.
    pub fn freeze(&mut self) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        match self {
            Self::Group(directory) => {
                fs::write(directory.join("cgroup.freeze"), "1")?;
                while Instant::now() < end {
                    let events = fs::read_to_string(directory.join("cgroup.events"))?;
                    if events.lines().any(|line| line == "frozen 1" || line == "populated 0") {
                        return Ok(());
                    }
                    std::thread::sleep(A_MOMENT);
                }
            }
            Self::Signals { pid, stopped } => {
                // Twice: a process may be made while the list is read, by one that stops then.
                let mut calm = 0;
                while Instant::now() < end {
                    let waits_may_count =
                        end.saturating_duration_since(Instant::now()) + LONG_WAIT < PATIENCE;
                    let all = descendants(*pid);
                    let running = all.into_iter().filter(|pid| is_running(*pid, waits_may_count));
                    let mut count = 0;
                    for pid in running {
                        count += 1;
                        if kill_process(pid, Signal::STOP).is_ok() && !stopped.contains(&pid) {
                            stopped.push(pid);
                        }
                    }
                    calm = if count == 0 { calm + 1 } else { 0 };
                    if calm > 1 {
                        return Ok(());
                    }
                    std::thread::sleep(A_MOMENT);
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    pub fn thaw(&mut self) {
        match self {
            // A group that is gone has nothing to go on.
            Self::Group(directory) => drop(fs::write(directory.join("cgroup.freeze"), "0")),
            Self::Signals { stopped, .. } => {
                for pid in stopped.drain(..).rev() {
                    let _ = kill_process(pid, Signal::CONT);
                }
            }
        }
    }
}

/// A pid 1 and all below it, parents first. What loses its parent becomes a child of pid 1.
fn descendants(pid: u32) -> Vec<Pid> {
    let mut found: Vec<Pid> = i32::try_from(pid).ok().and_then(Pid::from_raw).into_iter().collect();
    let mut open = std::collections::VecDeque::from([pid]);
    while let Some(pid) = open.pop_front() {
        let tasks = Path::new("/proc").join(pid.to_string()).join("task");
        for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()) {
                found.extend(i32::try_from(child).ok().and_then(Pid::from_raw));
                open.push_back(child);
            }
        }
    }
    found
}

/// Whether any thread may take another step.
fn is_running(pid: Pid, waits_may_count: bool) -> bool {
    let tasks = Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("task");
    fs::read_dir(tasks).into_iter().flatten().flatten().any(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        state.is_some_and(|state| {
            !(matches!(state, 'T' | 't' | 'Z' | 'X') || (state == 'D' && waits_may_count))
        })
    })
}
