//! A layer changes what it names, and nothing else: over every policy that ships, for every key that there is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;

use super::keys::{Key, Kind};
use super::search::{lay, layer};
use super::{Line, Policy, Question, builtin, top_keys};
use crate::PathContext;

/// A key with an example: its path, and one line of YAML that writes it.
struct Written {
    path: String,
    is_list: bool,
    text: String,
}

fn every_key() -> Vec<Written> {
    fn walk(keys: Vec<&'static Key>, path: &[&'static str], found: &mut Vec<Written>) {
        for key in keys {
            let path: Vec<&str> = path.iter().copied().chain([key.name]).collect();
            if !key.example.is_empty() {
                let open = path.join(": {");
                let close = "}".repeat(path.len() - 1);
                let text = format!("{open}: {}{close}\n", key.example);
                found.push(Written {
                    path: path.join("."),
                    // To write any key of `exfiltration` switches it on.
                    is_list: matches!(key.kind, Kind::List(_)) && !path.contains(&"exfiltration"),
                    text,
                });
            }
            walk(key.kind.keys(), &path, found);
        }
    }
    let mut found = Vec::new();
    walk(top_keys(), &[], &mut found);
    found.retain(|key| key.path != "extends" && key.path != "tests" && key.path != "version");
    found
}

fn stack(base: &str, texts: &[&str]) -> Policy {
    let layers = texts.iter().enumerate().map(|(at, text)| {
        layer(format!("layer{at}.yaml"), (*text).to_owned())
            .unwrap_or_else(|error| panic!("{text}: {}", error.render()))
    });
    lay(base, layers.collect()).unwrap().policy
}

/// What the lines of a policy call a key.
fn shown(path: &str) -> String {
    let path = path.replace("sandbox.mcp.servers", "servers");
    let path = path
        .replace("sandbox.mcp.", "mcp.")
        .replace("mcp_rules.servers", "servers")
        .replace("mcp_rules.", "mcp.");
    // To write any key of these sections switches the section on.
    for section in ["mcp.exfiltration", "mcp.rate_limits", "mcp.cross_server"] {
        if path.starts_with(section) {
            return section.to_owned();
        }
    }
    if path == "mcp.version_pinning.posture" {
        return "mcp.version_pinning.on_change".to_owned();
    }
    if path.starts_with("mcp.output_inspection") {
        return "mcp.content.results".to_owned();
    }
    if path == "mcp.detection.enabled" {
        return "mcp.content.definitions".to_owned();
    }
    if path == "mcp.allowed_transports" {
        return "mcp.not_enforced".to_owned();
    }
    // Over a list of allowed names, denied ones are taken away.
    path.replace("env_deny", "env_never")
}

fn lines(policy: &Policy) -> BTreeSet<(String, String, String)> {
    let text = |line: Line| (line.key, line.value, line.rule.to_string());
    policy.lines().into_iter().map(text).collect()
}

fn changes_only(below: &Policy, above: &Policy, key: &Written) {
    let (below, above) = (lines(below), lines(above));
    let name = shown(&key.path);
    let is_named = |line: &&(String, String, String)| line.0.starts_with(&name);
    for lost in below.difference(&above) {
        assert!(is_named(&lost) && !key.is_list, "{} took away {lost:?}", key.text);
    }
    for new in above.difference(&below) {
        assert!(
            is_named(&new) && (new.2.starts_with("layer") || name == "servers"),
            "{} added {new:?}",
            key.text
        );
    }
}

#[test]
fn a_layer_changes_only_what_it_names() {
    let keys = every_key();
    assert!(keys.len() > 60, "{}", keys.len());
    for (base, _) in builtin::POLICIES {
        let below = stack(base, &[]);
        for key in &keys {
            let above = stack(base, &[&key.text]);
            changes_only(&below, &above, key);
            let needs_a_switch = key.path.contains("rate_limits");
            assert!(
                needs_a_switch || lines(&below) != lines(&above),
                "{} over {base} does nothing",
                key.text
            );
        }
    }
}

#[test]
fn a_layer_over_another_one_changes_only_what_it_names() {
    let keys = every_key();
    for (at, first) in keys.iter().enumerate() {
        let below = stack("claude", &[&first.text]);
        // Every pair would take long; over all first keys, every second one has its turn.
        let others = keys.iter().enumerate().filter(|(other, _)| (at + other) % 8 == 0).map(|(_, key)| key);
        for second in others.filter(|second| shown(&second.path) != shown(&first.path)) {
            // A switch of `env_inherit` makes of a denied name one that is left out of all others.
            let names = [first.path.as_str(), second.path.as_str()].join(" ");
            if names.contains("env_") && names.contains("env_inherit") {
                continue;
            }
            let above = stack("claude", &[&first.text, &second.text]);
            let moved = |line: &(String, String, String)| {
                let rule = line.2.replace("layer1.yaml", "layer0.yaml");
                (line.0.clone(), line.1.clone(), rule)
            };
            let (lower, upper) = (lines(&below), lines(&above));
            for lost in lower.iter().filter(|line| !upper.contains(*line)) {
                assert!(
                    lost.0.starts_with(&shown(&second.path)) && !second.is_list,
                    "{} over {} took away {:?}",
                    second.text,
                    first.text,
                    moved(lost)
                );
            }
        }
    }
}

