//! Random numbers of the system, for what others must not guess.

use std::io;

/// Lower-case hex digits of that many random bytes.
///
/// # Errors
/// When the system gives no random numbers.
pub fn hex<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(crate::hex(&bytes))
}
