//! Encodes the route netlink messages for loopback addresses and the two routes that make every address local.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// Loopback is the first device of every network namespace.
const LOOPBACK_INDEX: u32 = 1;
const HEADER: usize = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
/// An attribute of an address.
const LOCAL_ADDRESS: u16 = 2;
const ERROR: u16 = 2;
/// A request that creates.
const CREATE: u16 = 0x1 | 0x400;
const ACKNOWLEDGE: u16 = 0x4;
const OUTPUT_DEVICE: u16 = 4;
const PREFERRED_SOURCE: u16 = 7;
const TABLE_LOCAL: u8 = 255;
const PROTOCOL_BOOT: u8 = 3;
const SCOPE_HOST: u8 = 254;
const TYPE_LOCAL: u8 = 2;

/// `local 0.0.0.0/0 dev lo src 127.0.0.1` or `local ::/0 dev lo`: connections to any address arrive in this namespace.
pub fn route_all_to_loopback(family: AddressFamily) -> Request {
    let is_v4 = family == AddressFamily::Inet;
    let family = u8::try_from(family as i32).unwrap_or(0);
    let mut body = vec![family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_BOOT, SCOPE_HOST, TYPE_LOCAL, 0, 0, 0, 0];
    attribute(&mut body, OUTPUT_DEVICE, &LOOPBACK_INDEX.to_ne_bytes());
    if is_v4 {
        attribute(&mut body, PREFERRED_SOURCE, &[127, 0, 0, 1]);
    }
    Request { kind: NEW_ROUTE, body }
}

/// Adds an address to loopback.
pub fn add_address(address: IpAddr) -> Request {
    let (family, bits, bytes) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, 32, address.octets().to_vec()),
        IpAddr::V6(address) => (AddressFamily::Inet6, 128, address.octets().to_vec()),
    };
    let mut body = vec![u8::try_from(family as i32).unwrap_or(0), bits, 0, SCOPE_HOST];
    body.extend(LOOPBACK_INDEX.to_ne_bytes());
    attribute(&mut body, LOCAL_ADDRESS, &bytes);
    Request { kind: NEW_ADDRESS, body }
}

/// A request to the kernel.
pub struct Request {
    kind: u16,
    body: Vec<u8>,
}

impl Request {
    fn message(&self, number: u32, flags: u16) -> Vec<u8> {
        let length = u32::try_from(HEADER + self.body.len()).unwrap_or(0);
        let header = [&length.to_ne_bytes()[..], &self.kind.to_ne_bytes(), &flags.to_ne_bytes()].concat();
        // The kernel fills in the sender.
        [&header, &number.to_ne_bytes()[..], &[0; 4], &self.body].concat()
    }
}

/// Sends requests, and waits for the answer to the last one. What the kernel says of the others, for example where a family is
/// disabled, is not an error.
///
/// # Errors
/// When the kernel refuses the last request.
pub fn ask(requests: &[Request]) -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    let last = u32::try_from(requests.len()).unwrap_or(0);
    let messages = (1..).zip(requests).flat_map(|(number, request)| {
        request.message(number, if number == last { CREATE | ACKNOWLEDGE } else { CREATE })
    });
    send(socket.as_raw_fd(), &messages.collect::<Vec<u8>>(), MsgFlags::empty())?;
    loop {
        let mut answer = [0; 1024];
        let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let (number, result) = parse_answer(answer.get(..length).unwrap_or_default())?;
        if number == last {
            return result;
        }
    }
}

/// A value of a multiple of four bytes, without padding.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(u16::try_from(4 + value.len()).unwrap_or(0).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

/// The number of a request, and what became of it: its answer is an error message, and error 0 means success.
fn parse_answer(answer: &[u8]) -> io::Result<(u32, io::Result<()>)> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind: [u8; 2] = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).ok_or_else(malformed)?;
    let number: [u8; 4] = answer.get(8..12).and_then(|bytes| bytes.try_into().ok()).ok_or_else(malformed)?;
    let error: [u8; 4] = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).ok_or_else(malformed)?;
    let result = match (u16::from_ne_bytes(kind), i32::from_ne_bytes(error)) {
        (ERROR, 0) => Ok(()),
        (ERROR, error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        _ => return Err(malformed()),
    };
    Ok((u32::from_ne_bytes(number), result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_messages_have_their_declared_length() {
        let routes = [(AddressFamily::Inet, 44), (AddressFamily::Inet6, 36)];
        let routes = routes.map(|(family, length)| (route_all_to_loopback(family), length));
        let addresses = [("127.0.0.53", 32), ("fd00::1", 44)];
        let addresses = addresses.map(|(ip, length)| (add_address(ip.parse().unwrap()), length));
        for (request, length) in routes.into_iter().chain(addresses) {
            let message = request.message(1, CREATE);
            assert_eq!(message.len(), length);
            assert_eq!(message.get(..4), Some(&u32::try_from(length).unwrap_or(0).to_ne_bytes()[..]));
        }
    }

    #[test]
    fn malformed_netlink_answers_are_handled() {
        let mut answer = [0_u8; 36];
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        answer[8..12].copy_from_slice(&3_u32.to_ne_bytes());
        assert!(matches!(parse_answer(&answer), Ok((3, Ok(())))));
        for (number, expected) in [(-libc::EPERM, Some(libc::EPERM)), (i32::MIN, Some(i32::MAX))] {
            answer[16..20].copy_from_slice(&number.to_ne_bytes());
            let (_, result) = parse_answer(&answer).unwrap();
            assert_eq!(result.unwrap_err().raw_os_error(), expected);
        }
        assert!(parse_answer(&answer[..18]).is_err() && parse_answer(&[]).is_err());
    }
}
