//! Keys and values of the maps. Every structure is written field by field: no byte of it is ever uninitialised.

use core::net::{SocketAddrV4, SocketAddrV6};

use crate::COMM_BYTES;
use crate::address::{is_v4, words};

/// Key of the allow map (where to) and of the origin map (from where): a port at an address, of one sandbox.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The sandbox's cgroup id.
    pub cgroup: u64,
    pub address: [u32; 4],
    /// Host order.
    pub port: u16,
    pub padding: u16,
    pub more_padding: u32,
}

impl Place {
    pub const SIZE: usize = 32;

    #[must_use]
    pub const fn new(cgroup: u64, address: [u32; 4], port: u16) -> Self {
        Self { cgroup, address, port, padding: 0, more_padding: 0 }
    }

    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut out = Writer::new();
        out.u64(self.cgroup).words(self.address).u16(self.port);
        out.bytes
    }

    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let mut from = Reader(bytes);
        Self::new(from.u64(), from.words(), from.u16())
    }
}

/// Data of a key in the tree of CIDR entries. The port comes before the address, so that an entry for one port never
/// hides a wider one for another; port 0 is any port.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Big endian, high word first, as the tree compares bits from the first byte on.
    pub cgroup: [u32; 2],
    /// Big endian.
    pub port: u16,
    /// 4 or 6 in big endian, so that `::/0` does not mean every IPv4-mapped address too.
    pub family: u16,
    pub address: [u32; 4],
}

impl Net {
    pub const SIZE: usize = 28;
    /// Bits in front of the address, all of which must match.
    pub const FIXED_BITS: u32 = 96;
    /// Bits of a whole key.
    pub const ALL_BITS: u32 = Self::FIXED_BITS + 128;

    #[must_use]
    pub const fn new(cgroup: u64, address: [u32; 4], port: u16) -> Self {
        let family = if is_v4(address) { 4_u16 } else { 6 };
        let cgroup = [((cgroup >> 32) as u32).to_be(), (cgroup as u32).to_be()];
        Self { cgroup, port: port.to_be(), family: family.to_be(), address }
    }

    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut out = Writer::new();
        out.words(self.cgroup).u16(self.port).u16(self.family).words(self.address);
        out.bytes
    }
}

/// What the programs know about one sandbox.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Words of the relay's listeners; meaningless without their flag.
    pub listener_v4: [u32; 4],
    pub listener_v6: [u32; 4],
    pub resolver: [u32; 4],
    /// Ports in host order.
    pub listener_v4_port: u16,
    pub listener_v6_port: u16,
    pub resolver_port: u16,
    /// Bits of [`listener`].
    pub listeners: u16,
}

/// Bits of [`Sandbox::listeners`].
pub mod listener {
    pub const V4: u16 = 1;
    pub const V6: u16 = 2;
}

impl Sandbox {
    pub const SIZE: usize = 56;

    #[must_use]
    pub fn new(
        listener_v4: Option<SocketAddrV4>,
        listener_v6: Option<SocketAddrV6>,
        resolver: Option<core::net::SocketAddr>,
    ) -> Self {
        Self {
            listener_v4: listener_v4.map_or([0; 4], |listen| words((*listen.ip()).into())),
            listener_v6: listener_v6.map_or([0; 4], |listen| words((*listen.ip()).into())),
            resolver: resolver.map_or([0; 4], |resolver| words(resolver.ip())),
            listener_v4_port: listener_v4.map_or(0, |listen| listen.port()),
            listener_v6_port: listener_v6.map_or(0, |listen| listen.port()),
            resolver_port: resolver.map_or(0, |resolver| resolver.port()),
            listeners: listener_v4.map_or(0, |_| listener::V4) | listener_v6.map_or(0, |_| listener::V6),
        }
    }

    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut out = Writer::new();
        out.words(self.listener_v4).words(self.listener_v6).words(self.resolver);
        out.u16(self.listener_v4_port).u16(self.listener_v6_port).u16(self.resolver_port).u16(self.listeners);
        out.bytes
    }
}

/// Where a redirected connection was meant to go, and who began it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub cookie: u64,
    /// The thread.
    pub pid: u32,
    /// The process.
    pub tgid: u32,
    pub address: [u32; 4],
    pub comm: [u8; COMM_BYTES],
    /// Host order.
    pub port: u16,
    pub padding: u16,
    pub more_padding: u32,
}

