#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use proptest::prelude::*;

use super::Policy;
use super::model::{HostPattern, ListMode, OnChange, Pinning, Question, Rate};
use super::{OnFinding, PathContext, Severity, builtin, parse, tests};
use crate::types::ServerId;

/// Every key that agentsh documents for MCP, in one file.
const DOCUMENTED: &str = r#"sandbox:
  mcp:
    enforce_policy: true
    fail_closed: false
    server_policy: "allowlist"
    allowed_servers:
      - id: "internal-*"
    denied_servers:
      - id: "untrusted_*"
    tool_policy: "allowlist"
    allowed_tools:
      - server: "database"
        tool: "query_*"
        content_hash: "sha256:..."
    denied_tools:
      - server: "*"
        tool: "exec_*"
    version_pinning:
      enabled: true
      on_change: "block"
      auto_trust_first: true
      pin_binary: true
    rate_limits:
      enabled: true
      default_rpm: 100
      default_burst: 10
      per_server:
        external-api:
          calls_per_minute: 10
          burst: 2
    cross_server:
      enabled: true
      shadow_tool:
        enabled: true
        similarity_check: true
        similarity_threshold: 0.85
      read_then_send:
        enabled: true
        window: "30s"
      burst:
        enabled: true
        max_calls: 10
        window: "5s"
      cross_server_flow:
        enabled: true
        same_turn_only: true
        window: "30s"
    detection:
      enabled: true
      custom_patterns:
        - name: "internal_api"
          pattern: "internal\\.corp\\.example\\.com"
          category: "exfiltration"
          severity: "critical"
          description: "Reference to internal API endpoint"
    output_inspection:
      enabled: true
      on_detection: "block"
    servers:
      - id: "my-server"
        command: "npx"
        args: ["-y", "@modelcontextprotocol/server-example"]
        env_allow: ["GITHUB_TOKEN"]
        env_deny: ["AWS_*"]
"#;

/// What the documented `policy generate` writes.
const GENERATED: &str = r#"mcp_rules:
  enforce_policy: true
  tool_policy: "allowlist"
  allowed_tools:
    - server: "notes"
      tool: "read_note"
      content_hash: "sha256:a1b2c3"
    - server: "notes"
      tool: "write_note"
      content_hash: "sha256:d4e5f6"
  server_policy: "allowlist"
  allowed_servers:
    - id: "notes"
    - id: "web-search"
  version_pinning:
    enabled: true
    on_change: "block"
    auto_trust_first: true
  cross_server:
    enabled: true
    read_then_send:
      enabled: true
"#;

fn good(text: &str) -> Policy {
    parse("policy.yaml", text).unwrap_or_else(|error| panic!("{}", error.render()))
}

fn warnings(policy: &Policy) -> Vec<String> {
    policy.warnings.iter().map(|warning| format!("{}: {}", warning.rule.line, warning.value)).collect()
}

#[test]
fn the_documented_file_loads_unchanged() {
    let policy = good(DOCUMENTED);
    let mcp = &policy.mcp;
    assert!(mcp.enforce && !mcp.fail_closed);
    assert_eq!((mcp.server_policy, mcp.tool_policy), (ListMode::Allowlist, ListMode::Allowlist));
    assert_eq!(mcp.allowed_servers[0].value, "internal-*");
    assert_eq!(mcp.allowed_servers[0].rule.to_string(), "policy.yaml:7 (sandbox.mcp.allowed_servers[0])");
    assert_eq!(mcp.denied_tools[0].value.tool, "exec_*");
    assert_eq!(mcp.rate_limits.default.as_ref().unwrap().value, Rate { calls_per_minute: 100, burst: 10 });
    let api = &mcp.rate_limits.per_server[&ServerId("external-api".into())];
    assert_eq!(api.value, Rate { calls_per_minute: 10, burst: 2 });
    assert_eq!(api.rule.to_string(), "policy.yaml:28 (sandbox.mcp.rate_limits.per_server.external-api)");
    assert!(mcp.not_enforced.is_empty());
    let pattern = &mcp.detection.patterns[0];
    assert_eq!(pattern.rule.to_string(), "policy.yaml:51 (sandbox.mcp.detection.custom_patterns[0])");
    assert_eq!((pattern.value.name.as_str(), pattern.value.severity), ("internal_api", Severity::Critical));
    assert_eq!(mcp.content.results(), OnFinding::Block);
    assert_eq!(
        mcp.content.rule("results").to_string(),
        "policy.yaml:58 (sandbox.mcp.output_inspection.on_detection)"
    );
    let cross_server = &mcp.cross_server;
    assert_eq!(cross_server.rule.as_ref().unwrap().to_string(), "policy.yaml:31 (sandbox.mcp.cross_server)");
    assert!(cross_server.asked() && cross_server.burst().is_some());
    let server = &mcp.servers[&ServerId("my-server".into())];
    assert_eq!(server.command.as_deref(), Some("npx"));
    assert_eq!(server.args, ["-y", "@modelcontextprotocol/server-example"]);
    assert_eq!(server.process.env.allow[0].value, "GITHUB_TOKEN");
    assert_eq!(server.process.env.deny[0].value, "AWS_*");
    assert_eq!(
        warnings(&policy),
        ["14: this hash is not 64 hexadecimal digits long: the rule can never match"]
    );
}

