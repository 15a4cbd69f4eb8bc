//! For any bytes in a map or in the ring: fields are read from their offsets, records of another version are refused,
//! a key finds exactly the addresses of its network.

use std::net::IpAddr;

use agentsh_ebpf::{ABI_VERSION, Event, Net, Origin, Place, Sandbox, Traffic, Unreadable, address, words};
use ipnet::IpNet;

use super::net::ebpf::{self, NetEvent};

pub fn check(data: &[u8]) {
    event(data);
    // The same bytes after a valid header.
    let mut framed = [0; Event::SIZE];
    framed.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    framed[..2].copy_from_slice(&ABI_VERSION.to_ne_bytes());
    framed[2] = framed[2] % 4 + 1;
    framed[3] %= 8;
    assert!(NetEvent::read(&framed).is_ok());
    event(&framed);
    place(array(data));
    origin(array(data));
    traffic(array(data));
    sandbox(data);
    network(data);
}

fn event(bytes: &[u8]) {
    let header = bytes
        .first_chunk::<4>()
        .map(|[low, high, kind, reason]| (u16::from_ne_bytes([*low, *high]), *kind, *reason));
    let event = match (NetEvent::read(bytes), header) {
        (Ok(event), Some((ABI_VERSION, 1..=4, 0..=7))) => event,
        (Err(Unreadable::Length(length)), _) => {
            return assert!(length == bytes.len() && length != Event::SIZE);
        }
        (Err(Unreadable::Version(version)), Some((written, ..))) => {
            return assert!(version == written && version != ABI_VERSION);
        }
        (Err(Unreadable::Kind(kind)), Some((_, written, _))) => {
            return assert!(kind == written && !(1..=4).contains(&kind));
        }
        (Err(Unreadable::Reason(reason)), Some((.., written))) => {
            return assert!(reason == written && reason > 7);
        }
        (read, _) => panic!("{read:?}"),
    };
    assert_eq!(bytes.len(), Event::SIZE);
    assert_eq!((event.kind as u8, event.reason as u8), (bytes[2], bytes[3]));
    assert_eq!(event.family.to_ne_bytes(), bytes[4..6]);
    assert_eq!(event.protocol.to_ne_bytes(), bytes[6..8]);
    assert_eq!(event.pid.to_ne_bytes(), bytes[8..12]);
    assert_eq!(event.tgid.to_ne_bytes(), bytes[12..16]);
    assert_eq!(event.cgroup.to_ne_bytes(), bytes[16..24]);
    assert_eq!(event.cookie.to_ne_bytes(), bytes[24..32]);
    assert_eq!(event.socket_type.to_ne_bytes(), bytes[82..84]);
    task(&event.comm, &bytes[48..64]);
    assert_eq!(event.destination.is_none(), event.kind == ebpf::Kind::Socket);
    if let Some(destination) = event.destination {
        assert_eq!(destination.port().to_ne_bytes(), bytes[80..82]);
        same_address(destination.ip(), array(&bytes[32..48]));
    }
    assert_eq!(event.traffic.is_some(), event.kind == ebpf::Kind::Closed);
    if let Some(Traffic { sent, received }) = event.traffic {
        assert_eq!(
            (sent.to_ne_bytes(), received.to_ne_bytes()),
            (array(&bytes[64..72]), array(&bytes[72..80]))
        );
    }
}

/// The name of a task ends at the first NUL, in any encoding.
fn task(name: &str, bytes: &[u8]) {
    let written = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    assert_eq!(name, String::from_utf8_lossy(written));
    assert!(!name.contains('\0') && name.len() <= 3 * agentsh_ebpf::COMM_BYTES);
}

/// `shown` is the address of these octets, in the one spelling.
fn same_address(shown: IpAddr, octets: [u8; 16]) {
    assert_eq!(shown, IpAddr::from(octets).to_canonical());
    assert_eq!(words(shown).map(u32::to_ne_bytes).as_flattened(), octets);
    assert_eq!(address(words(shown)), shown);
    let inside = match shown {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified(),
    };
    assert_eq!(agentsh_ebpf::is_loopback(words(shown)), inside, "{shown}");
    assert_eq!(agentsh_ebpf::is_v4(words(shown)), shown.is_ipv4());
}

fn place(bytes: [u8; Place::SIZE]) {
    let place = Place::from_bytes(&bytes);
    let written = place.to_bytes();
    assert_eq!((&written[..26], &written[26..]), (&bytes[..26], [0; 6].as_slice()));
    assert_eq!(Place::from_bytes(&written), place);
    same_address(address(place.address), array(&bytes[8..24]));
}

