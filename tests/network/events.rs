//! Every connection and every refusal is recorded, with its rule; the user is shown how to allow it.

use std::collections::BTreeMap;

use super::{backends, online};
use serde_json::Value;

use crate::support::sandbox::Kind;
use crate::support::{Outcome, Place, no, yes};

#[test]
fn connections_and_refusals_are_on_record() {
    online(|sandbox| {
        sandbox.policy("network: {allow: [allowed.test, private.test]}");
        sandbox.holds(&[
            yes("http allowed.test:80 allowed.test"),
            no("tls allowed.test:443 other.test"),
            no("tls allowed.test:443"),
            no("echo allowed.test:443"),
            no("http allowed.test:80 other.test"),
            no("http private.test:80 private.test"),
            no("http 93.184.216.35:80 93.184.216.35"),
            no("resolve other.test"),
        ]);
        let server = if sandbox.kind == Kind::Server { Value::from("fixture") } else { Value::Null };
        let blocked = sandbox.place.events("net_connect_blocked");
        let reasons: BTreeMap<&str, &Value> =
            blocked.iter().map(|event| (event["reason"].as_str().unwrap(), event)).collect();
        for reason in [
            "server-name-mismatch",
            "no-server-name",
            "not-tls-or-http",
            "address-not-public",
            "address-not-allowed",
        ] {
            let event = reasons.get(reason).unwrap_or_else(|| panic!("{reason}: {blocked:?}"));
            assert_eq!(event["server_id"], server);
        }
        assert!(reasons.keys().any(|reason| reason.contains("host")), "{blocked:?}");
        let rule = &reasons["server-name-mismatch"]["rule"];
        assert!(rule["file"].as_str().unwrap().ends_with("policy.yaml") && rule["line"] == 1, "{rule}");
        let change = reasons["address-not-allowed"]["change"].as_str().unwrap();
        assert!(change.contains("network: {allow: [\"93.184.216.35\"]}"), "{change}");

        let opened = sandbox.place.events("mcp_network_connection");
        let first = opened.iter().find(|event| event["state"] == "closed").unwrap();
        assert_eq!((&first["name"], &first["protocol"]), (&"allowed.test".into(), &"http".into()));
        let address: std::net::IpAddr = first["address"].as_str().unwrap().parse().unwrap();
        let port = u16::try_from(first["port"].as_u64().unwrap()).unwrap();
        let at = std::net::SocketAddr::new(address, port).to_string();
        assert_eq!((&first["serverID"], &first["serverAddr"]), (&server, &at.into()));
        assert!(first["bytes_sent"].as_u64() > Some(30) && first["bytes_received"].as_u64() > Some(30));

        let names = sandbox.place.events("dns_blocked");
        assert!(names.iter().any(|event| event["name"] == "other.test"), "{names:?}");
        let asked = sandbox.place.events("dns_query");
        assert!(asked.iter().any(|event| event["name"] == "allowed.test"), "{asked:?}");
    });
}

/// A program that ends early cannot keep its connections off the record.
#[test]
fn a_connection_is_on_record_with_its_bytes_whenever_the_program_ends() {
    online(|sandbox| {
        sandbox.policy("network: {allow: [{host: allowed.test, port: 9, protocol: tcp}]}");
        sandbox.holds(&[yes("send allowed.test:9 6000")]);
        let opened = sandbox.place.events("mcp_network_connection");
        let states: Vec<_> = opened.iter().map(|event| (&event["state"], &event["bytes_sent"])).collect();
        assert_eq!(states, [(&Value::from("closed"), &Value::from(6000))], "{:?}", sandbox.place.mode);
    });
}

/// Connections that are reset at once are no attempts at the listener, and leave nothing in the kernel's tables.
#[test]
fn connections_that_are_reset_are_not_taken_for_something_else() {
    online(|sandbox| {
        sandbox.policy("network: {allow: [{host: allowed.test, port: 7, protocol: tcp}]}");
        sandbox.holds(&[yes("reset allowed.test:7 100"), yes("echo allowed.test:7")]);
        let blocked = sandbox.place.events("net_connect_blocked");
        assert!(blocked.iter().all(|event| event["reason"] != "not-redirected"), "{blocked:?}");
    });
}

