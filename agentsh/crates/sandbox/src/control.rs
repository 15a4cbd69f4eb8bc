//! The typed ends of the sockets between the session, the process that sandboxes are born from, and pid 1 of each.
//!
//! Packets, so that a message is whole or absent. The session orders a birth ([`Order`]), hears of it on the control
//! socket of that sandbox, hands over its plan ([`Go`]) and gets an [`Answer`] for each step. The far end closing is
//! the signal that the other side is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::report::Enforcement;

/// A message larger than this cannot be init's.
const LARGEST_MESSAGE: usize = 64 * 1024;
/// The kernel takes no more in one message. A policy names fewer ports: see [`MOST_PORTS`].
pub const MOST_DESCRIPTORS: usize = 253;
/// Each port of a sandbox is one listener; the resolver has two sockets.
pub const MOST_PORTS: usize = 200;

/// What the zygote is asked for. Comes with the far end of the socket for the answer, and then:
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// A pid 1, please: if so, the cgroup that it is born into.
    Birth { in_cgroup: bool },
    /// Mounts in a sandbox that runs: what is to be done, the two namespaces, and detached mounts.
    Mend,
    /// Mounts of parts of a sandbox that runs, for another one: what is wanted, and the two namespaces.
    Lend,
    /// When the session is gone: remove the stand-ins that it has records of in this directory. Nothing comes with it, and
    /// nobody answers.
    CleanUp { records: Vec<u8>, pid: u32 },
}

/// The ids are mapped: begin. Comes with the plan and the three standard descriptors; then come the `passed` ones, as
/// many messages as it takes.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Go {
    pub passed: usize,
}

/// Comes with so many of the passed descriptors, in the order of the plan's indexes. A packet without a byte would look
/// like the end.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    pub count: usize,
}

/// What the session hears on the control socket of a sandbox.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Pid 1 exists and waits. Comes with its pidfd.
    Born { pid: u32 },
    /// The kernel's error number.
    NotBorn { error: i32 },
    /// Everything is in place; the program is executed next. Comes with the listening sockets.
    Ready { enforcement: Vec<Enforcement> },
    /// The program was stopped, as by Ctrl-Z. Whoever started agentsh is to see it.
    Stopped,
    /// It goes on.
    Continued,
    /// The mounts are made.
    Mended,
    /// Comes with the detached mounts, in the order in which they were asked for.
    Lent,
    /// The program never ran, or a mount could not be made.
    Failed { message: String, missing: bool },
}

/// # Errors
/// When the kernel has no descriptors left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// # Errors
/// When the other side is gone.
pub fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = encoded(message)?;
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// None when the other side is gone.
///
/// # Errors
/// `WouldBlock` on a non-blocking socket; `InvalidData` for a message that the other side would never send.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; LARGEST_MESSAGE];
    let mut space = nix::cmsg_space!([RawFd; MOST_DESCRIPTORS]);
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let length = message.bytes;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            descriptors.extend(raw.into_iter().map(own));
        }
    }
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((decoded(&buffer[..length])?, descriptors)))
}

/// For programs of one version alone: it is shorter than text and read in a tenth of the time.
///
/// # Errors
/// When the value cannot be written, like a path that is not UTF-8.
pub fn encoded<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    postcard::to_allocvec(value)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
}

/// # Errors
/// `InvalidData` for bytes that [`encoded`] does not write.
pub fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

#[expect(unsafe_code, reason = "descriptors arrive from the kernel as bare numbers")]
fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: the kernel just installed this descriptor for this message; nothing else knows its number.
    unsafe { OwnedFd::from_raw_fd(raw) }
}
