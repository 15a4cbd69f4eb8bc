//! Queries of the record: calls that reached no server, servers of several projects, unknown words.

use serde_json::{Value, json};

use crate::support::sandbox::script_with;
use crate::support::{Mode, Outcome, Peer, Place, Pty, eventually, without_colour};

fn ask(place: &Place, words: &[&str]) -> Outcome {
    Outcome::of(&mut place.agentsh(words))
}

/// A server that does not start takes no calls, whatever the policy thinks of them.
#[test]
fn calls_that_reached_no_server_are_not_shown_as_allowed() {
    let place = Place::new(Mode::Invoker);
    let config = json!({"mcpServers": {
        "bad": {"command": "/nonexistent/server"},
        "good": {"command": place.program("fixture_server")},
    }});
    place.write(".mcp.json", config.to_string());
    let steps = json!([
        {"server": "good", "tool": "echo", "arguments": {"text": "x"}},
        {"server": "bad", "tool": "ping", "arguments": {}},
    ]);
    let answers = script_with(&place, &[], &steps);
    assert_eq!(answers.text(0), "x");
    let summary = &answers.outcome.stderr;
    assert!(summary.contains("2 tool calls") && summary.contains(", 1 reached no server"), "{summary}");

    let rows = place.listed(&["mcp", "calls", "--json"]);
    let of = |server: &str| rows.iter().find(|row| row["server_id"] == server).unwrap();
    assert_eq!(of("good")["undelivered"], Value::Null, "{rows:?}");
    assert!(of("bad")["undelivered"].as_str().unwrap().contains("/nonexistent/server"), "{rows:?}");
    let servers = |action: &str| -> Vec<Value> {
        let rows = place.listed(&["mcp", "calls", "--action", action, "--json"]);
        rows.iter().map(|row| row["server_id"].clone()).collect()
    };
    assert_eq!((servers("allow"), servers("undelivered")), (vec![json!("good")], vec![json!("bad")]));
    let table = ask(&place, &["mcp", "calls"]).expect_code(0);
    let bad = table.stdout.lines().find(|line| line.contains("\tbad\t")).unwrap();
    assert!(bad.contains("\tping\tundelivered\t"), "{bad}");

    let report = ask(&place, &["report"]).expect_code(0).stdout;
    assert!(
        report.contains("bad/ping: 0 allowed, 0 alerted, 0 refused, 1 did not reach the server"),
        "{report}"
    );
    assert!(report.contains("good/echo: 1 allowed, 0 alerted, 0 refused\n"), "{report}");
    let report = ask(&place, &["report", "--json"]).expect_code(0).stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["undelivered"][0]["calls"], 1, "{report}");
}

#[test]
fn one_id_in_two_projects_is_two_servers() {
    let place = Place::new(Mode::Invoker);
    let other = place.home.join("other");
    place.make_directory(&other);
    for (directory, calls) in [(&place.project, 1), (&other, 2)] {
        let mut command = place.agentsh(&["mcp", "run", "--id", "same", "--"]);
        let mut peer = Peer::start(command.arg(place.program("fixture_server")).current_dir(directory));
        peer.shake_hands();
        for _ in 0..calls {
            peer.text("echo", json!({"text": "x"}));
        }
        peer.finish();
    }
    let servers = place.listed(&["mcp", "servers", "--json"]);
    let mut found: Vec<(&str, u64, &str)> = servers
        .iter()
        .map(|row| {
            let text = |name: &str| row[name].as_str().unwrap();
            (text("project"), row["calls"].as_u64().unwrap(), text("last_status"))
        })
        .collect();
    found.sort();
    let mut expected =
        [(place.project.to_str().unwrap(), 1, "exited"), (other.to_str().unwrap(), 2, "exited")];
    expected.sort();
    assert_eq!(found, expected, "{servers:?}");
}

