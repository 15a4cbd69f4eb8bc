//! Descriptors whose last `close` waits in the kernel.

/// Closes them on a thread of its own. For the last descriptor of an inotify instance, a packet socket or a mount namespace the
/// kernel waits for a grace period of RCU (8 to 20 ms): there is other work meanwhile, and several of them wait side by side.
pub(super) fn close_elsewhere(descriptors: impl Send + 'static) {
    // Where there is no thread for it, it is closed here.
    let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(descriptors));
}