fn asks(policy: &Policy, question: Question) -> bool {
    let context = PathContext { home: "/home/u".into(), project: "/home/u/app".into() };
    policy.ask(None, &question, &context).allow
}

#[test]
fn one_line_adds_one_host() {
    let policy = stack("claude", &["agent: {network: {allow: [example.com]}}"]);
    let connect = |host: &str| asks(&policy, Question::Connect(host.into(), 443));
    assert!(connect("example.com") && connect("claude.ai") && connect("api.anthropic.com"));
    assert!(!connect("other.example"));
    assert!(asks(&policy, Question::Env("EDITOR".into())) && policy.mcp.enforce);
    let replaced = stack("claude", &["agent: {network: {allow: {replace: [example.com]}}}"]);
    assert!(asks(&replaced, Question::Connect("example.com".into(), 443)));
    assert!(!asks(&replaced, Question::Connect("claude.ai".into(), 443)));
    assert!(asks(&replaced, Question::Env("EDITOR".into())) && replaced.mcp.enforce);
    let bare = stack("claude", &["extends: none\nagent: {network: {allow: [example.com]}}"]);
    assert!(!asks(&bare, Question::Env("EDITOR".into())) && !bare.mcp.enforce);
}

#[test]
fn a_denial_of_any_layer_wins() {
    let lower = "agent: {filesystem: {read: [~/a], deny: [~/a/secret]}, env_deny: [EDITOR]}\n\
                 sandbox: {mcp: {tool_policy: denylist, denied_tools: [{server: s, tool: rm}]}}";
    let upper = "agent: {filesystem: {read: [~/a/secret]}, env_allow: [EDITOR, OTHER]}\n\
                 sandbox: {mcp: {tool_policy: allowlist, allowed_tools: [{server: s, tool: '*'}]}}";
    let policy = stack("default", &[lower, upper]);
    assert!(
        asks(&policy, Question::Read("~/a/x".into())) && !asks(&policy, Question::Read("~/a/secret".into()))
    );
    assert!(asks(&policy, Question::Env("OTHER".into())) && !asks(&policy, Question::Env("EDITOR".into())));
    let context = PathContext { home: "/home/u".into(), project: "/home/u/app".into() };
    let server = crate::types::ServerId("s".into());
    let tool = |name: &str| policy.ask(Some(&server), &Question::Tool(name.into()), &context);
    assert!(tool("ls").allow && !tool("rm").allow);
    assert_eq!(tool("rm").rule.to_string(), "layer0.yaml:2 (sandbox.mcp.denied_tools[0])");
}

#[test]
fn of_two_rules_for_one_host_the_higher_layers_decides() {
    let lower = "agent: {network: {allow: [{host: x.example, inspect: true, allow: [GET /a]}]}}";
    let policy = stack("default", &[lower, "agent: {network: {allow: [x.example]}}"]);
    assert!(!policy.agent.network.allow[0].value.inspect);
    let policy = stack("default", &["agent: {network: {allow: [x.example]}}", lower]);
    assert!(policy.agent.network.allow[0].value.inspect);
}

#[test]
fn servers_are_laid_over_each_other_by_id() {
    let lower = "sandbox: {mcp: {servers: [{id: s, command: a, args: [x], env: {A: '1'}, network: {allow: [a.example]}}]}}";
    let upper = "sandbox: {mcp: {servers: [{id: s, env: {B: '2'}, network: {allow: [b.example]}}]}}";
    let policy = stack("default", &[lower, upper]);
    let server = &policy.mcp.servers[&crate::types::ServerId("s".into())];
    assert_eq!((server.command.as_deref(), server.args.len(), server.env.len()), (Some("a"), 1, 2));
    assert_eq!(server.process.network.allow.len(), 2);
    assert_eq!(server.rule.file, "layer0.yaml");
    let other = stack("default", &[lower, "sandbox: {mcp: {servers: [{id: s, command: b}]}}"]);
    let server = &other.mcp.servers[&crate::types::ServerId("s".into())];
    assert_eq!((server.command.as_deref(), server.args.len()), (Some("b"), 0));
}

#[test]
fn variables_that_pass_for_other_reasons_stay() {
    let env = |policy: &Policy, name: &str| asks(policy, Question::Env(name.into()));
    let all = "extends: none\nagent: {env_inherit: all}";
    let policy = stack("default", &[all, "agent: {env_allow: [GITHUB_*]}"]);
    assert!(env(&policy, "ANY") && env(&policy, "GITHUB_TOKEN"));
    let but = "extends: none\nagent: {env_deny: [AWS_*]}";
    let policy = stack("default", &[but, "agent: {env_allow: [LD_PRELOAD]}"]);
    assert!(env(&policy, "ANY") && env(&policy, "LD_PRELOAD") && !env(&policy, "AWS_KEY"));
    let policy = stack("default", &["agent: {env_deny: [LC_ALL]}"]);
    assert!(env(&policy, "LC_TIME") && !env(&policy, "LC_ALL") && !env(&policy, "ANY"));
    let policy = stack("default", &["agent: {env_inherit: all}"]);
    assert!(env(&policy, "LC_TIME") && env(&policy, "ANY"));
}
