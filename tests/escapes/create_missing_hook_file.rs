//! A hook file that is not there yet.
//! Stopped by: an empty, read-only stand-in for the time of the run, removed afterwards.

use serde_json::json;

use crate::support::sandbox::{attempt, script};
use crate::support::{Mode, Place, everywhere, no, yes};

const MISSING: [&str; 5] = [".mcp.json", ".envrc", ".Rprofile", ".agentsh.yaml", "CLAUDE.md"];

#[test]
fn it_cannot_be_made() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        sandbox.policy("filesystem: {write: [\".\"]}");
        let project = place.project.display();
        // CLAUDE.md has no stand-in: it is instructions, not a program.
        let mut expected: Vec<_> =
            MISSING[..4].iter().map(|file| no(format!("create {project}/{file}"))).collect();
        for file in [".claude/settings.json", ".vscode/tasks.json", ".husky/pre-commit", ".idea/x.xml"] {
            expected.push(no(format!("create {project}/{file}")));
        }
        expected.push(no(format!("append {project}/.mcp.json")));
        expected.push(no(format!("rename {project}/.vscode {project}/away")));
        expected.push(yes(format!("create {project}/main.rs")));
        sandbox.holds(&expected);
        for file in MISSING.iter().chain(&[
            ".claude",
            ".vscode",
            ".husky",
            ".idea",
            ".cursor",
            ".devcontainer",
            ".codex",
            ".gemini",
            ".opencode",
        ]) {
            assert!(!place.project.join(file).exists(), "{file} was left behind");
        }
    });
}

/// A directory that a server is given is guarded as the project is, wherever it lies.
#[test]
fn a_directory_of_a_server_outside_the_project_has_stand_ins_too() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let work = place.home.join("work");
        place.write(work.join("file"), "");
        let entry = json!({"command": place.program("fixture_server"), "args": [work]});
        place.write(place.home.join(".claude.json"), json!({"mcpServers": {"one": entry}}).to_string());
        let tries = [".envrc", ".mcp.json", ".vscode/tasks.json", ".git/hooks/pre-commit", "honest"]
            .map(|name| attempt("one", &format!("create {}", work.join(name).display())));
        let answers = script(&place, &json!(tries));
        for number in 0..4 {
            assert_ne!(answers.text(number), "DONE", "{mode:?} {number} {}", answers.outcome);
        }
        assert_eq!(answers.text(4), "DONE", "{mode:?} {}", answers.outcome);
        assert!(!work.join(".envrc").exists() && !work.join(".vscode").exists());
    }
}
