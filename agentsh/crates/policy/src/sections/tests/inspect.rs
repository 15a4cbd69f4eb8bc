//! What the section decides, and what it refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at the first surprise")]

use std::collections::BTreeMap;

use super::*;
use crate::parse;
use crate::search::{layer, merge_key};

fn bad(text: &str) -> String {
    parse("policy.yaml", text).expect_err("the policy was accepted").render()
}

/// Every line that is in force: its value, and its place.
fn lines(policy: &Policy) -> BTreeMap<String, (String, String)> {
    let shown = |line: crate::Line| (line.key, (line.value, line.rule.to_string()));
    policy.lines().into_iter().map(shown).collect()
}

fn line(text: &str, key: &str) -> (String, String) {
    let policy = parse("policy.yaml", text).unwrap_or_else(|error| panic!("{}", error.render()));
    lines(&policy).remove(key).unwrap_or_default()
}

/// Every word that a cell takes does something, and every key that it names is one.
#[test]
fn inspect_preset_cells_set_their_keys() {
    for (subject, cells) in SUBJECTS {
        for cell in cells {
            let Kind::Word(words) = cell.key.kind else { panic!("{}", cell.key.name) };
            assert_eq!(words.len(), cell.values.len(), "{subject}.{}", cell.key.name);
            assert!(words.is_sorted_by_key(|word| SCALE.iter().position(|known| known == word)));
            for word in words {
                let text = format!("version: 1\ninspect:\n  {subject}:\n    {}: {word}\n", cell.key.name);
                let policy = parse("policy.yaml", &text).unwrap_or_else(|error| panic!("{}", error.render()));
                let decided = policy.inspected(subject);
                let decided = decided.iter().find(|one| one.finding == cell.key.name).unwrap();
                for line in &decided.decided {
                    assert!(line.rule.to_string().starts_with("policy.yaml:4 ("), "{text}{line:?}");
                }
            }
        }
    }
}

#[test]
fn inspect_key_wins_within_a_file_and_the_higher_file_wins_overall() {
    let both =
        "version: 1\nsandbox: {mcp: {content: {results: block}}}\ninspect: {results: {injection: record}}\n";
    let key = "mcp.content.results";
    assert_eq!(
        line(both, key),
        ("block".to_owned(), "policy.yaml:2 (sandbox.mcp.content.results)".to_owned())
    );
    let own = "inspect: {results: {injection: record}}\n".to_owned();
    let above = layer("above.yaml".to_owned(), own).unwrap();
    let below = layer("below.yaml".to_owned(), both.to_owned()).unwrap();
    let policy = merge_key("default", vec![below, above]).unwrap().policy;
    let found = lines(&policy).remove(key).unwrap();
    assert_eq!(found, ("alert".to_owned(), "above.yaml:1 (sandbox.mcp.content.results)".to_owned()));
}

#[test]
fn inspect_line_wins_over_the_preset() {
    let text = "version: 1\ninspect:\n  preset: strict\n  results: {personal: record}\n";
    let value = |key: &str| line(text, key).0;
    assert_eq!(value("mcp.content.results"), "block");
    assert_eq!(value("mcp.secrets.kinds.email"), "audit");
    assert_eq!(value("mcp.exfiltration.on_detection"), "block");
    assert_eq!(value("mcp.anomaly.on_detection"), "graded");
    assert_eq!(value("llm.canary"), "hold");
}

/// The presence of a section switches more on than its keys say.
#[test]
fn a_line_about_destinations_says_nothing_about_copies_and_no_marker_is_made_to_record_them() {
    let value = |text: &str, key: &str| line(text, key).0;
    let text = "version: 1\ninspect: {arguments: {destination: ask}}\n";
    assert_eq!(value(text, "mcp.exfiltration.on_private_to_external"), "ask");
    assert_eq!(value(text, "mcp.exfiltration.on_detection"), "alert");
    for (copy, marker) in [("record", "off"), ("block", "suffix")] {
        let text = format!("version: 1\ninspect: {{arguments: {{copy: {copy}}}}}\n");
        assert_eq!(value(&text, "mcp.exfiltration.marker"), marker);
    }
}

/// The same as without any policy, except for the lines that explain it.
#[test]
fn inspect_standard_preset_changes_nothing() {
    let values = |text: &str| {
        let policy = parse("policy.yaml", text).unwrap();
        let mut values: BTreeMap<String, String> =
            lines(&policy).into_iter().map(|(key, (value, _))| (key, value)).collect();
        // Defaults that are shown once they are written.
        values.retain(|key, value| {
            let is_default = key.starts_with("mcp.secrets.kinds.") && value == "audit"
                || key == "mcp.anomaly.on_detection" && value == "alert"
                || key.starts_with("mcp.advisories.") && value == "warn"
                || key == "mcp.classifier.action" && value == "advise"
                || key == "llm.secrets" && value == "log"
                || key == "llm.canary";
            !is_default
        });
        values
    };
    assert_eq!(values("version: 1\ninspect: {preset: standard}\n"), values("version: 1\n"));
}

#[test]
fn inspect_quiet_preset_asks_and_refuses_nothing() {
    let policy = parse("policy.yaml", "version: 1\ninspect: {preset: quiet}\n").unwrap();
    for (subject, _) in SUBJECTS {
        for Inspected { finding, decided } in policy.inspected(subject) {
            for line in decided {
                let is_stopped = ["ask", "block", "graded", "hold"].contains(&line.value.as_str());
                assert!(!is_stopped, "{subject}.{finding}: {line:?}");
            }
        }
    }
}

#[test]
fn inspect_actions_that_are_impossible_are_refused_with_a_hint() {
    insta::assert_snapshot!(bad("inspect:\n  arguments: {command: redact, personal: record}\n  results: {drift: block, personal: redact}\n  requests: {injection: bloc}\n"), @"
    error: `redact` is not possible for `inspect.arguments.command`
     --> policy.yaml:2:24
      |
    2 |   arguments: {command: redact, personal: record}
      |                        ^^^^^^
      = help: write `off`, `record` or `block`

    error: `inspect.arguments.personal` contradicts `inspect.results.personal`
     --> policy.yaml:2:42
      |
    2 |   arguments: {command: redact, personal: record}
      |                                          ^^^^^^
      = help: both are what `sandbox.mcp.secrets.kinds.email` says: write the same word

    error: unknown key `drift`
     --> policy.yaml:3:13
      |
    3 |   results: {drift: block, personal: redact}
      |             ^^^^^ not a key of `inspect.results`
      = help: the keys here are `injection`, `secret`, `personal` or `classifier`

    error: unknown value `bloc` for `inspect.requests.injection`
     --> policy.yaml:4:25
      |
    4 |   requests: {injection: bloc}
      |                         ^^^^
      = help: did you mean `block`?
    ");
}

#[test]
fn inspect_of_a_project_only_narrows() {
    let own =
        crate::diagnostic::Source { name: "project.yaml", text: "inspect: {results: {injection: off}}\n" };
    let raw = crate::read::read(own, true).unwrap();
    let base = parse("policy.yaml", "version: 1\n").unwrap();
    let refused = crate::narrow::narrow(base, &raw, own).unwrap_err();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].message, "less is looked for with this file than without it");
}
