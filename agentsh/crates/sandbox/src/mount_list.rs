//! The mount list of a sandbox, as its pid 1 sees it, and notification of changes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Pid 1 opens its own file and passes it on, because `hidepid` hides it from the launcher.
const OWN_MOUNT_INFO: &str = "/proc/self/mountinfo";

/// The mount list of one sandbox, readable after its processes have ended.
#[derive(Debug)]
pub struct MountList(File);

impl From<MountList> for OwnedFd {
    fn from(mounted: MountList) -> Self {
        mounted.0.into()
    }
}

impl MountList {
    /// The list of this process.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open_own() -> io::Result<Self> {
        File::open(OWN_MOUNT_INFO).map(Self)
    }

    /// None: it is something else.
    pub(super) fn from_descriptor(descriptors: &mut Vec<OwnedFd>) -> Option<Self> {
        let is_of_proc = |last: &mut OwnedFd| {
            rustix::fs::fstatfs(&*last).is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
        };
        descriptors.pop_if(is_of_proc).map(|found| Self(found.into()))
    }

    /// Every mount point, once per mount.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn points(&mut self) -> io::Result<Vec<PathBuf>> {
        // Like `agentsh_base::proc_file`: with a large buffer from the start, and without asking for the size.
        let mut text = Vec::with_capacity(16 << 10);
        self.0.seek(SeekFrom::Start(0))?;
        (&mut self.0).take(u64::MAX).read_to_end(&mut text)?;
        let lines = text.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescaped).collect())
    }
}

/// Signals a priority event after each mount and unmount.
impl AsFd for MountList {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Decodes blanks and the like, written as a backslash and three octal digits.
fn unescaped(written: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                out.push(u8::try_from(value & 0xFF).unwrap_or(b'?'));
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn mount_list_paths_with_blanks_are_unescaped() {
        assert_eq!(unescaped(b"/a\\040b\\134\\012"), Path::new("/a b\\\n"));
        assert_eq!(unescaped(b"/a\\04"), Path::new("/a\\04"));
    }
}
