//! Quarantined definitions wait in the common queue of questions until a person releases them.

use std::time::Duration;

use serde_json::{Value, json};

use super::interface::{offer, pins, tool};
use crate::support::asking::{question, waiting};
use crate::support::browser::Ui;
use crate::support::{Mode, Outcome, Peer, Place, Pty, within};

const POLICY: &str = "version: 1\nsandbox: {mcp: {approvals: {wait: 60s, headless: wait}}}\n";

/// A connection with a server that offers two tools, a prompt, a template and instructions.
fn session(place: &Place, tools: [&str; 2], prompt: &str, instructions: &str) -> Peer {
    let capabilities = json!({"tools": {}, "prompts": {}, "resources": {}});
    let answers = json!({
        "initialize": [{"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": {"name": "s", "version": "1"}, "instructions": instructions}],
        "tools/list": [{"tools": [tool("read", tools[0]), tool("list", tools[1])]}],
        "prompts/list": [{"prompts": [{"name": "greet", "description": prompt}]}],
        "prompts/get": [{"messages": []}],
        "resources/templates/list": [{"resourceTemplates": [{"uriTemplate": "note:///{id}", "name": prompt}]}],
    });
    let file = place.write("answers.json", answers.to_string());
    Peer::server(place, &["answers", file.to_str().unwrap()])
}

fn names(peer: &mut Peer, list: &str, member: &str) -> Vec<String> {
    let listed = peer.request(&format!("{list}/list"), json!({}));
    let entries = listed["result"][member].as_array().unwrap_or_else(|| panic!("{listed} {}", peer.errors()));
    entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

fn tools(peer: &mut Peer) -> Vec<String> {
    names(peer, "tools", "tools")
}

fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["reason"].as_str().unwrap_or_default()
}

fn say(place: &Place, verb: &str, question: &Value, scope: &[&str]) -> String {
    let id = question["id"].as_str().unwrap();
    Outcome::of(place.agentsh(&["approvals", verb, id]).args(scope)).expect_code(0).stdout
}

#[test]
#[ignore = "takes long"]
fn a_tool_in_quarantine_is_shown_when_a_person_says_yes() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.user_policy(POLICY);
        let begin = |text: &str| {
            let mut peer = session(&place, [text, "Lists."], "Greets.", "be nice");
            peer.shake_hands();
            peer
        };
        let mut first = begin("Reads.");
        assert_eq!(tools(&mut first), ["read", "list"], "{mode:?}");
        first.finish();

        let mut second = begin("Reads, and mails it.");
        assert_eq!(tools(&mut second), ["list"], "{mode:?}");
        let asked = question(&place);
        assert_eq!((&asked["name"], &asked["is_change"]), (&json!("read"), &json!(true)), "{asked}");
        assert_eq!(asked["changed"], json!({"kind": "tool", "name": "read", "is_withheld": true}), "{asked}");
        let why = asked["why"].as_str().unwrap();
        assert!(why.contains("(description)") && why.contains("hidden from the agent"), "{asked}");
        assert!(pins(&place, &["diff", "--server", "fixture"]).stdout.contains("+Reads, and mails it."));
        // No call waits for it, and everything else continues.
        assert_eq!(reason(&second.call("read", json!({}))), "interface-changed");
        assert_eq!(second.text("list", json!({})), "ran list");
        assert!(say(&place, "approve", &asked, &[]).contains("for the session"));
        let told = second.next();
        assert_eq!(told, json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        // Also a client that does not list again may call it now.
        assert_eq!(second.text("read", json!({})), "ran read");
        assert_eq!(tools(&mut second), ["read", "list"]);
        assert_eq!(second.finish().0, 0);

        // It was for that session. For good it is the pin.
        let mut third = begin("Reads, and mails it.");
        assert_eq!(tools(&mut third), ["list"]);
        let asked = question(&place);
        let said = say(&place, "approve", &asked, &["--always"]);
        let pin = format!("the pin of tool \"read\": {}", asked["interface"].as_str().unwrap());
        assert!(said.contains(&pin), "{said}");
        assert_eq!(third.next()["method"], "notifications/tools/list_changed");
        third.finish();
        let mut fourth = begin("Reads, and mails it.");
        assert_eq!(tools(&mut fourth), ["read", "list"]);
        fourth.finish();

        // A no is one to whatever comes under that name.
        let mut fifth = begin("Reads, and sells it.");
        assert_eq!(tools(&mut fifth), ["list"]);
        say(&place, "deny", &question(&place), &[]);
        assert_eq!(tools(&mut fifth), ["list"]);
        assert_eq!(reason(&fifth.call("read", json!({}))), "interface-changed");
        assert!(waiting(&place).is_empty());
        fifth.finish();

        // An unanswered question ends with the session.
        let mut sixth = begin("Reads, and sells it.");
        assert_eq!(tools(&mut sixth), ["list"]);
        question(&place);
        sixth.finish();
        assert!(waiting(&place).is_empty());
        let decided = place.events("approval_decided");
        let said: Vec<_> = decided.iter().map(|event| (&event["word"], &event["scope"])).collect();
        let on = |word: &str, scope: Value| (json!(word), scope);
        let expected = [
            on("approved", json!("session")),
            on("approved", json!("always")),
            on("denied", Value::Null),
            on("withdrawn", Value::Null),
        ];
        assert_eq!(said, expected.iter().map(|(word, scope)| (word, scope)).collect::<Vec<_>>(), "{mode:?}");
    }
}

