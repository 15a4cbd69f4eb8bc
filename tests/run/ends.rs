//! However a session ends, a server has its input closed, gets SIGTERM after a grace period, and is killed after
//! another; and its exit is then not reported as a crash.

use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::sandbox::script;
use crate::support::{Mode, Outcome, Peer, Place};

/// Answers every request, and at the end of its input does what `at_end` says.
fn server(place: &Place, at_end: &str) -> String {
    let marks = place.path("marks");
    let marks = marks.display();
    let hello = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
    let text = format!(
        r#"#!/bin/sh
trap 'echo term >>{marks}/log; exit 7' TERM
while read -r line; do
  case $line in *hang*) ;; *'"id":'*)
    id=${{line#*\"id\":}}; id=${{id%%[,\}}]*}}
    echo '{{"jsonrpc":"2.0","id":'$id',"result":{hello}}}' ;;
  esac
done
echo eof >>{marks}/log
{at_end}
"#
    );
    place.make_directory(&place.path("marks"));
    place.user_policy(&format!(
        "sandbox: {{mcp: {{servers: [{{id: s, filesystem: {{write: ['{marks}']}}}}]}}}}\n"
    ));
    place.script("server", &text).to_str().unwrap().to_owned()
}

const STAYS: &str = "while :; do sleep 0.1; done";

#[track_caller]
fn ended(place: &Place, way: &str, output: &str) {
    let log = std::fs::read_to_string(place.path("marks/log")).unwrap_or_default();
    assert_eq!(log, "eof\nterm\n", "{way}: {output}");
    assert!(!output.contains("crashed"), "{way}: {output}");
    assert_eq!(place.events("mcp_server_crashed").len(), 0, "{way}");
}

fn declared(place: &Place, at_end: &str) {
    let entry = json!({"mcpServers": {"s": {"command": server(place, at_end), "args": []}}});
    place.write(place.home.join(".claude.json"), entry.to_string());
}

#[test]
#[ignore = "takes long"]
fn servers_end_with_the_agent() {
    for code in [0, 130] {
        let place = Place::new(Mode::Invoker);
        declared(&place, STAYS);
        let ping = json!({"server": "s", "call": "ping", "params": {}});
        // It leaves its servers as they are.
        let answers = script(&place, &json!([ping, {"exit": code}]));
        assert_eq!(answers.outcome.code, code, "{}", answers.outcome);
        ended(&place, "run", &answers.outcome.stderr);
    }
}

#[test]
#[ignore = "takes long"]
fn servers_end_with_their_client_or_by_a_signal() {
    let ways: [(&str, Option<Signal>, i32); 5] = [
        ("mcp run", Some(Signal::SIGINT), 130),
        ("mcp run", Some(Signal::SIGTERM), 143),
        ("proxy", Some(Signal::SIGINT), 130),
        ("proxy", None, 0),
        ("scan", None, 0),
    ];
    for (verb, signal, code) in ways {
        let place = Place::new(Mode::Invoker);
        let server = server(&place, STAYS);
        let proxy =
            place.write("proxy.json", json!({"servers": [{"id": "s", "command": server}]}).to_string());
        let mut command = match verb {
            "mcp run" => place.agentsh(&["mcp", "run", "--id", "s", "--", &server]),
            "proxy" => place.agentsh(&["proxy", "--config", proxy.to_str().unwrap()]),
            _ => place.agentsh(&["scan", "servers"]),
        };
        if verb == "scan" {
            let entry = json!({"mcpServers": {"s": {"command": server, "args": []}}});
            place.write(place.home.join(".claude.json"), entry.to_string());
            let outcome = Outcome::of(&mut command);
            ended(&place, verb, &outcome.to_string());
            continue;
        }
        let mut peer = Peer::start(&mut command);
        peer.shake_hands();
        if let Some(signal) = signal {
            // Nobody waits for the answer any more.
            peer.ask("tools/call", json!({"name": "s__hang", "arguments": {}}));
            peer.request("ping", json!({}));
            kill(Pid::from_raw(peer.child.id().cast_signed()), signal).unwrap();
        }
        let started = Instant::now();
        let (status, errors) = match signal {
            None => peer.finish(),
            // Its input stays open.
            Some(_) => (crate::support::outcome::wait(&mut peer.child), peer.errors()),
        };
        assert_eq!(status, code, "{verb} {signal:?}: {errors}");
        assert!(started.elapsed() < Duration::from_secs(5), "{verb} {signal:?}");
        ended(&place, verb, &errors);
    }
}

