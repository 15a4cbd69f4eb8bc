//! Detects WSL and its version by the kernel's name.

use std::sync::OnceLock;

/// Windows Subsystem for Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wsl {
    /// System calls are translated: there is no Linux kernel, and there are no namespaces.
    One,
    /// A kernel of Linux, in a virtual machine.
    Two,
}

/// The kind of WSL in which this process runs; None outside WSL.
#[must_use]
pub fn current() -> Option<Wsl> {
    static HERE: OnceLock<Option<Wsl>> = OnceLock::new();
    *HERE.get_or_init(|| from_release(&crate::proc_file::value("/proc/sys/kernel/osrelease").ok()?))
}

/// By the release of the kernel: `4.4.0-22621-Microsoft` is the first kind, `6.6.87.2-microsoft-standard-WSL2` the second.
#[must_use]
pub fn from_release(release: &str) -> Option<Wsl> {
    let release = release.trim().to_ascii_lowercase();
    match release.split_once("microsoft")? {
        (_, "") => Some(Wsl::One),
        _ => Some(Wsl::Two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wsl_version_is_read_from_the_kernel_name() {
        assert_eq!(from_release("4.4.0-22621-Microsoft\n"), Some(Wsl::One));
        assert_eq!(from_release("6.6.87.2-microsoft-standard-WSL2\n"), Some(Wsl::Two));
        assert_eq!(from_release("4.19.84-microsoft-standard\n"), Some(Wsl::Two));
        for elsewhere in ["6.18.44", "6.8.0-1017-azure", ""] {
            assert_eq!(from_release(elsewhere), None, "{elsewhere}");
        }
    }
}
