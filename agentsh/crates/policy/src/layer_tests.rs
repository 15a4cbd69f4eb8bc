//! A layer changes only what it names: over every shipped policy, for every key.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::keys::{Key, Kind};
use super::search::{layer, merge_key};
use super::{Line, Policy, Question, builtin, top_keys};
use crate::PathContext;
use crate::types::ServerId;

/// A key: its path, and one line of YAML that writes it.
#[derive(Clone, Debug)]
struct Written {
    path: String,
    is_list: bool,
    text: String,
}

/// Its example, or a value of its kind; None for a map, whose keys are written one by one. A kind that has to fit more
/// than this needs an example, which the reference shows too.
fn value(key: &Key) -> Option<String> {
    fn of(kind: &Kind) -> Option<String> {
        Some(match kind {
            Kind::Flag => "true".to_owned(),
            Kind::Number(low, _) => low.to_string(),
            Kind::Share => "0.5".to_owned(),
            Kind::Duration => "30s".to_owned(),
            Kind::Size => "1MiB".to_owned(),
            Kind::Percent => "50%".to_owned(),
            Kind::Text => "x".to_owned(),
            Kind::Word(words) => (*words.last()?).to_owned(),
            Kind::List(item) | Kind::Whole(item) => format!("[{}]", of(item)?),
            Kind::Names(value) => format!("{{X: {}}}", of(value)?),
            Kind::Either(kinds) => of(kinds.first()?)?,
            Kind::Map(_) | Kind::Process(_) | Kind::Agent | Kind::Mcp => return None,
        })
    }
    if key.example.is_empty() { of(&key.kind) } else { Some(key.example.to_owned()) }
}

