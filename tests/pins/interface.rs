//! A server's definitions are compared, in every listing and across sessions, with the trusted ones.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::http_server::{HttpServer, Reply};
use crate::support::peer::Peer;
use crate::support::{Mode, Outcome, Place};

/// A server whose program stays the same, and whose answers are in files of the project: `tools`, `prompts`,
/// `instructions`.
const SERVER: &str = r#"#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"s","version":"1"},"instructions":'"$(cat instructions)"'}' ;;
    *'"tools/list"'*) result='{"tools":'"$(cat tools)"'}' ;;
    *'"prompts/list"'*) [ -e ends ] && exit 3; result='{"prompts":'"$(cat prompts)"'}' ;;
    *'"prompts/get"'*) result='{"messages":[{"role":"user","content":{"type":"text","text":"got"}}]}' ;;
    *'"resources/list"'*) result='{"resources":'"$(cat resources 2>/dev/null || echo '[]')"'}' ;;
    *'"resources/read"'*) result='{"contents":[{"uri":"file:///r","text":"got"}]}' ;;
    *'"resources/templates/list"'*)
      printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id"; continue ;;
    *'"tools/call"'*) result='{"content":[{"type":"text","text":"ran"}]}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// Speaks to the server through `agentsh bridge`, as an agent does; prints the answers one a line.
const TALK: &str = r#"#!/bin/sh
{ printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}' \
  '{"jsonrpc":"2.0","method":"notifications/initialized"}' \
  '{"jsonrpc":"2.0","id":2,"method":"tools/list"}' '{"jsonrpc":"2.0","id":3,"method":"prompts/list"}'; sleep 1
  printf '%s\n' '{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"read","arguments":{}}}'; sleep 1; } | AGENTSH_SOCKET=/run/agentsh/bridge /run/agentsh/agentsh bridge s
"#;

struct Seen {
    answers: Vec<Value>,
    errors: String,
}

impl Seen {
    fn tools(&self) -> Vec<&str> {
        let tools = self.answers[1]["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
    }
}

pub fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

/// Puts the server in its place, with what it offers.
pub fn offer(place: &Place, tools: &Value, instructions: &str) {
    let server = place.script(place.home.join("server"), SERVER);
    let config = json!({"mcpServers": {"s": {"command": server}}});
    place.write(place.home.join(".claude.json"), config.to_string());
    place.write(place.project.join("tools"), tools.to_string());
    place.write(place.project.join("prompts"), json!([{"name": "p", "description": "x"}]).to_string());
    place.write(place.project.join("instructions"), json!(instructions).to_string());
}

fn session(place: &Place, tools: &Value, instructions: &str) -> Seen {
    offer(place, tools, instructions);
    let claude = place.script(place.project.join("bin/claude"), TALK);
    let outcome = Outcome::of(place.agentsh(&["run", "--"]).arg(claude)).expect_code(0);
    let answers: Vec<Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 4, "{outcome}");
    Seen { answers, errors: outcome.stderr }
}

/// A killed session, and one that lasts, has pinned what it saw.
#[test]
fn offered_tools_are_pinned_while_the_session_lives() {
    let place = Place::new(Mode::Invoker);
    offer(&place, &json!([tool("read", "Reads.")]), "x");
    place.user_policy(
        "version: 1\nsandbox: {mcp: {version_pinning: {on_change: block, pin_binary: false}}}\n",
    );
    let server = place.home.join("server");
    let start = || {
        let mut peer = Peer::start(place.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(&server));
        peer.shake_hands();
        peer
    };
    let until = |words: &[&str], wanted: &str| {
        let found = || pins(&place, words).stdout.contains(wanted);
        assert!(
            (0..100).any(|_| found() || (std::thread::sleep(Duration::from_millis(100)), false).1),
            "{wanted}"
        );
    };
    let mut first = start();
    let listed = first.request("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"][0]["name"], "read", "{listed} {}", first.errors());
    until(&["list", "--offered"], "read");
    first.child.kill().unwrap();
    drop(first);
    place.write(place.project.join("tools"), json!([tool("read", "Reads and sends.")]).to_string());
    // Another program that nobody accepted brings no new definitions.
    place.script(&server, &format!("{SERVER}# another\n"));
    let mut second = start();
    let listed = second.request("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"], json!([]), "{listed}");
    let refused = second.call("read", json!({}));
    assert!(refused["error"]["message"].as_str().unwrap().contains("agentsh mcp pins trust"), "{refused}");
    // What a refusal says works at once.
    let trusted = pins(&place, &["trust", "--server", "s", "--tool", "read"]).expect_code(0);
    assert!(trusted.stdout.contains("trusted s: tool read sha256:"), "{trusted}");
    second.finish();
}

