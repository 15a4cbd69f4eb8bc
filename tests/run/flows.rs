//! Data flows between two servers over a session: approved ones, permitted ones, data that the agent read itself, and
//! small answers.

use std::process::Stdio;

use serde_json::{Value, json};

use super::exfiltration::{call, three_servers, two_servers};
use crate::support::asking::{ended, question};
use crate::support::http_server::{HttpServer, Reply};
use crate::support::sandbox::script;
use crate::support::{Mode, Outcome, Place};

const KEY: &str = "Qz7Lm2Wx9Rt4Vb6Nc8Kd3Hs5Jf1Gp0Ya";

/// The number-th six characters of the key: less than a quarter of it.
fn piece(number: usize) -> &'static str {
    &KEY[6 * number..6 * number + 6]
}

fn key_file(place: &Place) -> String {
    place.write("key.txt", format!("secret_key={KEY}\n")).to_str().unwrap().to_owned()
}

/// A pair that a person opened is asked about no more, and what goes through it is counted anyway.
#[test]
fn flow_that_a_person_approved_counts_towards_coverage() {
    let place = Place::new(Mode::Invoker);
    two_servers(&place);
    place.user_policy(
        "version: 1\nsandbox: {mcp: {approvals: {wait: 60s, headless: wait}, exfiltration: {marker: off, on_private_to_external: ask, on_detection: block}}}\n",
    );
    let send = |text: &str| format!("call mail echo '{{\"text\": \"{text}\"}}' 2>&1 || echo stopped");
    let lines = [
        format!("call files read_file '{{\"path\": \"{}\"}}'", key_file(&place)),
        send("of my own"),
        send(piece(0)),
        send(piece(2)),
        send("and more of my own"),
    ];
    let text = format!("#!/bin/sh\ncall() {{ /run/agentsh/agentsh call \"$@\"; }}\n{}\n", lines.join("\n"));
    let claude = place.script(place.project.join("bin/claude"), &text);
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(claude).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let item = question(&place);
    say_yes(&place, &item);
    let (out, err) = ended(child);
    assert!(out.contains(&format!("of my own\n{}\n", piece(0))), "{out}\n{err}");
    assert!(!out.contains(&format!("\n{}\n", piece(2))) && out.contains("stopped"), "{out}\n{err}");
    assert!(out.ends_with("and more of my own\n"), "{out}\n{err}");
    let found = place.detections();
    assert!(json!(found).to_string().contains("taint-coverage"), "{found:?}");
    assert_eq!(place.events("approval_requested").len(), 1);
}

fn say_yes(place: &Place, item: &Value) {
    let id = item["id"].as_str().unwrap();
    Outcome::of(&mut place.agentsh(&["approvals", "approve", id])).expect_code(0);
}

/// A copy that may go from one server to another is no loss, and does not reduce what may go elsewhere.
#[test]
fn permitted_pair_does_not_count_for_other_servers() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    let read = call("files", "read_file", json!({"path": key_file(&place)}));
    let send = |to: &str, number: usize| call(to, "echo", json!({"text": piece(number)}));
    let steps =
        json!([read, send("wiki", 0), send("wiki", 1), send("wiki", 2), send("mail", 4), send("mail", 0)]);
    let policy = |more: &str| {
        let text = format!(
            "version: 1\nsandbox: {{mcp: {{exfiltration: {{marker: off, on_private_to_external: allow, close_after: 100{more}}}}}}}\n"
        );
        place.policy(&text);
    };
    policy(", allow: [{from: files, to: wiki}]");
    let answers = script(&place, &steps);
    for (step, number) in [(1, 0), (2, 1), (3, 2), (4, 4)] {
        assert_eq!(answers.text(step), piece(number));
    }
    assert!(answers.error(5).contains("'read_file' of server 'files'"), "{}", answers.error(5));
    // Without the pair all servers count together.
    policy("");
    let answers = script(&place, &steps);
    assert_eq!(answers.text(1), piece(0));
    for step in 2..5 {
        assert!(answers.error(step).contains("'read_file' of server 'files'"), "{}", answers.error(step));
    }
}

