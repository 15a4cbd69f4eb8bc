//! Files of `/proc` and the like, whose size nobody knows before they are read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What most of them fit in: the kernel hands out a page at a time.
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

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_what_the_standard_library_reads() {
        let path = "/proc/self/mountinfo";
        assert_eq!(super::read(path).ok(), std::fs::read_to_string(path).ok());
        assert!(super::read("/proc/none").is_err());
    }
}
