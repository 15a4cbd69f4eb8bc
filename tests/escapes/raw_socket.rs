//! Sockets below and next to TCP and UDP. Stopped by: the filter lists the permitted kinds.

use crate::support::sandbox::outside_twin;
use crate::support::{everywhere, no, yes};

#[test]
fn raw_sockets_are_refused() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            no("socket 2 3 1"),    // raw ICMP
            no("socket 2 3 255"),  // raw, own headers
            no("socket 10 3 58"),  // raw ICMPv6
            no("socket 2 2 1"),    // ping
            no("socket 17 3 768"), // packets
            no("socket 17 2 0"),   // packets
            no("socket 2 1 262"),  // MPTCP
            no("socket 2 1 132"),  // SCTP
            no("socket 38 5 0"),   // kernel crypto
            no("socket 40 1 0"),   // virtual machines
            no("socket 44 3 0"),   // XDP
            no("socket 31 3 1"),   // Bluetooth
            no("socket 29 3 1"),   // CAN
            no("socket 16 3 12"),  // netfilter
            no("socket 16 3 15"),  // kernel events
            no("socket 16 3 9"),   // audit
            yes("socket 2 1 0"),
            yes("socket 2 2 17"),
            yes("socket 10 1 6"),
            yes("socket 1 5 0"),
            yes("socket 16 3 0"), // interfaces and addresses
        ]);
        if sandbox.place.mode.is_root() {
            outside_twin(&sandbox.place, "socket 2 3 1");
            outside_twin(&sandbox.place, "socket 17 3 768");
        }
    });
}
