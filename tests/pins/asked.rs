//! A person is asked about a tool that differs from its trusted definition.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::interface::{offer, pins, tool};
use crate::support::asking::{ended, question, waiting};
use crate::support::{Mode, Outcome, Place, within};

const POLICY: &str = "version: 1\nsandbox: {mcp: {version_pinning: {posture: review_required}, \
                      approvals: {wait: 60s, headless: wait}}}\n";

/// An agent that calls the tool with two different arguments.
fn agent(place: &Place, description: &str) -> Child {
    offer(place, &json!([tool("read", description)]), "x");
    let script = "#!/bin/sh\nfor n in 1 2; do /run/agentsh/agentsh call s read \"{\\\"n\\\": $n}\"; echo \"$n $?\"; done\n";
    let claude = place.script(place.project.join("bin/claude"), script);
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(claude).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn say(place: &Place, verb: &str, question: &Value, scope: &[&str]) -> String {
    let id = question["id"].as_str().unwrap();
    Outcome::of(place.agentsh(&["approvals", verb, id]).args(scope)).expect_code(0).stdout
}

#[test]
#[ignore = "takes long"]
fn changed_tool_waits_for_an_answer_that_applies_to_its_new_definition() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(POLICY);
    let both = "ran\n1 0\nran\n2 0\n";
    let (out, err) = ended(agent(&place, "Reads."));
    assert_eq!(out, both, "{err}");

    // For the session: whatever the arguments of the next call are.
    let child = agent(&place, "Reads, and mails it.");
    let asked = question(&place);
    assert_eq!((&asked["name"], &asked["is_change"]), (&json!("read"), &json!(true)), "{asked}");
    let why = asked["why"].as_str().unwrap();
    assert!(
        why.contains("differs from the trusted one") && why.contains("mcp pins diff --server s"),
        "{asked}"
    );
    let shown = pins(&place, &["diff", "--server", "s"]).expect_code(0);
    assert!(shown.stdout.contains("+Reads, and mails it."), "{shown}");
    say(&place, "approve", &asked, &["--session"]);
    let (out, err) = ended(child);
    assert_eq!(out, both, "{err}");

    // Another session asks again; `once` is one call, and a permanent approval changes the pin and writes no policy
    // line.
    let child = agent(&place, "Reads, and mails it.");
    let first = question(&place);
    assert_eq!(first["interface"], asked["interface"]);
    say(&place, "approve", &first, &[]);
    assert!(within(Duration::from_secs(30), || waiting(&place).iter().any(|next| next["id"] != first["id"])));
    let said = say(&place, "approve", &question(&place), &["--always"]);
    let pin =
        format!("written by the session: the pin of tool \"read\": {}", first["interface"].as_str().unwrap());
    assert!(said.contains(&pin), "{said}");
    let (out, err) = ended(child);
    assert_eq!(out, both, "{err}");
    assert!(!place.home.join(".config/agentsh/approved.yaml").exists());
    let (out, err) = ended(agent(&place, "Reads, and mails it."));
    assert_eq!(out, both, "{err}");
    let listed = pins(&place, &["list", "--offered", "--json"]).expect_code(0);
    assert!(listed.stdout.contains(first["interface"].as_str().unwrap()), "{listed}");

    // A further change is another question, and a denial refuses the call.
    let child = agent(&place, "Reads, and mails it to others.");
    let again = question(&place);
    assert_ne!(again["interface"], first["interface"]);
    say(&place, "deny", &again, &[]);
    assert!(within(Duration::from_secs(30), || waiting(&place).iter().any(|next| next["id"] != again["id"])));
    say(&place, "deny", &question(&place), &[]);
    let (out, err) = ended(child);
    assert_eq!(out, "1 1\n2 1\n", "{err}");
    let words: Vec<Value> =
        place.events("approval_decided").iter().map(|event| event["word"].clone()).collect();
    assert_eq!(words, ["approved", "approved", "approved", "denied", "denied"]);
}
