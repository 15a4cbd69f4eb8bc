//! Whether a file counts as missing.

use std::io::{Error, ErrorKind};

/// True if a path cannot be opened because there is no such file, a part of the path is not a directory, or it is a socket.
/// A socket configures nothing, and another run in the same project may have put it there as a stub (decision 520).
#[must_use]
pub fn is_missing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ENXIO)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::fs::File;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn missing_includes_sockets_and_excludes_denied_paths() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(is_missing(&File::open(&socket).unwrap_err()));
        assert!(is_missing(&File::open(socket.join("below")).unwrap_err()));
        assert!(is_missing(&File::open(directory.path().join("nothing")).unwrap_err()));
        assert!(!is_missing(&Error::from(ErrorKind::PermissionDenied)));
    }
}
