//! Addresses that are not on the public internet. Pure.

use std::net::IpAddr;

/// Why an address is not public, with the document that says so; None for a public one.
#[must_use]
pub fn special(address: IpAddr) -> Option<&'static str> {
    address.is_loopback().then_some("loopback, RFC 1122")
}
