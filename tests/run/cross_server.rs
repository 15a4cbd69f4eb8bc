//! Several servers looked at together: tools that pass for others, data that is read here and sent there.

use serde_json::{Value, json};

use crate::support::sandbox::{Answers, script};
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
