//! Data flows of a session, from its counts.

use std::collections::BTreeMap;

use super::rows::bytes;
use agentsh_store::SessionTally;
use agentsh_web::{Edge, End, Flow, Tone};

/// What went one way.
#[derive(Default)]
struct Sent {
    passed: u64,
    refused: u64,
    sent: u64,
    received: u64,
}

type Ends = (End, End);

pub(super) fn of(tally: &SessionTally) -> Flow {
    let mut calls: BTreeMap<Ends, Sent> = BTreeMap::new();
    for tool in &tally.tools {
        let sent = calls.entry((End::Agent, End::Server(tool.server_id.clone()))).or_default();
        match tool.action.as_deref() {
            Some("block" | "ask") => sent.refused += tool.calls,
            _ => sent.passed += tool.calls,
        }
    }
    let mut hosts: BTreeMap<Ends, Sent> = BTreeMap::new();
    let from = |server: Option<&agentsh_base::types::ServerId>| {
        server.map_or(End::Agent, |id| End::Server(id.0.clone()))
    };
    for one in tally.summary.connections.values() {
        let to = End::Host(format!("{}:{}", one.host, one.port));
        let sent = hosts.entry((from(one.server_id.as_ref()), to)).or_default();
        sent.passed += one.closed + one.failed;
        sent.sent += one.bytes_sent;
        sent.received += one.bytes_received;
    }
    for one in tally.summary.refused_connections.values() {
        let host = if one.port == 0 { one.host.clone() } else { format!("{}:{}", one.host, one.port) };
        hosts.entry((from(one.server_id.as_ref()), End::Host(host))).or_default().refused += one.count;
    }
    let mut copies: BTreeMap<Ends, Sent> = BTreeMap::new();
    for (source, target, action, count) in &tally.copies {
        let ends = (End::Server(source.clone()), End::Server(target.clone()));
        let sent = copies.entry(ends).or_default();
        *(if action == "block" { &mut sent.refused } else { &mut sent.passed }) += count;
    }
    let mut edges: Vec<Edge> = calls.into_iter().map(|(ends, sent)| edge(ends, &sent, "call")).collect();
    edges.extend(copies.into_iter().map(|(ends, sent)| edge(ends, &sent, "copy")));
    edges.extend(hosts.into_iter().map(|(ends, sent)| edge(ends, &sent, "connection")));
    Flow { edges }
}

fn edge((from, to): Ends, sent: &Sent, noun: &str) -> Edge {
    let mut what = Vec::new();
    if sent.passed > 0 {
        what.push(match (sent.passed, noun) {
            (1, noun) => format!("1 {noun}"),
            (count, "copy") => format!("{count} copies"),
            (count, noun) => format!("{count} {noun}s"),
        });
    }
    if sent.refused > 0 {
        what.push(format!("{} refused", sent.refused));
    }
    if sent.sent + sent.received > 0 {
        what.push(format!("{} out, {} in", bytes(sent.sent), bytes(sent.received)));
    }
    let tone = match (sent.passed, sent.refused, noun) {
        (_, 0, "copy") => Tone::Warn,
        (_, 0, _) => Tone::Good,
        (0, ..) => Tone::Bad,
        _ => Tone::Warn,
    };
    Edge { from, to, what: what.join(", "), tone }
}
