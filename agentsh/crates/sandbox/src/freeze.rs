//! Stops all processes of a sandbox while its guards are remounted: with the cgroup freezer, else with signals. Signals
//! go from the top of the process tree to the bottom and back up, so that no program sees a stopped child.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::seccomp::listener::interrupt;

/// A process that waits for a disk stops only after the disk answers.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// A process that waits longer in the kernel has its signal pending, so it stops before it runs again. A parent in
/// `vfork` waits for its child, which is stopped.
const MIN_BLOCKED_WAIT: Duration = Duration::from_millis(100);
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// A task reports its stop shortly before it leaves the processor.
const SETTLE_DELAY: Duration = Duration::from_millis(10);

/// The holders of each group: it is thawed when the last one lets go.
static FREEZE_COUNTS: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

/// How a sandbox is stopped.
#[derive(Debug)]
pub enum Freezer {
    /// The directory of its version 2 control group, and whether this one holds it.
    Group { directory: PathBuf, holds: bool },
    /// Its pid 1, and the stopped processes. Pid 1 stops first and continues last, because it would report that the
    /// program stopped. `spares_first`: it is not stopped.
    Signals { pid: u32, spares_first: bool, stopped: Vec<Pid> },
}

impl Freezer {
    #[must_use]
    pub fn group(directory: &Path) -> Self {
        Self::Group { directory: directory.to_owned(), holds: false }
    }

    #[must_use]
    pub fn signals(pid: u32, spares_first: bool) -> Self {
        Self::Signals { pid, spares_first, stopped: Vec::new() }
    }

