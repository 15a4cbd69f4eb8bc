//! `agentsh vet-url`: which URLs agentsh would connect to in its own name.

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Place};

fn judged(lines: &[Value]) -> Vec<Value> {
    let place = Place::new(Mode::Invoker);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let file = place.write("targets.jsonl", text);
    let outcome = Outcome::of(place.agentsh(&["vet-url", "--json"]).arg(file)).expect_code(0);
    outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn check(verdict: &str, lines: &[Value]) {
    let answers = judged(lines);
    assert_eq!(answers.len(), lines.len());
    for (line, answer) in lines.iter().zip(answers) {
        assert_eq!(
            (&answer["id"], answer["verdict"].as_str()),
            (&line["id"], Some(verdict)),
            "{line} {answer}"
        );
        assert!(answer["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{answer}");
    }
}

#[test]
fn public_servers_are_allowed() {
    check(
        "allow",
        &[
            json!({"id": 1, "url": "https://mcp.example.com/mcp", "dns": ["93.184.215.14", "2606:4700::1"]}),
            json!({"id": "b", "url": "https://1.1.1.1/"}),
            json!({"id": 3, "url": "https://a.example.com/", "dns": ["1.1.1.1"], "cname": ["b.example.net."]}),
            json!({"id": 4, "url": "https://a.example.com/", "dns": ["1.1.1.1"], "redirect": "/b"}),
            json!({"id": 5, "url": "https://a.example.com/", "dns_seq": [["1.1.1.1"], ["8.8.8.8"]]}),
            json!({"id": 6, "url": "https://b\u{fc}cher.example.com/", "dns": ["64:ff9b::101:101"]}),
        ],
    );
}

#[test]
fn urls_that_are_private_ambiguous_or_redirected_are_blocked() {
    let public = json!(["93.184.215.14"]);
    check(
        "block",
        &[
            json!({"id": 1, "url": "https://0x7f.1/"}),
            json!({"id": 2, "url": "https://[64:ff9b::101:101]/"}),
            json!({"id": 3, "url": "https://a.example.com/", "dns": ["1.1.1.1", "fd00::1"]}),
            json!({"id": 4, "url": "https://a.example.com/", "dns": []}),
            json!({"id": 5, "url": "https://a.example.com/", "dns": "error"}),
            json!({"id": 6, "url": "https://a.example.com/", "dns": public, "cname": ["db.internal"]}),
            json!({"id": 7, "url": "https://a.example.com/", "dns_seq": [public, ["127.0.0.1"]]}),
            json!({"id": 8, "url": "https://a.example.com/", "dns": public, "redirect": "https://10.0.0.1/"}),
            json!({"id": 9, "url": "https://a.example.com/", "dns": public, "redirect": "http://a.example.com/"}),
            json!({"id": 10, "url": "https://a.example.com/", "dns": public, "redirect": ["/1", "/2", "/3", "/4"]}),
            json!({"id": 11, "url": "http://127.0.0.1/"}),
            json!({"id": 12, "url": "https://user@example.com/", "dns": public}),
            json!({"id": 13, "url": "https://printer/", "dns": public}),
            json!({"id": 14, "url": "file:///etc/passwd"}),
        ],
    );
}

#[test]
fn a_line_that_cannot_be_read_is_blocked_and_the_next_is_judged() {
    let place = Place::new(Mode::Invoker);
    let file =
        place.write("targets.jsonl", "{\"id\": 1}\nnonsense\n\n{\"id\": 3, \"url\": \"https://1.1.1.1/\"}\n");
    let outcome = Outcome::of(place.agentsh(&["vet-url", "--json"]).arg(file)).expect_code(0);
    let verdicts: Vec<Value> = outcome
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["verdict"].clone())
        .collect();
    assert_eq!(verdicts, ["block", "block", "allow"]);
}

#[test]
fn vet_url_verdict_is_readable_text() {
    let place = Place::new(Mode::Invoker);
    let refused = Outcome::of(&mut place.agentsh(&["vet-url", "https://169.254.169.254/"])).expect_code(1);
    assert!(refused.stdout.starts_with("block: 169.254.169.254 is not public (cloud metadata"), "{refused}");
    let allowed = Outcome::of(&mut place.agentsh(&["vet-url", "https://1.1.1.1/"])).expect_code(0);
    assert_eq!(allowed.stdout, "allow: it leads to 1.1.1.1\n");
    let here = Outcome::of(&mut place.agentsh(&["vet-url", "--allow-loopback", "http://127.0.0.1:1/"]));
    assert_eq!(here.code, 0, "{here}");
}