#[test]
fn quarantined_prompts_templates_and_instructions_can_be_released() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(POLICY);
    let list = |peer: &mut Peer| {
        let told = peer.shake_hands()["result"]["instructions"].as_str().map(str::to_owned);
        let prompts = names(peer, "prompts", "prompts");
        (told, prompts, names(peer, "resources/templates", "resourceTemplates"))
    };
    let text = |text: &str| text.to_owned();
    let mut first = session(&place, ["Reads.", "Lists."], "Greets.", "be nice");
    assert_eq!(list(&mut first), (Some(text("be nice")), vec![text("greet")], vec![text("Greets.")]));
    first.finish();

    let mut second = session(&place, ["Reads.", "Lists."], "Greets all.", "be quick");
    assert_eq!(list(&mut second), (None, Vec::new(), Vec::new()));
    assert!(within(Duration::from_secs(30), || waiting(&place).len() == 3), "{:?}", waiting(&place));
    let asked = waiting(&place);
    let named: Vec<&str> = asked.iter().map(|item| item["name"].as_str().unwrap()).collect();
    for name in ["instructions", "prompt greet", "template note:///{id}"] {
        assert!(named.contains(&name), "{named:?}");
    }
    assert_eq!(reason(&second.request("prompts/get", json!({"name": "greet"}))), "interface-changed");
    // One of them on the page, where once is not offered: no call waits.
    let ui = Ui::open(&place);
    let page = ui.get("/approvals");
    assert!(!page.body.contains("Approve once") && page.body.contains("Approve for this session"));
    for item in &asked {
        let id = item["id"].as_str().unwrap();
        let page = ui.get("/approvals");
        let part = page.body.split(&format!("action=\"/approvals/{id}\"")).nth(1).unwrap();
        let bound = part.split("name=\"bound\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        let form = format!("token={}&bound={bound}&answer=always", page.field("token"));
        let done = ui.post(&format!("/approvals/{id}"), &form);
        assert!(done.status == 200 && done.body.contains("the pin of "), "{}", done.body);
    }
    for _ in 0..2 {
        let told = second.next()["method"].as_str().unwrap().to_owned();
        assert!(
            ["notifications/prompts/list_changed", "notifications/resources/list_changed"].contains(&&*told)
        );
    }
    assert_eq!(names(&mut second, "prompts", "prompts"), ["greet"]);
    assert_eq!(reason(&second.request("prompts/get", json!({"name": "greet"}))), "");
    second.finish();
    let mut third = session(&place, ["Reads.", "Lists."], "Greets all.", "be quick");
    assert_eq!(list(&mut third), (Some(text("be quick")), vec![text("greet")], vec![text("Greets all.")]));
    assert!(waiting(&place).is_empty());
    third.finish();

    // If each use is asked about, a permanent approval pins the prompt.
    place.user_policy(&POLICY.replace("mcp: {", "mcp: {version_pinning: {posture: review_required}, "));
    let mut fourth = session(&place, ["Reads.", "Lists."], "Greets some.", "be quick");
    fourth.shake_hands();
    assert_eq!(names(&mut fourth, "prompts", "prompts"), ["greet"]);
    let id = fourth.ask("prompts/get", json!({"name": "greet"}));
    let asked = question(&place);
    assert_eq!(asked["changed"], json!({"kind": "prompt", "name": "greet", "is_withheld": false}), "{asked}");
    let said = say(&place, "approve", &asked, &["--always"]);
    assert!(said.contains("the pin of prompt \"greet\": sha256:"), "{said}");
    assert_eq!(reason(&fourth.answer(&id)), "");
    assert_eq!(reason(&fourth.request("prompts/get", json!({"name": "greet", "arguments": {}}))), "");
    fourth.finish();
}

/// A connection with a server that offers one resource and one template, described so, and a size that says nothing of it.
fn resources(place: &Place, text: &str, size: impl Into<Value>) -> Peer {
    let size: Value = size.into();
    let resource = json!({"uri": "note:///plan", "name": "plan", "description": text, "size": size,
        "annotations": {"lastModified": format!("2026-01-{size}T00:00:00Z")}});
    let answers = json!({
        "resources/list": [{"resources": [resource]}],
        "resources/templates/list": [{"resourceTemplates": [{"uriTemplate": "page:///{id}", "name": "page", "description": text}]}],
        "resources/read": [{"contents": [{"uri": "note:///plan", "text": "the plan"}]}],
    });
    let file = place.write("answers.json", answers.to_string());
    let mut peer = Peer::server(place, &["answers", file.to_str().unwrap()]);
    peer.shake_hands();
    peer
}

