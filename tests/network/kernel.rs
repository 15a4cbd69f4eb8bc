//! What only the kernel knows: who connected, and connections that no listener ever sees.

use serde_json::Value;

use crate::support::sandbox::{Kind, Sandbox};
use crate::support::{Mode, Outcome, Place, no, skip, yes};

fn as_root(test: impl Fn(&Sandbox)) {
    if !Mode::Invoker.is_root() {
        return skip("eBPF: the tests are not run by root");
    }
    for kind in [Kind::Agent, Kind::Server] {
        test(&Sandbox { place: Place::new(Mode::Invoker).online().policed_by("ebpf"), kind });
    }
}

#[test]
fn a_refusal_in_the_kernel_is_an_event_with_its_process() {
    as_root(|sandbox| {
        sandbox.policy("network: {allow: [allowed.test, \"*.wild.test\", 93.184.216.77]}");
        sandbox.holds(&[
            yes("http allowed.test:80 allowed.test"),
            yes("http deep.wild.test:80 deep.wild.test"),
            yes("http 93.184.216.77:80 93.184.216.77"),
            no("tcp 93.184.216.35:22"),
            no("tcp allowed.test:22"),
            no("tcp deep.wild.test:22"),
            no("tcp 93.184.216.77:22"),
            no("tcp [2606:2800:220:1::35]:443"),
            no("udp 9.9.9.9:53"),
            no("tcp 127.0.0.54:54"),
            no("tcp [::1]:54"),
            no("tcp 0.0.0.0:54"),
        ]);
        let blocked = sandbox.place.events("net_connect_blocked");
        let found = |port: u64, reason: &str, host: &str| {
            let found = blocked.iter().find(|event| {
                event["port"] == port
                    && event["reason"] == reason
                    && [&event["name"], &event["address"]].contains(&&Value::from(host))
            });
            let event = found.unwrap_or_else(|| panic!("{host}:{port} {reason}: {blocked:?}"));
            assert!(event["pid"].as_u64() > Some(1), "{event}");
            assert!(!event["comm"].as_str().unwrap().is_empty(), "{event}");
        };
        found(22, "address-not-allowed", "93.184.216.35");
        found(22, "port-not-allowed", "allowed.test");
        found(22, "port-not-allowed", "deep.wild.test");
        found(22, "port-not-allowed", "93.184.216.77");
        found(443, "address-not-allowed", "2606:2800:220:1::35");
        found(53, "udp-not-allowed", "9.9.9.9");
        found(0, "not-redirected", "listener");
        // The C library asks the kernel which address of a name it prefers: no refusal.
        let sorting = |event: &&Value| event["reason"] == "udp-not-allowed" && event["name"].is_string();
        assert_eq!(blocked.iter().find(sorting), None);
        let opened = sandbox.place.events("mcp_network_connection");
        assert!(
            !opened.is_empty() && opened.iter().all(|event| event["pid"].as_u64() > Some(1)),
            "{opened:?}"
        );
        let started = sandbox.place.events("session_started");
        assert_eq!(started[0]["network_programs"].as_str().map(str::len), Some(64), "{started:?}");
        let layers = sandbox.place.events("enforcement");
        let network = layers.iter().find(|event| event["layer"] == "network").unwrap();
        assert!(network["got"].as_str().unwrap().starts_with("ebpf: "), "{network}");
        assert_eq!(network["state"], "enforced");
    });
}

#[test]
fn backend_auto_selects_ebpf_where_possible_and_reports_it() {
    for mode in Mode::all() {
        let place = Place::new(mode).online();
        Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "true"])).expect_code(0);
        let layers = place.events("enforcement");
        let network = layers.iter().find(|event| event["layer"] == "network").unwrap();
        let (got, why) = (network["got"].as_str().unwrap(), network["why"].as_str().unwrap());
        if mode.is_root() {
            assert!(got.starts_with("ebpf: ") && why.is_empty(), "{network}");
        } else {
            assert!(got.starts_with("userns: "), "{network}");
            assert!(why.contains("CAP_BPF") && why.contains("is not recorded"), "{network}");
        }
    }
}

#[test]
fn ebpf_without_the_capability_stops_the_launch() {
    for mode in Mode::all().into_iter().filter(|mode| !mode.is_root()) {
        let place = Place::new(mode).policed_by("ebpf");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "true"])).expect_code(125);
        assert!(outcome.stderr.contains("CAP_BPF") && outcome.stderr.contains("--network auto"), "{outcome}");
        Outcome::of(&mut place.agentsh(&["run", "--allow-degraded", "--", "true"])).expect_code(0);
    }
}

#[test]
fn network_cgroup_is_removed_after_the_run() {
    if !Mode::Invoker.is_root() {
        return skip("eBPF: the tests are not run by root");
    }
    let place = Place::new(Mode::Invoker).policed_by("ebpf");
    let mut child = place.agentsh(&["run", "--quiet", "--", "true"]).spawn().unwrap();
    let name = format!("agentsh-{}-net", child.id());
    assert!(child.wait().unwrap().success());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).unwrap().split(' ').nth(4).unwrap();
    let found = std::process::Command::new("find").args([mount, "-name", &name]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}
