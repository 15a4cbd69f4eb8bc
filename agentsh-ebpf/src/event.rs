//! Records of the ring buffer.

use core::fmt;

use crate::map::Reader;
use crate::{ABI_VERSION, COMM_BYTES};

/// One record, as the programs write it. Numbers are in host order, the address is words in network order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub version: u16,
    /// A [`Kind`].
    pub kind: u8,
    /// A [`Reason`].
    pub reason: u8,
    /// 2 (IPv4) or 10 (IPv6): the socket's.
    pub family: u16,
    /// IPPROTO_*; 262 is MPTCP.
    pub protocol: u16,
    /// The thread; 0 where the kernel did not say.
    pub pid: u32,
    /// The process; 0 where the kernel did not say.
    pub tgid: u32,
    /// The process's own cgroup.
    pub cgroup: u64,
    pub cookie: u64,
    /// The destination; zero for [`Kind::Socket`].
    pub address: [u32; 4],
    pub comm: [u8; COMM_BYTES],
    /// For [`Kind::Closed`] only.
    pub sent: u64,
    pub received: u64,
    pub port: u16,
    /// SOCK_*.
    pub socket_type: u16,
    pub padding: u32,
}

/// What happened.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A connect was refused.
    Connect = 1,
    /// A datagram was refused.
    Send = 2,
    /// The socket itself was refused.
    Socket = 3,
    /// A redirected connection ended.
    Closed = 4,
}

/// Why it was refused.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Nothing was refused.
    None = 0,
    /// No entry of the allow map and none of the CIDR tree.
    NotAllowed = 1,
    /// The relay's listener was dialled directly.
    Listener = 2,
    /// The process's cgroup is below the policed one, but it has no description in the map.
    Unknown = 3,
    /// A datagram to somewhere else than loopback and the resolver.
    Datagram = 4,
    /// Neither TCP nor UDP.
    Protocol = 5,
    /// Allowed, but the sandbox has no listener of that family.
    NoListener = 6,
    /// Allowed, but the kernel had no memory to remember the destination.
    NoMemory = 7,
}

/// A record that this program does not understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    Length(usize),
    Version(u16),
    Kind(u8),
    Reason(u8),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => {
                write!(out, "a network event of {length} bytes instead of {}", Event::SIZE)
            }
            Self::Version(version) => {
                write!(out, "a network event of version {version} instead of {ABI_VERSION}")
            }
            Self::Kind(kind) => write!(out, "a network event of the unknown kind {kind}"),
            Self::Reason(reason) => write!(out, "a network event with the unknown reason {reason}"),
        }
    }
}

impl core::error::Error for Unreadable {}

impl Event {
    pub const SIZE: usize = 88;

    /// Reads one record of the ring buffer.
    ///
    /// # Errors
    /// When the length, the version, the kind or the reason is not one that this version writes.
    pub fn read(bytes: &[u8]) -> Result<(Self, Kind, Reason), Unreadable> {
        if bytes.len() != Self::SIZE {
            return Err(Unreadable::Length(bytes.len()));
        }
        let mut from = Reader(bytes);
        let version = from.u16();
        if version != ABI_VERSION {
            return Err(Unreadable::Version(version));
        }
        let [kind_code, reason_code] = from.take();
        let event = Self {
            version,
            kind: kind_code,
            reason: reason_code,
            family: from.u16(),
            protocol: from.u16(),
            pid: from.u32(),
            tgid: from.u32(),
            cgroup: from.u64(),
            cookie: from.u64(),
            address: from.words(),
            comm: from.take(),
            sent: from.u64(),
            received: from.u64(),
            port: from.u16(),
            socket_type: from.u16(),
            padding: 0,
        };
        let kind = Kind::of(kind_code).ok_or(Unreadable::Kind(kind_code))?;
        let reason = Reason::of(reason_code).ok_or(Unreadable::Reason(reason_code))?;
        Ok((event, kind, reason))
    }

    /// The task's name up to its first NUL.
    #[must_use]
    pub fn comm(&self) -> &[u8] {
        self.comm.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl Kind {
    const ALL: [Self; 4] = [Self::Connect, Self::Send, Self::Socket, Self::Closed];

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

impl Reason {
    const ALL: [Self; 8] = [
        Self::None,
        Self::NotAllowed,
        Self::Listener,
        Self::Unknown,
        Self::Datagram,
        Self::Protocol,
        Self::NoListener,
        Self::NoMemory,
    ];

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == code)
    }
}

const _: () = assert!(size_of::<Event>() == Event::SIZE);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(kind: u8, reason: u8) -> [u8; Event::SIZE] {
        let mut bytes = [0; Event::SIZE];
        bytes[..2].copy_from_slice(&ABI_VERSION.to_ne_bytes());
        bytes[2] = kind;
        bytes[3] = reason;
        bytes
    }

    #[test]
    fn event_fields_are_read_from_their_offsets() {
        let mut record = bytes(1, 4);
        record[4..6].copy_from_slice(&10_u16.to_ne_bytes());
        record[6..8].copy_from_slice(&262_u16.to_ne_bytes());
        record[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        record[12..16].copy_from_slice(&8_u32.to_ne_bytes());
        record[16..24].copy_from_slice(&9_u64.to_ne_bytes());
        record[24..32].copy_from_slice(&10_u64.to_ne_bytes());
        record[42..48].copy_from_slice(&[255, 255, 192, 0, 2, 1]);
        record[48..52].copy_from_slice(b"curl");
        record[80..82].copy_from_slice(&443_u16.to_ne_bytes());
        let (event, kind, reason) = Event::read(&record).unwrap();
        assert_eq!((kind, reason), (Kind::Connect, Reason::Datagram));
        assert_eq!((event.family, event.protocol, event.pid, event.tgid), (10, 262, 7, 8));
        assert_eq!((event.cgroup, event.cookie, event.port), (9, 10, 443));
        assert_eq!(crate::address(event.address), core::net::Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(event.comm(), b"curl");
    }

    #[test]
    fn record_of_another_version_or_length_is_refused() {
        assert_eq!(Event::read(&[]), Err(Unreadable::Length(0)));
        assert_eq!(Event::read(&bytes(1, 1)[..87]), Err(Unreadable::Length(87)));
        assert_eq!(Event::read(&bytes(9, 1)), Err(Unreadable::Kind(9)));
        assert_eq!(Event::read(&bytes(1, 99)), Err(Unreadable::Reason(99)));
        let mut newer = bytes(1, 1);
        newer[..2].copy_from_slice(&(ABI_VERSION + 1).to_ne_bytes());
        assert_eq!(Event::read(&newer), Err(Unreadable::Version(ABI_VERSION + 1)));
    }

    proptest! {
        #[test]
        fn event_reader_takes_any_bytes_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Event::read(&bytes);
        }

        #[test]
        fn event_with_a_valid_header_and_any_body_is_read(rest in any::<[u8; 32]>(), kind in 0_u8..8, reason in 0_u8..12) {
            let mut record = bytes(kind, reason);
            record[56..].copy_from_slice(&rest);
            record[32..64].copy_from_slice(&rest);
            let expected = (1..=4).contains(&kind) && reason <= 7;
            prop_assert_eq!(Event::read(&record).is_ok(), expected);
        }
    }
}
