//! The commands and the policy of the README, run as they are there.

use crate::support::{Mode, Outcome, Place};

const README: &str = include_str!("../../README.md");

/// Commands that need more than this machine: the end-to-end suite runs them with the real packages.
const END_TO_END: &[&str] = &["agentsh mcp run -- npx"];
/// The answer may be no.
const ANSWERS: &[&str] = &["agentsh doctor", "agentsh policy explain"];

#[test]
#[ignore = "takes long"]
fn readme_commands_work() {
    let place = Place::new(Mode::Invoker);
    let claude = place.script("bin/claude", "#!/bin/sh\nexit 0\n");
    place.write(".git/hooks/pre-commit", "");
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_agentsh")).parent().unwrap().display();
    let path = format!("{}:{binary}:/usr/bin:/bin", claude.parent().unwrap().display());
    let mut run = 0;
    for line in README.lines().filter_map(|line| line.strip_prefix("    agentsh ")) {
        let command = format!("agentsh {}", line.split(" # ").next().unwrap().trim());
        if END_TO_END.iter().any(|start| command.starts_with(start)) {
            continue;
        }
        let outcome = Outcome::of(place.command("sh").arg("-c").arg(&command).env("PATH", &path));
        let no = ANSWERS.iter().any(|start| command.starts_with(start));
        assert!(outcome.code == 0 || no && outcome.code == 1, "{command}: {outcome}");
        run += 1;
    }
    assert!(run >= 6, "the README names fewer commands than it did");
}

#[test]
fn readme_policy_is_valid() {
    let place = Place::new(Mode::Invoker);
    let policy = README.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let file = place.policy(policy);
    Outcome::of(&mut place.agentsh(&["policy", "check", file.to_str().unwrap()])).expect_code(0);
}

/// The picture is of this demo: who tried what, how it ended, and how many there were.
#[test]
fn readme_picture_matches_the_demo() {
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/demo.svg");
    let picture = std::fs::read_to_string(picture).unwrap();
    let place = Place::new(Mode::Invoker);
    let outcome = Outcome::of(&mut place.agentsh(&["demo"])).expect_code(0);
    let shown = picture.lines().filter(|line| line.starts_with("<text")).map(|line| {
        let line = line.trim_end_matches("</text>").trim_end_matches("</tspan>");
        let words = line.split("</tspan>").filter_map(|piece| piece.rsplit('>').next());
        words
            .map(|word| word.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
            .collect::<Vec<_>>()
    });
    let shown: Vec<Vec<String>> = shown.collect();
    let rows: Vec<&Vec<String>> = shown.iter().filter(|row| row.len() >= 4 && !row[2].is_empty()).collect();
    assert!(rows.len() > 15, "{shown:?}");
    let tried: std::collections::BTreeSet<&str> =
        outcome.stdout.lines().skip(1).filter_map(|line| line.split('\t').nth(1)).collect();
    assert_eq!(rows.len(), tried.len(), "`cargo xtask picture` draws it anew");
    for row in rows {
        let is_row = |line: &str| {
            let parts: Vec<&str> = line.split('\t').collect();
            parts.len() == 4
                && parts[0] == row[0]
                && parts[1] == row[1]
                && parts[2].starts_with(row[2].as_str())
        };
        assert!(outcome.stdout.lines().any(is_row), "{row:?}: `cargo xtask picture` draws it anew");
    }
    let last = outcome.stdout.lines().find(|line| line.ends_with("attacks refused")).unwrap();
    assert!(shown.iter().any(|row| row == &[last.to_owned()]), "{last}");
}