#[test]
fn the_generated_file_loads_unchanged() {
    let policy = good(GENERATED);
    assert!(policy.mcp.enforce);
    assert_eq!(policy.mcp.allowed_tools[1].value.tool, "write_note");
    assert_eq!(policy.mcp.allowed_tools[1].rule.id, "mcp_rules.allowed_tools[1]");
    assert_eq!(policy.mcp.cross_server.rule.as_ref().unwrap().id, "mcp_rules.cross_server");
    assert!(policy.mcp.pinning.pin_binary, "a key that a section leaves out keeps the strict default");
}

#[test]
fn the_smaller_documented_pieces_load() {
    for piece in [
        "enforce_policy: true\n    fail_closed: false",
        "server_policy: \"allowlist\"\n    allowed_servers:\n      - id: \"internal-*\"\n      - id: \"llm-tools\"",
        "version_pinning:\n      enabled: true\n      on_change: \"alert\"",
        "rate_limits:\n      enabled: true",
        "cross_server:\n      shadow_tool:\n        similarity_check: true\n        similarity_threshold: 0.85",
        "output_inspection:\n      enabled: true\n      on_detection: \"alert\"",
        "servers:\n      - id: \"data-server\"\n        command: \"python\"\n        args: [\"server.py\"]\n        \
         env_deny: [\"AWS_*\", \"ANTHROPIC_API_KEY\"]",
        "sampling:\n      policy: block\n      per_server: {a: allow}",
        "allowed_transports: [stdio, http]",
        "servers:\n      - {id: s, type: http, url: \"https://x.example\", tls_fingerprint: \"sha256:00\"}",
        "servers:\n      - {id: s, command: c, allowed_env: [A], denied_env: [B]}",
    ] {
        good(&format!("sandbox:\n  mcp:\n    {piece}\n"));
    }
}

#[test]
fn policy_file_with_every_section_is_read() {
    let policy = good(
        r#"version: 1
agent:
  mcp_config: ~/.tool/mcp.json
  network:
    allow: [api.example.com, "*.example.org:8443", {host: db.example.com, port: 5432, protocol: tcp}, 10.0.0.0/8]
    loopback: [5432]
  filesystem: {read: [~/src/lib], write: ["."], deny: ["secrets/**"], unmask: [.envrc]}
  env_allow: [LANG, "CI_*"]
  env_inherit: all
  limits: {memory: 4GiB, pids: 512, open_files: 4096, cpu: 200%}
  exec: {allow: ["**"]}
sandbox:
  mcp:
    max_line_bytes: 2048
    request_timeout: 10m
    servers:
      - {id: github, command: npx, args: [], env: {A: b, PORT: 80}, network: {allow: [api.github.com]}, env_inherit: all}
      - {id: plain}
tests:
  - {connect: "api.github.com:443", from: github, expect: allow}
  - {tool: github/get_issue, expect: deny}
"#,
    );
    assert_eq!(policy.agent_only.mcp_config.as_ref().unwrap().value, "~/.tool/mcp.json");
    let network = &policy.agent.network;
    assert_eq!(network.allow[0].value.host, HostPattern::Exact("api.example.com".into()));
    assert_eq!(network.allow[1].value.ports, [8443]);
    assert!(network.allow[2].value.any_tcp);
    assert_eq!(network.allow[3].rule.to_string(), "policy.yaml:5 (agent.network.allow[3])");
    assert_eq!(network.loopback[0].value, 5432);
    assert!(!policy.agent.env.others, "a list wins over `env_inherit`");
    let limits = &policy.agent.limits;
    assert_eq!(limits.memory.as_ref().unwrap().value, 4 << 30);
    assert_eq!(limits.cpu.as_ref().unwrap().value, 200);
    assert_eq!((policy.mcp.max_line_bytes, policy.mcp.request_timeout_s), (2048, Some(600)));
    let github = &policy.mcp.servers[&ServerId("github".into())];
    assert_eq!(github.env["PORT"], "80");
    assert!(github.process.env.others);
    assert_eq!(github.process.filesystem.read[0].value, ".");
    assert!(github.process.filesystem.write.is_empty());
    assert_eq!(policy.mcp.servers[&ServerId("plain".into())].command, None);
    assert_eq!(policy.tests[1].question, Question::Tool("get_issue".into()));
    assert_eq!(policy.tests[1].from, Some(ServerId("github".into())));
}

