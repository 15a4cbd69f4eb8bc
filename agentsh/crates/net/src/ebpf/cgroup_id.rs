//! Finds the cgroup file system and the ids of cgroups.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use super::EbpfError;

/// Mount point of the version 2 hierarchy, also on a hybrid host.
///
/// # Errors
/// When cgroup2 is not mounted.
pub fn cgroup2_mount() -> Result<PathBuf, EbpfError> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    from_text(&mounts).ok_or(EbpfError::NoCgroup2)
}

/// A cgroup's id is the inode of its directory, as `bpf_get_current_cgroup_id` returns it.
///
/// # Errors
/// When the descriptor cannot be examined.
pub fn cgroup_id(directory: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::fstat(directory)?.st_ino)
}

/// This process's cgroup.
///
/// # Errors
/// When this process has no cgroup, or its directory cannot be examined.
pub fn own_cgroup() -> Result<u64, EbpfError> {
    use std::os::unix::fs::MetadataExt;
    let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = memberships.lines().find_map(|line| line.strip_prefix("0::")).ok_or(EbpfError::NoCgroup2)?;
    let directory = cgroup2_mount()?.join(path.trim_start_matches('/'));
    let found = std::fs::metadata(directory);
    found.map(|found| found.ino()).map_err(|_| EbpfError::NoCgroup2)
}

fn from_text(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right
            .starts_with("cgroup2 ")
            .then(|| left.split(' ').nth(4).map(|path| PathBuf::from(unescape(path))))?
    })
}

/// mountinfo writes space, tab, line break and backslash as three octal digits.
fn unescape(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (from, to)| path.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_v2_is_found_alone_and_on_hybrid_hosts() {
        let pure = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(from_text(pure), Some("/sys/fs/cgroup".into()));
        let hybrid = "30 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 23 0:28 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 none rw\n";
        assert_eq!(from_text(hybrid), Some("/sys/fs/cgroup/uni fied".into()));
        assert_eq!(from_text("1 2 0:3 / / rw - ext4 /dev/cgroup2 rw\nnonsense\n"), None);
    }
}
