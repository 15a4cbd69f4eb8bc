//! The two routes that make every address local, as route netlink messages.
//!
//! Own encoder: two messages of fixed shape are fewer lines than the use of a library for all of them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// Loopback is the first device of every network namespace.
const LOOPBACK_INDEX: u32 = 1;
const HEADER: usize = 16;
const NEW_ROUTE: u16 = 24;
const ERROR: u16 = 2;
/// Request, acknowledge, create.
const CREATE_FLAGS: u16 = 0x1 | 0x4 | 0x400;
const OUTPUT_DEVICE: u16 = 4;
const PREFERRED_SOURCE: u16 = 7;
const TABLE_LOCAL: u8 = 255;
const PROTOCOL_BOOT: u8 = 3;
const SCOPE_HOST: u8 = 254;
const TYPE_LOCAL: u8 = 2;

/// `local 0.0.0.0/0 dev lo src 127.0.0.1` or `local ::/0 dev lo`: connections to any address of the family arrive
/// at sockets of this namespace.
///
/// # Errors
/// When the kernel refuses, such as for a family that is switched off.
pub fn route_everything_here(family: AddressFamily) -> io::Result<()> {
    let socket: OwnedFd =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    send(socket.as_raw_fd(), &message(family), MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    acknowledged(answer.get(..length).unwrap_or_default())
}

fn message(family: AddressFamily) -> Vec<u8> {
    let is_v4 = family == AddressFamily::Inet;
    let family = u8::try_from(family as i32).unwrap_or(0);
    let mut body = vec![family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_BOOT, SCOPE_HOST, TYPE_LOCAL, 0, 0, 0, 0];
    attribute(&mut body, OUTPUT_DEVICE, LOOPBACK_INDEX.to_ne_bytes());
    if is_v4 {
        attribute(&mut body, PREFERRED_SOURCE, [127, 0, 0, 1]);
    }
    let length = u32::try_from(HEADER + body.len()).unwrap_or(0);
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(NEW_ROUTE.to_ne_bytes());
    message.extend(CREATE_FLAGS.to_ne_bytes());
    // Sequence number and sender: one question is asked, so one answer comes.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// Four bytes of value need no padding.
fn attribute(body: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    body.extend(8_u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

/// The answer to a request is an error message; number 0 means success.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind: [u8; 2] = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).ok_or_else(malformed)?;
    let number: [u8; 4] = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).ok_or_else(malformed)?;
    match (u16::from_ne_bytes(kind), i32::from_ne_bytes(number)) {
        (ERROR, 0) => Ok(()),
        (ERROR, number) => Err(io::Error::from_raw_os_error(number.saturating_neg())),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_length_that_they_say() {
        for (family, length) in [(AddressFamily::Inet, 44), (AddressFamily::Inet6, 36)] {
            let message = message(family);
            assert_eq!(message.len(), length);
            assert_eq!(message.get(..4), Some(&u32::try_from(length).unwrap_or(0).to_ne_bytes()[..]));
        }
    }

    #[test]
    fn answers_are_read_with_care() {
        let mut answer = [0_u8; 36];
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        assert!(acknowledged(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(acknowledged(&answer).err().and_then(|error| error.raw_os_error()), Some(libc::EPERM));
        answer[16..20].copy_from_slice(&i32::MIN.to_ne_bytes());
        assert!(acknowledged(&answer).is_err());
        assert!(acknowledged(&answer[..18]).is_err() && acknowledged(&[]).is_err());
    }
}