#[test]
fn missing_keys_have_the_strict_or_documented_default() {
    let policy = good("version: 1\n");
    assert!(!policy.mcp.enforce);
    assert_eq!(policy.mcp.pinning, Pinning::default());
    assert_eq!((policy.mcp.max_line_bytes, policy.mcp.request_timeout_s), (16 << 20, None));
    assert_eq!(policy.agent.filesystem.write[0].value, ".");
    assert!(policy.warnings.is_empty());
    let policy = good("sandbox: {mcp: {rate_limits: {enabled: true, per_server: {a: {burst: 3}}}}}");
    assert_eq!(policy.mcp.rate_limits.default.unwrap().value, Rate { calls_per_minute: 100, burst: 10 });
    assert_eq!(
        policy.mcp.rate_limits.per_server[&ServerId("a".into())].value,
        Rate { calls_per_minute: 100, burst: 3 }
    );
    let policy = good(
        "sandbox: {mcp: {rate_limits: {enabled: true, default_burst: 3, default_rpm: 6, per_server: {a: {calls_per_minute: 10}, b: {burst: 1}}}}}",
    );
    let rates = policy.mcp.rate_limits.per_server;
    assert_eq!(rates[&ServerId("a".into())].value, Rate { calls_per_minute: 10, burst: 3 });
    assert_eq!(rates[&ServerId("b".into())].value, Rate { calls_per_minute: 6, burst: 1 });
    let policy = good("sandbox: {mcp: {version_pinning: {on_change: alert}}}");
    assert!(policy.mcp.pinning.enabled && policy.mcp.pinning.on_change == OnChange::Alert);
}

#[test]
fn hashes_are_normalised() {
    let upper = "AB".repeat(32);
    for written in [format!("\"{upper}\""), format!("\"sha256:{upper}\"")] {
        let text = format!(
            "sandbox: {{mcp: {{enforce_policy: true, tool_policy: allowlist, allowed_tools: [{{server: a, tool: b, \
             content_hash: {written}}}]}}}}"
        );
        let policy = good(&text);
        let hash = policy.mcp.allowed_tools[0].value.content_hash.as_deref().unwrap();
        assert_eq!(hash, format!("sha256:{}", "ab".repeat(32)));
        assert!(policy.warnings.is_empty());
    }
    let empty = good("mcp_rules: {allowed_tools: [{server: a, tool: b, content_hash: \"\"}]}");
    assert_eq!(empty.mcp.allowed_tools[0].value.content_hash, None);
}

#[test]
fn lists_that_refuse_nothing_are_warned_about() {
    let policy = good("mcp_rules: {tool_policy: denylist, denied_tools: [{server: '*', tool: rm}]}");
    insta::assert_snapshot!(warnings(&policy).join("\n"), @"1: without `enforce_policy: true` the lists refuse nothing: they only record alerts");
    let policy = good("mcp_rules:\n  enforce_policy: true\n  denied_tools:\n    - {server: '*', tool: rm}\n");
    insta::assert_snapshot!(warnings(&policy).join("\n"), @"4: this list has no effect without `tool_policy: denylist`");
    let policy =
        good("agent:\n  filesystem:\n    unmask: [~/.ssh/known_hosts, ~/.shh, .envrc, a/.git/hooks]\n");
    insta::assert_snapshot!(warnings(&policy).join("\n"), @"3: `~/.shh` is not masked or read-only: this lifts nothing");
}

#[test]
fn both_sections_are_merged() {
    let policy = good(
        "sandbox: {mcp: {enforce_policy: true, denied_servers: [{id: a}]}}\nmcp_rules: {enforce_policy: true, \
         server_policy: denylist, denied_servers: [{id: b}]}",
    );
    let ids: Vec<&str> = policy.mcp.denied_servers.iter().map(|entry| entry.rule.id.as_str()).collect();
    assert_eq!(ids, ["sandbox.mcp.denied_servers[0]", "mcp_rules.denied_servers[0]"]);
    let both = "sandbox:\n  mcp:\n    enforce_policy: true\nmcp_rules:\n  enforce_policy: false\n";
    insta::assert_snapshot!(parse("policy.yaml", both).unwrap_err().render(), @r#"
    error: `mcp_rules.enforce_policy` contradicts an earlier key
     --> policy.yaml:5:3
      |
    5 |   enforce_policy: false
      |   ^^^^^^^^^^^^^^^^^^^^^
      = help: `sandbox.mcp.enforce_policy` on line 3 has a different value; keep one of them
    "#);
}

#[test]
fn every_built_in_policy_passes_its_own_tests_and_warns_of_nothing() {
    let context = PathContext { home: "/home/u".into(), project: "/home/u/src/app".into() };
    for (name, text) in builtin::POLICIES {
        let policy =
            parse(&format!("built-in:{name}"), text).unwrap_or_else(|error| panic!("{}", error.render()));
        assert!(policy.tests.len() > 5, "{name}");
        assert_eq!(tests::run(&policy, &context), [], "{name}");
        assert_eq!(policy.mcp.enforce, *name != "observe");
        assert!(policy.warnings.is_empty(), "{name}: {:?}", policy.warnings);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in "(?s).{0,200}") {
        if let Err(error) = parse("p", &text) {
            prop_assert!(!error.render().is_empty());
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn mutated_policy_file_is_read_without_a_panic(at in 0..DOCUMENTED.len(), with in "[a-z:\\-\\[{\"\n *&!]{0,3}") {
        let mut text = DOCUMENTED.to_owned();
        if text.is_char_boundary(at) {
            text.insert_str(at, &with);
            if let Err(error) = parse("p", &text) {
                let _ = error.render();
            }
        }
    }
}
