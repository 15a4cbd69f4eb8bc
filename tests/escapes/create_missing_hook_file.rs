//! A hook file that is not there yet.
//! Stopped by: an empty, read-only stand-in for the time of the run, removed afterwards.

use crate::support::{everywhere, no, yes};

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
