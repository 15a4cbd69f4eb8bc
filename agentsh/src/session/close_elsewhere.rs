//! Descriptors whose last `close` waits in the kernel.

use std::os::fd::OwnedFd;

use agentsh_sandbox::Closer;

/// Has them closed by the process that bears sandboxes; where it is gone, on a thread of their own.
pub(super) fn close_elsewhere(closer: &Closer, descriptors: Vec<OwnedFd>) {
    if let Err(descriptors) = closer.close(descriptors) {
        // Where there is no thread for it, it is closed here.
        let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(descriptors));
    }
}
