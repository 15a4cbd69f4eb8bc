//! One server looks for the files, processes and secrets of another, or of the agent. Stopped by: each has its own
//! sandbox.

use serde_json::json;

use crate::support::sandbox::{attempt, script};
use crate::support::{Mode, Place};

#[test]
fn servers_cannot_see_each_other() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let server = place.program("fixture_server");
        let home = place.home.display();
        let entry = |name: &str| json!({"command": server, "args": [], "env": {"SHARED_WORD": name}});
        place.write(
            place.home.join(".claude.json"),
            json!({"mcpServers": {"one": entry("one"), "two": entry("two")}}).to_string(),
        );
        let answers = script(
            &place,
            &json!([
                attempt("one", "create /tmp/from-one"),
                attempt("one", &format!("create {home}/from-one")),
                attempt("one", "create /dev/shm/from-one"),
                {"server": "one", "tool": "spawn", "arguments": {"mark": "marked-child"}},
                attempt("one", "read /tmp/from-one probe"),
                attempt("one", "see marked-child"),
                attempt("two", "read /tmp/from-one probe"),
                attempt("two", &format!("read {home}/from-one probe")),
                attempt("two", "read /dev/shm/from-one probe"),
                attempt("two", "see marked-child"),
                attempt("two", "see mcp-config"),
                attempt("two", "unix /run/agentsh/bridge"),
                {"attempt": "read /tmp/from-one probe"},
                {"attempt": "see marked-child"},
                {"attempt": "see fixture_server"},
                {"attempt": "unix /run/agentsh/bridge"},
                {"server": "two", "tool": "env", "arguments": {"name": "SHARED_WORD"}},
            ]),
        );
        let done = |at: usize| match answers.json[at].as_str() {
            Some(text) => text == "DONE",
            None => answers.text(at) == "DONE",
        };
        for at in [0, 1, 2, 4, 5, 15] {
            assert!(done(at), "{mode:?} {at}: {}", answers.outcome);
        }
        for at in 6..=14 {
            assert!(!done(at), "{mode:?} {at}: {}", answers.outcome);
        }
        assert_eq!(answers.text(16), "two");
    }
}
