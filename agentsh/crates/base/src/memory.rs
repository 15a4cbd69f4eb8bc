//! Returns memory to the kernel. A process of agentsh lives as long as its agent and needs much of its heap only to
//! start.

use std::sync::OnceLock;

use crate::proc_file;

/// Bytes of this machine's memory, or of the container's where `/proc/meminfo` says that. Read once.
#[must_use]
pub fn total() -> Option<u64> {
    static TOTAL: OnceLock<Option<u64>> = OnceLock::new();
    *TOTAL.get_or_init(|| {
        let text = proc_file::value("/proc/meminfo").ok()?;
        let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        kibibytes.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    })
}

/// Returns freed heap pages to the kernel. Worth calling after hashing a large package tree.
#[expect(unsafe_code, reason = "the allocator offers this only as a C function")]
pub fn trim_heap() {
    // SAFETY: malloc_trim takes no pointer, is thread-safe, and gives back only pages that hold no allocation.
    unsafe { libc::malloc_trim(0) };
}

/// Lets all threads allocate from one heap. To be called before there is a second thread: what short-lived threads freed
/// would otherwise stay in heaps of their own.
#[expect(unsafe_code, reason = "the allocator offers this only as a C function")]
pub fn one_heap() {
    // SAFETY: mallopt takes no pointer; it only sets how many arenas there may be.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}
