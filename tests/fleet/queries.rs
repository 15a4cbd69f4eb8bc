//! Answers of a fleet, compared with those of the host itself.

use std::process::Stdio;

use serde_json::Value;

use super::{Server, asked, forward, hosts, on_both, session};
use crate::support::{Mode, Outcome, Place, within};

#[test]
#[ignore = "takes long"]
fn fleet_queries_answer_as_the_hosts_do() {
    on_both(|at, database| {
        let server = Server::start(at, database, &[]);
        server.login(at, "viewer");
        let (one, two) = (Place::new(Mode::Invoker), Place::new(Mode::Invoker));
        for (host, name, calls) in [(&one, "laptop", 3), (&two, "runner", 2)] {
            session(host, calls);
            server.enrol(host, name);
            forward(host, &[]).expect_code(0);
        }
        let without_host = |mut row: Value| {
            assert!(row.as_object_mut().unwrap().remove("host").is_some(), "{row}");
            row
        };
        for words in
            [vec!["mcp", "calls"], vec!["mcp", "events", "--limit", "1000"], vec!["mcp", "detections"]]
        {
            let mut own = words.clone();
            own.push("--json");
            let all = asked(at, &server, &words);
            assert_eq!(all.len(), one.listed(&own).len() + two.listed(&own).len(), "{words:?}");
            for (host, name) in [(&one, "laptop"), (&two, "runner")] {
                let mut narrow = words.clone();
                narrow.extend(["--host", name]);
                let theirs: Vec<Value> = asked(at, &server, &narrow).into_iter().map(without_host).collect();
                assert_eq!(theirs, host.listed(&own), "{words:?} of {name}");
            }
        }
        // Events found by an index, with the arguments of the call.
        let refused = asked(at, &server, &["mcp", "calls", "--action", "block"]);
        let mut names: Vec<&str> = refused.iter().map(|row| row["host"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["laptop", "runner"]);
        assert!(
            refused.iter().all(|row| row["tool_name"] == "crash" && row["input"].is_object()),
            "{refused:?}"
        );
        assert_eq!(asked(at, &server, &["mcp", "calls", "--limit", "2"]).len(), 2);
        let servers = asked(at, &server, &["mcp", "servers"]);
        let counts: Vec<_> =
            servers.iter().map(|row| (row["calls"].as_i64(), row["refused"].as_i64())).collect();
        assert!(counts.contains(&(Some(4), Some(1))) && counts.contains(&(Some(3), Some(1))), "{servers:?}");
        assert!(
            servers.iter().all(|row| row["last_status"] == "exited" || row["last_status"] == "ended"),
            "{servers:?}"
        );
        // A report of a session is the one that its host gives.
        let report = |place: &Place, words: &[&str]| -> Value {
            let mut all = vec!["report", "--json"];
            all.extend(words);
            serde_json::from_str(&Outcome::of(&mut place.agentsh(&all)).expect_code(0).stdout).unwrap()
        };
        let own = report(&one, &[]);
        let id = own["session"].as_str().unwrap();
        assert_eq!(report(at, &[id, "--fleet", &server.url()]), own);
        let html =
            Outcome::of(&mut at.agentsh(&["report", id, "--format", "html", "--fleet", &server.url()]));
        assert!(html.expect_code(0).stdout.contains("</html>"));
        // Words that no record has, and a host that does not exist.
        for words in [vec!["mcp", "calls", "--host", "other"], vec!["mcp", "events", "--session", "ffffffff"]]
        {
            let mut all = words.clone();
            let url = server.url();
            all.extend(["--fleet", &url]);
            assert_ne!(Outcome::of(&mut at.agentsh(&all)).code, 0, "{words:?}");
        }
        let (known, code) = hosts(at);
        assert_eq!((known.len(), code), (2, 0), "{known:?}");
        assert!(known.iter().all(|host| host["state"] == "active" && host["sessions"] == 1), "{known:?}");
        Outcome::of(&mut at.agentsh(&["fleet", "doctor"])).expect_code(0);
        Outcome::of(&mut one.agentsh(&["fleet", "doctor"])).expect_code(0);
        metrics(at, &server);
    });
}

fn metrics(at: &Place, server: &Server<'_>) {
    assert_eq!(server.raw("GET", "/metrics", &[], b"").0, 401);
    let login = std::fs::read_to_string(at.home.join(".local/state/agentsh/fleet/login.json")).unwrap();
    let login: Value = serde_json::from_str(&login).unwrap();
    let bearer = format!("Bearer {}", login["credential"].as_str().unwrap());
    let (status, text) = server.raw("GET", "/metrics", &[("Authorization", &bearer)], b"");
    assert_eq!(status, 200, "{text}");
    for line in [
        "agentsh_fleet_batches_total 2",
        "agentsh_fleet_hosts{state=\"active\"} 2",
        "agentsh_fleet_events_total{type=\"mcp_tool_called\"} 7",
        "agentsh_fleet_arrival_seconds_count 2",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// Nobody starts a forwarder by hand.
/// Names that a page gives to some events of a type: they are distinguished by their fields.
#[test]
fn types_of_the_page_are_asked_of_a_fleet_as_of_a_host() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    server.login(&at, "viewer");
    let host = Place::new(Mode::Invoker);
    host.user_policy(
        "version: 1\nsandbox: {mcp: {cross_server: {enabled: true, burst: {max_calls: 2, window: 1h}}}}\n",
    );
    let mut peer = crate::support::Peer::ready(&host, &[]);
    (0..4).for_each(|_| drop(peer.call("echo", serde_json::json!({"text": "x"}))));
    peer.finish();
    server.enrol(&host, "laptop");
    forward(&host, &[]).expect_code(0);
    for (name, least) in [
        ("mcp_cross_server_blocked", 2),
        ("mcp_tool_called", 4),
        ("mcp_detection", 0),
        ("mcp_output_inspection", 0),
    ] {
        let own = host.listed(&["mcp", "events", "--type", name, "--json"]);
        assert!(own.len() >= least && own.iter().all(|event| event["type"] == name), "{name} {own:?}");
        let mut all = asked(&at, &server, &["mcp", "events", "--type", name]);
        all.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("host")));
        assert_eq!(all, own, "{name}");
    }
    let url = server.url();
    let wrong = Outcome::of(&mut at.agentsh(&["mcp", "events", "--type", "mcp_nothing", "--fleet", &url]));
    assert!(wrong.code != 0 && wrong.stderr.contains("mcp_detection"), "{wrong}");
}