fn every_key() -> Vec<Written> {
    fn walk(keys: Vec<&'static Key>, path: &[&'static str], found: &mut Vec<Written>) {
        for key in keys {
            let path: Vec<&str> = path.iter().copied().chain([key.name]).collect();
            if let Some(value) = value(key) {
                let open = path.join(": {");
                let close = "}".repeat(path.len() - 1);
                let text = format!("{open}: {value}{close}\n");
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
    merge_key(base, layers.collect()).unwrap().policy
}

/// The name of a key in the lines of a policy.
fn shown(path: &str) -> String {
    if let Some((subject, finding)) = path.strip_prefix("inspect.").and_then(|rest| rest.split_once('.')) {
        let key = crate::sections::inspect::decides(subject, finding);
        return shown(key.strip_suffix(".email").or(key.strip_suffix(".EMAIL")).unwrap_or(key))
            .replace("advisories.dependency", "advisories");
    }
    if path == "inspect.preset" {
        return String::new();
    }
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
    if path == "mcp.output_inspection.on_detection" {
        return "mcp.content.results".to_owned();
    }
    if path == "mcp.allowed_transports" {
        return "mcp.not_enforced".to_owned();
    }
    // Over a list of allowed names, denied ones are removed.
    path.replace("env_deny", "env_never")
}

fn lines(policy: &Policy) -> BTreeSet<(String, String, String)> {
    let text = |line: Line| (line.key, line.value, line.rule.to_string());
    policy.lines().into_iter().map(text).collect()
}

fn changes_only(below: &Policy, above: &Policy, key: &Written, name: &str) {
    let (below, above) = (lines(below), lines(above));
    let is_named = |line: &&(String, String, String)| line.0.starts_with(name);
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
            changes_only(&below, &above, key, &shown(&key.path));
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

/// The keys that say how a server is started belong together: see `servers_are_laid_over_each_other_by_id`.
const STARTED: [&str; 7] = ["id", "type", "command", "args", "url", "headers", "tls_fingerprint"];

/// Every key of a server's entry, over an entry that another layer wrote.
#[test]
fn a_line_about_a_server_changes_only_itself() {
    fn walk(keys: Vec<&'static Key>, path: &[&'static str], found: &mut Vec<Written>) {
        for key in keys.into_iter().filter(|key| !path.is_empty() || !STARTED.contains(&key.name)) {
            let path: Vec<&str> = path.iter().copied().chain([key.name]).collect();
            if let Some(value) = value(key) {
                let (open, close) = (path.join(": {"), "}".repeat(path.len() - 1));
                let text = format!("sandbox: {{mcp: {{servers: [{{id: s, {open}: {value}{close}}}]}}}}");
                found.push(Written {
                    path: path.join("."),
                    is_list: matches!(key.kind, Kind::List(_)),
                    text,
                });
            }
            walk(key.kind.keys(), &path, found);
        }
    }
    let servers = every_key_of(&["sandbox", "mcp", "servers"]);
    let Kind::Whole(entry) = servers.kind else { panic!("{servers:?}") };
    let mut keys = Vec::new();
    walk(entry.keys(), &[], &mut keys);
    assert!(keys.len() > 15, "{}", keys.len());
    let first = "sandbox: {mcp: {servers: [{id: s, command: a, args: [b], env: {A: '1'}, env_allow: [B], \
                 install_scripts: deny, network: {allow: [a.example]}, filesystem: {read: [/a], deny: [/b]}}, \
                 {id: t, command: c}]}}";
    for (base, _) in builtin::POLICIES {
        let below = stack(base, &[first]);
        for key in &keys {
            let above = stack(base, &[first, &key.text]);
            assert!(lines(&below) != lines(&above), "{} over {base} does nothing", key.text);
            let name = format!("servers.s.{}", key.path.replace("env_deny", "env_never"));
            changes_only(&below, &above, key, &name);
        }
    }
}

fn every_key_of(path: &[&str]) -> &'static Key {
    let find = |keys: Vec<&'static Key>, name: &str| keys.into_iter().find(|key| key.name == name).unwrap();
    let (last, above) = path.split_last().unwrap();
    let keys = above.iter().fold(top_keys(), |keys, name| find(keys, name).kind.keys());
    find(keys, last)
}

/// Questions to a policy, and the parts of a key's path that may change the answer.
fn probes(policies: [&Policy; 2]) -> Vec<(Question, &'static [&'static str])> {
    const NETWORK: &[&str] = &["agent.network", "agent.credentials"];
    const FILES: &[&str] = &["agent.filesystem"];
    const ENV: &[&str] = &["agent.env", "agent.credentials"];
    const EXEC: &[&str] = &["agent.exec", "agent.filesystem"];
    let mut probes = vec![
        (Question::Connect("other.example".to_owned(), 443), NETWORK),
        (Question::Connect("127.0.0.1".to_owned(), 5432), NETWORK),
        (Question::Read("/usr/bin/env".to_owned()), FILES),
        (Question::Read("~/.ssh/id_ed25519".to_owned()), FILES),
        (Question::Write("src/main.rs".to_owned()), FILES),
        (Question::Write(".git/hooks/pre-commit".to_owned()), FILES),
        (Question::Exec("/usr/bin/env".to_owned()), EXEC),
        (Question::Env("LD_PRELOAD".to_owned()), ENV),
        (Question::Tool("delete_file".to_owned()), &["sandbox.mcp", "mcp_rules"]),
    ];
    for line in policies.into_iter().flat_map(Policy::lines) {
        let plain = line.value.replace('*', "x");
        match line.key.as_str() {
            "agent.network.allow" => {
                let host = plain.split([':', ' ']).next().unwrap_or_default();
                probes.push((Question::Connect(host.to_owned(), 443), NETWORK));
            }
            "agent.filesystem.read" => probes.push((Question::Read(plain), FILES)),
            "agent.filesystem.write" => probes.push((Question::Write(plain), FILES)),
            "agent.env_allow" => probes.push((Question::Env(plain), ENV)),
            "agent.exec.allow" => probes.push((Question::Exec(plain), EXEC)),
            _ => {}
        }
    }
    probes
}

