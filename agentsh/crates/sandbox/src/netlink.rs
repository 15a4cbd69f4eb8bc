//! Encodes the route netlink messages for loopback addresses and the two routes that make every address local.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// Loopback is the first device of every network namespace.
const LOOPBACK_INDEX: u32 = 1;
const HEADER: usize = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
/// Of an address.
const LOCAL_ADDRESS: u16 = 2;
const ERROR: u16 = 2;
/// Request, acknowledge, create.
const CREATE_FLAGS: u16 = 0x1 | 0x4 | 0x400;
const OUTPUT_DEVICE: u16 = 4;
const PREFERRED_SOURCE: u16 = 7;
const TABLE_LOCAL: u8 = 255;
const PROTOCOL_BOOT: u8 = 3;
const SCOPE_HOST: u8 = 254;
const TYPE_LOCAL: u8 = 2;

/// A route netlink socket of this network namespace.
pub struct Netlink(OwnedFd);

impl Netlink {
    /// # Errors
    /// When there are no descriptors left.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        Ok(Self(socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?))
    }

    /// `local 0.0.0.0/0 dev lo src 127.0.0.1` or `local ::/0 dev lo`: connections to any address arrive in this
    /// namespace.
    ///
    /// # Errors
    /// When the kernel refuses, for example a disabled family.
    pub fn route_all_to_loopback(&self, family: AddressFamily) -> io::Result<()> {
        self.ask(&route(family))
    }

    /// Adds an address to loopback.
    ///
    /// # Errors
    /// As [`Self::route_all_to_loopback`].
    pub fn add_address(&self, address: IpAddr) -> io::Result<()> {
        self.ask(&new_address(address))
    }

    fn ask(&self, message: &[u8]) -> io::Result<()> {
        send(self.0.as_raw_fd(), message, MsgFlags::empty())?;
        let mut answer = [0; 1024];
        let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        acknowledged(answer.get(..length).unwrap_or_default())
    }
}

fn route(family: AddressFamily) -> Vec<u8> {
    let is_v4 = family == AddressFamily::Inet;
    let family = u8::try_from(family as i32).unwrap_or(0);
    let mut body = vec![family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_BOOT, SCOPE_HOST, TYPE_LOCAL, 0, 0, 0, 0];
    attribute(&mut body, OUTPUT_DEVICE, &LOOPBACK_INDEX.to_ne_bytes());
    if is_v4 {
        attribute(&mut body, PREFERRED_SOURCE, &[127, 0, 0, 1]);
    }
    message(NEW_ROUTE, &body)
}

fn new_address(address: IpAddr) -> Vec<u8> {
    let (family, bits, bytes) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, 32, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::Inet6, 128, address.octets().to_vec()),
    };
    let mut body = vec![u8::try_from(family as i32).unwrap_or(0), bits, 0, SCOPE_HOST];
    body.extend(LOOPBACK_INDEX.to_ne_bytes());
    attribute(&mut body, LOCAL_ADDRESS, &bytes);
    message(NEW_ADDRESS, &body)
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(0);
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(CREATE_FLAGS.to_ne_bytes());
    // Sequence number and sender: there is only one request.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// A value of a multiple of four bytes, without padding.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(u16::try_from(4 + value.len()).unwrap_or(0).to_ne_bytes());
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
        let routes = [(AddressFamily::Inet, 44), (AddressFamily::Inet6, 36)];
        let routes = routes.map(|(family, length)| (route(family), length));
        let addresses = [("127.0.0.53", 32), ("fd00::1", 44)];
        let addresses = addresses.map(|(ip, length)| (new_address(ip.parse().unwrap()), length));
        for (message, length) in routes.into_iter().chain(addresses) {
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