/// agentsh lists the tools itself before the first call.
#[test]
fn call_of_a_client_that_never_lists_is_judged_by_the_definition() {
    let place = Place::new(Mode::Invoker);
    let policy = |first: bool| {
        place.user_policy(&format!(
            "version: 1\nsandbox: {{mcp: {{version_pinning: {{auto_trust_first: {first}, pin_binary: false}}}}}}\n"
        ));
    };
    offer(&place, &json!([tool("read", "Reads.")]), "x");
    let calls = || {
        let mut command = place.agentsh(&["mcp", "run", "--id", "s", "--"]);
        let mut peer = Peer::start(command.arg(place.home.join("server")));
        peer.shake_hands();
        let answers = ["read", "other"].map(|name| peer.call(name, json!({})).to_string());
        peer.finish();
        answers
    };
    policy(false);
    assert!(calls()[0].contains("never trusted"), "{:?}", calls());
    pins(&place, &["trust", "--server", "s"]).expect_code(0);
    let [read, other] = calls();
    assert!(read.contains("ran"), "{read}");
    assert!(other.contains("lists no tool of this name"), "{other}");
    pins(&place, &["reset", "--all"]).expect_code(0);
    policy(true);
    assert!(calls()[0].contains("ran"), "{:?}", calls());
    place.write(place.project.join("tools"), json!([tool("read", "Reads and sends.")]).to_string());
    assert!(calls()[0].contains("its definition changed"), "{:?}", calls());
    // A call that says that it comes from another kind of client is one of the changed tool too.
    place.user_policy("version: 1\nsandbox: {mcp: {version_pinning: {on_change: ask, pin_binary: false}}}\n");
    let mut peer =
        Peer::start(place.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(place.home.join("server")));
    peer.shake_hands();
    peer.request("tools/list", json!({}));
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2025-06-18",
        "io.modelcontextprotocol/clientCapabilities": {"roots": {}, "other": {}}});
    let call = json!({"name": "read", "arguments": {}, "_meta": meta});
    for _ in 0..2 {
        let answer = peer.request("tools/call", call.clone()).to_string();
        assert!(answer.contains("nobody-to-ask"), "{answer}");
    }
    assert!(peer.call("read", json!({})).to_string().contains("nobody-to-ask"));
    peer.finish();
}

/// A server that ends while agentsh lists its prompts lists nothing else either.
#[test]
fn requests_that_wait_for_lists_of_a_server_that_ended_get_errors() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nsandbox: {mcp: {version_pinning: {on_change: block, pin_binary: false}}}\n",
    );
    offer(&place, &json!([tool("read", "Reads.")]), "x");
    place.write(place.project.join("resources"), json!([{"uri": "file:///r", "name": "r"}]).to_string());
    let start = || {
        let mut peer =
            Peer::start(place.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(place.home.join("server")));
        peer.shake_hands();
        peer
    };
    let mut first = start();
    ["prompts/list", "resources/list"].iter().for_each(|list| drop(first.request(list, json!({}))));
    first.finish();
    place.write(place.project.join("ends"), "");
    let mut second = start();
    let asked = [
        second.ask("prompts/get", json!({"name": "p"})),
        second.ask("resources/read", json!({"uri": "file:///r"})),
    ];
    for id in &asked {
        let answer = second.answer(id).to_string();
        assert!(answer.contains("server-ended") && answer.contains("has to come first"), "{answer}");
    }
    second.finish();
}

/// What a server does not list cannot be trusted.
#[test]
fn prompt_that_is_not_listed_is_refused_where_nothing_is_trusted_by_itself() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nsandbox: {mcp: {version_pinning: {auto_trust_first: false, pin_binary: false}}}\n",
    );
    offer(&place, &json!([tool("read", "Reads.")]), "x");
    place.write(place.project.join("prompts"), "[]");
    let mut peer =
        Peer::start(place.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(place.home.join("server")));
    peer.shake_hands();
    let answer = peer.request("prompts/get", json!({"name": "p"})).to_string();
    assert!(answer.contains("never trusted") && !answer.contains("got"), "{answer}");
    peer.finish();
}

