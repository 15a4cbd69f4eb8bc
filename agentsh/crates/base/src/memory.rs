//! Giving memory back. A process of agentsh lives as long as its agent; what it needed only to start, the kernel
//! may have.

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

/// Drops the pages of the program's own code and constants from this process's resident set. They stay in the page
/// cache and come back one by one when they are used: a process that is about to wait for hours needs few of them.
#[expect(unsafe_code, reason = "the places of the program's segments come from the dynamic loader")]
pub fn forget_code() {
    // SAFETY: the callback matches the declared type, is called synchronously, and gets no data pointer.
    unsafe { libc::dl_iterate_phdr(Some(forget_segments), std::ptr::null_mut()) };
}

#[expect(unsafe_code, reason = "called by the dynamic loader with pointers to its own tables")]
unsafe extern "C" fn forget_segments(
    information: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    const PAGE: u64 = 4096;
    // SAFETY: the loader passes a valid entry that lives for the length of this call, and a table of
    // `dlpi_phnum` headers.
    let (base, headers) = unsafe {
        let information = &*information;
        (
            information.dlpi_addr,
            std::slice::from_raw_parts(information.dlpi_phdr, information.dlpi_phnum.into()),
        )
    };
    for header in headers {
        // Segments that were never writable are unmodified copies of the file. Relocated constants are in a
        // writable segment and must stay.
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
            let first = (base + header.p_vaddr).next_multiple_of(PAGE);
            let end = (base + header.p_vaddr + header.p_memsz) / PAGE * PAGE;
            if end > first {
                // SAFETY: the range is a private, unmodified file mapping of this process: its pages are read
                // again from the file at the next access.
                unsafe {
                    libc::madvise(first as *mut libc::c_void, (end - first) as usize, libc::MADV_DONTNEED)
                };
            }
        }
    }
    0
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_program_still_runs_and_is_smaller() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("RssFile:")).unwrap_or_default();
            line.split_whitespace().nth(1).and_then(|size| size.parse::<u64>().ok()).unwrap_or(0)
        };
        let before = resident();
        super::forget_code();
        super::trim_heap();
        assert!(resident() < before, "{before} kB were resident");
    }
}
