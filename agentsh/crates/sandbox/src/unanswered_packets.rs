//! Detects connections inside that nothing answered: packet sockets on loopback, with a filter for refusals.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, eth, sockopt};

use super::network;

/// Bytes of a packet that are read.
pub const MAX_LENGTH: usize = 128;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const UDP: u8 = 17;
const RST_AND_ACK: u8 = 0x14;

/// A connection attempt that nothing answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnansweredPacket {
    pub destination: SocketAddr,
    /// Else over UDP.
    pub is_tcp: bool,
}

/// One instruction of a classic socket filter.
const fn step(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
    // Every code is below 256.
    #[expect(clippy::cast_possible_truncation, reason = "codes of instructions are small")]
    let code = code as u16;
    libc::sock_filter { code, jt: yes, jf: no, k: value }
}

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_BYTE_BEHIND: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_IND;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_WORD_BEHIND: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_IND;
const HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const EQUALS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const BPF_RETURN: u32 = libc::BPF_RET | libc::BPF_K;

#[expect(clippy::cast_possible_truncation, reason = "a length below 256")]
const BPF_ACCEPT: libc::sock_filter = step(BPF_RETURN, 0, 0, MAX_LENGTH as u32);
const BPF_DROP: libc::sock_filter = step(BPF_RETURN, 0, 0, 0);

/// TCP: a reset with sequence number 0, which answers a SYN. ICMP: port unreachable.
const IPV4: [libc::sock_filter; 15] = [
    step(LOAD_BYTE, 0, 0, 9),
    step(EQUALS, 1, 0, TCP as u32),
    step(EQUALS, 6, 11, ICMP as u32),
    step(HEADER_LENGTH, 0, 0, 0),
    step(LOAD_BYTE_BEHIND, 0, 0, 13),
    step(AND, 0, 0, 0x17),
    step(EQUALS, 0, 7, RST_AND_ACK as u32),
    step(LOAD_WORD_BEHIND, 0, 0, 4),
    step(EQUALS, 4, 5, 0),
    step(HEADER_LENGTH, 0, 0, 0),
    step(LOAD_WORD_BEHIND, 0, 0, 0),
    step(AND, 0, 0, 0xffff_0000),
    step(EQUALS, 0, 1, 0x0303_0000),
    BPF_ACCEPT,
    BPF_DROP,
];

const IPV6: [libc::sock_filter; 9] = [
    step(LOAD_BYTE, 0, 0, 6),
    step(EQUALS, 0, 6, TCP as u32),
    step(LOAD_BYTE, 0, 0, 53),
    step(AND, 0, 0, 0x17),
    step(EQUALS, 0, 3, RST_AND_ACK as u32),
    step(LOAD_WORD, 0, 0, 44),
    step(EQUALS, 0, 1, 0),
    BPF_ACCEPT,
    BPF_DROP,
];

/// One per family; without IPv6 only one.
///
/// # Errors
/// When the kernel has no packet sockets, or this user may not use them.
pub fn sockets() -> io::Result<Vec<OwnedFd>> {
    let ipv4 = socket(eth::IP, &IPV4)?;
    Ok(std::iter::once(ipv4).chain(socket(eth::IPV6, &IPV6).ok()).collect())
}

fn socket(family: Protocol, filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Bound to no family until the filter is attached, so that no packet is queued.
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?;
    network::attach_filter(&socket, filter)?;
    network::bind_protocol(&socket, family)?;
    Ok(socket)
}

/// Whether a descriptor is one of [`sockets`].
#[must_use]
pub fn is_one(socket: &OwnedFd) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::PACKET)
}

/// The destination in a packet that passed the filter.
#[must_use]
pub fn read(packet: &[u8]) -> Option<UnansweredPacket> {
    let tcp = |from: IpAddr, segment: &[u8]| {
        let port = u16::from_be_bytes(*segment.first_chunk()?);
        Some(UnansweredPacket { destination: SocketAddr::new(from, port), is_tcp: true })
    };
    if packet.first()? >> 4 == 6 {
        let from: [u8; 16] = *packet.get(8..)?.first_chunk()?;
        return tcp(Ipv6Addr::from(from).to_canonical(), packet.get(40..)?);
    }
    let (header, body) = ipv4(packet)?;
    match header.protocol {
        TCP => tcp(header.source.into(), body),
        ICMP => {
            let (asked, datagram) = ipv4(body.get(8..)?)?;
            let port = u16::from_be_bytes(*datagram.get(2..)?.first_chunk()?);
            let destination = SocketAddr::new(asked.destination.into(), port);
            (asked.protocol == UDP).then_some(UnansweredPacket { destination, is_tcp: false })
        }
        _ => None,
    }
}

struct Header {
    protocol: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
}

fn ipv4(packet: &[u8]) -> Option<(Header, &[u8])> {
    let length = usize::from(packet.first()? & 0x0f) * 4;
    let address = |at: usize| packet.get(at..)?.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes));
    let header = Header { protocol: *packet.get(9)?, source: address(12)?, destination: address(16)? };
    Some((header, packet.get(length..)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn header(protocol: u8) -> Vec<u8> {
        let mut packet = vec![0x45; 20];
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&[192, 0, 2, 1]);
        packet[16..20].copy_from_slice(&[10, 0, 0, 1]);
        packet
    }

    #[test]
    fn destination_is_read_from_a_reset_and_an_icmp_error() {
        let mut reset = header(TCP);
        reset.extend([0x1f, 0x90, 0, 9]);
        let expected = UnansweredPacket { destination: "192.0.2.1:8080".parse().unwrap(), is_tcp: true };
        assert_eq!(read(&reset), Some(expected));
        let mut unreachable = header(ICMP);
        unreachable.extend([3, 3, 0, 0, 0, 0, 0, 0]);
        unreachable.extend(header(UDP));
        unreachable.extend([0, 9, 0, 53]);
        let expected = UnansweredPacket { destination: "10.0.0.1:53".parse().unwrap(), is_tcp: false };
        assert_eq!(read(&unreachable), Some(expected));
        for length in 0..unreachable.len() {
            assert_eq!(read(&unreachable[..length]), None);
        }
    }
}
