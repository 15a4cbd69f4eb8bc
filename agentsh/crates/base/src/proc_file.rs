//! Files of `/proc` and the like, whose size is not known before they are read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Most of them fit into this: the kernel returns a page at a time.
const USUAL_BYTES: usize = 16 << 10;

/// Reads all of it. In a buffer that is large enough from the start this takes two reads; `std::fs::read_to_string` begins with 32
/// bytes and doubles them.
///
/// # Errors
/// When it cannot be opened or read, or is not UTF-8.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::with_capacity(USUAL_BYTES);
    // `take`, since a file alone would be asked for its size.
    File::open(path)?.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a file that the kernel makes as a whole and hands out in one read: a sysctl, an attribute of sysfs or a cgroup, and those of
/// `/proc` that are no list of objects (`meminfo`, `self/cgroup`). Other files may end a read early.
///
/// # Errors
/// When it cannot be opened or read, or is not UTF-8.
pub fn value(path: impl AsRef<Path>) -> io::Result<String> {
    let mut bytes = vec![0; USUAL_BYTES];
    let read = File::open(path)?.read(&mut bytes)?;
    bytes.truncate(read);
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// The fields of `/proc/PID/stat` after the program's name, which may contain anything, parentheses too: its state, its
/// parent, and so on (proc(5)). None if there is no such process.
#[must_use]
pub fn stat(pid: i32) -> Option<String> {
    let text = read(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned())
}

/// Whether a signal stopped the process: state `T`.
#[must_use]
pub fn is_stopped(pid: i32) -> bool {
    stat(pid).is_some_and(|rest| rest.starts_with('T'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn process_state_and_parent_are_read_from_stat() {
        let own = i32::try_from(std::process::id()).expect("small");
        let stat = super::stat(own).expect("it runs");
        let above: Option<i32> = stat.split_whitespace().nth(1).and_then(|text| text.parse().ok());
        assert_eq!(above, rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()));
        assert!(!super::is_stopped(own) && super::stat(-1).is_none());
    }

    #[test]
    fn proc_file_reads_the_same_as_the_standard_library() {
        let path = "/proc/self/mountinfo";
        assert_eq!(super::read(path).ok(), std::fs::read_to_string(path).ok());
        assert!(super::read("/proc/none").is_err() && super::value("/proc/none").is_err());
        for path in ["/proc/sys/kernel/random/boot_id", "/proc/self/cgroup"] {
            assert_eq!(super::value(path).ok(), std::fs::read_to_string(path).ok());
        }
    }
}
