//! Where no cgroup can hold memory: watch the sandbox's processes and kill it when together they exceed the limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::proc_file;

/// What a sandbox may gain in a second: as fast as the kernel gives pages to a few processors.
const MAX_GAIN_PER_SECOND: u64 = 4 << 30;
/// Between two looks.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
const MAX_INTERVAL: Duration = Duration::from_millis(500);

/// Returns when the processes below `pid` together hold more than `limit` bytes. Looks on a thread of its own, the more
/// often the less is left; a look takes long where there are many processes, and nobody else waits for it.
pub async fn exceeded(pid: u32, limit: u64) {
    // At the start it holds nothing, and what ends soon costs no thread.
    tokio::time::sleep(pause(limit)).await;
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let look = move || {
        while !tell.is_closed() {
            let Some(left) = limit.checked_sub(used_bytes(pid)) else { return };
            std::thread::sleep(pause(left));
        }
    };
    let thread = std::thread::Builder::new().name("memory".to_owned()).stack_size(256 << 10).spawn(look);
    // It never says anything but by its end. Where nobody can look, nothing goes on.
    if thread.is_ok() {
        let _ended = told.await;
    }
}

fn pause(left: u64) -> Duration {
    Duration::from_millis(left.saturating_mul(1000) / MAX_GAIN_PER_SECOND).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Bytes of memory of a process and all its descendants: resident pages, page tables, pages of memory files (memfd) that
/// they hold open without mapping them, and buffers of pipes and sockets. Shared pages count for each, and buffers for
/// what they may hold: the sum errs on the side of the limit. Not counted: System V segments that nobody is attached to,
/// and files that lie in a socket's queue, where nobody can ask for them.
#[must_use]
pub fn used_bytes(pid: u32) -> u64 {
    let (mut resident, mut shared, mut tables) = (0, 0, 0);
    let mut held = OpenFiles::default();
    let mut open = vec![pid];
    // A process tree is finite; the bound only guards against one that grows while it is walked.
    for _ in 0..4096 {
        let Some(pid) = open.pop() else { break };
        let directory = Path::new("/proc").join(pid.to_string());
        let statm = proc_file::read(directory.join("statm")).unwrap_or_default();
        let mut pages = statm.split(' ').skip(1).map(|pages| pages.parse::<u64>().unwrap_or(0));
        resident += pages.next().unwrap_or(0) * PAGE;
        shared += pages.next().unwrap_or(0) * PAGE;
        tables += page_tables(&directory);
        held.add(&directory);
        let Ok(tasks) = fs::read_dir(directory.join("task")) else { continue };
        for task in tasks.flatten() {
            let children = proc_file::read(task.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    // What of the files is mapped stands among the shared pages already.
    let files = held.files.values().sum::<u64>().saturating_sub(shared);
    resident + tables + files + pipe_buffers(held.pipes.len() as u64) + sockets(pid)
}

const PAGE: u64 = 4096;

fn page_tables(process: &Path) -> u64 {
    let status = proc_file::read(process.join("status")).unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmPTE:")?.trim().strip_suffix(" kB"));
    kilobytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// What processes hold open, each once however often it is held.
#[derive(Default)]
struct OpenFiles {
    files: BTreeMap<(u64, u64), u64>,
    pipes: BTreeSet<Vec<u8>>,
}

impl OpenFiles {
    fn add(&mut self, process: &Path) {
        let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return };
        for descriptor in descriptors.flatten() {
            let path = descriptor.path();
            let Ok(name) = fs::read_link(&path) else { continue };
            let name = name.as_os_str().as_bytes();
            if name.starts_with(b"pipe:") {
                self.pipes.insert(name.to_owned());
            } else if name.starts_with(b"/memfd:")
                && let Ok(found) = fs::metadata(&path)
            {
                // Blocks of 512 bytes, whatever the file system (stat(2)).
                self.files.insert((found.dev(), found.ino()), found.blocks() * 512);
            }
        }
    }
}

/// Nobody can ask how full a pipe is without taking part in it. A user's pipes have 64 KiB each until they have 64 MiB
/// together (fs.pipe-user-pages-soft), and two pages from then on.
fn pipe_buffers(count: u64) -> u64 {
    (count * (64 << 10)).min(64 << 20) + count * 2 * PAGE
}

/// Unix sockets of a sandbox that are taken for empty, as they nearly always are.
const IDLE_SOCKETS: u64 = 64;

/// Buffers of the sockets in the network namespace of a process, in flight or not.
fn sockets(pid: u32) -> u64 {
    // The number of the file tells the namespaces apart, for everybody. The host's sockets are not the sandbox's.
    let number = |whose: &str| fs::metadata(format!("/proc/{whose}/net/unix")).map(|found| found.ino()).ok();
    if number(&pid.to_string()) == number("self") {
        return 0;
    }
    let read = |name: &str| proc_file::read(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    // How full a Unix socket is cannot be seen from outside; as much as its owner may ask for.
    let local = (read("unix").lines().count() as u64).saturating_sub(1 + IDLE_SOCKETS);
    let queued = ["tcp", "tcp6", "udp", "udp6"].map(|name| read(name).lines().map(queued).sum::<u64>());
    local * largest_buffer() + 2 * queued.iter().sum::<u64>()
}

/// Bytes in the queues of one line: `sl local remote state tx:rx ...`.
fn queued(line: &str) -> u64 {
    let queues = line.split_whitespace().nth(4).and_then(|queues| queues.split_once(':'));
    let bytes = |hex| u64::from_str_radix(hex, 16).unwrap_or(0);
    queues.map_or(0, |(sent, received)| bytes(sent) + bytes(received))
}

/// The kernel doubles what a program asks for.
fn largest_buffer() -> u64 {
    let most = proc_file::read("/proc/sys/net/core/wmem_max").unwrap_or_default();
    2 * most.trim().parse::<u64>().unwrap_or(212_992)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_is_left_the_sooner_is_the_next_look() {
        assert_eq!(pause(0), MIN_INTERVAL);
        assert_eq!(pause(1 << 30), Duration::from_millis(250));
        assert_eq!(pause(u64::MAX), MAX_INTERVAL);
    }

    #[test]
    fn queues_are_read_from_the_fifth_column() {
        let line = "   0: 0100007F:1F90 0100007F:A0B2 01 00000010:00000200 00:00000000 00000000 0 0 1 1";
        assert_eq!(queued(line), 0x210);
        assert_eq!(queued("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"), 0);
    }
}
