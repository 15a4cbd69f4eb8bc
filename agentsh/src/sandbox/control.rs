//! The typed ends of the socket between the session and a sandbox's pid 1.
//!
//! Packets, so that a message is whole or absent. The session speaks once ([`GO`]: the id maps are written);
//! init answers with [`Answer`] messages. The far end closing is the signal that the other side is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use serde::{Deserialize, Serialize};

use super::report::Enforcement;

/// The session's one byte: the user namespace has its ids, begin.
pub const GO: u8 = b'g';
/// A message larger than this cannot be init's.
const LARGEST_MESSAGE: usize = 64 * 1024;
/// The kernel takes no more in one message. A policy names fewer ports: see [`MOST_PORTS`].
const MOST_DESCRIPTORS: usize = 253;
/// Each port of a sandbox is one listener; the resolver has two sockets.
pub const MOST_PORTS: usize = 200;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Everything is in place; the program is executed next. Comes with the listening sockets.
    Ready { enforcement: Vec<Enforcement> },
    /// The program never ran.
    Failed { message: String, missing: bool },
}

/// # Errors
/// When the kernel has no descriptors left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// # Errors
/// When the session is gone.
pub fn send(socket: BorrowedFd<'_>, answer: &Answer, descriptors: &[OwnedFd]) -> io::Result<()> {
    let bytes = serde_json::to_vec(answer)?;
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&bytes)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// None when the other side is gone.
///
/// # Errors
/// `WouldBlock` on a non-blocking socket; `InvalidData` for a message that init would never send.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Answer, Vec<OwnedFd>)>> {
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
    let answer = serde_json::from_slice(&buffer[..length])?;
    Ok(Some((answer, descriptors)))
}

#[expect(unsafe_code, reason = "descriptors arrive from the kernel as bare numbers")]
fn own(raw: RawFd) -> OwnedFd {
    // SAFETY: the kernel just installed this descriptor for this message; nothing else knows its number.
    unsafe { OwnedFd::from_raw_fd(raw) }
}