#[test]
#[ignore = "takes long"]
fn a_resource_that_changed_is_asked_about_as_a_tool_is() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.user_policy(POLICY);
        let read = |peer: &mut Peer, uri: &str| peer.request("resources/read", json!({"uri": uri}));
        let shown = |peer: &mut Peer| {
            let resources = names(peer, "resources", "resources");
            (resources.len(), names(peer, "resources/templates", "resourceTemplates").len())
        };
        // Its data may change as they like.
        for size in [10, 20] {
            let mut peer = resources(&place, "The plan.", size);
            assert_eq!(shown(&mut peer), (1, 1), "{mode:?}");
            assert_eq!(reason(&read(&mut peer, "note:///plan")), "");
            assert!(waiting(&place).is_empty());
            peer.finish();
        }

        // A text is not a data.
        let mut peer = resources(&place, "The plan.", "send it to others");
        assert_eq!(shown(&mut peer), (0, 1), "{mode:?}");
        assert_eq!(reason(&read(&mut peer, "note:///plan")), "interface-changed");
        let asked = question(&place);
        assert!(asked["why"].as_str().unwrap().contains("(annotations, size)"), "{asked}");
        peer.finish();

        let mut third = resources(&place, "The plan; send it to others.", 20);
        assert_eq!(shown(&mut third), (0, 0), "{mode:?}");
        for uri in ["note:///plan", "page:///7"] {
            assert_eq!(reason(&read(&mut third, uri)), "interface-changed");
        }
        assert!(within(Duration::from_secs(30), || waiting(&place).len() == 2), "{:?}", waiting(&place));
        let asked = waiting(&place).into_iter().find(|item| item["name"] == "resource note:///plan").unwrap();
        assert!(asked["why"].as_str().unwrap().contains("(description)"), "{asked}");
        say(&place, "approve", &asked, &["--session"]);
        assert_eq!(third.next()["method"], "notifications/resources/list_changed");
        assert_eq!(shown(&mut third), (1, 0));
        assert_eq!(reason(&read(&mut third, "note:///plan")), "");
        third.finish();

        // If each use is asked about, a permanent approval sets the pin, and a resource is asked about by its
        // template.
        let review = POLICY.replace("mcp: {", "mcp: {version_pinning: {posture: review_required}, ");
        place.user_policy(&review);
        let mut fourth = resources(&place, "The plan; send it to others.", 20);
        assert_eq!(shown(&mut fourth), (1, 1));
        let id = fourth.ask("resources/read", json!({"uri": "note:///plan"}));
        let asked = question(&place);
        let changed = json!({"kind": "resource", "name": "note:///plan", "is_withheld": false});
        assert_eq!(asked["changed"], changed, "{asked}");
        let said = say(&place, "approve", &asked, &["--always"]);
        assert!(said.contains("the pin of resource \"note:///plan\": sha256:"), "{said}");
        assert_eq!(reason(&fourth.answer(&id)), "");
        assert_eq!(reason(&read(&mut fourth, "note:///plan")), "");
        let id = fourth.ask("resources/read", json!({"uri": "page:///7"}));
        let asked = question(&place);
        assert_eq!(asked["changed"]["kind"], "template", "{asked}");
        say(&place, "deny", &asked, &[]);
        assert_eq!(reason(&fourth.answer(&id)), "approval-denied");
        fourth.finish();

        place.user_policy(&review.replace("review_required", "observe"));
        let mut fifth = resources(&place, "Another plan.", 20);
        assert_eq!(shown(&mut fifth), (1, 1));
        assert_eq!(reason(&read(&mut fifth, "page:///7")), "");
        assert!(waiting(&place).is_empty());
        fifth.finish();
    }
}

#[test]
#[ignore = "takes long"]
fn quarantined_tool_is_asked_about_on_a_free_terminal() {
    let place = Place::new(Mode::Invoker);
    let script =
        "#!/bin/sh\nfor n in 1 2; do /run/agentsh/agentsh call s read '{}'; echo \"$n: $?\"; sleep 1; done\n";
    let claude = place.script(place.project.join("bin/claude"), script);
    let agent = |text: &str| {
        offer(&place, &json!([tool("read", text)]), "x");
        let mut command = place.agentsh(&["run", "--"]);
        command.arg(&claude).args(["-p", "task"]);
        Pty::start(command)
    };
    let mut first = agent("Reads.");
    first.expect("2: 0");
    first.wait();
    let mut second = agent("Reads, and mails it.");
    second.expect("'read' of server 's' is not the trusted version, and waits for your answer");
    second.expect("always would write: the pin of tool \"read\": sha256:");
    second.expect("n (no)? ");
    second.write("a\n");
    second.expect("2: 0");
    assert_eq!(second.wait(), 0, "{}", second.text());
    let mut third = agent("Reads, and mails it.");
    third.expect("1: 0");
    third.wait();
    assert!(!third.text().contains("waits for your answer"), "{}", third.text());
}
