//! Days of a fleet as a script of `psql`: chained as real journals, so that reports follow them, and not sent.
//!
//! `fleet-fill EVENTS DAYS`: 50 hosts, sessions of 2000 events, some of it rare. The last event is of now.

use std::fmt::Write as _;
use std::io::Write as _;

use agentsh_fleet::keys;
use agentsh_store::raw::{FIRST_LINK, Raw};
use jiff::Timestamp;
use serde_json::{Value, json};

const HOSTS: usize = 50;
const SESSION: u64 = 2000;
/// Bits of an id after the microsecond of its arrival.
const LOW_BITS: u32 = 11;
const DAY: i64 = 86_400_000_000;

struct Host {
    id: String,
    place: i64,
    hash: [u8; 32],
    session: String,
    seq: u64,
}

/// What happens as the event `seq` of a session, `number` of all.
fn body(number: u64, seq: u64) -> Value {
    // A verdict is about the call before it, which had the number before of its host.
    let is_verdict = seq > 2 && seq.is_multiple_of(2);
    let about = if is_verdict { number - HOSTS as u64 } else { number };
    let server = format!("server{}", about % 7);
    // Most calls are of a few tools, and one is hardly ever called.
    let tool = match seq {
        _ if about % 100_000 == 1002 => "rotate_keys".to_owned(),
        _ if about % 4 < 2 => "read_file".to_owned(),
        _ => format!("tool{}", about / 2 % 20),
    };
    let rule = json!({"id": "sandbox.mcp", "file": "policy.yaml", "line": 12});
    match seq {
        1 => json!({"type": "session_started", "version": "bench", "verb": "run", "agent": ["claude"],
            "project": format!("/home/user/project{}", number % 9), "policy": "default", "kernel": "6", "uid": 1000}),
        2 => {
            json!({"type": "process_started", "server_id": server, "program": "/usr/bin/node", "hash": "00", "pid": 7})
        }
        SESSION => json!({"type": "session_ended", "exit_code": 0, "duration_ms": 90_000}),
        _ if number.is_multiple_of(5003) => {
            json!({"type": "mcp_exfil_detected", "server_id": server, "tool_name": tool,
            "severity": if number.is_multiple_of(2) { "high" } else { "medium" }, "action": "alert",
            "detector": "cross-server", "reason": "copied-result"})
        }
        _ if number.is_multiple_of(503) => {
            json!({"type": "net_connect_blocked", "server_id": server, "name": "evil.example",
            "port": 443, "reason": "no-rule", "action": "block", "rule": rule})
        }
        seq if !is_verdict => json!({"type": "mcp_tool_called", "server_id": server, "tool_name": tool,
            "jsonrpc_id": seq, "input": {"path": format!("/home/user/project/src/file{seq}.rs"), "limit": 200}}),
        seq => {
            json!({"type": "mcp_tool_call_intercepted", "server_id": server, "tool_name": tool, "jsonrpc_id": seq - 1,
            "action": if (number / 50).is_multiple_of(101) { "block" } else { "allow" }, "reason": "tool-allowed", "rule": rule})
        }
    }
}

fn column(text: Option<&str>) -> &str {
    text.unwrap_or("\\N")
}