/// Nobody records the end of a server when agentsh is killed.
#[test]
fn a_server_that_is_gone_is_not_shown_as_started() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    let status = || {
        let servers = place.listed(&["mcp", "servers", "--json"]);
        servers.first().map(|server| server["last_status"].clone()).unwrap_or_default()
    };
    assert!(eventually(|| status() == "started"), "{}", status());
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    assert!(eventually(|| status() == "gone"), "{}", status());
}

#[test]
fn query_filters_with_unknown_words_are_refused() {
    let place = Place::new(Mode::Invoker);
    let nothing = ask(&place, &["mcp", "calls"]).expect_code(0);
    assert!(nothing.stderr.contains("nothing is recorded"), "{nothing}");
    let mut peer = Peer::ready(&place, &[]);
    peer.request("tools/list", json!({}));
    peer.text("echo", json!({"text": "x"}));
    peer.finish();
    for (words, code, part) in [
        (&["mcp", "calls", "--action", "refused"][..], 2, "allow, alert, block, undelivered"),
        (&["mcp", "events", "--type", "foo"], 2, "mcp_tool_called"),
        (&["mcp", "events", "--severity", "foo"], 2, "low, medium, high, critical"),
        (&["mcp", "calls", "--severity", "high"], 2, "`mcp events`, `mcp detections`"),
        (&["mcp", "calls", "--type", "process_exited"], 2, "`mcp events`"),
        (&["mcp", "servers", "--tool", "echo"], 2, "`mcp tools`"),
        (&["mcp", "calls", "--server", "nope"], 1, "there is 'fixture'"),
        (&["mcp", "calls", "--since", "yesterday"], 2, "30m"),
        (&["mcp", "calls", "--nonsense"], 2, "--nonsense"),
        (&["mcp", "pins", "list", "--hash", "xx"], 2, "--hash"),
        (&["mcp", "pins", "diff", "--all"], 2, "--all"),
        (&["mcp", "pins", "trust"], 2, "--server"),
        (&["mcp", "pins", "trust", "--server", "nope"], 1, "there is 'fixture'"),
        (&["mcp", "pins", "reset", "--server", "nope"], 1, "there is 'fixture'"),
        (&["mcp", "pins", "diff", "--server", "nope"], 1, "there is 'fixture'"),
        (&["report", "zzz"], 2, "zzz"),
        (&["report", "--format", "pdf"], 2, "html"),
        (&["policy", "show", "nosuch"], 125, "policies are"),
        (&["policy", "check", "nosuch"], 1, "policies are"),
        (&["policy", "test", "nosuch"], 1, "policies are"),
        (&["policy", "explain", "--connect", "x:y"], 125, "port"),
        (&["policy", "explain", "--agent", "cluade", "--read", "x"], 125, "claude"),
        (&["policy", "explain", "--env", "A=B"], 125, "--env NAME"),
    ] {
        let outcome = ask(&place, words);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (code, ""), "{words:?} {outcome}");
        assert!(outcome.stderr.contains(part), "{words:?} {outcome}");
    }
    let nothing = ask(&place, &["mcp", "calls", "--action", "block"]).expect_code(0);
    assert!(nothing.stderr.contains("no matching records"), "{nothing}");
    // The documented command lines.
    for (words, part) in [
        (&["mcp", "tools", "--json"][..], "\"echo\""),
        (&["mcp", "servers"], "fixture"),
        (&["mcp", "calls", "--session", "latest", "--action", "allow"], "echo"),
        (&["mcp", "events", "--session", "latest", "--type", "mcp_tool_called", "--since", "1h"], "echo"),
        (&["mcp", "detections", "--severity", "high"], ""),
        (&["mcp", "pins", "list", "--json"], "\"fixture\""),
    ] {
        assert!(ask(&place, words).expect_code(0).stdout.contains(part), "{words:?}");
    }
    ask(&place, &["policy", "check", "none.yaml"]).expect_code(1);
}

