//! A day without the server: pending events stay in the journal, are sent afterwards, and cost running sessions next to nothing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agentsh_store::raw::Raw;
use serde_json::json;

use super::{Server, forward, hosts, session};
use crate::support::{Mode, Outcome, Place, patience, processes, skip, within};

/// Three events a second for 24 hours: a call a second that is called, judged and audited, without a pause for the night.
const DAY: usize = 3 * 24 * 3600;
/// Number of events of one session.
const SESSION: usize = 3000;

/// A tenth of a day, which is a minute of testing, or as many events as `AGENTSH_TEST_SPOOL` says.
fn events() -> usize {
    std::env::var("AGENTSH_TEST_SPOOL").ok().and_then(|number| number.parse().ok()).unwrap_or(DAY / 10)
}

/// Adds sessions to the journal of a host, chained as its own are.
fn add(host: &Place, number: usize) {
    let path = host.home.join(".local/state/agentsh/agentsh.db");
    let mut connection = rusqlite::Connection::open(path).unwrap();
    let last: Vec<u8> = connection
        .query_row("SELECT hash FROM events ORDER BY id DESC LIMIT 1", [], |row| row.get(0))
        .unwrap();
    let mut before: [u8; 32] = last.try_into().unwrap();
    let inside = connection.transaction().unwrap();
    let mut insert = inside
        .prepare(
            "INSERT INTO events (session, seq, time, type, body, prev, hash, server_id, tool_name, action) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )
        .unwrap();
    let mut id = String::new();
    for at in 0..number {
        let seq = at % SESSION + 1;
        if seq == 1 {
            id = uuid::Uuid::now_v7().to_string();
        }
        let call = json!({"server_id": "fixture", "tool_name": "echo", "jsonrpc_id": seq / 3});
        let (kind, more) = match seq {
            1 => (
                "session_started",
                json!({"version": "0.1.0", "verb": "run", "agent": ["claude"], "project": "/home/user/project",
                    "policy": "default", "kernel": "6", "uid": 1000}),
            ),
            _ if seq % 3 == 2 => {
                ("mcp_tool_called", json!({"input": {"path": format!("/home/user/src/file{seq}.rs")}}))
            }
            _ if seq.is_multiple_of(3) => (
                "mcp_tool_call_intercepted",
                json!({"action": "allow", "reason": "tool-allowed",
                    "rule": {"id": "sandbox.mcp", "file": "policy.yaml", "line": 12}}),
            ),
            _ => ("mcp_tool_call_audited", json!({"verdict": "clean", "action": "allow", "after_ms": 12})),
        };
        let mut body = json!({"type": kind});
        for part in [call, more] {
            body.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        }
        let time = format!(
            "2026-01-02T{:02}:{:02}:{:02}.{:06}Z",
            at / 3600 % 24,
            at / 60 % 60,
            at % 60,
            at % 1_000_000
        );
        let mut row =
            Raw { id: 0, session: id.clone(), seq: seq as u64, time, body: body.to_string(), hash: before };
        row.hash = row.hash_behind(&before);
        let action = (kind != "mcp_tool_called").then_some("allow");
        insert
            .execute(rusqlite::params![
                row.session,
                seq as i64,
                row.time,
                kind,
                row.body,
                before.as_slice(),
                row.hash.as_slice(),
                "fixture",
                "echo",
                action
            ])
            .unwrap();
        before = row.hash;
    }
    drop(insert);
    inside.commit().unwrap();
}

fn count(host: &Place) -> i64 {
    let path = host.home.join(".local/state/agentsh/agentsh.db");
    rusqlite::Connection::open(path)
        .unwrap()
        .query_row("SELECT max(id) FROM events", [], |row| row.get(0))
        .unwrap()
}

/// Processor time that a process has used, in ticks of the kernel.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let number = |at: usize| rest.split_whitespace().nth(at).and_then(|word| word.parse::<u64>().ok());
    number(11).unwrap_or(0) + number(12).unwrap_or(0)
}

/// Bytes below a directory.
fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
        .map(|(path, found)| if found.is_dir() { size(&path) } else { found.len() })
        .sum()
}

/// Ends with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// On one processor, in a session of its own as the programs of a terminal are.
fn on_one(processor: &str, command: &Command) -> Command {
    let mut alone = Command::new("setsid");
    alone.args(["taskset", "-c", processor]).arg(command.get_program()).args(command.get_args());
    alone.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    alone.current_dir(command.get_current_dir().unwrap());
    alone.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    alone
}

