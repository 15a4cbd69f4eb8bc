//! Inside the network namespace: loopback up, no route, and the listeners that the session serves.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};

use super::stage::{At, StageError};

/// # Errors
/// When the namespace refuses; then nothing may be executed.
pub fn prepare(listen: &[SocketAddr]) -> Result<Vec<OwnedFd>, StageError> {
    loopback_up().at("bring up loopback")?;
    listen
        .iter()
        .map(|address| TcpListener::bind(address).map(OwnedFd::from).on("listen on", address))
        .collect()
}

#[expect(unsafe_code, reason = "interface flags are set by an ioctl that no dependency wraps")]
fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which is initialised, NUL-terminated and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
