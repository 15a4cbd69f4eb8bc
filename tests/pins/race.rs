//! Two sessions meet a new server at once: one of them pins first.

use serde_json::{Value, json};

use super::interface::pins;
use crate::support::{Mode, Outcome, Peer, Place};

/// Says something else in every process.
const SERVER: &str = r#"#!/bin/sh
read -r mine < /proc/sys/kernel/random/uuid
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"read","description":"'"$mine"'","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) result='{"content":[{"type":"text","text":"ran"}]}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// Four connections with one server, which all list and call at once.
const TALK: &str = r#"#!/bin/bash
for n in 1 2 3 4; do
  { printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}' \
      '{"jsonrpc":"2.0","method":"notifications/initialized"}' '{"jsonrpc":"2.0","id":2,"method":"tools/list"}'; sleep 2
    printf '%s\n' '{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read","arguments":{}}}'; sleep 1
  } | AGENTSH_SOCKET=/run/agentsh/bridge /run/agentsh/agentsh bridge s > /tmp/$n &
done
wait; for n in 1 2 3 4; do cat /tmp/$n; echo; done
"#;

fn pinned(place: &Place) -> Vec<Value> {
    let listed = pins(place, &["list", "--offered", "--json"]).expect_code(0);
    let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    listed.into_iter().filter(|pin| pin["name"] == "read").collect()
}

#[test]
#[ignore = "takes long"]
fn concurrent_connections_pin_the_first_listing() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let server = place.script(place.home.join("server"), SERVER);
        place.write(
            place.home.join(".claude.json"),
            json!({"mcpServers": {"s": {"command": server}}}).to_string(),
        );
        let claude = place.script(place.project.join("bin/claude"), TALK);
        let outcome = Outcome::of(place.agentsh(&["run", "--"]).arg(claude)).expect_code(0);
        let answers: Vec<Value> =
            outcome.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let listings: Vec<&Value> = answers
            .iter()
            .filter(|answer| answer["id"] == 2)
            .map(|answer| &answer["result"]["tools"])
            .collect();
        assert_eq!(listings.len(), 4, "{mode:?} {outcome}");
        let shown =
            listings.iter().filter(|tools| tools.as_array().is_some_and(|tools| !tools.is_empty())).count();
        let ran = answers.iter().filter(|answer| answer["id"] == 3 && answer["error"].is_null()).count();
        // A tool that one connection hides is hidden from all of them: even the first one's call may be refused.
        assert!(shown == 1 && ran <= 1, "{mode:?} {shown} {ran} {outcome}");
        assert_eq!(pinned(&place).len(), 1);
        assert_eq!(place.events("mcp_tool_changed").len(), 3);
    }
}

#[test]
fn concurrent_sessions_keep_one_pin_of_a_new_server() {
    let place = Place::new(Mode::Invoker);
    let server = place.script(place.home.join("server"), SERVER);
    let start = || Peer::start(place.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(&server));
    let mut both = [start(), start()];
    for peer in &mut both {
        peer.shake_hands();
    }
    // Neither knows of the other: each trusts what it sees first.
    let seen =
        both.each_mut().map(|peer| peer.request("tools/list", json!({}))["result"]["tools"][0].clone());
    assert!(seen.iter().all(|tool| tool["name"] == "read") && seen[0] != seen[1], "{seen:?}");
    for peer in both {
        peer.finish();
    }
    let kept = pinned(&place);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let kept: Value = serde_json::from_str(kept[0]["definition"].as_str().unwrap()).unwrap();
    assert!(seen.contains(&kept), "{kept} {seen:?}");
    let mut third = start();
    third.shake_hands();
    assert_eq!(third.request("tools/list", json!({}))["result"]["tools"], json!([]));
    third.finish();
}