#[test]
#[ignore = "takes long"]
fn forwarder_catches_up_after_a_day_without_the_server() {
    let at = Place::new(Mode::Invoker);
    let database = at.home.join("fleet.db");
    let mut server = Server::start(&at, database.to_str().unwrap(), &[]);
    server.login(&at, "viewer");
    let host = Place::new(Mode::Invoker);
    server.enrol(&host, "laptop");
    server.end();
    session(&host, 2);
    let state = host.home.join(".local/state/agentsh");
    processes::end_below(&state);
    add(&host, events());

    // Offline the forwarder waits, and keeps nothing next to the journal.
    let before = size(&state);
    let mut waits = Ending(
        host.agentsh(&["fleet", "forward"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
    );
    std::thread::sleep(Duration::from_secs(3));
    assert!(waits.0.try_wait().unwrap().is_none(), "it goes on waiting");
    let more = size(&state).saturating_sub(before);
    assert!(more < 64 << 10, "{more} bytes beside a journal of {before}");
    let memory = processes::peak_memory(waits.0.id());
    assert!(memory < 64 << 20, "{memory} bytes of memory");
    drop(waits);
    let told = Outcome::of(&mut host.agentsh(&["fleet", "doctor"])).expect_code(1);
    assert!(told.stdout.contains("cannot reach the fleet server"), "{told}");
    assert!(server.again());
    let told = Outcome::of(&mut host.agentsh(&["fleet", "doctor"])).expect_code(1);
    assert!(told.stdout.contains("events wait in a journal of"), "{told}");

    // Next to a program that could use the processor for itself, as a session might.
    let mut forwarder = host.agentsh(&["fleet", "forward", "--until-idle"]);
    let has_taskset = PathBuf::from("/usr/bin/taskset").exists() && PathBuf::from("/usr/bin/setsid").exists();
    if has_taskset {
        let mut spin = host.command("/bin/sh");
        spin.args(["-c", "while :; do :; done"]);
        let spins = Ending(on_one("0", &spin).spawn().unwrap());
        forwarder = {
            let mut one = Command::new("taskset");
            one.args(["-c", "0"]).arg(forwarder.get_program()).args(forwarder.get_args());
            one.env_clear().envs(forwarder.get_envs().filter_map(|(name, value)| Some((name, value?))));
            one.current_dir(&host.project);
            one
        };
        let runs = Ending(forwarder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let forwards = runs.0.id();
        // It has begun, and has its niceness.
        let niceness = || {
            let stat = std::fs::read_to_string(format!("/proc/{forwards}/stat")).unwrap_or_default();
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(16)?.parse::<i32>().ok())
        };
        assert!(within(Duration::from_secs(20), || niceness() == Some(19)), "{:?}", niceness());
        if let Ok(group) = std::fs::read_to_string(format!("/proc/{forwards}/autogroup")) {
            assert!(group.contains("nice 19"), "{group}");
        }
        let (own, other) = (ticks(forwards), ticks(spins.0.id()));
        // Six seconds of the processor for the one that goes first.
        assert!(within(Duration::from_secs(120), || ticks(spins.0.id()) >= other + 600));
        let (own, other) = (ticks(forwards) - own, ticks(spins.0.id()) - other);
        assert!(own * 20 <= own + other, "{own} of {} ticks", own + other);
        drop(spins);
        // When alone it continues at once, and a session beside it is recorded as usual.
        session(&host, 5);
        drop(runs);
    } else {
        skip("what a session loses: no taskset or setsid");
        session(&host, 5);
    }
    let mut whole = host.agentsh(&["fleet", "forward", "--once"]);
    processes::end_below(&state);
    let mut child = whole.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (mut memory, begun) = (0, Instant::now());
    let code = loop {
        memory = memory.max(processes::peak_memory(child.id()));
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        assert!(begun.elapsed() < patience(Duration::from_secs(300)), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(code, Some(0));
    assert!(memory < 64 << 20, "{memory} bytes of memory for a journal of {before}");
    let compared = forward(&host, &["--check"]).expect_code(0);
    assert!(compared.stdout.contains("sessions compared"), "{compared}");
    let (known, code) = hosts(&at);
    assert_eq!(code, 0, "{known:?}");
    assert_eq!(known[0]["events"].as_i64(), Some(count(&host)), "every event, once");
    let stored: i64 = rusqlite::Connection::open(&database)
        .unwrap()
        .query_row("SELECT count(*) FROM events", [], |row| row.get(0))
        .unwrap();
    assert_eq!(stored, count(&host));
    assert_eq!(known[0]["sessions"].as_i64(), Some(i64::try_from(events().div_ceil(SESSION)).unwrap() + 2));
}

/// The one that a session starts.
#[test]
fn forwarder_started_by_a_session_has_the_lowest_priority() {
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    let host = Place::new(Mode::Invoker);
    server.enrol(&host, "laptop");
    host.shell("true").expect_code(0);
    let state = host.home.join(".local/state/agentsh");
    let forwarder = || {
        let mut found = processes::find("fleet forward --until-idle").into_iter();
        found.find(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == state))
    };
    assert!(within(Duration::from_secs(10), || forwarder().is_some()));
    let pid = forwarder().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let words: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // A session of its own, and the last niceness.
    assert_eq!((words[3], words[16]), (pid.to_string().as_str(), "19"), "{stat}");
    processes::end_below(&state);
}
