//! Pinned bytes in a sealed memfd, hashed while they are copied. A receiver of the descriptor only checks the seals.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use sha2::{Digest, Sha256};

/// Everything that could change bytes or take them away.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK);

/// Immutable bytes, and their digest.
#[derive(Debug)]
pub struct Sealed {
    pub memory: OwnedFd,
    pub sha256: [u8; 32],
}

/// Copies a file of `length` bytes, by position, because the offset of the descriptor is shared. A file that grows has
/// another digest.
///
/// # Errors
/// When it cannot be read, or there is no memory.
pub fn seal(from: BorrowedFd<'_>, length: u64) -> io::Result<Sealed> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut memory = File::from(rustix::fs::memfd_create("pinned", flags)?);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut offset = 0;
    while offset <= length {
        let read = rustix::io::pread(from, &mut buffer, offset)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        memory.write_all(&buffer[..read])?;
        offset += read as u64;
    }
    rustix::fs::fcntl_add_seals(&memory, SEALS | SealFlags::SEAL)?;
    Ok(Sealed { memory: memory.into(), sha256: hasher.finalize().into() })
}

/// Copies sealed memory into an empty file.
///
/// # Errors
/// When it is not sealed, or there is no space.
pub fn copy_to(memory: BorrowedFd<'_>, to: &OwnedFd) -> io::Result<()> {
    // EINVAL for a file without seals.
    if !rustix::fs::fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the bytes are not sealed"));
    }
    let mut left = usize::try_from(rustix::fs::fstat(memory)?.st_size).unwrap_or(0);
    let mut offset = 0;
    while left > 0 {
        match rustix::fs::sendfile(to, memory, Some(&mut offset), left)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            sent => left -= sent,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn sealed_copy_stays_as_it_was_hashed() {
        let content = b"0123456789abcdef".repeat(20_000);
        let mut original = file(&content);
        let sealed = seal(original.as_fd(), content.len() as u64).unwrap();
        assert_eq!(sealed.sha256, <[u8; 32]>::from(Sha256::digest(&content)));
        original.rewind().unwrap();
        original.write_all(b"other bytes").unwrap();
        let mut again = File::from(sealed.memory.try_clone().unwrap());
        assert!(again.write(b"x").is_err());
        assert!(again.set_len(3).is_err());
        assert!(again.set_len(1 << 20).is_err());
        let to = tempfile::tempfile().unwrap();
        copy_to(sealed.memory.as_fd(), &to.try_clone().unwrap().into()).unwrap();
        let (mut to, mut copied) = (to, Vec::new());
        to.rewind().unwrap();
        to.read_to_end(&mut copied).unwrap();
        assert!(copied == content);
    }

    #[test]
    fn sealed_copy_of_a_growing_file_ends_at_its_first_length() {
        let grown = file(&[7; 1 << 20]);
        let sealed = seal(grown.as_fd(), 1000).unwrap();
        assert_ne!(sealed.sha256, <[u8; 32]>::from(Sha256::digest([7; 1000])));
        assert!(rustix::fs::fstat(&sealed.memory).unwrap().st_size < 1 << 20);
    }

    #[test]
    fn program_copy_that_is_not_sealed_is_refused() {
        let to = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(copy_to(file(b"a file").as_fd(), &to).is_err());
        let open = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(copy_to(open.as_fd(), &to).is_err());
        rustix::fs::fcntl_add_seals(&open, SealFlags::GROW | SealFlags::SHRINK).unwrap();
        assert!(copy_to(open.as_fd(), &to).is_err());
    }
}
