//! Giving memory back. A process of agentsh lives as long as its agent; the heap that it needed only to start, the
//! kernel may have.

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
