//! Messages between the session, the zygote and pid 1 of each sandbox, over seqpacket sockets.
//!
//! The session orders a pid 1 ([`ZygoteRequest`]), sends its plan ([`Handover`]) and gets an [`Answer`] for each step.
//! A closed socket means that the other side is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plan::Tier;
use super::report::Enforcement;

/// A larger message is not from init.
const MAX_MESSAGE: usize = 64 * 1024;
/// The kernel's limit for one message. A policy names fewer ports: see [`MAX_PORTS`].
pub const MAX_DESCRIPTORS: usize = 253;
/// Each port of a sandbox is one listener; the resolver has two sockets.
pub const MAX_PORTS: usize = 200;

/// A request to the zygote. If it is answered, the socket for the answer is attached, and then:
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum ZygoteRequest {
    /// Create a pid 1; if `in_cgroup`, the cgroup is attached.
    Birth { in_cgroup: bool, tier: Tier },
    /// Mount in a running sandbox: the work, its two namespaces and detached mounts are attached.
    Mend,
    /// Open a file of a sandbox by its path inside. Its two namespaces are attached.
    Visit { path: Vec<u8> },
    /// Mounts of parts of a sandbox that runs, for another one, or names that are to stay: what is wanted, and the two namespaces.
    Lend,
    /// When the session is gone: remove the stubs recorded in this directory. Not answered.
    CleanUp { records: Vec<u8>, pid: u32 },
    /// Close the attached descriptors. Not answered.
    Close,
}

/// A message from the session to pid 1.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Handover {
    /// The ids are mapped: start. The plan and the standard descriptors are attached; the `passed` ones follow in
    /// further messages.
    Go { passed: usize },
    /// Comes with `count` of the passed descriptors, in the order of the plan's indexes.
    Passed { count: usize },
}

/// Messages on a sandbox's control socket.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Pid 1 exists and waits. Its pidfd is attached.
    ClonedInit { pid: u32 },
    /// The kernel's error number.
    NotBorn { error: i32 },
    /// Everything is set up; the program is executed next. The listening sockets are attached.
    Ready { enforcement: Vec<Enforcement> },
    /// The program was stopped, as by Ctrl-Z; agentsh has to stop too.
    Stopped,
    /// The program was continued.
    Continued,
    /// SIGINT ended the program, which its exit status alone does not say.
    Interrupted,
    /// The mounts are made; or it comes with detached ones, in the order in which they were asked for.
    Mounted,
    /// Comes with the file.
    Opened,
    /// The program did not run, or a mount or file is not available.
    Failed { message: String, cause: Cause },
}

/// Why a launch failed, for the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Something that has to be there is not.
    Missing,
    /// The kernel cannot execute it: neither a program of this machine nor a script.
    NotExecutable,
    Other,
}

impl Cause {
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ if error.raw_os_error() == Some(libc::ENOEXEC) => Self::NotExecutable,
            _ => Self::Other,
        }
    }
}

/// # Errors
/// When the kernel has no descriptors left.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// # Errors
/// When the other process has ended.
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
/// `WouldBlock` on a non-blocking socket; `InvalidData` for an invalid message.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let mut space = nix::cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let length = message.bytes;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            descriptors.extend(raw.into_iter().map(own_descriptor));
        }
    }
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((decode(&buffer[..length])?, descriptors)))
}

/// Binary, because both sides are the same version: shorter than text, and parsed ten times faster.
///
/// # Errors
/// When the value cannot be encoded, such as a path that is not UTF-8.
pub fn encoded<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    postcard::to_allocvec(value)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))
}

/// # Errors
/// `InvalidData` for bytes that [`encoded`] does not write.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

#[expect(unsafe_code, reason = "descriptors arrive from the kernel as bare numbers")]
fn own_descriptor(raw: RawFd) -> OwnedFd {
    // SAFETY: the kernel just installed this descriptor for this message; nothing else knows its number.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    /// Waiting for one message never returns another one.
    #[test]
    fn control_messages_have_distinct_encodings() {
        let bytes =
            [Handover::Go { passed: 3 }, Handover::Passed { count: 3 }].map(|word| encoded(&word).unwrap());
        assert_ne!(bytes[0], bytes[1]);
        assert_eq!(decode::<Handover>(&bytes[1]).unwrap(), Handover::Passed { count: 3 });
        assert!(decode::<Handover>(&[7, 3]).is_err());
    }

    #[test]
    fn exec_failure_cause_follows_the_error_number() {
        let cause = |number| Cause::of(&io::Error::from_raw_os_error(number));
        assert_eq!(cause(libc::ENOENT), Cause::Missing);
        assert_eq!(cause(libc::ENOEXEC), Cause::NotExecutable);
        assert_eq!(cause(libc::EACCES), Cause::Other);
        // A message that only ends like one is not one.
        assert_eq!(Cause::of(&io::Error::other("x (os error 8)")), Cause::Other);
    }
}
