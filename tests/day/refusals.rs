//! Connections that would fail without a word: a port of this machine's loopback, an address that no rule names.

use std::net::{TcpListener, UdpSocket};

use super::has;
use crate::support::{Mode, Outcome, Place};

#[test]
fn what_nobody_inside_answers_is_told() {
    if !has("python3") {
        return;
    }
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = there.local_addr().unwrap().port();
    // Nothing listens here, outside or inside.
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for mode in Mode::all() {
        for backend in ["auto", "userns"] {
            let place = Place::new(mode).policed_by(backend);
            // With a name among its rules, every address leads to the sandbox's own.
            place.user_policy("agent: {network: {allow: [a.example], unknown: deny}}\n");
            place.write(
                "connect.py",
                format!(
                    "import socket\nfor host, port in (('127.0.0.1', {port}), ('127.0.0.1', {free}), ('192.0.2.7', 8080)):\n    \
                     s = socket.socket(); s.settimeout(5)\n    try: s.connect((host, port)); print('in')\n    \
                     except OSError as e: print('no')\n\
                     u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ntry: u.sendto(b'x', ('192.0.2.8', 53))\n\
                     except OSError: pass\n"
                ),
            );
            let outcome =
                Outcome::of(&mut place.agentsh(&["run", "--", "python3", "connect.py"])).expect_code(0);
            assert_eq!(outcome.stdout, "no\nno\nno\n", "{outcome}");
            let loopback = format!("network: {{loopback: [{port}]}}");
            for said in [&loopback[..], "network: {allow: [\"192.0.2.7:8080\"]}", "'192.0.2.8'"] {
                assert!(outcome.stderr.contains(said), "{mode:?} {backend} {said}: {outcome}");
            }
            assert!(!outcome.stderr.contains(&free.to_string()), "{outcome}");
            let refused = place.events("net_connect_blocked");
            let reason = |port: u16| {
                let event = refused.iter().find(|event| event["port"] == port);
                event.and_then(|event| event["reason"].as_str())
            };
            assert_eq!(reason(port), Some("loopback-port-not-open"), "{refused:?}");
            assert_eq!(reason(53), Some("udp-not-allowed"), "{refused:?}");
            assert!(reason(8080).is_some() && reason(free).is_none(), "{refused:?}");
            // The line that was said opens it.
            place.user_policy(&format!("agent: {{network: {{loopback: [{port}]}}}}\n"));
            let outcome =
                Outcome::of(&mut place.agentsh(&["run", "--", "python3", "connect.py"])).expect_code(0);
            assert!(outcome.stdout.starts_with("in\n"), "{outcome}");
        }
    }
}
