//! Without a memory cgroup: polls the memory of the sandbox's processes, and kills the sandbox above the limit. Counts
//! processes and threads meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::cgroup::TaskCount;
use crate::proc_file;

/// Maximum memory growth per second, as fast as the kernel hands out pages.
const MAX_MEMORY_GROWTH_PER_SECOND: u64 = 4 << 30;
/// Between two looks.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
const MAX_INTERVAL: Duration = Duration::from_millis(500);

/// Returns when the processes below `pid` together use more than `limit` bytes. Polls on its own thread, more often as
/// memory runs out; a poll takes long with many processes.
pub async fn wait_until_exceeded(pid: u32, limit: u64, tasks: TaskCount) {
    // A new sandbox uses nothing, and a short-lived one needs no thread.
    tokio::time::sleep(pause(limit)).await;
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let look = move || {
        while !tell.is_closed() {
            let Some(left) = limit.checked_sub(used_bytes(pid, &tasks)) else { return };
            std::thread::sleep(pause(left));
        }
    };
    let thread = std::thread::Builder::new().name("memory".to_owned()).stack_size(256 << 10).spawn(look);
    // Its end is the only signal. Without a thread nothing continues.
    if thread.is_ok() {
        let _ended = told.await;
    }
}

fn pause(left: u64) -> Duration {
    Duration::from_millis(left.saturating_mul(1000) / MAX_MEMORY_GROWTH_PER_SECOND)
        .clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Bytes of memory of a process and its descendants: resident pages, page tables, unmapped memfd pages, and pipe and
/// socket buffers. Shared pages count once per process and buffers by capacity, so the sum is an upper estimate. Not
/// counted: unattached System V segments, and files in a socket's queue, which cannot be inspected.
#[must_use]
pub fn used_bytes(pid: u32, count: &TaskCount) -> u64 {
    let (mut resident, mut shared, mut tables) = (0, 0, 0);
    let mut held = OpenFiles::default();
    let (mut open, mut number) = (vec![pid], 0);
    // Bounds a process tree that grows during the walk.
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
            number += 1;
            let children = proc_file::read(task.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    count.record_count(number);
    // Mapped parts of the files are counted among the shared pages already.
    let files = held.files.values().sum::<u64>().saturating_sub(shared);
    resident + tables + files + pipe_buffers(held.pipes.len() as u64) + sockets(pid)
}

const PAGE: u64 = 4096;

fn page_tables(process: &Path) -> u64 {
    let status = proc_file::read(process.join("status")).unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmPTE:")?.trim().strip_suffix(" kB"));
    kilobytes.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Files that processes hold open, each counted once.
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

/// The fill level of a pipe is not visible. A user's pipes have 64 KiB each up to 64 MiB together
/// (fs.pipe-user-pages-soft), then two pages each.
fn pipe_buffers(count: u64) -> u64 {
    (count * (64 << 10)).min(64 << 20) + count * 2 * PAGE
}

/// Unix sockets that are assumed empty, as nearly all are.
const IDLE_SOCKETS: u64 = 64;
/// While the buffers of the whole machine are smaller, their owners are not looked up: the kernel walks all
/// connections for each table, which takes milliseconds.
const IDLE_BUFFERS: u64 = 16 << 20;

/// Socket buffers in a process's network namespace.
fn sockets(pid: u32) -> u64 {
    // The inode identifies the namespace. The host's sockets do not count.
    let number = |whose: &str| fs::metadata(format!("/proc/{whose}/net/unix")).map(|found| found.ino()).ok();
    if number(&pid.to_string()) == number("self") {
        return 0;
    }
    let read = |name: &str| proc_file::read(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    // A Unix socket's fill level is not visible from outside, so its maximum counts.
    let local = (read("unix").lines().count() as u64).saturating_sub(1 + IDLE_SOCKETS);
    let is_idle = buffered(&read("sockstat")).is_some_and(|bytes| bytes <= IDLE_BUFFERS);
    let tables: &[&str] = if is_idle { &[] } else { &["tcp", "tcp6", "udp", "udp6"] };
    let queued = tables.iter().flat_map(|name| read(name).lines().map(queued).collect::<Vec<_>>());
    local * largest_buffer() + 2 * queued.sum::<u64>()
}

/// Bytes of TCP and UDP buffers of the whole machine, from `sockstat`.
fn buffered(sockstat: &str) -> Option<u64> {
    let of = |name: &str| {
        let mut words = sockstat.lines().find_map(|line| line.strip_prefix(name))?.split(' ');
        words.find(|word| *word == "mem")?;
        words.next()?.parse::<u64>().ok()
    };
    Some((of("TCP:")? + of("UDP:")?) * PAGE)
}

/// Bytes in the queues of one line: `sl local remote state tx:rx ...`.
fn queued(line: &str) -> u64 {
    let queues = line.split_whitespace().nth(4).and_then(|queues| queues.split_once(':'));
    let bytes = |hex| u64::from_str_radix(hex, 16).unwrap_or(0);
    queues.map_or(0, |(sent, received)| bytes(sent) + bytes(received))
}

/// The kernel doubles the requested size.
fn largest_buffer() -> u64 {
    let most = proc_file::read("/proc/sys/net/core/wmem_max").unwrap_or_default();
    2 * most.trim().parse::<u64>().unwrap_or(212_992)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_looks_sooner_when_less_memory_is_left() {
        assert_eq!(pause(0), MIN_INTERVAL);
        assert_eq!(pause(1 << 30), Duration::from_millis(250));
        assert_eq!(pause(u64::MAX), MAX_INTERVAL);
    }

    #[test]
    fn socket_buffers_are_read_from_the_mem_field() {
        let text = "sockets: used 9\nTCP: inuse 2 orphan 0 tw 4 alloc 20 mem 243\nUDP: inuse 1 mem 7\nUDPLITE: inuse 0\n";
        assert_eq!(buffered(text), Some(250 * PAGE));
        assert_eq!(buffered("sockets: used 9\n"), None, "every table is read");
    }

    #[test]
    fn socket_queues_are_read_from_the_fifth_column() {
        let line = "   0: 0100007F:1F90 0100007F:A0B2 01 00000010:00000200 00:00000000 00000000 0 0 1 1";
        assert_eq!(queued(line), 0x210);
        assert_eq!(queued("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when"), 0);
    }
}
