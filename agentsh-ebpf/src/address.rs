//! Addresses as four words in network order: what the kernel's contexts hold, IPv4 as `::ffff:a.b.c.d`.

use core::net::{IpAddr, Ipv6Addr};

/// `::ffff:0.0.0.0`.
pub const ANY_V4: [u32; 4] = mapped(0);
/// `::`.
pub const ANY_V6: [u32; 4] = [0; 4];

/// An IPv4 address in network order, as the kernel's contexts hold it.
#[must_use]
#[inline(always)]
pub const fn mapped(network_order: u32) -> [u32; 4] {
    [0, 0, 0xffff_u32.to_be(), network_order]
}

/// Whether the words are those of an IPv4 address.
#[must_use]
#[inline(always)]
pub const fn is_v4(words: [u32; 4]) -> bool {
    let [a, b, c, _] = words;
    a == 0 && b == 0 && c == 0xffff_u32.to_be()
}

/// The words of any address; an IPv4-mapped one is the same as its IPv4 twin.
#[must_use]
pub const fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => mapped(u32::from_ne_bytes(address.octets())),
        IpAddr::V6(address) => {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = address.octets();
            [
                u32::from_ne_bytes([a, b, c, d]),
                u32::from_ne_bytes([e, f, g, h]),
                u32::from_ne_bytes([i, j, k, l]),
                u32::from_ne_bytes([m, n, o, p]),
            ]
        }
    }
}

/// The address of four words, an IPv4-mapped one as IPv4.
#[must_use]
pub fn address(words: [u32; 4]) -> IpAddr {
    let mut octets = [0; 16];
    for (place, word) in octets.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    Ipv6Addr::from(octets).to_canonical()
}

/// Whether a connect to these words stays inside the caller's network namespace: 127.0.0.0/8, ::1, and the
/// unspecified addresses, which Linux takes for loopback.
#[must_use]
#[inline(always)]
pub const fn is_loopback(words: [u32; 4]) -> bool {
    let [a, b, c, d] = words;
    if a != 0 || b != 0 {
        return false;
    }
    if c == 0xffff_u32.to_be() {
        return d == 0 || u32::from_be(d) >> 24 == 127;
    }
    c == 0 && (d == 0 || d == 1_u32.to_be())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loopback_addresses_are_distinguished_from_similar_ones() {
        for inside in ["127.0.0.1", "127.255.255.255", "0.0.0.0", "::1", "::", "::ffff:127.0.0.53"] {
            assert!(is_loopback(words(inside.parse().unwrap())), "{inside}");
        }
        for outside in
            ["126.0.0.1", "128.0.0.1", "::2", "::127.0.0.1", "::ffff:1.2.3.4", "fe80::1", "1::1", "0.0.0.1"]
        {
            assert!(!is_loopback(words(outside.parse().unwrap())), "{outside}");
        }
    }

    proptest! {
        #[test]
        fn address_round_trips_through_words(address_ in any::<IpAddr>()) {
            prop_assert_eq!(address(words(address_)), address_.to_canonical());
        }
    }
}