/// A terminal shows what people read: no hash in full, no nanoseconds, no broken words.
#[test]
fn tables_fit_a_narrow_terminal() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    peer.text("echo", json!({"text": "x"}));
    peer.finish();
    let shown = |columns: u16| {
        let mut pty = Pty::sized(place.agentsh(&["mcp", "servers"]), columns);
        assert_eq!(pty.wait(), 0);
        assert!(
            eventually(|| pty.text().contains("project") || pty.text().contains("PROJECT")),
            "{}",
            pty.text()
        );
        pty.text()
    };
    let wide = shown(200);
    assert!(wide.contains("SERVER") && wide.contains("fixture") && !wide.contains("sha256:"), "{wide}");
    let narrow = shown(30);
    let plain = without_colour(&narrow);
    // A card: the server, then its facts, none of them broken.
    assert!(plain.contains("fixture") && plain.contains("status exited"), "{plain}");
    assert!(plain.lines().all(|line| line.trim_end().chars().count() <= 30), "{plain}");
}

/// A policy under the wrong name would be thought to be in force.
#[test]
fn policy_file_that_ends_in_yml_is_an_error() {
    let place = Place::new(Mode::Invoker);
    let file = place.write(place.home.join(".config/agentsh/policy.yml"), "version: 1\n");
    for words in [&["policy", "check"][..], &["run", "--", "true"]] {
        let outcome = ask(&place, words);
        assert!(outcome.code != 0 && outcome.stderr.contains("rename it to"), "{words:?} {outcome}");
    }
    std::fs::remove_file(file).unwrap();
    ask(&place, &["policy", "check"]).expect_code(0);
    place.write(".agentsh.yml", "version: 1\n");
    assert_eq!(ask(&place, &["run", "--", "true"]).code, 125);
}

#[test]
fn sessions_are_listed() {
    let place = Place::new(Mode::Invoker);
    for words in [&["sessions"][..], &["report", "list"]] {
        let nothing = ask(&place, words).expect_code(0);
        assert!(nothing.stderr.contains("no session is recorded") && nothing.stdout.is_empty(), "{nothing}");
    }
    place.shell("exit 3").expect_code(3);
    place.policy(
        "sandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: \"*\", tool: crash}]}}\n",
    );
    let mut peer = Peer::ready(&place, &[]);
    peer.text("echo", json!({"text": "x"}));
    peer.call("crash", json!({}));
    peer.finish();
    let sessions = place.listed(&["sessions", "--json"]);
    let shown =
        |row: &Value| ["verb", "state", "exit_code", "calls", "refused"].map(|name| row[name].clone());
    assert_eq!(shown(&sessions[0]), [json!("mcp run"), json!("ended"), json!(0), json!(2), json!(1)]);
    assert_eq!(shown(&sessions[1]), [json!("run"), json!("ended"), json!(3), json!(0), json!(0)]);
    assert_eq!(place.listed(&["sessions", "--json", "--limit", "1"]), sessions[..1]);
    assert_eq!(place.listed(&["report", "list", "--json"]), sessions);
    assert_eq!(place.listed(&["report", "list", "--json", "--limit", "1"]), sessions[..1]);
    // Listed sessions can be queried, and all times are in one zone.
    let id = sessions[1]["session"].as_str().unwrap();
    ask(&place, &["report", id]).expect_code(0);
    place.set("TZ", "Asia/Tokyo");
    let mut pty = Pty::sized(place.agentsh(&["sessions"]), 400);
    let (code, table) = pty.whole();
    assert_eq!(code, 0);
    let started = sessions[0]["started_at"].as_str().unwrap();
    let started = format!("{}Z", started[..19].replace('T', " "));
    assert!(table.contains(&started), "{started} in {table}");
}

