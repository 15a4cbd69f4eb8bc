//! An allowed name works over TLS and HTTP, IPv4 and IPv6; its connection carries nothing else.

use super::{backends, heard, online};
use crate::support::sandbox::{Kind, Sandbox};
use crate::support::{Outcome, Place, no, yes};

/// A rule for the port on which names are asked is one like others.
#[test]
fn rule_for_the_dns_port_works_as_any_other() {
    online(|sandbox| {
        sandbox.policy("network: {allow: [{host: allowed.test, port: 53, protocol: tcp}]}");
        sandbox.holds(&[yes("echo allowed.test:53"), no("resolve other.test"), no("echo 93.184.216.35:53")]);
    });
}

/// The kernel's table is for all sandboxes: one of them cannot fill it by making up names.
#[test]
fn wildcard_names_fill_only_a_part_of_the_kernel_table() {
    for (mode, backend) in backends().into_iter().filter(|(_, backend)| *backend == "ebpf") {
        let place = Place::new(mode).online().policed_by(backend);
        let sandbox = Sandbox { place, kind: Kind::Agent };
        sandbox.policy("network: {allow: [{host: '*.wild.test', ports: [80, 443, 8080, 8081]}]}");
        // Two entries for each port.
        sandbox.holds(&[
            yes("resolve-many wild.test 600"),
            yes("tcp n0.wild.test:80"),
            yes("tcp n500.wild.test:80"),
            no("tcp n599.wild.test:80"),
        ]);
        let blocked = sandbox.place.events("net_connect_blocked");
        assert!(blocked.iter().any(|event| event["reason"] == "table-full"), "{blocked:?}");
    }
}

#[test]
fn connection_to_an_allowed_name_serves_that_name_only() {
    online(|sandbox| {
        sandbox.policy(
            "network: {allow: [allowed.test, v6.test, \"*.wild.test\", {host: allowed.test, port: 7, protocol: tcp}]}",
        );
        sandbox.holds(&[
            yes("http allowed.test:80 allowed.test"),
            yes("http allowed.test:80 allowed.test allowed.test allowed.test"),
            yes("http ALLOWED.test:80 Allowed.Test"),
            yes("tls allowed.test:443 allowed.test"),
            yes("tls v6.test:443 v6.test"),
            yes("http v6.test:80 v6.test"),
            yes("http deep.wild.test:80 deep.wild.test"),
            yes("echo allowed.test:7"),
            no("tls allowed.test:443 other.test"),
            no("tls allowed.test:443 v6.test"),
            no("tls allowed.test:443"),
            no("echo allowed.test:443"),
            no("echo allowed.test:80"),
            no("http allowed.test:80 other.test"),
            no("http allowed.test:80 allowed.test other.test"),
            no("http other.test:80 other.test"),
            no("http allowed.test:8080 allowed.test:8080"),
            no("http wild.test:80 wild.test"),
            no("http a.deep.wild.test:80 a.deep.wild.test"),
            no("resolve secret-data.other.test"),
            // Again, after all that.
            yes("tls allowed.test:443 allowed.test"),
        ]);
        let heard = heard(&sandbox.place);
        assert!(heard.contains("tcp 93.184.216.34 443") || heard.contains("tcp 2606:2800:220:1::34 443"));
        for silent in ["other.test", "a.deep", "93.184.216.35", "8080"] {
            assert!(!heard.contains(silent), "{silent}: {heard}");
        }
    });
}

#[test]
fn name_that_resolves_to_an_internal_address_is_refused() {
    online(|sandbox| {
        sandbox.policy(
            "network: {allow: [allowed.test, private.test, metadata.test, mapped.test, mixed.test, rebind.test]}",
        );
        sandbox.holds(&[
            yes("http allowed.test:80 allowed.test"),
            no("http private.test:80 private.test"),
            no("http metadata.test:80 metadata.test"),
            no("http mapped.test:80 mapped.test"),
            // By its public address alone.
            yes("http mixed.test:80 mixed.test"),
            yes("http rebind.test:80 rebind.test"),
            no("http rebind.test:80 rebind.test"),
        ]);
        let heard = heard(&sandbox.place);
        for silent in ["tcp 10.9.8.7", "tcp 169.254", "tcp 127.0.0.1"] {
            assert!(!heard.contains(silent), "{silent}: {heard}");
        }
    });
}

/// An address that belongs to no name is this machine, even if its block is open.
#[test]
fn unspecified_address_does_not_reach_this_machine() {
    online(|sandbox| {
        sandbox.policy("network: {allow: [{host: 0.0.0.0/0, port: 80}, {host: '::/0', port: 80}]}");
        sandbox.holds(&[
            yes("http 93.184.216.34:80 93.184.216.34"),
            no("http 0.0.0.0:80 0.0.0.0"),
            no("http [::]:80 [::]"),
            no("http [::ffff:0.0.0.0]:80 0.0.0.0"),
            no("http 127.0.0.1:80 127.0.0.1"),
        ]);
        let heard = heard(&sandbox.place);
        for silent in ["tcp 127.", "tcp 0.", "tcp ::"] {
            assert!(!heard.contains(silent), "{heard}");
        }
    });
}

#[test]
fn internal_address_listed_for_a_name_is_reached() {
    online(|sandbox| {
        sandbox.policy("network: {allow: [{host: private.test, addresses: [\"10.9.8.0/24\"]}, other.test]}");
        sandbox.holds(&[
            yes("http private.test:80 private.test"),
            yes("tls other.test:443 other.test"),
            no("http 10.9.8.7:80 10.9.8.7"),
        ]);
    });
}

#[test]
fn http_client_of_an_unreachable_host_gets_502() {
    for (mode, backend) in backends() {
        let place = Place::new(mode).online().policed_by(backend);
        place.policy("agent: {network: {allow: [gone.test]}}\n");
        let script = "exec 3<>/dev/tcp/gone.test/80; printf 'GET / HTTP/1.1\\r\\nHost: gone.test\\r\\n\\r\\n' >&3; head -1 <&3";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "bash", "-c", script]));
        assert_eq!(outcome.stdout.trim_end(), "HTTP/1.1 502 Bad Gateway", "{outcome}");
        // TLS has an alert for it, and the end of the run says that nothing was refused.
        let words =
            ["run", "--", "openssl", "s_client", "-connect", "gone.test:443", "-servername", "gone.test"];
        let outcome = Outcome::of(&mut place.agentsh(&words));
        assert!(outcome.stderr.contains("unrecognized name"), "{outcome}");
        let told = "nothing refused\n  allowed, but not reached: the agent -> gone.test:443 (the name does not exist, or has no address)";
        assert!(outcome.stderr.contains(told), "{outcome}");
    }
}