/// Yes and no answer questions about what was read: a few go, and then they are a decision like any other call.
#[test]
fn yes_and_no_answers_use_up_the_leak_budget() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    let read = call("files", "read_file", json!({"path": key_file(&place)}));
    let answers = ["yes", "no", "yes", "no", "yes", "yes", "no", "yes"];
    let mut steps = vec![read];
    steps.extend(answers.iter().map(|answer| call("mail", "echo", json!({"text": answer}))));
    let policy = |more: &str| {
        place.policy(&format!(
            "version: 1\nsandbox: {{mcp: {{exfiltration: {{marker: off, on_private_to_external: block{more}}}}}}}\n"
        ));
    };
    policy("");
    let said = script(&place, &json!(steps));
    assert_eq!((said.text(1), said.text(2)), ("yes", "no"), "a few are one of a finite list");
    let refused: Vec<usize> = (1..9).filter(|step| said.json[*step].get("error").is_some()).collect();
    assert!(!refused.is_empty() && refused[0] <= 5, "{refused:?}");
    let message = said.error(refused[0]);
    assert!(
        message.contains("policy.yaml:2 (sandbox.mcp.exfiltration.on_private_to_external)")
            && message.contains("16 bits")
            && message.contains("{pairs: [{from: files, to: mail, values: [WORD, WORD]}]}"),
        "{message}"
    );
    // The line that the refusal names.
    policy(", pairs: [{from: files, to: mail, values: [\"yes\", \"no\"]}]");
    let said = script(&place, &json!(steps));
    for (at, answer) in answers.iter().enumerate() {
        assert_eq!(said.text(at + 1), *answer);
    }
}

/// Names and numbers that a public server said, and numbers that the server itself said, are no answers.
#[test]
fn ids_of_the_public_side_pass_as_often_as_work_needs_them() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    let page = place
        .write("page.txt", "Issue 4712345 of acme/widgets was closed, and 8812345 is open; see PROJ-88123.");
    let steps = [
        call("files", "read_file", json!({"path": key_file(&place)})),
        call("wiki", "read_file", json!({"path": page})),
        call("mail", "add", json!({"a": 4712345, "b": 8812345})),
        call("mail", "add", json!({"a": 8812345, "b": 4712345})),
        call("mail", "echo", json!({"text": "acme/widgets"})),
        call("mail", "echo", json!({"text": "PROJ-88123"})),
        call("mail", "add", json!({"a": 4712345, "b": 4712345})),
        call("mail", "add", json!({"a": 4712345, "b": 3312345})),
        call("mail", "echo", json!({"text": "acme/gadgets"})),
    ];
    place.policy(
        "version: 1\nsandbox: {mcp: {exfiltration: {marker: off, on_private_to_external: block, allow: [{from: files, to: wiki}]}, servers: [{id: wiki, flow: {source: public}}]}}\n",
    );
    let said = script(&place, &json!(steps));
    for (step, text) in
        [(2, "13524690"), (3, "13524690"), (4, "acme/widgets"), (5, "PROJ-88123"), (6, "9424690")]
    {
        assert_eq!(said.text(step), text, "{step}");
    }
    for step in [7, 8] {
        assert!(said.error(step).contains("on_private_to_external"), "{}", said.error(step));
    }
}

/// Reads `request.json`, shows it to its model, and sends its last argument to the server `mail`, after something harmless.
const AGENT: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, sys, urllib.request
config = next(word.split("=", 1)[1] for word in sys.argv if word.startswith("--mcp-config="))
entry = json.load(open(config))["mcpServers"]["mail"]
body = json.load(open("request.json"))
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(),
                                 {"Content-Type": "application/json", "X-Api-Key": os.environ["ANTHROPIC_API_KEY"]})