#[test]
fn refused_connection_is_reported_once_with_the_command_that_allows_it() {
    for (mode, backend) in backends() {
        let place = Place::new(mode).online().policed_by(backend);
        let probe = place.program("probe");
        let attempts = ["resolve one.test", "resolve one.test", "resolve two.test"];
        let mut command = place.agentsh(&["run", "--network-learn", "--report-json", "report.json", "--"]);
        let outcome = Outcome::of(command.arg(&probe).args(attempts)).expect_code(0);
        assert!(!outcome.stdout.contains("DONE"), "{outcome}");
        let told =
            outcome.stderr.lines().filter(|line| line.contains("refused: the agent -> one.test (")).count();
        assert_eq!(told, 1, "{outcome}");
        let line = "to allow it: `agentsh policy allow one.test`";
        assert!(outcome.stderr.contains(line), "{outcome}");
        let learned = "agentsh policy allow one.test two.test\n";
        assert!(outcome.stderr.contains(learned), "{outcome}");

        let report: Value =
            serde_json::from_slice(&std::fs::read(place.project.join("report.json")).unwrap()).unwrap();
        let refused = report["refused_connections"].as_array().unwrap();
        assert!(refused.iter().any(|entry| entry["host"] == "two.test"), "{report}");

        // The learned rules work.
        Outcome::of(&mut place.agentsh(&["policy", "allow", "allowed.test"])).expect_code(0);
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        let outcome = Outcome::of(command.arg(&probe).arg("http allowed.test:80 allowed.test"));
        assert_eq!(outcome.stdout, "DONE\n", "{outcome}");
    }
}

#[test]
fn learned_policy_lets_the_same_run_work() {
    for (mode, backend) in backends() {
        let place = Place::new(mode).online().policed_by(backend);
        let probe = place.program("probe");
        place.policy("agent:\n  network: {allow: [\"else.test\"]}\n");
        let attempt = "http allowed.test:80 allowed.test";
        let mut command = place.agentsh(&["run", "--learn", "learned.yaml", "--"]);
        let outcome = Outcome::of(command.arg(&probe).arg(attempt)).expect_code(0);
        assert_eq!(outcome.stdout, "DONE\n", "{outcome}");
        let learned = std::fs::read_to_string(place.project.join("learned.yaml")).unwrap();
        assert!(learned.contains("allowed.test"), "{learned}");
        assert!(!learned.contains("else.test"), "{learned}");

        let mut command = place.agentsh(&["run", "--policy", "learned.yaml", "--quiet", "--"]);
        let outcome = Outcome::of(command.arg(&probe).arg(attempt));
        assert_eq!(outcome.stdout, "DONE\n", "{outcome}");
        // A policy belongs to its author.
        let mut command = place.agentsh(&["run", "--learn", "learned.yaml", "--"]);
        Outcome::of(command.arg(&probe).arg(attempt)).expect_code(125);
        // Addresses that are not public are not learned.
        let mut command = place.agentsh(&["run", "--learn", "other.yaml", "--"]);
        let outcome = Outcome::of(command.arg(&probe).arg("http 169.254.169.254:80 169.254.169.254"));
        assert!(!outcome.stdout.contains("DONE"), "{outcome}");
    }
}

/// What a program makes of it differs: that a host was allowed and not there is said, if the program failed.
#[test]
fn failed_connections_are_told_at_the_end_of_a_run_that_failed() {
    for (mode, backend) in backends() {
        let place = Place::new(mode).online().policed_by(backend);
        place.user_policy("agent: {network: {allow: [gone.test, missing.test, allowed.test]}}\n");
        for (code, is_told) in [(7, true), (0, false)] {
            let script = format!(
                "for host in gone missing allowed; do curl -s -o /dev/null http://$host.test/; done; exit {code}"
            );
            let outcome =
                Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", &script])).expect_code(code);
            let line = "allowed, but not reached: the agent -> gone.test:80, missing.test:80 (the name does not exist";
            assert_eq!(outcome.stderr.contains(line), is_told, "{outcome}");
            assert!(!outcome.stderr.contains("-> allowed.test"), "{outcome}");
        }
    }
}
