//! Several servers looked at together: tools that pass for others, data that is read here and sent there.

use serde_json::{Value, json};

use crate::support::http_server::{HttpServer, Reply};
use crate::support::sandbox::{Answers, read_file, script, write_file};
use crate::support::{Mode, Place};

fn servers(place: &Place) {
    let entry = json!({"command": place.program("fixture_server"), "args": []});
    place.write(
        place.home.join(".claude.json"),
        json!({"mcpServers": {"alpha": entry, "beta": entry}}).to_string(),
    );
}

fn list(server: &str) -> Value {
    json!({"server": server, "call": "tools/list", "params": {}})
}

fn tools(answers: &Answers, step: usize) -> usize {
    answers.json[step]["result"]["tools"].as_array().unwrap().len()
}

#[test]
fn the_later_of_two_tools_with_one_name_is_hidden_where_the_policy_asks_for_it() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        servers(&place);
        let steps = json!([
            list("alpha"),
            list("beta"),
            {"server": "alpha", "tool": "echo", "arguments": {"text": "first"}},
            {"server": "beta", "tool": "echo", "arguments": {"text": "second"}},
        ]);
        // Two servers may well have a tool of one name.
        let honest = script(&place, &steps);
        assert!(
            tools(&honest, 0) > 5 && tools(&honest, 1) == tools(&honest, 0),
            "{mode:?} {}",
            honest.outcome
        );
        assert_eq!(honest.text(3), "second");
        place.user_policy(
            "version: 1\nsandbox: {mcp: {cross_server: {enabled: true, burst: {enabled: false}}}}\n",
        );
        let asked = script(&place, &steps);
        assert!(tools(&asked, 0) > 5, "{}", asked.outcome);
        assert_eq!(tools(&asked, 1), 0, "{}", asked.outcome);
        assert_eq!(asked.text(2), "first");
        let error = asked.error(3);
        assert!(
            error.contains("passes for 'echo' of server 'alpha'") && error.contains("policy.yaml:2"),
            "{error}"
        );
        let detections = place.detections();
        assert!(
            detections
                .iter()
                .any(|found| found["category"] == "tool-shadowing" && found["action"] == "block"),
            "{detections:?}"
        );
    }
}

#[test]
fn what_was_read_from_one_server_is_not_sent_with_another() {
    let place = Place::new(Mode::Invoker);
    servers(&place);
    place.write("notes.txt", "hello");
    place.user_policy(
        "version: 1\nsandbox: {mcp: {cross_server: {enabled: true, shadow_tool: {enabled: false}}}}\n",
    );
    let file = place.project.join("notes.txt");
    let answers = script(
        &place,
        &json!([
            {"server": "beta", "tool": "write_file", "arguments": {"path": place.project.join("a.txt"), "text": "x"}},
            {"server": "alpha", "tool": "read_file", "arguments": {"path": file}},
            {"server": "beta", "tool": "write_file", "arguments": {"path": place.project.join("b.txt"), "text": "x"}},
            {"server": "alpha", "tool": "write_file", "arguments": {"path": place.project.join("c.txt"), "text": "x"}},
        ]),
    );
    let error = answers.error(2);
    assert!(error.contains("'read_file' of server 'alpha' was read shortly before"), "{error}");
    assert!(error.contains("ask the user"), "{error}");
    assert!(place.project.join("a.txt").exists() == place.project.join("c.txt").exists());
    assert!(!place.project.join("b.txt").exists());
}

/// The model's channel knows turns: what was read counts until the user says something again, however long that takes.
#[test]
fn a_read_counts_for_as_long_as_its_turn_lasts() {
    let place = Place::new(Mode::Invoker);
    servers(&place);
    place.write("notes.txt", "hello");
    let model = HttpServer::start(|_| Reply::json("{\"content\":[]}"));
    let url = format!("http://127.0.0.1:{}", model.port);
    place.set("ANTHROPIC_BASE_URL", &url);
    let user = json!({"role": "user", "content": "go on"});
    let result =
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]});
    let ask = |name: &str, messages: &Value| {
        let body = place.write(name, json!({"model": "m", "messages": messages}).to_string());
        let body = body.display();
        json!({"attempt": format!("client curl -sSf {url}/v1/messages --data-binary @{body}")})
    };
    let (notes, copy) = (place.project.join("notes.txt"), place.project.join("copy.txt"));
    let policy = |flow: &str| {
        place.user_policy(&format!(
            "version: 1\nsandbox: {{mcp: {{cross_server: {{shadow_tool: {{enabled: false}}, \
             cross_server_flow: {{{flow}}}}}}}}}\n"
        ));
    };
    let steps = json!([
        ask("one.json", &json!([user])),
        read_file("alpha", &notes),
        ask("two.json", &json!([user, result])),
        {"pause": 50},
        write_file("beta", &copy),
        ask("three.json", &json!([user, result, user])),
        write_file("beta", &copy),
    ]);
    policy("window: 1ms");
    let answers = script(&place, &steps);
    let refused = answers.error(4);
    assert!(refused.contains("was read shortly before") && refused.contains("policy.yaml:2"), "{refused}");
    assert!(answers.json[6].get("result").is_some(), "{}", answers.outcome);
    assert_eq!(model.asked().len(), 3);
    // Without turns the window alone decides.
    policy("window: 1ms, same_turn_only: false");
    assert!(script(&place, &steps).json[4].get("result").is_some());
    policy("window: 1h, same_turn_only: false");
    assert!(script(&place, &steps).json[6].get("error").is_some());
}