/// The same for prompts and resources, once one of them is pinned. A server without templates has none.
#[test]
fn prompt_and_resource_that_were_not_listed_are_judged_by_their_definitions() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nsandbox: {mcp: {version_pinning: {on_change: block, pin_binary: false}}}\n",
    );
    offer(&place, &json!([tool("read", "Reads.")]), "x");
    let resource = |description: &str| {
        let resource = json!([{"uri": "file:///r", "name": "r", "description": description}]);
        place.write(place.project.join("resources"), resource.to_string());
    };
    resource("A file.");
    let session = |lists: &[&str]| {
        let mut command = place.agentsh(&["mcp", "run", "--id", "s", "--"]);
        let mut peer = Peer::start(command.arg(place.home.join("server")));
        peer.shake_hands();
        lists.iter().for_each(|list| drop(peer.request(list, json!({}))));
        let prompt = peer.request("prompts/get", json!({"name": "p"})).to_string();
        let resource = peer.request("resources/read", json!({"uri": "file:///r"})).to_string();
        peer.finish();
        [prompt, resource]
    };
    for lists in [&[][..], &["prompts/list", "resources/list"], &[]] {
        let answers = session(lists);
        assert!(answers.iter().all(|answer| answer.contains("got")), "{lists:?} {answers:?}");
    }
    place.write(place.project.join("prompts"), json!([{"name": "p", "description": "y"}]).to_string());
    resource("Another file.");
    for lists in [&[][..], &["prompts/list", "resources/list"]] {
        let answers = session(lists);
        let is_refused =
            |answer: &String| answer.contains("its definition changed") && !answer.contains("got");
        assert!(answers.iter().all(is_refused), "{lists:?} {answers:?}");
    }
}

pub fn pins(place: &Place, words: &[&str]) -> Outcome {
    Outcome::of(place.agentsh(&["mcp", "pins"]).args(words))
}

#[test]
#[ignore = "takes long"]
fn a_tool_that_changes_between_sessions_is_hidden_and_refused_until_it_is_trusted() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let before = json!([tool("read", "Reads."), tool("list", "Lists.")]);
        let first = session(&place, &before, "be nice");
        assert_eq!(first.tools(), ["read", "list"], "{mode:?} {}", first.errors);
        assert_eq!(first.answers[3]["result"]["content"][0]["text"], "ran");
        // Spelled in another order it is the same.
        let spelled = r#"[{"inputSchema":{"type":"object"},"description":"Reads.","name":"read"},{"name":"list","inputSchema":{"type":"object"},"description":"\u004cists."}]"#;
        let same = session(&place, &serde_json::from_str(spelled).unwrap(), "be nice");
        assert_eq!(same.tools(), ["read", "list"], "{}", same.errors);
        let after =
            json!([tool("read", "Reads, and mails it."), tool("list", "Lists."), tool("more", "New.")]);
        let changed = session(&place, &after, "be nice, and quick");
        assert_eq!(changed.tools(), ["list", "more"], "{}", changed.errors);
        assert_eq!(changed.answers[0]["result"]["instructions"], Value::Null);
        let refusal = changed.answers[3]["error"]["message"].as_str().unwrap();
        assert!(refusal.contains("on_change") && refusal.contains("mcp pins diff"), "{refusal}");
        assert!(
            changed.errors.contains("hidden from the agent") && changed.errors.contains("(description)"),
            "{}",
            changed.errors
        );
        let changes = place.events("mcp_tool_changed");
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(changes[0]["previousHash"].is_string() && changes[0]["newHash"] == changes[0]["new_hash"]);
        let reasons: Vec<Value> = place.detections().iter().map(|found| found["reason"].clone()).collect();
        assert!(
            reasons.contains(&json!("interface-changed")) && reasons.contains(&json!("interface-added")),
            "{reasons:?}"
        );

        let shown = pins(&place, &["diff", "--server", "s"]).expect_code(0);
        for part in
            ["s: tool read", "-Reads.", "+Reads, and mails it.", "s: instructions", "+be nice, and quick"]
        {
            assert!(shown.stdout.contains(part), "{part}: {shown}");
        }
        // By its hash, with and without its prefix, and by no other.
        let hash = changes[0]["new_hash"].as_str().unwrap();
        let by = |hash: &str| pins(&place, &["trust", "--server", "s", "--tool", "read", "--hash", hash]);
        assert!(by("abc123").expect_code(1).stderr.contains(hash));
        for same in [hash.strip_prefix("sha256:").unwrap(), hash] {
            assert!(by(same).expect_code(0).stdout.contains("trusted s: tool read"));
        }
        let trusted = session(&place, &after, "be nice");
        assert_eq!(trusted.tools(), ["read", "list", "more"], "{}", trusted.errors);
        assert_eq!(trusted.answers[3]["result"]["content"][0]["text"], "ran");
        let listed = pins(&place, &["list", "--offered", "--json"]).expect_code(0);
        let listed: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
        let named: Vec<&str> = listed.iter().map(|pin| pin["name"].as_str().unwrap()).collect();
        assert_eq!(named, ["", "p", "list", "more", "read"], "{listed:?}");
        // Programs are listed with what they offer.
        let all = pins(&place, &["list", "--json"]).expect_code(0);
        let all: Vec<Value> = serde_json::from_str(&all.stdout).unwrap();
        assert!(all[0]["kind"] == "program" && all[0]["digest"].is_string() && all[1..] == listed, "{all:?}");
        assert!(pins(&place, &["list"]).expect_code(0).stdout.contains("\ttool\t"), "{all:?}");
        pins(&place, &["reset", "--server", "s"]).expect_code(0);
        assert_eq!(pins(&place, &["list", "--json"]).expect_code(0).stdout, "[]\n");
        // A reset definition can be trusted again, by its hash alone.
        assert!(by("abc123").expect_code(1).stderr.contains("no offer has this hash"));
        assert!(by(hash).expect_code(0).stdout.contains("trusted s: tool read"));
        let again = session(&place, &before, "anything");
        assert_eq!(again.tools(), ["list"], "{}", again.errors);
        pins(&place, &["reset", "--server", "s", "--offered"]).expect_code(0);
        let again = session(&place, &before, "anything");
        assert_eq!(again.tools(), ["read", "list"], "{}", again.errors);
    }
}

