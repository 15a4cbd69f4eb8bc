//! A host that rewrites its past: refused, on record, shown.

use std::path::PathBuf;

use serde_json::Value;

use super::{Server, forward, hosts, on_both, session};
use crate::support::{Mode, Outcome, Place};

fn journal(host: &Place) -> PathBuf {
    host.home.join(".local/state/agentsh/agentsh.db")
}

pub fn tamper(host: &Place, statements: &str) {
    let connection = rusqlite::Connection::open(journal(host)).unwrap();
    let unlock = "DROP TRIGGER IF EXISTS events_no_update; DROP TRIGGER IF EXISTS events_no_delete;";
    connection.execute_batch(unlock).unwrap();
    connection.execute_batch(statements).unwrap();
}

/// The host is refused, for this reason, and the doctors say so.
fn is_refused(at: &Place, host: &Place, kind: &str) -> Value {
    let (known, code) = hosts(at);
    assert_eq!(code, 1, "{known:?}");
    let one = known.iter().find(|known| known["state"] == "refused").unwrap().clone();
    assert_eq!(one["incidents"][0]["kind"], kind, "{one}");
    for place in [at, host] {
        Outcome::of(&mut place.agentsh(&["fleet", "doctor"])).expect_code(1);
    }
    let said = Outcome::of(&mut at.agentsh(&["fleet", "hosts"]));
    assert!(said.stdout.contains("refused") && said.stdout.contains(kind), "{said}");
    one
}

#[test]
#[ignore = "takes long"]
fn rewritten_history_of_a_host_is_reported() {
    on_both(|at, database| {
        let server = Server::start(at, database, &[]);
        server.login(at, "approver");
        let host = Place::new(Mode::Invoker);
        session(&host, 2);
        session(&host, 2);
        server.enrol(&host, "laptop");
        let done = forward(&host, &["--check"]).expect_code(0);
        assert!(done.stdout.contains("2 sessions compared"), "{done}");
        let before = super::asked(at, &server, &["mcp", "events", "--limit", "1000"]);

        // In the middle of a session that ended long ago: nothing of it is sent again, and it shows anyway.
        let first = host.listed(&["sessions", "--json"]).last().unwrap()["session"].clone();
        let change = "UPDATE events SET body = replace(body, 'number 1', 'number 7') \
                      WHERE type = 'mcp_tool_called' AND session";
        tamper(&host, &format!("{change} = '{}'", first.as_str().unwrap()));
        assert_eq!(forward(&host, &[]).code, 0, "it has nothing to send");
        let refused = forward(&host, &["--check"]).expect_code(1);
        assert!(refused.stderr.contains("rewritten"), "{refused}");
        let one = is_refused(at, &host, "rewritten");
        // The session behind it is not named.
        let incidents = one["incidents"].as_array().unwrap();
        assert!(incidents.len() == 1 && incidents[0]["session"] == first, "{one}");
        // Earlier events are unchanged.
        assert_eq!(super::asked(at, &server, &["mcp", "events", "--limit", "1000"]), before);

        // An operator resolved it: forwarding continues, and the same problem is not reported again.
        let id = one["id"].as_str().unwrap();
        Outcome::of(&mut at.agentsh(&["fleet", "accept", id])).expect_code(0);
        forward(&host, &["--check"]).expect_code(0);
        session(&host, 1);
        forward(&host, &[]).expect_code(0);
        assert_eq!(hosts(at).1, 0);

        // The newest event.
        tamper(&host, "UPDATE events SET hash = randomblob(32) WHERE id = (SELECT max(id) FROM events)");
        forward(&host, &[]).expect_code(1);
        let newest = host.listed(&["sessions", "--json"])[0]["session"].clone();
        assert_eq!(is_refused(at, &host, "rewritten")["incidents"][0]["session"], newest);
        Outcome::of(&mut at.agentsh(&["fleet", "accept", id])).expect_code(0);

        // The end was cut off.
        tamper(&host, "DELETE FROM events WHERE id = (SELECT max(id) FROM events)");
        forward(&host, &[]).expect_code(1);
        assert_eq!(is_refused(at, &host, "missing")["incidents"][0]["session"], newest);
    });
}

#[test]
fn an_event_that_was_changed_before_it_was_sent_is_refused() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    server.login(&at, "viewer");
    let host = Place::new(Mode::Invoker);
    session(&host, 2);
    server.enrol(&host, "laptop");
    tamper(
        &host,
        "UPDATE events SET body = replace(body, 'number 1', 'number 7') WHERE type = 'mcp_tool_called'",
    );
    forward(&host, &[]).expect_code(1);
    let one = is_refused(&at, &host, "edited");
    // Up to there it is whole.
    let kept = super::asked(&at, &server, &["mcp", "events", "--limit", "1000"]);
    assert!(!kept.is_empty() && kept.len() as i64 == one["events"].as_i64().unwrap(), "{one}");
    // A viewer accepts nothing.
    let id = one["id"].as_str().unwrap();
    let refused = Outcome::of(&mut at.agentsh(&["fleet", "accept", id])).expect_code(1);
    assert!(refused.stderr.contains("the role approver"), "{refused}");
}

/// Names that a hostile server made up: of any length, with characters that a database does not take.
#[test]
fn tool_names_of_any_length_and_character_are_forwarded() {
    on_both(|at, database| {
        let server = Server::start(at, database, &[]);
        server.login(at, "viewer");
        let host = Place::new(Mode::Invoker);
        let mut peer = crate::support::Peer::ready(&host, &[]);
        for name in ["a\u{0}b".to_owned(), "x".repeat(20_000), "\u{10ffff}é".repeat(3_000)] {
            peer.request("tools/call", serde_json::json!({"name": name, "arguments": {"text": "a\u{0}b"}}));
        }
        peer.finish();
        server.enrol(&host, "laptop\u{1b}[31m");
        forward(&host, &["--check"]).expect_code(0);
        let own = host.listed(&["mcp", "events", "--limit", "1000", "--json"]);
        let there = super::asked(at, &server, &["mcp", "events", "--limit", "1000"]);
        assert_eq!(own.len(), there.len());
        assert!(own.iter().any(|event| event["tool_name"] == "a\u{0}b"), "the journal has it");
    });
}