fn origin(bytes: [u8; Origin::SIZE]) {
    let origin = ebpf::Origin::from(Origin::from_bytes(&bytes));
    assert_eq!(origin.cookie.to_ne_bytes(), bytes[..8]);
    assert_eq!(
        (origin.pid.to_ne_bytes(), origin.tgid.to_ne_bytes()),
        (array(&bytes[8..12]), array(&bytes[12..16]))
    );
    same_address(origin.destination.ip(), array(&bytes[16..32]));
    task(&origin.comm, &bytes[32..48]);
    assert_eq!(origin.destination.port().to_ne_bytes(), bytes[48..50]);
}

fn traffic(bytes: [u8; Traffic::SIZE]) {
    let Traffic { sent, received } = Traffic::from_bytes(&bytes);
    assert_eq!([sent.to_ne_bytes(), received.to_ne_bytes()].as_flattened(), bytes);
}

fn sandbox(data: &[u8]) {
    let [flags, low, high, rest @ ..] = array::<7>(data);
    let port = u16::from_ne_bytes([low, high]);
    let v4 = (flags & 1 != 0).then(|| std::net::SocketAddrV4::new(rest.into(), port));
    let v6 = (flags & 2 != 0).then(|| std::net::SocketAddrV6::new(array::<16>(data).into(), port, 0, 0));
    let resolver = (flags & 4 != 0).then(|| std::net::SocketAddr::new(IpAddr::from(rest), 53));
    let bytes = Sandbox::new(v4, v6, resolver).to_bytes();
    assert_eq!(bytes[54..56], u16::from(flags & 3).to_ne_bytes());
    let mut from = bytes.chunks_exact(16).map(|octets| address(address_words(octets)));
    for (wanted, found) in [
        v4.map(|v4| IpAddr::from(*v4.ip())),
        v6.map(|v6| IpAddr::from(*v6.ip()).to_canonical()),
        resolver.map(|at| at.ip()),
    ]
    .into_iter()
    .zip(&mut from)
    {
        assert_eq!(wanted.unwrap_or(IpAddr::from([0; 16])), found);
    }
}

/// An address is found under a network's key when the network holds it, and never otherwise.
fn network(data: &[u8]) {
    let cgroup = u64::from_ne_bytes(array(data));
    let [family, prefix, low, high, ..] = array::<8>(data.get(8..).unwrap_or_default());
    let port = u16::from_ne_bytes([low, high]);
    let octets: [u8; 16] = array(data.get(16..).unwrap_or_default());
    let other: [u8; 16] = array(data.get(32..).unwrap_or_default());
    let net = if family % 2 == 0 {
        IpNet::new(array::<4>(&octets).into(), prefix % 33)
    } else {
        IpNet::new(octets.into(), prefix % 129)
    };
    let Ok(net) = net else { return };
    let (bits, key) = ebpf::net_key(cgroup, net, (port != 0).then_some(port));
    assert!((Net::FIXED_BITS..=Net::ALL_BITS).contains(&bits));
    for address in [net.addr(), net.network(), net.broadcast(), array::<4>(&other).into(), other.into()] {
        // As the programs look: an IPv4 address has one spelling.
        let address = address.to_canonical();
        for (asked, from) in [(port, cgroup), (port ^ 1, cgroup), (port, cgroup ^ 1 << 63)] {
            let wanted = holds(net, address) && asked == port && from == cgroup;
            let looked_up = Net::new(from, words(address), asked).to_bytes();
            assert_eq!(begins_like(&key, &looked_up, bits), wanted, "{net} {address} {asked} {from}");
        }
    }
    let end = usize::try_from(bits).unwrap_or(0);
    let behind = (end..Net::SIZE * 8).all(|bit| key[bit / 8] & (0x80 >> (bit % 8)) == 0);
    assert!(behind, "bits behind the prefix of {net}");
}

/// An IPv6 network inside `::ffff:0:0/96` is an IPv4 one; a wider one holds no IPv4 address.
fn holds(net: IpNet, address: IpAddr) -> bool {
    match (net, address) {
        (IpNet::V6(net), IpAddr::V4(v4)) if net.prefix_len() >= 96 => net.contains(&v4.to_ipv6_mapped()),
        (net, address) => net.contains(&address),
    }
}

fn begins_like(one: &[u8], other: &[u8], bits: u32) -> bool {
    let bits = usize::try_from(bits).unwrap_or(usize::MAX);
    (0..bits).all(|bit| (one[bit / 8] ^ other[bit / 8]) & (0x80 >> (bit % 8)) == 0)
}

fn address_words(octets: &[u8]) -> [u32; 4] {
    std::array::from_fn(|word| u32::from_ne_bytes(array(octets.get(word * 4..).unwrap_or_default())))
}

/// The first `N` bytes; what is missing is zero.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    out
}