pub fn main(words: &[String]) {
    let events: u64 = words[0].parse().unwrap();
    let days: i64 = words[1].parse().unwrap();
    let now = Timestamp::now().as_microsecond();
    let first = now - days * DAY;
    let mut out = std::io::BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    for day in first / DAY..=now / DAY {
        let name = Timestamp::from_microsecond(day * DAY).unwrap().strftime("%Y%m%d").to_string();
        let (from, to) = ((day * DAY) << LOW_BITS, ((day + 1) * DAY) << LOW_BITS);
        writeln!(
            out,
            "CREATE TABLE IF NOT EXISTS events_{name} PARTITION OF events FOR VALUES FROM ({from}) TO ({to});"
        )
        .unwrap();
    }
    let mut hosts: Vec<Host> = (0..HOSTS)
        .map(|number| Host {
            id: keys::digest(format!("bench {number}").as_bytes())[..24].to_owned(),
            place: 0,
            hash: FIRST_LINK,
            session: String::new(),
            seq: SESSION,
        })
        .collect();
    let mut sessions = String::new();
    let mut begun: Vec<Option<(String, i64, String)>> = vec![None; HOSTS];
    let ended = |host: &Host, begun: &Option<(String, i64, String)>, at: &str, sessions: &mut String| {
        let Some((link, first_event, first_at)) = begun else { return };
        let over = i32::from(host.seq == SESSION);
        writeln!(
            sessions,
            "{}\t{}\t{}\t{}\t{link}\t{first_event}\t{first_at}\t{at}\trun\t/home/user/project\t{over}",
            host.session,
            host.id,
            host.seq,
            agentsh_base::hex(&host.hash)
        )
        .unwrap();
    };
    writeln!(
        out,
        "COPY events (id, host, session, seq, time, type, body, hash, server_id, tool_name, action, severity, call) FROM STDIN;"
    )
    .unwrap();
    let mut time = String::new();
    for number in 0..events {
        let index = usize::try_from(number).unwrap() % HOSTS;
        let arrival = first
            + i64::try_from(u128::from(number) * u128::try_from(now - first).unwrap() / u128::from(events))
                .unwrap();
        let id = (arrival << LOW_BITS) + i64::try_from(number % 2048).unwrap();
        time = format!("{:.6}", Timestamp::from_microsecond(arrival).unwrap());
        let host = &mut hosts[index];
        if host.seq == SESSION {
            ended(host, &begun[index], &time, &mut sessions);
            begun[index] = Some((agentsh_base::hex(&host.hash), id, time.clone()));
            (host.session, host.seq) = (uuid::Uuid::now_v7().to_string(), 0);
        }
        host.seq += 1;
        host.place += 1;
        let body = body(number, host.seq);
        let mut row = Raw {
            id: host.place,
            session: host.session.clone(),
            seq: host.seq,
            time: time.clone(),
            body: body.to_string(),
            hash: FIRST_LINK,
        };
        row.hash = row.hash_behind(&host.hash);
        host.hash = row.hash;
        let facts = row.indexed_fields().unwrap();
        let call = body.get("jsonrpc_id").map(ToString::to_string);
        writeln!(
            out,
            "{id}\t{}\t{}\t{}\t{time}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            host.id,
            row.session,
            row.seq,
            facts.kind,
            row.body,
            agentsh_base::hex(&row.hash),
            column(facts.server_id.as_deref()),
            column(facts.tool_name.as_deref()),
            column(facts.action.as_deref()),
            column(facts.severity.as_deref()),
            column(call.as_deref())
        )
        .unwrap();
    }
    for (host, begun) in hosts.iter().zip(&begun) {
        ended(host, begun, &time, &mut sessions);
    }
    writeln!(
        out,
        "\\.\nCOPY sessions (id, host, seq, hash, first_link, first_event, first_at, last_at, verb, project, ended) FROM STDIN;"
    )
    .unwrap();
    out.write_all(sessions.as_bytes()).unwrap();
    writeln!(
        out,
        "\\.\nCOPY hosts (id, name, key, state, version, enrolled_at, seen_at, last_id, last_hash) FROM STDIN;"
    )
    .unwrap();
    for (number, host) in hosts.iter().enumerate() {
        writeln!(
            out,
            "{}\tfilled{number}\t{}\tactive\tbench\t{time}\t{time}\t{}\t{}",
            host.id,
            keys::digest(host.id.as_bytes()),
            host.place,
            agentsh_base::hex(&host.hash)
        )
        .unwrap();
    }
    writeln!(
        out,
        "\\.\nCOPY servers (host, id, server_id, project, calls, blocked, refusals, last_status, last_at, last_session, program, hash) FROM STDIN;"
    )
    .unwrap();
    for host in &hosts {
        for server in 0..7 {
            let id = keys::digest(format!("{server}").as_bytes());
            writeln!(
                out,
                "{}\t{id}\tserver{server}\t/home/user/project\t{}\t1\t0\tstarted\t{time}\t{}\t/usr/bin/node\t00",
                host.id,
                host.place / 14,
                host.session
            )
            .unwrap();
        }
    }
    writeln!(out, "\\.\nANALYZE;").unwrap();
    out.flush().unwrap();
}
