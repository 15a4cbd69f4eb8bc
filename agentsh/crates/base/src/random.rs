//! The system's random numbers, for values that must not be guessed.

use std::io;

/// Lower-case hex digits of that many random bytes.
///
/// # Errors
/// When the system gives no random numbers.
pub fn hex<const BYTES: usize>() -> io::Result<String> {
    Ok(crate::hex(&bytes::<BYTES>()?))
}

/// Random bytes.
///
/// # Errors
/// When the system gives no random numbers.
pub fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