#[test]
fn duplicate_and_look_alike_tools_in_a_listing_are_refused() {
    let place = Place::new(Mode::Invoker);
    let twice = json!([tool("read", "Reads."), tool("read", "Reads, and more.")]);
    let first = session(&place, &twice, "x");
    assert_eq!(first.tools(), ["read"], "{}", first.errors);
    assert!(
        first.errors.contains("offered two definitions with this name in this session"),
        "{}",
        first.errors
    );
    let alike = json!([tool("read", "Reads."), tool("re\u{430}d", "Reads everything.")]);
    let second = session(&place, &alike, "x");
    assert_eq!(second.tools(), ["read"], "{}", second.errors);
    assert!(second.errors.contains("looks like 'read'"), "{}", second.errors);
}

/// As a Python server lists tools that it makes of sets: in another order at each start.
#[test]
fn sets_of_a_schema_may_change_their_order_and_nothing_else() {
    let place = Place::new(Mode::Invoker);
    let schema = |names: &[&str]| {
        let fields = json!({"type": ["string", "null"], "enum": names, "default": names.join(",")});
        json!({"type": "object", "properties": {"fields": fields, "id": {}}, "required": names})
    };
    let tools = |read: &[&str], list: &[&str]| {
        let mut tools = [tool("read", "Reads."), tool("list", "Lists.")];
        (tools[0]["inputSchema"], tools[1]["inputSchema"]) = (schema(read), schema(list));
        json!(tools)
    };
    let first = session(&place, &tools(&["id", "fields"], &["id", "fields"]), "x");
    assert_eq!(first.tools(), ["read", "list"], "{}", first.errors);
    let second = session(&place, &tools(&["fields", "id"], &["fields", "id", "more"]), "x");
    assert_eq!(second.tools(), ["read"], "{}", second.errors);
    assert_eq!(second.answers[1]["result"]["tools"][0]["inputSchema"], schema(&["fields", "id"]));
    let changes = place.events("mcp_tool_changed");
    assert!(changes.len() == 1 && changes[0]["tool_name"] == "list", "{changes:?}");
    // A changed tool is shown with its new definition.
    session(&place, &json!([tool("read", "Reads."), tool("list", "Lists anew.")]), "x");
    let shown = Outcome::of(&mut place.agentsh(&["mcp", "tools", "--json"])).expect_code(0).stdout;
    assert!(shown.contains("Lists anew.") && !shown.contains("Lists.\""), "{shown}");
}

