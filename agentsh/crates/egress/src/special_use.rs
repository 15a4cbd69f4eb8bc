//! Addresses that are not on the public internet. Pure.
//!
//! A public name must not lead to this machine, its network, or the metadata service of its cloud. An IPv6 address that
//! contains an IPv4 address is judged by the IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not public, with the document that defines it; None for a public one.
#[must_use]
pub fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

/// An IPv4 address as a translator at the edge of a network writes it (NAT64, RFC 6052).
#[must_use]
pub fn is_translated(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if u128::from(v6) >> 32 == 0x0064_ff9b_0000_0000_0000_0000)
}

/// Where clouds keep the credentials of a machine. Each is in the tables below, too.
pub const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// First octets, prefix length, why. The first line that fits is the answer, so that exact addresses are before
/// the blocks around them.
const V4: &[([u8; 4], u8, &str)] = &[
    ([0, 0, 0, 0], 8, "this network, RFC 791"),
    ([10, 0, 0, 0], 8, "private, RFC 1918"),
    ([100, 100, 100, 200], 32, "cloud metadata"),
    ([100, 64, 0, 0], 10, "shared by a provider's customers, RFC 6598"),
    ([127, 0, 0, 0], 8, "loopback, RFC 1122"),
    ([168, 63, 129, 16], 32, "cloud metadata"),
    ([169, 254, 169, 254], 32, "cloud metadata, link-local, RFC 3927"),
    ([169, 254, 0, 0], 16, "link-local, RFC 3927"),
    ([172, 16, 0, 0], 12, "private, RFC 1918"),
    ([192, 0, 0, 0], 24, "protocol assignments, RFC 6890"),
    ([192, 0, 2, 0], 24, "documentation, RFC 5737"),
    ([192, 31, 196, 0], 24, "AS112, RFC 7535"),
    ([192, 52, 193, 0], 24, "multicast tunnels, RFC 7450"),
    ([192, 88, 99, 0], 24, "6to4 relays, RFC 7526"),
    ([192, 168, 0, 0], 16, "private, RFC 1918"),
    ([192, 175, 48, 0], 24, "AS112, RFC 7534"),
    ([198, 18, 0, 0], 15, "benchmarks, RFC 2544"),
    ([198, 51, 100, 0], 24, "documentation, RFC 5737"),
    ([203, 0, 113, 0], 24, "documentation, RFC 5737"),
    ([224, 0, 0, 0], 4, "multicast, RFC 5771"),
    ([255, 255, 255, 255], 32, "broadcast, RFC 919"),
    ([240, 0, 0, 0], 4, "reserved, RFC 1112"),
];

