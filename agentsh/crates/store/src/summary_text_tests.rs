#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use super::*;
use crate::summary_short::SHORT_LINES;
use crate::testing::{START, events, session, verdict};

fn summary(events: &[crate::Event]) -> Summary {
    let mut summary = Summary::new(session(1));
    events.iter().for_each(|event| summary.add(START.parse().unwrap(), event));
    summary
}

#[test]
fn the_short_form_names_refusals_and_their_rules() {
    insta::assert_snapshot!("short", summary(&events()).render_short(&BTreeSet::new(), &[]));
    let nothing = summary(&[]).render_short(&BTreeSet::new(), &[]);
    assert!(nothing.lines().count() == 1 && nothing.ends_with(": nothing refused\n"), "{nothing}");
}

#[test]
fn missing_layer_of_a_machine_is_reported_once() {
    let lacks = |server: Option<&str>, layer: &str| crate::Event::Enforcement {
        server_id: server.map(|name| ServerId(name.to_owned())),
        layer: layer.to_owned(),
        asked: "4096 MiB together".to_owned(),
        got: "a watchdog over all".to_owned(),
        state: crate::words::LayerState::Degraded,
        why: "cannot create a memory cgroup here".to_owned(),
    };
    let all = [None, Some("fs"), Some("git")];
    let events: Vec<_> =
        all.iter().flat_map(|who| [lacks(*who, "memory limit"), lacks(*who, "cpu limit")]).collect();
    let summary = summary(&events);
    let short = summary.render_short(&BTreeSet::new(), &[]);
    assert_eq!(short.matches("not fully enforced").count(), 1, "{short}");
    assert!(short.contains("not fully enforced for the agent, fs, git: "), "{short}");
    let unequal = [events, vec![lacks(None, "data flow")]].concat();
    let short = self::summary(&unequal).render_short(&BTreeSet::new(), &[]);
    assert!(short.contains("data flow (a watchdog over all) for the agent; "), "{short}");
    assert_eq!(short.matches("not fully enforced").count(), 1, "{short}");
    assert_eq!(summary.render_short(&summary.weakened_layers(), &[]).lines().count(), 1);
    assert!(summary.render_text(100).contains("not enforced\n  cpu limit of the agent"));
}

/// A resolver asks for both kinds of address, and a program asks again.
#[test]
fn hosts_are_counted_and_not_questions() {
    let asked = |name: &str, count: u64| crate::Event::DnsBlocked {
        server_id: None,
        name: name.to_owned(),
        reason: "name-not-allowed".to_owned(),
        rule: crate::types::RuleRef::default_rule("network.allow"),
        query_type: "A".to_owned(),
        action: Action::Block,
        change: None,
        count,
    };
    let short = summary(&[asked("one.test", 4), asked("two.test", 1)]).render_short(&BTreeSet::new(), &[]);
    assert!(short.contains(": 2 hosts refused\n"), "{short}");
}

/// The commands are among the lines, and the report has what does not fit.
#[test]
fn short_form_has_room_for_the_commands_that_allow() {
    let commands: Vec<String> = (1..=3).map(|number| format!("agentsh policy allow {number}")).collect();
    for (given, expected) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
        let short = summary(&events()).render_short(&BTreeSet::new(), &commands[..given]);
        assert_eq!(short.lines().count(), SHORT_LINES, "{short}");
        assert_eq!(short.matches("  to allow").count(), expected, "{short}");
        assert!(short.contains("  refused: fs/delete: "), "{short}");
    }
}

/// A program that connects to `localhost` tries both addresses.
#[test]
fn both_addresses_of_this_machine_are_one_host() {
    let refused = |address: &str, port: u16| crate::Event::NetConnectBlocked {
        server_id: None,
        name: None,
        address: Some(address.to_owned()),
        port,
        protocol: None,
        action: Action::Block,
        reason: "loopback-port-not-open".to_owned(),
        detail: String::new(),
        rule: crate::types::RuleRef::default_rule("network.loopback"),
        change: None,
        count: 1,
        pid: None,
        comm: None,
    };
    let events = [refused("127.0.0.1", 1), refused("::1", 1), refused("127.0.0.1", 2)];
    let short = summary(&events).render_short(&BTreeSet::new(), &[]);
    assert!(short.contains(": 1 host refused\n"), "{short}");
    assert!(short.contains("refused: the agent -> localhost:1, localhost:2 ("), "{short}");
}

#[test]
fn a_server_whose_program_changed_counts_as_refused() {
    let mut events = events();
    events.retain(|event| matches!(event, crate::Event::McpServerBinaryMismatch { .. }));
    let short = summary(&events).render_short(&BTreeSet::new(), &[]);
    assert!(events.len() == 1 && short.contains(": 1 refused\n"), "{short}");
}

#[test]
fn names_without_end_do_not_grow_the_summary() {
    let hostile: Vec<_> = (0..5000)
        .map(|id| verdict(&format!("{id}\u{1b}[2J{}", "x".repeat(5000)), id, Action::Block))
        .collect();
    let summary = summary(&hostile);
    assert_eq!((summary.tools.values().len(), summary.not_listed), (500, 9000));
    let short = summary.render_short(&BTreeSet::new(), &[]);
    assert!(short.lines().count() <= SHORT_LINES && short.len() < 5000, "{short}");
    let text = summary.render_text(0);
    assert!(!short.contains('\u{1b}') && !text.contains('\u{1b}') && text.len() < 200_000);
}

#[test]
fn summary_keeps_different_details_and_prints_equal_lists_once() {
    let rejected = |detail: &str| crate::Event::McpMessageRejected {
        server_id: ServerId("canary".to_owned()),
        from: crate::words::Sender::Client,
        reason: "invalid-request".to_owned(),
        detail: detail.to_owned(),
        bytes: 1,
    };
    let filtered = |id: &str, names: &[&str]| crate::Event::McpServerEnvFiltered {
        server_id: Some(ServerId(id.to_owned())),
        stripped_vars: names.iter().map(|name| (*name).to_owned()).collect(),
        passed_count: 1,
    };
    let mut summary = summary(&[
        rejected("no version"),
        rejected("bad id"),
        rejected("no version"),
        filtered("a", &["KEY", "PWD"]),
        filtered("b", &["PWD", "KEY"]),
        filtered("c", &["OTHER"]),
        filtered("d", &["SHLVL"]),
    ]);
    let text = summary.render_text(100);
    let expected = "3 messages from the client of canary: invalid-request (bad id; 2 times no version)";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("  a, b: KEY\n  c: OTHER\n") && !text.contains("SHLVL"), "{text}");
    summary.verb = Some("proxy".to_owned());
    assert!(summary.render_text(100).contains("3 messages from the client: invalid-request"));
    for number in 0..10 {
        summary.add(START.parse().unwrap(), &rejected(&format!("{number}")));
    }
    assert!(summary.render_text(200).contains("; and 7 more)"), "{}", summary.render_text(200));
}

#[test]
fn lines_are_wrapped() {
    let text = summary(&events()).render_text(60);
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
}