#[test]
#[ignore = "takes long"]
fn policy_decides_the_action_on_a_changed_tool() {
    let place = Place::new(Mode::Invoker);
    let policy = |keys: &str| {
        place.user_policy(&format!("version: 1\nsandbox: {{mcp: {{version_pinning: {{{keys}}}}}}}\n"))
    };
    policy("on_change: alert");
    session(&place, &json!([tool("read", "Reads.")]), "x");
    let changed = session(&place, &json!([tool("read", "Other.")]), "x");
    assert_eq!(changed.tools(), ["read"], "{}", changed.errors);
    assert!(
        place
            .detections()
            .iter()
            .any(|found| found["reason"] == "interface-changed" && found["action"] == "alert")
    );
    // `allow` lets it pass too, and the change is on record.
    policy("on_change: allow");
    let changed = session(&place, &json!([tool("read", "Another.")]), "x");
    assert_eq!(
        (changed.tools(), &changed.answers[3]["result"]["content"][0]["text"]),
        (vec!["read"], &json!("ran"))
    );
    assert_eq!(place.events("mcp_tool_changed").len(), 2);
    policy("on_change: block");
    session(&place, &json!([tool("read", "Again another.")]), "x");
    let hidden =
        place.detections().into_iter().rfind(|found| found["reason"] == "interface-changed").unwrap();
    assert_eq!((&hidden["action"], &hidden["severity"]), (&json!("block"), &json!("critical")));
    policy("auto_trust_first: false, pin_binary: false");
    pins(&place, &["reset", "--all"]).expect_code(0);
    let unknown = session(&place, &json!([tool("read", "Reads.")]), "x");
    assert!(unknown.tools().is_empty(), "{}", unknown.errors);
    pins(&place, &["trust", "--server", "s"]).expect_code(0);
    let known = session(&place, &json!([tool("read", "Reads.")]), "x");
    assert_eq!(known.tools(), ["read"], "{}", known.errors);
}

#[test]
#[ignore = "takes long"]
fn ignore_in_covers_one_member_of_one_tool_of_one_server() {
    let place = Place::new(Mode::Invoker);
    let policy = |server: &str| {
        place.user_policy(&format!(
            "version: 1\nsandbox: {{mcp: {{version_pinning: {{ignore_in: [{{server: {server}, name: read, members: [description]}}]}}}}}}\n"
        ));
    };
    policy("s");
    session(&place, &json!([tool("read", "It is noon."), tool("list", "Lists.")]), "x");
    let later = session(&place, &json!([tool("read", "It is one."), tool("list", "Lists.")]), "x");
    assert_eq!(later.tools(), ["read", "list"], "{}", later.errors);
    assert_eq!(later.answers[3]["result"]["content"][0]["text"], "ran");
    // Another member, another tool, another server.
    let mut more = tool("read", "It is two.");
    more["title"] = json!("Clock");
    assert_eq!(session(&place, &json!([more, tool("list", "Lists.")]), "x").tools(), ["list"]);
    let other = session(&place, &json!([tool("read", "It is two."), tool("list", "It is two.")]), "x");
    assert_eq!(other.tools(), ["read"], "{}", other.errors);
    policy("other");
    assert_eq!(
        session(&place, &json!([tool("read", "It is two."), tool("list", "Lists.")]), "x").tools(),
        ["list"]
    );
}

/// A call of a changed tool does not come to the agent in its model's answer either.
#[test]
fn changed_tool_cannot_be_called_through_the_model() {
    let place = Place::new(Mode::Invoker);
    let call = json!({"type": "tool_use", "id": "t1", "name": "mcp__s__read", "input": {}});
    let said = json!({"id": "m", "type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"});
    let model = HttpServer::start(move |_| Reply::json(&said));
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
    place.user_policy("version: 1\nsandbox: {mcp: {version_pinning: {on_change: block}}}\n");
    let ask = "curl -sS -H 'Content-Type: application/json' --data-binary '{\"model\":\"m\",\"messages\":[]}' $ANTHROPIC_BASE_URL/v1/messages\n";
    let claude = place.script(place.project.join("bin/claude"), &format!("{TALK}{ask}"));
    let answer = |description: &str| {
        offer(&place, &json!([tool("read", description)]), "x");
        let outcome = Outcome::of(place.agentsh(&["run", "--"]).arg(&claude)).expect_code(0);
        outcome.stdout.lines().last().unwrap().to_owned()
    };
    assert!(answer("Reads.").contains("\"id\":\"t1\""));
    let refused = answer("Reads, and mails it.");
    assert!(
        refused.contains("[agentsh] Tool 'mcp__s__read' blocked by policy") && refused.contains("on_change"),
        "{refused}"
    );
}