#[test]
fn a_session_of_an_enrolled_host_is_forwarded_while_it_runs() {
    for mode in Mode::all() {
        let at = Place::new(Mode::Invoker);
        let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
        server.login(&at, "viewer");
        let host = Place::new(mode);
        server.enrol(&host, "laptop");
        host.shell("true").expect_code(0);
        let own = host.listed(&["mcp", "events", "--limit", "1000", "--json"]).len();
        let there = || asked(&at, &server, &["mcp", "events", "--limit", "1000"]).len() == own;
        assert!(within(std::time::Duration::from_secs(10), there));
        let path = host.home.join(".local/state/agentsh/fleet/host.json");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o600);
    }
}

/// A forwarder waits for a minute after its session; `--once` in that minute is a script that must know that all is sent.
#[test]
fn forward_once_sends_beside_a_running_forwarder() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    server.login(&at, "approver");
    let host = Place::new(Mode::Invoker);
    server.enrol(&host, "laptop");
    let mut command = host.agentsh(&["fleet", "forward"]);
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = quiet.spawn().unwrap();
    session(&host, 2);
    let other = Outcome::of(&mut host.agentsh(&["fleet", "forward", "--until-idle"])).expect_code(0);
    assert!(other.stderr.contains("another process forwards"), "{other}");
    Outcome::of(&mut host.agentsh(&["fleet", "forward", "--once"])).expect_code(0);
    let own = host.listed(&["mcp", "events", "--limit", "1000", "--json"]).len();
    assert_eq!(asked(&at, &server, &["mcp", "events", "--limit", "1000"]).len(), own);
    let _ended = running.kill();
    let _reaped = running.wait();
    let (known, code) = hosts(&at);
    assert_eq!((code, &known[0]["incidents"]), (0, &serde_json::json!([])), "{known:?}");
}

#[test]
fn policy_bundles_are_served_from_one_directory() {
    let at = Place::new(Mode::Invoker);
    at.write(at.home.join("bundles/policy-7.bundle"), "signed");
    at.write(at.home.join("secret"), "no");
    std::os::unix::fs::symlink("../secret", at.home.join("bundles/link")).unwrap();
    let folder = at.home.join("bundles");
    let database = at.home.join("fleet.db");
    let server = Server::start(&at, database.to_str().unwrap(), &["--bundles", folder.to_str().unwrap()]);
    let (status, answer) = server.raw("GET", "/v1/bundles/policy-7.bundle", &[], b"");
    assert!(status == 200 && answer.ends_with("\r\n\r\nsigned"), "{answer}");
    let tag = answer.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    assert_eq!(server.raw("GET", "/v1/bundles/policy-7.bundle", &[("If-None-Match", tag)], b"").0, 304);
    for name in ["link", "..%2Fsecret", "%2e%2e%2fsecret", ".", "none", "a%00b"] {
        assert_eq!(server.raw("GET", &format!("/v1/bundles/{name}"), &[], b"").0, 404, "{name}");
    }
}