/// Not what is shown, but what is answered.
#[test]
fn policy_line_changes_only_its_own_answers() {
    // A deny list, or a list that allows nothing else.
    let narrows = |path: &str| ["deny", "denied", "exec.", "allowed_"].iter().any(|word| path.contains(word));
    let (context, server) =
        (PathContext { home: "/home/u".into(), project: "/home/u/app".into() }, ServerId("s".into()));
    for (base, _) in builtin::POLICIES {
        let below = stack(base, &[]);
        let mut changed = BTreeSet::new();
        for key in every_key() {
            let above = stack(base, &[&key.text]);
            for (question, about) in probes([&below, &above]) {
                let from = matches!(question, Question::Tool(_)).then_some(&server);
                let answer = |policy: &Policy| policy.ask(from, &question, &context).allow;
                let (before, after) = (answer(&below), answer(&above));
                if before != after {
                    assert!(
                        about.iter().any(|part| key.path.starts_with(part)),
                        "{} over {base} changed the answer to {question:?}",
                        key.text
                    );
                    assert!(
                        after || !key.is_list || narrows(&key.path),
                        "{} over {base} took away {question:?}",
                        key.text
                    );
                    changed.insert(key.path.clone());
                }
            }
        }
        for path in ["agent.network.allow", "agent.filesystem.read", "agent.env_allow"] {
            assert!(changed.contains(path), "{path} over {base} changed no answer: {changed:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Over any policy that ships and any layers in any order.
    #[test]
    fn policy_line_changes_only_itself_over_any_layers(
        base in 0..builtin::POLICIES.len(),
        below in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        top in any::<prop::sample::Index>(),
    ) {
        let keys = every_key();
        let (base, top) = (builtin::POLICIES[base].0, top.get(&keys));
        // A switch of `env_inherit` makes of a denied name one that is left out of all others.
        let is_other = |key: &&Written| {
            let is_env = |key: &Written| key.path.contains("env_");
            shown(&key.path) != shown(&top.path) && !(is_env(key) && is_env(top))
        };
        let lower: Vec<&str> =
            below.iter().map(|at| at.get(&keys)).filter(is_other).map(|key| key.text.as_str()).collect();
        let upper: Vec<&str> = lower.iter().copied().chain([top.text.as_str()]).collect();
        let (below, above) = (stack(base, &lower), stack(base, &upper));
        for lost in lines(&below).difference(&lines(&above)) {
            prop_assert!(
                lost.0.starts_with(&shown(&top.path)) && !top.is_list,
                "{} over {base} and {lower:?} took away {lost:?}", top.text
            );
        }
    }
}

fn asks(policy: &Policy, question: Question) -> bool {
    let context = PathContext { home: "/home/u".into(), project: "/home/u/app".into() };
    policy.ask(None, &question, &context).allow
}

#[test]
fn layer_line_adds_one_host() {
    let policy = stack("claude", &["agent: {network: {allow: [example.com]}}"]);
    let connect = |host: &str| asks(&policy, Question::Connect(host.into(), 443));
    assert!(connect("example.com") && connect("api.anthropic.com"));
    assert!(!connect("other.example"));
    assert!(asks(&policy, Question::Env("EDITOR".into())) && policy.mcp.enforce);
    let replaced = stack("claude", &["agent: {network: {allow: {replace: [example.com]}}}"]);
    assert!(asks(&replaced, Question::Connect("example.com".into(), 443)));
    assert!(!asks(&replaced, Question::Connect("api.anthropic.com".into(), 443)));
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
    // A server names its tools; these are the same to a model.
    assert!(["RM", "\u{ff52}m", "r\u{200b}m"].iter().all(|name| !tool(name).allow));
    assert!(["rmdir", "r_m", "\u{433}m"].iter().all(|name| tool(name).allow));
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
fn layer_keeps_variables_allowed_for_other_reasons() {
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