/// First segments, prefix length, why. Inside 2000::/3; everything outside is handled by [`special_v6`].
const V6_GLOBAL: &[([u16; 4], u8, &str)] = &[
    ([0x2001, 0x0db8, 0, 0], 32, "documentation, RFC 3849"),
    ([0x2001, 0, 0, 0], 23, "protocol assignments, RFC 2928"),
    ([0x2620, 0x4f, 0x8000, 0], 48, "AS112, RFC 7534"),
    ([0x3fff, 0, 0, 0], 20, "documentation, RFC 9637"),
];

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = u32::from(address);
    let fits = |network: [u8; 4], prefix: u8| {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        bits & mask == u32::from(Ipv4Addr::from(network))
    };
    V4.iter().find(|(network, prefix, _)| fits(*network, *prefix)).map(|(_, _, why)| *why)
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let bits = u128::from(address);
    let starts = |first: [u16; 4], prefix: u8| {
        let [a, b, c, d] = first;
        let network = u128::from(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0));
        let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
        bits & mask == network
    };
    let carries = |shift: u32| Ipv4Addr::from(u32::try_from((bits >> shift) & 0xffff_ffff).unwrap_or(0));

    if address.is_unspecified() {
        return Some("unspecified, RFC 4291");
    }
    if address.is_loopback() {
        return Some("loopback, RFC 4291");
    }
    // A connection to it is an IPv4 connection.
    if starts([0, 0, 0, 0], 64) && (bits >> 32) & 0xffff_ffff == 0xffff {
        return Some(special_v4(carries(0)).unwrap_or("IPv4 mapped to IPv6, RFC 4291"));
    }
    if bits >> 32 == 0 {
        return Some("IPv4-compatible, RFC 4291");
    }
    // The one translation that leads to the public internet, unless what is translated does not.
    if is_translated(address.into()) {
        return special_v4(carries(0)).map(|_| "translated to an address that is not public, RFC 6052");
    }
    if starts([0x64, 0xff9b, 1, 0], 48) {
        return Some("local translation, RFC 8215");
    }
    if starts([0x100, 0, 0, 0], 32) {
        return Some("discarded, RFC 6666");
    }
    if starts([0x2001, 0, 0, 0], 32) {
        return Some("Teredo tunnel, RFC 4380");
    }
    if starts([0x2002, 0, 0, 0], 16) {
        return Some(match special_v4(carries(80)) {
            Some(_) => "6to4 tunnel to an address that is not public, RFC 3056",
            None => "6to4 tunnel, RFC 7526",
        });
    }
    if address == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254) {
        return Some("cloud metadata, unique local, RFC 4193");
    }
    if starts([0xfc00, 0, 0, 0], 7) {
        return Some("unique local, RFC 4193");
    }
    if starts([0xfe80, 0, 0, 0], 10) {
        return Some("link-local, RFC 4291");
    }
    if starts([0xfec0, 0, 0, 0], 10) {
        return Some("site-local, RFC 3879");
    }
    if starts([0xff00, 0, 0, 0], 8) {
        return Some("multicast, RFC 4291");
    }
    if !starts([0x2000, 0, 0, 0], 3) {
        return Some("reserved, RFC 4291");
    }
    // ISATAP: the last half contains the IPv4 address.
    if matches!((bits >> 32) & 0xfdff_ffff, 0x5efe) {
        return Some("ISATAP tunnel, RFC 5214");
    }
    V6_GLOBAL.iter().find(|(first, prefix, _)| starts(*first, *prefix)).map(|(_, _, why)| *why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;
    use proptest::prelude::*;

    fn why(address: &str) -> &'static str {
        special(address.parse().unwrap()).unwrap_or("")
    }

    #[test]
    fn cloud_metadata_addresses_are_named_as_such() {
        for address in METADATA {
            assert!(special(address).unwrap().starts_with("cloud metadata"), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_not_special() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00::1",
            "64:ff9b::101:101",
        ] {
            assert_eq!(why(address), "", "{address}");
        }
    }

    #[test]
    fn special_use_addresses_are_not_public() {
        for (address, part) in [
            ("0.0.0.0", "791"),
            ("0.1.2.3", "791"),
            ("10.255.255.255", "1918"),
            ("100.64.0.1", "6598"),
            ("100.127.255.255", "6598"),
            ("100.100.100.200", "metadata"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.255", "loopback"),
            ("168.63.129.16", "metadata"),
            ("169.254.169.254", "metadata"),
            ("169.254.170.2", "link-local"),
            ("172.16.0.0", "1918"),
            ("172.31.255.255", "1918"),
            ("192.0.0.1", "6890"),
            ("192.0.2.1", "5737"),
            ("192.88.99.1", "6to4"),
            ("192.168.1.1", "1918"),
            ("198.18.0.1", "2544"),
            ("198.19.255.255", "2544"),
            ("198.51.100.7", "5737"),
            ("203.0.113.7", "5737"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::2", "compatible"),
            ("::127.0.0.1", "compatible"),
            ("::8.8.8.8", "compatible"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.1", "1918"),
            ("::ffff:169.254.169.254", "metadata"),
            ("::ffff:8.8.8.8", "mapped"),
            ("::ffff:0:127.0.0.1", "reserved"),
            ("64:ff9b::7f00:1", "6052"),
            ("64:ff9b::a9fe:a9fe", "6052"),
            ("64:ff9b::a00:1", "6052"),
            ("64:ff9b:1::8.8.8.8", "8215"),
            ("64:ff9b:0:1::1", "reserved"),
            ("100::1", "6666"),
            ("2001::1", "Teredo"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"),
            ("2001:2::1", "2928"),
            ("2001:20::1", "2928"),
            ("2001:db8::1", "3849"),
            ("2002:7f00:1::", "not public, RFC 3056"),
            ("2002:808:808::1", "6to4 tunnel, RFC 7526"),
            ("3fff:fff::1", "9637"),
            ("2606:4700::5efe:127.0.0.1", "ISATAP"),
            ("2606:4700::200:5efe:10.0.0.1", "ISATAP"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
            ("fc00::1", "unique local"),
            ("fd00:ec2::254", "metadata"),
            ("fd61:6773:6800::1", "unique local"),
            ("fe80::1", "link-local"),
            ("fe80::a9fe:a9fe", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
        ] {
            assert!(why(address).contains(part), "{address}: {:?}", why(address));
        }
    }

    proptest! {
        /// The standard library's own idea of what is certainly not public.
        #[test]
        fn agrees_with_the_standard_library(bits in any::<u32>(), wide in any::<u128>()) {
            let v4 = Ipv4Addr::from(bits);
            if v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified() {
                prop_assert!(special(v4.into()).is_some());
            }
            prop_assert!(special(v4.to_ipv6_mapped().into()).is_some());
            let v6 = Ipv6Addr::from(wide);
            if v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast() || v6.is_loopback() {
                prop_assert!(special(v6.into()).is_some());
            }
        }
    }
}
