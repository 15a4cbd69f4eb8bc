//! Ways out other than host names: addresses, other resolvers, other protocols, the machine's own ports.

use super::{heard, online};
use crate::support::{no, yes};

#[test]
#[ignore = "takes long"]
fn addresses_and_other_resolvers_are_not_reached() {
    online(|sandbox| {
        sandbox.policy("network: {allow: [allowed.test]}");
        sandbox.holds(&[
            yes("tls allowed.test:443 allowed.test"),
            no("tls 93.184.216.34:443 allowed.test"),
            no("http 93.184.216.34:80 allowed.test"),
            no("http [2606:2800:220:1::34]:80 allowed.test"),
            no("http [::ffff:93.184.216.34]:80 allowed.test"),
            no("http 169.254.169.254:80 169.254.169.254"),
            no("http 0.0.0.0:80 allowed.test"),
            no("http 198.19.255.1:80 allowed.test"),
            no("fast-open 93.184.216.34:7"),
            no("udp 9.9.9.9:53"),
            no("udp 93.184.216.34:443"),
            no("tcp 9.9.9.9:53"),
            no("tcp 9.9.9.9:853"),
            no("http 127.0.0.1:80 localhost"),
            no("echo 127.0.0.1:7"),
            yes("tcp-own"),
            yes("udp-own"),
            yes("resolve localhost"),
        ]);
        let heard = heard(&sandbox.place);
        let lines: Vec<&str> = heard.lines().filter(|line| !line.contains("allowed.test")).collect();
        assert_eq!(lines.len(), 1, "{heard}");
    });
}

#[test]
fn address_block_and_loopback_port_rules_are_enforced() {
    online(|sandbox| {
        sandbox.policy(
            "network: {allow: [{host: 93.184.216.0/24, port: 7, protocol: tcp}, 93.184.216.34], loopback: [8080]}",
        );
        sandbox.holds(&[
            yes("echo 93.184.216.77:7"),
            yes("http 93.184.216.34:80 93.184.216.34"),
            yes("tls 93.184.216.34:443"),
            yes("http 127.0.0.1:8080 anything"),
            yes("http localhost:8080 anything"),
            yes("http [::1]:8080 anything"),
            no("echo 93.184.217.77:7"),
            no("tls 93.184.216.34:443 other.test"),
            no("http 93.184.216.34:80 other.test"),
            no("http 127.0.0.1:80 anything"),
            no("echo 127.0.0.1:7"),
        ]);
    });
}

#[test]
fn network_without_rules_reaches_nothing() {
    online(|sandbox| {
        sandbox.holds(&[
            no("resolve allowed.test"),
            no("tcp 93.184.216.34:443"),
            no("tcp 127.0.0.1:80"),
            no("tcp [2606:2800:220:1::34]:443"),
            no("udp 9.9.9.9:53"),
            yes("tcp-own"),
        ]);
        assert_eq!(heard(&sandbox.place), "");
    });
}