impl Origin {
    pub const SIZE: usize = 56;

    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let mut from = Reader(bytes);
        Self {
            cookie: from.u64(),
            pid: from.u32(),
            tgid: from.u32(),
            address: from.words(),
            comm: from.take(),
            port: from.u16(),
            padding: 0,
            more_padding: 0,
        }
    }
}

/// Data stored with a redirected socket and freed with it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    pub origin: Origin,
    pub cgroup: u64,
    /// 1 while the socket's connection is a redirected one.
    pub redirected: u32,
    /// 4 or 6: the listener's family, which is not the socket's for an IPv4-mapped destination.
    pub wire: u32,
}

/// Bytes of an ended redirected connection, from the kernel's own counters: a SYN or FIN counts as one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Sent by the sandboxed side and acknowledged.
    pub sent: u64,
    pub received: u64,
}

impl Traffic {
    pub const SIZE: usize = 16;

    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let mut from = Reader(bytes);
        Self { sent: from.u64(), received: from.u64() }
    }
}

/// Index of a counter, one per CPU.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Events that found the ring full, and origins that found their map full.
    Lost = 0,
    /// Refused connects and datagrams.
    Refused = 1,
    /// Sockets of a refused family, type or protocol.
    RefusedSockets = 2,
    /// Packets that the last line dropped.
    DroppedPackets = 3,
}

impl Counter {
    pub const COUNT: usize = 4;
}

/// Writes fields one after the other into a structure of `N` bytes; what is not written stays zero.
struct Writer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Writer<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    fn put(&mut self, field: &[u8]) -> &mut Self {
        let end = self.at + field.len();
        if let Some(place) = self.bytes.get_mut(self.at..end) {
            place.copy_from_slice(field);
        }
        self.at = end;
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    fn words<const M: usize>(&mut self, words: [u32; M]) -> &mut Self {
        for word in words {
            self.put(&word.to_ne_bytes());
        }
        self
    }
}

/// Reads fields one after the other. Callers give at least as many bytes as they take; what is missing is zero.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    pub(crate) fn words(&mut self) -> [u32; 4] {
        [self.u32(), self.u32(), self.u32(), self.u32()]
    }
}

const _: () = {
    assert!(size_of::<Place>() == Place::SIZE);
    assert!(size_of::<Net>() == Net::SIZE);
    assert!(size_of::<Sandbox>() == Sandbox::SIZE);
    assert!(size_of::<Origin>() == Origin::SIZE);
    assert!(size_of::<Traffic>() == Traffic::SIZE);
    assert!(size_of::<Socket>() == Origin::SIZE + 16);
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn place_round_trips_through_bytes(cgroup in any::<u64>(), address in any::<[u32; 4]>(), port in any::<u16>()) {
            let place = Place::new(cgroup, address, port);
            prop_assert_eq!(Place::from_bytes(&place.to_bytes()), place);
        }

        #[test]
        fn origin_and_traffic_are_read_from_any_bytes(origin in any::<[u8; Origin::SIZE]>(), traffic in any::<[u8; Traffic::SIZE]>()) {
            let read = Origin::from_bytes(&origin);
            prop_assert!(origin.starts_with(&read.cookie.to_ne_bytes()));
            prop_assert!(origin[32..].starts_with(&read.comm));
            prop_assert!(traffic.ends_with(&Traffic::from_bytes(&traffic).received.to_ne_bytes()));
        }
    }

    #[test]
    fn network_key_bytes_hold_the_port_before_the_address() {
        let bytes = Net::new(0x0102, words("10.0.0.0".parse().unwrap()), 443).to_bytes();
        assert_eq!(bytes[..12], [0, 0, 0, 0, 0, 0, 1, 2, 1, 187, 0, 4]);
        assert_eq!(bytes[22..], [255, 255, 10, 0, 0, 0]);
    }

    #[test]
    fn sandbox_record_says_which_listeners_exist() {
        let sandbox = Sandbox::new(None, Some("[::1]:7".parse().unwrap()), None);
        assert_eq!(sandbox.listeners, listener::V6);
        let tail: [[u8; 2]; 4] = [0_u16, 7, 0, 2].map(u16::to_ne_bytes);
        assert_eq!(sandbox.to_bytes()[48..], *tail.as_flattened());
    }
}
