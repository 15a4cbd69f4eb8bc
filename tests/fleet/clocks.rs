//! Servers whose clocks differ, on one database: the events of a session keep their order, and pages skip no event.

use serde_json::{Value, json};

use super::{Server, forward};
use crate::support::{Mode, Outcome, Peer, Place, postgres, skip};

#[test]
fn a_session_has_one_order_whatever_the_clocks_of_servers_say() {
    let Some(bin) = postgres::programs() else { return skip("PostgreSQL is not installed") };
    let Some(mode) = Mode::all().into_iter().find(|mode| !mode.is_root()) else {
        return skip("no ordinary user");
    };
    let at = Place::new(mode);
    let cluster = postgres::start(&at, &bin);
    let psql = |text: &str| {
        let mut command = at.command(bin.join("psql"));
        command.args(["-At", "-v", "ON_ERROR_STOP=1", "-c", text]).arg(&cluster.url);
        Outcome::of(&mut command).expect_code(0).stdout
    };
    let server = Server::start(&at, &cluster.url, &[]);
    server.login(&at, "viewer");
    let host = Place::new(Mode::Invoker);
    server.enrol(&host, "laptop");
    let mut peer = Peer::ready(&host, &[]);
    let talk = |peer: &mut Peer| {
        for number in 0..6 {
            peer.text("echo", json!({"text": format!("number {number}")}));
        }
    };
    talk(&mut peer);
    forward(&host, &[]).expect_code(0);
    // As if that had gone to a server whose clock is ten minutes ahead of the one that gets the rest.
    let ahead = 600_000_000_i64 << 11;
    psql(&format!("UPDATE events SET id = id + {ahead}; UPDATE hosts SET last_event = last_event + {ahead}"));
    talk(&mut peer);
    peer.finish();
    forward(&host, &["--check"]).expect_code(0);

    let own = host.listed(&["mcp", "events", "--limit", "1000", "--json"]);
    let session = own[0]["session"].as_str().unwrap();
    let file = at.home.join(".local/state/agentsh/fleet/login.json");
    let login: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let credential = format!("Bearer {}", login["credential"].as_str().unwrap());
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/events?session={session}&limit=5{before}");
        let (status, answer) = server.raw("GET", &path, &[("Authorization", &credential)], b"");
        assert_eq!(status, 200, "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let page: Value = serde_json::from_str(body).unwrap();
        seen.extend(page["rows"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    let newest_first: Vec<u64> = (1..=own.len() as u64).rev().collect();
    assert_eq!(seen, newest_first);
    let report = Outcome::of(&mut at.agentsh(&["report", session, "--json", "--fleet", &server.url()]));
    let report: Value = serde_json::from_str(&report.expect_code(0).stdout).unwrap();
    assert_eq!(report["chain"], json!({"state": "ended", "problems": 0}));
}