    /// # Errors
    /// When something still runs after the timeout.
    pub fn freeze(&mut self) -> io::Result<()> {
        let end = Instant::now() + STOP_TIMEOUT;
        match self {
            Self::Group { directory, holds } => {
                let mut held = FREEZE_COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
                fs::write(directory.join("cgroup.freeze"), "1")?;
                if !std::mem::replace(holds, true) {
                    *held.entry(directory.clone()).or_default() += 1;
                }
                drop(held);
                while Instant::now() < end {
                    if is_frozen(directory)? {
                        return Ok(());
                    }
                    let threads = fs::read_to_string(directory.join("cgroup.threads")).unwrap_or_default();
                    interrupt(&threads.lines().filter_map(|thread| thread.parse().ok()).collect::<Vec<_>>());
                    std::thread::sleep(POLL_INTERVAL);
                }
            }
            Self::Signals { pid, spares_first, stopped } => {
                // Twice: a process may fork while the list is read, and then stop.
                let mut calm = 0;
                while Instant::now() < end {
                    let waits_may_count =
                        end.saturating_duration_since(Instant::now()) + MIN_BLOCKED_WAIT < STOP_TIMEOUT;
                    let all = descendants(*pid).into_iter().skip(usize::from(*spares_first));
                    let running = all.filter(|pid| is_running(*pid, waits_may_count));
                    let mut count = 0;
                    for pid in running {
                        count += 1;
                        if stopped.contains(&pid) {
                            interrupt_stopping(pid);
                        }
                        if kill_process(pid, Signal::STOP).is_ok() && !stopped.contains(&pid) {
                            stopped.push(pid);
                        }
                    }
                    calm = if count == 0 { calm + 1 } else { 0 };
                    if calm > 1 {
                        return Ok(());
                    }
                    std::thread::sleep(POLL_INTERVAL);
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    pub fn thaw(&mut self) {
        match self {
            Self::Group { directory, holds } => {
                if !std::mem::take(holds) {
                    return;
                }
                let mut held = FREEZE_COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
                let others = held.remove(directory).unwrap_or_default().saturating_sub(1);
                if others > 0 {
                    held.insert(directory.clone(), others);
                } else {
                    // A removed group has nothing to thaw.
                    let _ = fs::write(directory.join("cgroup.freeze"), "0");
                }
            }
            Self::Signals { stopped, .. } => {
                for pid in stopped.drain(..).rev() {
                    let _ = kill_process(pid, Signal::CONT);
                }
            }
        }
    }
}

fn is_frozen(group: &Path) -> io::Result<bool> {
    let events = fs::read_to_string(group.join("cgroup.events"))?;
    Ok(events.lines().any(|line| line == "frozen 1" || line == "populated 0"))
}

/// Interrupts the calls of a process that got the signal, once all its threads know of it.
fn interrupt_stopping(pid: Pid) {
    let tasks = Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("task");
    let tasks = fs::read_dir(tasks).into_iter().flatten().flatten();
    let threads: Vec<u32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    if threads.len() == 1 || has_task(pid, |state| state == 'T') {
        interrupt(&threads);
    }
}

/// The parent of a process.
fn parent(process: &Path) -> Option<u32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name before the last parenthesis may hold anything.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// The children of every process. Not from `children` files, which not every kernel has.
fn children() -> BTreeMap<u32, Vec<u32>> {
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent(&entry.path()) {
            found.entry(parent).or_default().push(pid);
        }
    }
    found
}

/// A pid 1 and all below it, parents first. What loses its parent becomes a child of pid 1.
pub(super) fn descendants(pid: u32) -> Vec<Pid> {
    let mut children = children();
    let (mut found, mut open) = (Vec::new(), VecDeque::from([pid]));
    while let Some(pid) = open.pop_front() {
        found.extend(i32::try_from(pid).ok().and_then(Pid::from_raw));
        open.extend(children.remove(&pid).unwrap_or_default());
    }
    found
}

/// Whether any thread may take another step.
pub(super) fn is_running(pid: Pid, waits_may_count: bool) -> bool {
    has_task(pid, |state| !(matches!(state, 'T' | 't' | 'Z' | 'X') || (state == 'D' && waits_may_count)))
}

fn has_task(pid: Pid, is_wanted: impl Fn(char) -> bool) -> bool {
    let tasks = Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("task");
    fs::read_dir(tasks).into_iter().flatten().flatten().any(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        state.is_some_and(&is_wanted)
    })
}

/// State and switch count of each task below a pid 1. A stopped process can be woken (by a timer or a readable
/// terminal), which changes one of them.
#[derive(Debug, PartialEq, Eq)]
struct Steps(BTreeMap<(i32, PathBuf), Vec<String>>);

impl Steps {
    fn of(pid: u32) -> Self {
        let mut found = BTreeMap::new();
        for pid in descendants(pid).into_iter().skip(1).map(Pid::as_raw_nonzero) {
            let tasks = Path::new("/proc").join(pid.to_string()).join("task");
            for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
                let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
                let said = |name| status.lines().find(|line| line.starts_with(name));
                if said("State:").is_some_and(|state| !state.contains(['Z', 'X'])) {
                    let told = ["State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
                    let told = told.iter().filter_map(|name| said(name)).map(str::to_owned).collect();
                    found.insert((pid.get(), task.path()), told);
                }
            }
        }
        Self(found)
    }
}

/// A frozen sandbox, and whether it stayed frozen. Thawed on drop.
#[derive(Debug)]
pub struct FrozenSandbox {
    freezer: Freezer,
    /// None: the kernel holds a group by itself.
    steps: Option<Steps>,
}

impl FrozenSandbox {
    /// Reads all of `/proc`, so it must not block the session's thread.
    ///
    /// # Errors
    /// When something still runs; then everything is thawed.
    pub fn begin(freezer: Freezer) -> io::Result<Self> {
        let mut still = Self { freezer, steps: None };
        still.freezer.freeze()?;
        if let Freezer::Signals { pid, .. } = still.freezer {
            let end = Instant::now() + STOP_TIMEOUT;
            let mut before = Steps::of(pid);
            loop {
                // A task that is about to stop is counted once more.
                std::thread::sleep(SETTLE_DELAY);
                let now = Steps::of(pid);
                if now == before {
                    break;
                }
                if Instant::now() > end {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                before = now;
            }
            still.steps = Some(before);
        }
        Ok(still)
    }

    /// Whether nothing ran since. As slow as [`Self::begin`].
    #[must_use]
    pub fn has_not_run(&self) -> bool {
        match (&self.freezer, &self.steps) {
            (Freezer::Group { directory, .. }, _) => {
                fs::read_to_string(directory.join("cgroup.freeze")).is_ok_and(|word| word.trim() == "1")
                    && is_frozen(directory).unwrap_or(false)
            }
            (Freezer::Signals { pid, .. }, Some(steps)) => Steps::of(*pid) == *steps,
            (Freezer::Signals { .. }, None) => false,
        }
    }
}

impl Drop for FrozenSandbox {
    fn drop(&mut self) {
        self.freezer.thaw();
    }
}
