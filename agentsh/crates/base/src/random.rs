//! The system's random numbers, for values that must not be guessed.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Lower-case hex digits of that many random bytes.
///
/// # Errors
/// When the system gives no random numbers.
pub fn hex<const BYTES: usize>() -> io::Result<String> {
    Ok(crate::hex(&bytes::<BYTES>()?))
}

/// Random bytes, at most 256: fewer are never returned by getrandom(2).
///
/// # Errors
/// When the system gives no random numbers.
pub fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    const { assert!(COUNT <= 256) };
    let mut bytes = [0; COUNT];
    rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    Ok(bytes)
}

/// A UUID of now, version 7.
///
/// # Errors
/// When the system gives no random numbers.
pub fn uuid() -> io::Result<uuid::Uuid> {
    let millis = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default();
    Ok(uuid::Builder::from_unix_timestamp_millis(millis, &bytes()?).into_uuid())
}
