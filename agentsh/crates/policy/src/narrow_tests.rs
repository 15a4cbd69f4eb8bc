#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use super::Policy;
use super::diagnostic::{PolicyError, Source};
use super::model::{OnChange, Question, Rate};
use super::{PathContext, narrow, parse, read};
use crate::types::ServerId;

const BASE: &str = r#"version: 1
agent:
  network: {allow: [api.example.com, "**.example.org"], loopback: [8080]}
  filesystem: {read: [~/lib], write: ["."], unmask: [.envrc]}
  env_allow: [CI_*, GITHUB_TOKEN]
  limits: {memory: 1GiB}
sandbox:
  mcp:
    enforce_policy: true
    tool_policy: allowlist
    allowed_tools: [{server: fs, tool: "*"}]
    rate_limits: {enabled: true, default_rpm: 60, default_burst: 6, per_server: {slow: {calls_per_minute: 6, burst: 1}}}
    request_timeout: 5m
    servers: [{id: fs, command: fs, network: {allow: [files.example.com]}}]
"#;

fn narrowed(base: &str, project: &str) -> Result<Policy, PolicyError> {
    let base = parse("base.yaml", base).unwrap_or_else(|error| panic!("{}", error.render()));
    let source = Source { name: ".agentsh.yaml", text: project };
    let raw = read::read(source, false).map_err(PolicyError::Invalid)?;
    narrow::narrow(base, &raw, source).map_err(PolicyError::Invalid)
}

fn good(project: &str) -> Policy {
    narrowed(BASE, project).unwrap_or_else(|error| panic!("{project}: {}", error.render()))
}

fn ask(policy: &Policy, from: &str, question: Question) -> bool {
    let context = PathContext { home: "/home/u".into(), project: "/home/u/app".into() };
    let server = (!from.is_empty()).then(|| ServerId(from.to_owned()));
    policy.ask(server.as_ref(), &question, &context).allow
}

#[test]
fn project_policy_that_is_wider_is_refused() {
    for project in [
        "agent: {network: {allow: [evil.test]}}",
        "agent: {network: {allow: [\"api.example.com:22\"]}}",
        "agent: {network: {allow: [{host: api.example.com, port: 443, protocol: tcp}]}}",
        "agent: {network: {allow: [\"*.example.com\"]}}",
        "agent: {network: {loopback: [5432]}}",
        "agent: {filesystem: {read: [\"~\"]}}",
        "agent: {filesystem: {read: [/home/u/lib]}}",
        "agent: {filesystem: {read: [\"/\"]}}",
        "agent: {filesystem: {write: [~/lib]}}",
        "agent: {filesystem: {write: [\"~/x/**\"]}}",
        "agent: {filesystem: {unmask: [~/.ssh]}}",
        "agent: {filesystem: {unmask: [.git/hooks]}}",
        "agent: {env_allow: [AWS_SECRET]}",
        "agent: {env_allow: [\"*\"]}",
        "agent: {env_allow: [CI_TOKEN]}",
        "agent: {env_inherit: all}",
        "agent: {limits: {memory: 2GiB}}",
        "agent: {limits: {pids: 100000}}",
        "agent: {limits: {cpu: 800%}}",
        "agent: {mcp_config: evil.json}",
        "sandbox: {mcp: {enforce_policy: false}}",
        "mcp_rules: {enforce_policy: false}",
        "sandbox: {mcp: {version_pinning: {enabled: false}}}",
        "sandbox: {mcp: {version_pinning: {on_change: alert}}}",
        "sandbox: {mcp: {version_pinning: {pin_binary: false}}}",
        "sandbox: {mcp: {rate_limits: {enabled: false}}}",
        "sandbox: {mcp: {rate_limits: {enabled: true, default_rpm: 100}}}",
        "sandbox: {mcp: {rate_limits: {enabled: true, per_server: {slow: {calls_per_minute: 10, burst: 1}}}}}",
        "sandbox: {mcp: {max_line_bytes: 99999999}}",
        "sandbox: {mcp: {request_timeout: 10m}}",
        "sandbox: {mcp: {servers: [{id: evil, command: /bin/sh}]}}",
        "sandbox: {mcp: {servers: [{id: fs, command: /bin/sh}]}}",
        "sandbox: {mcp: {servers: [{id: fs, env: {NODE_OPTIONS: x}}]}}",
        "sandbox: {mcp: {servers: [{id: fs, network: {allow: [evil.test]}}]}}",
        "sandbox: {mcp: {servers: [{id: new, network: {allow: [evil.test]}}]}}",
        "sandbox: {mcp: {servers: [{id: new, filesystem: {write: [\".\"]}}]}}",
        "sandbox: {mcp: {servers: [{id: new, env_allow: [GITHUB_TOKEN]}]}}",
        "sandbox: {mcp: {servers: [{id: new, env_deny: [A], env_inherit: all}]}}",
        "sandbox: {mcp: {servers: [{id: new, limits: {memory: 8GiB}}]}}",
        "sandbox: {mcp: {servers: [{id: x, type: http, url: 'https://evil.test'}]}}",
    ] {
        let error = match narrowed(BASE, project) {
            Err(error) => error,
            Ok(_) => panic!("{project} was accepted"),
        };
        assert!(error.render().contains("can only narrow"), "{project}: {}", error.render());
    }
}