/// One question has one answer, whichever of its names is typed.
#[test]
fn older_names_of_commands_give_the_same() {
    let place = Place::new(Mode::Invoker);
    place.shell("exit 3").expect_code(3);
    let events = place.listed(&["events", "--json"]);
    assert!(events.iter().any(|event| event["type"] == "session_ended"), "{events:?}");
    assert_eq!(events, place.listed(&["mcp", "events", "--json"]));
    let few = ["--type", "session_ended", "--json"];
    assert_eq!(place.listed(&[&["events"][..], &few].concat()).len(), 1);
    ask(&place, &["events", "verify"]).expect_code(0);
    let said = |words: &[&str]| {
        let outcome = ask(&place, words).expect_code(0);
        (outcome.stdout, outcome.stderr)
    };
    assert_eq!(said(&["approvals"]), said(&["approvals", "list"]));
    let help = ask(&place, &["--help"]).expect_code(0).stdout;
    assert!(!help.contains("sessions,") && help.contains("report"), "{help}");
}

/// Made by version 0.1.0, whose schema was the first one.
#[test]
fn an_older_journal_is_read_checked_and_gone_on_with() {
    let place = Place::new(Mode::Invoker);
    let state = place.home.join(".local/state/agentsh");
    place.make_directory(&state);
    let dump =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/journals/schema-1.sql");
    let old = rusqlite::Connection::open(state.join("agentsh.db")).unwrap();
    old.execute_batch(&std::fs::read_to_string(dump).unwrap()).unwrap();
    drop(old);
    let verified = |events: &str| {
        let answer = ask(&place, &["events", "verify"]).expect_code(0);
        assert!(answer.stdout.starts_with(&format!("ok: {events}")), "{answer}");
    };
    verified("29 events in 2 sessions");
    let calls = || place.listed(&["mcp", "calls", "--json"]);
    let before = calls();
    assert_eq!(before.len(), 2, "{before:?}");
    assert_eq!((&before[0]["jsonrpc_id"], &before[1]["action"]), (&json!("aé"), &json!("block")));
    place.shell("true").expect_code(0);
    let verbs: Vec<Value> =
        place.listed(&["sessions", "--json"]).iter().map(|session| session["verb"].clone()).collect();
    assert_eq!(verbs, ["run", "run", "mcp run"]);
    assert_eq!(calls(), before);
    Outcome::of(&mut place.agentsh(&["events", "verify"])).expect_code(0);
}

/// A program that cannot be recorded does not run, not even its first instruction.
#[test]
fn run_does_not_start_when_the_journal_cannot_be_written() {
    let place = Place::new(Mode::Invoker);
    place.shell("true").expect_code(0);
    let database = place.home.join(".local/state/agentsh/agentsh.db");
    let refused = |part: &str| {
        let refused = place.shell(": > started");
        assert!(!place.project.join("started").exists(), "{refused}");
        assert!(refused.code != 0 && refused.stderr.contains(part), "{refused}");
    };
    let holder = rusqlite::Connection::open(&database).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    refused("another program has it locked");
    drop(holder);
    place.shell(": > started").expect_code(0);
    std::fs::remove_file(place.project.join("started")).unwrap();
    // Root may write to a file whatever its mode is, but not where nobody may write.
    let trigger = "CREATE TRIGGER full BEFORE UPDATE ON newest BEGIN SELECT RAISE(ABORT, 'no room'); END";
    rusqlite::Connection::open(&database).unwrap().execute_batch(trigger).unwrap();
    refused("no room");
}

/// The check of every test's record finds what it is there to find.
#[test]
fn event_with_an_unknown_word_fails_the_schema() {
    use crate::support::schema::check;
    let event = |cause: &str, code: i64| json!({"type": "process_exited", "server_id": null, "exit_code": code, "cause": cause});
    check(&event("killed", 137)).unwrap();
    assert!(check(&event("bored", 0)).unwrap_err().contains("bored"));
    assert!(check(&event("exited", 256)).is_err());
    assert!(check(&json!({"type": "process_exited", "server_id": null, "cause": "exited"})).is_err());
    assert!(check(&json!({"type": "stranger"})).is_err());
}
