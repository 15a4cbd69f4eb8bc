//! Where no cgroup can hold memory: watch the sandbox's processes and kill it when together they exceed the limit.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Between two looks. A process that takes memory as fast as the kernel gives it gains about 200 MB in this time.
pub const INTERVAL: Duration = Duration::from_millis(50);

/// Resident bytes of a process and all its descendants. Shared pages count for each: the sum errs on the side
/// of the limit.
#[must_use]
pub fn resident_bytes(pid: u32) -> u64 {
    let mut total = 0;
    let mut open = vec![pid];
    // A process tree is finite; the bound only guards against one that grows while it is walked.
    for _ in 0..4096 {
        let Some(pid) = open.pop() else { break };
        let directory = Path::new("/proc").join(pid.to_string());
        let pages = fs::read_to_string(directory.join("statm"))
            .ok()
            .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
        total += pages.unwrap_or(0) * 4096;
        let Ok(tasks) = fs::read_dir(directory.join("task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    total
}