#[test]
fn widening_error_names_its_line() {
    let project = "version: 1\nagent:\n  network:\n    allow:\n      - api.example.com\n      - evil.test\n";
    insta::assert_snapshot!(narrowed(BASE, project).unwrap_err().render(), @r#"
    error: this file would allow `evil.test`
     --> .agentsh.yaml:6:7
      |
    6 |       - evil.test
      |       ^^^^^^^^^^^
      = help: a policy inside the project can only narrow; put it in your own policy (~/.config/agentsh/policy.yaml, or `--policy FILE`)
    "#);
}

#[test]
fn project_lists_replace_the_lists_they_narrow() {
    let policy = good("agent: {network: {allow: [a.example.org]}, filesystem: {write: [src]}}");
    let connect = |host: &str| ask(&policy, "", Question::Connect(host.into(), 443));
    assert!(connect("a.example.org") && !connect("api.example.com") && !connect("b.example.org"));
    let write = |path: &str| ask(&policy, "", Question::Write(path.into()));
    let read = |path: &str| ask(&policy, "", Question::Read(path.into()));
    assert!(write("src/x") && !write("x") && read("x") && read("~/lib/x"));
    let nothing = good("agent: {network: {allow: [], loopback: []}, filesystem: {read: [src], write: []}}");
    assert!(!ask(&nothing, "", Question::Connect("api.example.com".into(), 443)));
    assert!(!ask(&nothing, "", Question::Connect("127.0.0.1".into(), 8080)));
    assert!(!ask(&nothing, "", Question::Write("src/x".into())));
    assert!(
        ask(&nothing, "", Question::Read("src/x".into())) && !ask(&nothing, "", Question::Read("x".into()))
    );
}

#[test]
fn project_denials_are_added() {
    let policy = good(
        "agent: {filesystem: {deny: [secrets], unmask: []}, env_deny: [CI_JOB, PATH]}\nsandbox: {mcp: {servers: [{id: fs, \
         filesystem: {deny: [src]}}]}}",
    );
    assert!(!ask(&policy, "", Question::Read("secrets/x".into())));
    assert!(!ask(&policy, "", Question::Write(".envrc".into())));
    assert!(
        !ask(&policy, "", Question::Env("CI_JOB".into())) && ask(&policy, "", Question::Env("CI_X".into()))
    );
    assert!(!ask(&policy, "fs", Question::Read("src/x".into())));
    assert!(ask(&policy, "fs", Question::Connect("files.example.com".into(), 443)));
    assert_eq!(policy.mcp.servers[&ServerId("fs".into())].command.as_deref(), Some("fs"));
}

#[test]
fn project_environment_lists_only_shrink() {
    let policy = good("agent: {env_allow: [GITHUB_TOKEN, CI_JOB]}");
    let env = |policy: &Policy, name: &str| ask(policy, "", Question::Env(name.into()));
    assert!(env(&policy, "GITHUB_TOKEN") && env(&policy, "CI_JOB") && !env(&policy, "CI_OTHER"));
    let all = "agent: {env_inherit: all}";
    let policy = narrowed(all, "agent: {env_allow: []}").unwrap();
    assert!(!env(&policy, "ANYTHING"));
    let deny = "agent: {env_deny: [AWS_*]}";
    let policy = narrowed(deny, "agent: {env_allow: [\"A*\"]}").unwrap();
    assert!(env(&policy, "AX") && !env(&policy, "AWS_KEY_ID") && !env(&policy, "B"));
    assert!(narrowed(deny, "agent: {env_allow: [AWS_KEY_ID]}").is_err());
    assert!(narrowed(deny, "agent: {env_allow: [LD_PRELOAD]}").is_err());
}

#[test]
fn both_tool_lists_have_to_allow() {
    let deny = good("mcp_rules: {tool_policy: denylist, denied_tools: [{server: '*', tool: rm}]}");
    let tool = |policy: &Policy, server: &str, tool: &str| ask(policy, server, Question::Tool(tool.into()));
    assert!(!tool(&deny, "fs", "rm") && tool(&deny, "fs", "ls") && !tool(&deny, "other", "ls"));
    assert!(deny.mcp.narrowed_by.as_ref().unwrap().enforce, "the base enforces");
    let allow = good("mcp_rules: {tool_policy: allowlist, allowed_tools: [{server: '*', tool: ls}]}");
    assert!(tool(&allow, "fs", "ls") && !tool(&allow, "fs", "rm") && !tool(&allow, "other", "ls"));
    let servers = good("mcp_rules: {server_policy: denylist, denied_servers: [{id: fs}]}");
    assert!(!tool(&servers, "fs", "ls") && !ask(&servers, "fs", Question::Read("src/x".into())));
    let own = narrowed(
        "version: 1",
        "mcp_rules: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: a, tool: b}]}",
    );
    assert!(!tool(&own.unwrap(), "a", "b"));
    let closed = good("mcp_rules: {fail_closed: true}");
    assert!(tool(&closed, "fs", "ls") && !tool(&closed, "other", "ls"));
}

#[test]
fn limits_rates_and_pinning_only_tighten() {
    let policy = good(
        "agent: {limits: {memory: 512MiB, pids: 10}}\nsandbox: {mcp: {version_pinning: {auto_trust_first: false}, \
         max_line_bytes: 4096, request_timeout: 1m, rate_limits: {enabled: true, default_rpm: 30, per_server: \
         {a: {calls_per_minute: 5, burst: 1}}}}}",
    );
    let limits = policy.agent.limits;
    assert_eq!((limits.memory.unwrap().value, limits.pids.unwrap().value), (512 << 20, 10));
    let pinning = &policy.mcp.pinning;
    assert!(pinning.enabled && pinning.pin_binary && !pinning.auto_trust_first);
    assert_eq!(pinning.on_change, OnChange::Block);
    assert_eq!((policy.mcp.max_line_bytes, policy.mcp.request_timeout_s), (4096, Some(60)));
    let rates = &policy.mcp.rate_limits;
    assert_eq!(rates.default.as_ref().unwrap().value, Rate { calls_per_minute: 30, burst: 6 });
    assert_eq!(rates.per_server[&ServerId("slow".into())].value, Rate { calls_per_minute: 6, burst: 1 });
    assert_eq!(rates.per_server[&ServerId("a".into())].value, Rate { calls_per_minute: 5, burst: 1 });
    let added = narrowed("version: 1", "mcp_rules: {rate_limits: {enabled: true}}").unwrap();
    assert_eq!(added.mcp.rate_limits.default.unwrap().value, Rate { calls_per_minute: 100, burst: 10 });
}

#[test]
fn an_empty_policy_of_the_project_changes_nothing_that_can_be_asked() {
    let base = parse("base.yaml", BASE).unwrap();
    let policy = good("version: 1");
    assert_eq!((&policy.agent, &policy.mcp.servers), (&base.agent, &base.mcp.servers));
    assert_eq!(policy.source, "base.yaml, narrowed by .agentsh.yaml");
    assert!(ask(&policy, "fs", Question::Tool("x".into())) && !ask(&policy, "o", Question::Tool("x".into())));
}