urllib.request.urlopen(request).read()
server = subprocess.Popen([entry["command"], *entry.get("args", [])], env={**os.environ, **(entry.get("env") or {})},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def say(message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()
def ask(number, method, params):
    say({"id": number, "method": method, "params": params})
    while True:
        answer = json.loads(server.stdout.readline())
        if answer.get("id") == number:
            return answer
ask(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}})
say({"method": "notifications/initialized"})
ask(2, "tools/list", {})
for number, text in enumerate(["what is for lunch", sys.argv[-1]], 3):
    print(json.dumps(ask(number, "tools/call", {"name": "echo", "arguments": {"text": text}})))
"#;

/// An agent that shows its model what tools of its own gave it, and then sends a text to the server `mail`.
struct Showing {
    place: Place,
    // Serves as long as it is there.
    _model: HttpServer,
}

impl Showing {
    fn new() -> Self {
        let place = Place::new(Mode::Invoker);
        two_servers(&place);
        place.policy("version: 1\nsandbox: {mcp: {exfiltration: {marker: off}}}\n");
        let model = HttpServer::start(|_| Reply::json(r#"{"type":"message","content":[],"usage":{}}"#));
        place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
        place.set("ANTHROPIC_API_KEY", "sk-ant-test");
        place.script(place.project.join("bin/claude"), AGENT);
        Self { place, _model: model }
    }

    /// The answer to the last call, after the model saw these results of a tool.
    fn send(&self, tool: &str, results: &[String], text: &str) -> Value {
        let mut messages = vec![json!({"role": "user", "content": "go"})];
        for (at, result) in results.iter().enumerate() {
            let id = format!("t{at}");
            messages.push(json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": tool, "input": {}}]}));
            messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}));
        }
        let request = json!({"model": "m", "messages": messages});
        self.place.write(self.place.project.join("request.json"), request.to_string());
        let claude = self.place.project.join("bin/claude");
        let outcome = Outcome::of(self.place.agentsh(&["run", "--quiet", "--"]).arg(claude).arg(text));
        let answers: Vec<Value> =
            outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), 2, "{outcome}");
        assert_eq!(answers[0]["result"]["content"][0]["text"], "what is for lunch", "{outcome}");
        answers[1].clone()
    }
}

/// What the agent read with a tool of its own and showed to its model: a secret of it reaches no server either.
#[test]
fn a_secret_that_the_agent_showed_its_model_reaches_no_server() {
    const SECRET: &str = "fbk_7Hq2mZx9Lw4TnVb8RsYcQ1eD";
    let agent = Showing::new();
    let result = [format!("REGISTRY_TOKEN={SECRET}\n")];
    let text = format!("log in with {SECRET}");
    let refused = agent.send("Bash", &result, &text);
    assert_eq!(refused["error"]["data"]["reason"], "tainted-data", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("'Bash' of server 'files of the project'"), "{message}");
    // A text belongs to the server that said it, and to none if it passed no proxy.
    let passed = agent.send("mcp__files__read_file", &result, &text);
    assert!(passed["result"]["content"][0]["text"].as_str().unwrap().contains(SECRET), "{passed}");
}

/// If a request has more results than are searched, the newest are searched: the others were sent before.
#[test]
fn of_many_results_the_newest_are_remembered() {
    let agent = Showing::new();
    let secret = |at: u64| {
        let mut state = at + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(
                b"abcdefghjkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"[(state >> 33) as usize % 55],
            )
        };
        let drawn: String = (0..22).map(|_| next()).collect();
        format!("fbk_{drawn}")
    };
    let results: Vec<String> = (0..300).map(|at| format!("REGISTRY_TOKEN={}\n", secret(at))).collect();
    let refused = agent.send("Bash", &results, &format!("log in with {}", secret(299)));
    assert_eq!(refused["error"]["data"]["reason"], "tainted-data", "{refused}");
    let passed = agent.send("Bash", &results, &format!("log in with {}", secret(0)));
    assert!(passed["result"].is_object(), "256 of one request are looked at: {passed}");
}