/// As interpreters do when they are interrupted.
#[test]
fn server_exit_status_after_an_interrupt_is_no_failure() {
    let at_end = "echo Traceback: KeyboardInterrupt >&2; exit 130";
    let place = Place::new(Mode::Invoker);
    declared(&place, at_end);
    let ping = json!({"server": "s", "call": "ping", "params": {}});
    let answers = script(&place, &json!([ping, {"exit": 130}]));
    assert_eq!(answers.outcome.code, 130, "{}", answers.outcome);
    let errors = &answers.outcome.stderr;
    assert!(!errors.contains("Traceback") && !errors.contains("exited (130)"), "{errors}");
    let place = Place::new(Mode::Invoker);
    let server = server(&place, at_end);
    let mut peer = Peer::start(&mut place.agentsh(&["mcp", "run", "--id", "s", "--", &server]));
    peer.shake_hands();
    peer.ask("tools/call", json!({"name": "hang", "arguments": {}}));
    peer.request("ping", json!({}));
    kill(Pid::from_raw(peer.child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(crate::support::outcome::wait(&mut peer.child), 130, "{}", peer.errors());
    assert_eq!(place.events("mcp_server_crashed").len(), 0);
}

/// The end of a file says nothing about who reads the answers.
#[test]
fn calls_to_a_proxy_finish_when_its_input_has_ended() {
    let place = Place::new(Mode::Invoker);
    let servers = json!({"servers": [{"id": "one", "command": place.program("fixture_server")}]});
    let proxy = place.write("proxy.json", servers.to_string());
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let call = json!({"name": "one__slow", "arguments": {"ms": 3500}});
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let input = std::fs::File::open(place.write("calls.jsonl", lines)).unwrap();
    let mut command = place.agentsh(&["proxy", "--config", proxy.to_str().unwrap()]);
    let output = command.stdin(input).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("slept"), "{text} {errors}");
    assert_eq!(output.status.code(), Some(0), "{errors}");
}

/// What hangs here is the record's database, which another process locks.
#[test]
fn a_second_signal_ends_a_run_whose_end_hangs() {
    for mode in Mode::all() {
        for last in [Signal::SIGTERM, Signal::SIGINT] {
            let place = Place::new(mode);
            let mut command =
                place.agentsh(&["run", "--quiet", "--", "sh", "-c", "touch started; read line"]);
            let mut child = command
                .stdin(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .process_group(0)
                .spawn()
                .unwrap();
            let pid = Pid::from_raw(child.id().cast_signed());
            let patience = crate::support::patience(Duration::from_secs(10));
            let begun = Instant::now();
            while !place.project.join("started").exists() && begun.elapsed() < patience {
                std::thread::sleep(Duration::from_millis(20));
            }
            let database =
                rusqlite::Connection::open(place.home.join(".local/state/agentsh/agentsh.db")).unwrap();
            database.busy_timeout(patience).unwrap();
            database.execute_batch("BEGIN EXCLUSIVE").unwrap();
            drop(child.stdin.take());
            std::thread::sleep(Duration::from_secs(1));
            assert_eq!(child.try_wait().unwrap(), None, "{mode:?} its end does not hang");
            for signal in [Signal::SIGTERM, last] {
                kill(pid, signal).unwrap();
                std::thread::sleep(Duration::from_millis(200));
            }
            let begun = Instant::now();
            let ended = loop {
                if let Some(ended) = child.try_wait().unwrap() {
                    break ended.code();
                }
                assert!(begun.elapsed() < patience, "{mode:?} {last}: it hangs");
                std::thread::sleep(Duration::from_millis(50));
            };
            let mut said = String::new();
            std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
            assert_eq!(ended, Some(128 + last as i32), "{mode:?} {said}");
            assert!(said.contains("ended by a second signal"), "{mode:?} {said}");
            drop(database);
            // The record goes on.
            Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "true"])).expect_code(0);
        }
    }
}
