#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use proptest::prelude::*;

use super::model::{HostPattern, ListMode, OnChange, Pinning, Policy, Question, Rate};
use super::{PathContext, builtin, parse, tests};
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

fn bad(text: &str) -> String {
    parse("policy.yaml", text).expect_err("the policy was accepted").render()
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
    let later: Vec<String> = mcp.not_enforced.iter().map(ToString::to_string).collect();
    assert_eq!(
        later,
        [
            "policy.yaml:31 (sandbox.mcp.cross_server)",
            "policy.yaml:48 (sandbox.mcp.detection)",
            "policy.yaml:56 (sandbox.mcp.output_inspection)"
        ]
    );
    let server = &mcp.servers[&ServerId("my-server".into())];
    assert_eq!(server.command.as_deref(), Some("npx"));
    assert_eq!(server.args, ["-y", "@modelcontextprotocol/server-example"]);
    assert_eq!(server.process.env.allow[0].value, "GITHUB_TOKEN");
    assert_eq!(server.process.env.deny[0].value, "AWS_*");
    assert_eq!(
        warnings(&policy),
        [
            "14: this hash is not 64 hexadecimal digits long: the rule can never match",
            "8: this list has no effect without `server_policy: denylist`",
            "15: this list has no effect without `tool_policy: denylist`"
        ]
    );
}

#[test]
fn the_generated_file_loads_unchanged() {
    let policy = good(GENERATED);
    assert!(policy.mcp.enforce);
    assert_eq!(policy.mcp.allowed_tools[1].value.tool, "write_note");
    assert_eq!(policy.mcp.allowed_tools[1].rule.id, "mcp_rules.allowed_tools[1]");
    assert_eq!(policy.mcp.not_enforced[0].id, "mcp_rules.cross_server");
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
fn everything_of_ours_is_read() {
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
    assert_eq!(policy.agent_mcp_config.as_ref().unwrap().value, "~/.tool/mcp.json");
    let network = &policy.agent.network;
    assert_eq!(network.allow[0].value.host, HostPattern::Exact("api.example.com".into()));
    assert_eq!(network.allow[1].value.ports, [8443]);
    assert!(network.allow[2].value.any_tcp);
    assert_eq!(network.allow[3].rule.to_string(), "policy.yaml:5 (agent.network.allow[3])");
    assert_eq!(network.loopback[0].value, 5432);
    assert!(policy.agent.env.inherit_all);
    let limits = &policy.agent.limits;
    assert_eq!(limits.memory.as_ref().unwrap().value, 4 << 30);
    assert_eq!(limits.cpu_percent.as_ref().unwrap().value, 200);
    assert_eq!((policy.mcp.max_line_bytes, policy.mcp.request_timeout_s), (2048, Some(600)));
    let github = &policy.mcp.servers[&ServerId("github".into())];
    assert_eq!(github.env["PORT"], "80");
    assert!(github.process.env.inherit_all);
    assert_eq!(github.process.filesystem.read[0].value, ".");
    assert!(github.process.filesystem.write.is_empty());
    assert_eq!(policy.mcp.servers[&ServerId("plain".into())].command, None);
    assert_eq!(policy.tests[1].question, Question::Tool("get_issue".into()));
    assert_eq!(policy.tests[1].from, Some(ServerId("github".into())));
}

#[test]
fn what_is_missing_has_the_strict_or_documented_default() {
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
    insta::assert_snapshot!(warnings(&policy).join("\n"), @"3: this list has no effect without `tool_policy: denylist`");
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
    insta::assert_snapshot!(bad("sandbox:\n  mcp:\n    enforce_policy: true\nmcp_rules:\n  enforce_policy: false\n"), @r#"
    error: `mcp_rules.enforce_policy` contradicts an earlier key
     --> policy.yaml:5:3
      |
    5 |   enforce_policy: false
      |   ^^^^^^^^^^^^^^^^^^^^^
      = help: `sandbox.mcp.enforce_policy` in line 3 says something else; keep one
    "#);
}

#[test]
fn an_unknown_key_is_shown_where_it_stands() {
    insta::assert_snapshot!(bad("sandbox:\n  mcp:\n    sever_policy: allowlist\n    colour: red\n"), @r#"
    error: unknown key `sever_policy`
     --> policy.yaml:3:5
      |
    3 |     sever_policy: allowlist
      |     ^^^^^^^^^^^^ not a key of `sandbox.mcp`
      = help: did you mean `server_policy`?

    error: unknown key `colour`
     --> policy.yaml:4:5
      |
    4 |     colour: red
      |     ^^^^^^ not a key of `sandbox.mcp`
      = help: the keys here are `enforce_policy`, `fail_closed`, `server_policy`, `allowed_servers`, `denied_servers`, `tool_policy`, `allowed_tools`, `denied_tools`, `version_pinning`, `rate_limits`, `cross_server`, `detection`, `output_inspection`, `sampling`, `allowed_transports`, `exfiltration`, `servers`, `max_line_bytes` or `request_timeout`
    "#);
}

#[test]
fn wrong_types_are_shown_where_they_stand() {
    insta::assert_snapshot!(bad("version: 2\nagent:\n  network: {allow: example.com}\n  env_allow: [1]\nsandbox:\n  mcp:\n    enforce_policy: yes\n    detection:\n    server_policy: allow-list\n"), @r#"
    error: version 2 is not known
     --> policy.yaml:1:10
      |
    1 | version: 2
      |          ^
      = help: this agentsh reads `version: 1`

    error: `agent.network.allow` must be a list
     --> policy.yaml:3:20
      |
    3 |   network: {allow: example.com}
      |                    ^^^^^^^^^^^ found text
      = help: put it in brackets: `[...]`

    error: `agent.env_allow[0]` must be text
     --> policy.yaml:4:15
      |
    4 |   env_allow: [1]
      |               ^ found a whole number
      = help: put it in quotes

    error: `sandbox.mcp.enforce_policy` must be true or false
     --> policy.yaml:7:21
      |
    7 |     enforce_policy: yes
      |                     ^^^ found text
      = help: write `true` or `false`

    error: `sandbox.mcp.detection` must be a map
     --> policy.yaml:8:14
      |
    8 |     detection:
      |              ^ found nothing
      = help: fill it in, or remove the key

    error: unknown value `allow-list` for `sandbox.mcp.server_policy`
     --> policy.yaml:9:20
      |
    9 |     server_policy: allow-list
      |                    ^^^^^^^^^^
      = help: did you mean `allowlist`?
    "#);
}

#[test]
fn network_names_are_explained() {
    insta::assert_snapshot!(bad("agent:\n  network:\n    allow:\n      - https://example.com/x\n      - \"*\"\n      - {port: 1}\n      - {host: x.example, protocol: tcp}\n      - 127.0.0.1\n      - [a]\n"), @r#"
    error: `https://example.com/x` is a URL or a path; write the host alone, as `example.com`
     --> policy.yaml:4:9
      |
    4 |       - https://example.com/x
      |         ^^^^^^^^^^^^^^^^^^^^^

    error: `*` would allow too much: a wildcard needs at least two labels after it
     --> policy.yaml:5:9
      |
    5 |       - "*"
      |         ^^^
      = help: write `example.com`, `*.example.com` (one more label), `**.example.com` (any depth), or an address block; a port may follow as `:443`

    error: this rule names no host
     --> policy.yaml:6:9
      |
    6 |       - {port: 1}
      |         ^
      = help: add `host: example.com`

    error: this rule opens any TCP on no particular port
     --> policy.yaml:7:9
      |
    7 |       - {host: x.example, protocol: tcp}
      |         ^
      = help: without TLS and HTTP name checks a rule has to name its ports: add `port: 5432`

    error: `127.0.0.1` is this machine; open one of its ports with `loopback: [PORT]`
     --> policy.yaml:8:9
      |
    8 |       - 127.0.0.1
      |         ^^^^^^^^^

    error: `agent.network.allow[5]` must be a host such as `example.com`, or a map with `host`
     --> policy.yaml:9:9
      |
    9 |       - [a]
      |         ^ found a list
    "#);
}

#[test]
fn broken_yaml_is_shown_where_it_breaks() {
    insta::assert_snapshot!(bad("version: 1\nagent: [\n"), @r#"
    error: unclosed bracket '['
     --> policy.yaml:2:8
      |
    2 | agent: [
      |        ^
    "#);
    insta::assert_snapshot!(bad("version: 1\nversion: 1\n"), @r#"
    error: the key `version` stands here twice
     --> policy.yaml:2:1
      |
    2 | version: 1
      | ^^^^^^^
    "#);
    insta::assert_snapshot!(bad("a: &a {x: 1}\nb:\n  <<: *a\n"), @r#"
    error: merge keys (`<<`) are not supported
     --> policy.yaml:3:3
      |
    3 |   <<: *a
      |   ^^
    "#);
    insta::assert_snapshot!(bad(""), @r#"
    error: the policy is empty
     --> policy.yaml
      = help: write at least `version: 1`
    "#);
    insta::assert_snapshot!(bad("version: 1\n---\nversion: 1\n"), @r#"
    error: a policy is one YAML document
     --> policy.yaml:3:1
      |
    3 | version: 1
      | ^
    "#);
}

#[test]
fn a_file_cannot_drive_the_terminal() {
    let shown = bad("\"\\e]0;x\\a\u{202e}\": 1\n");
    assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{shown:?}");
}

#[test]
fn mistakes_of_every_kind_are_refused() {
    for (text, expected) in [
        ("[]", "must be a map"),
        ("5", "must be a map"),
        ("version: \"1\"", "must be the number 1"),
        ("version: 1.0", "must be the number 1"),
        ("agent:\n", "must be a map"),
        ("agent: {limits: {memory: 5 elephants}}", "not a size"),
        ("agent: {limits: {memory: -1}}", "not a size"),
        ("agent: {limits: {memory: 99999999999999999999}}", "must be a size"),
        ("agent: {limits: {memory: 10}}", "too little"),
        ("agent: {limits: {pids: 0}}", "not between"),
        ("agent: {limits: {cpu: 200}}", "share of a processor"),
        ("agent: {filesystem: {read: [../x]}}", "`..` is not allowed"),
        ("agent: {filesystem: {read: [~root/x]}}", "another user's home"),
        ("agent: {filesystem: {read: [\"\"]}}", "must not be empty"),
        ("agent: {exec: {allow: [git]}}", "absolute path"),
        ("agent: {exec: {allow: []}}", "empty list"),
        ("agent: {env_allow: [\"A=b\"]}", "not the name of a variable"),
        ("agent: {env_allow: [A], allowed_env: [B]}", "twice"),
        ("agent: {env_inherit: some}", "unknown value"),
        ("agent: {network: {loopback: [0]}}", "not a port"),
        ("agent: {network: {loopback: [70000]}}", "not a port"),
        ("sandbox: {}", ""),
        ("sandbox: {mcp: {max_line_bytes: 10}}", "not between"),
        ("sandbox: {mcp: {request_timeout: 10}}", "must be text"),
        ("sandbox: {mcp: {request_timeout: 100ms}}", "at least `1s`"),
        ("sandbox: {mcp: {request_timeout: soon}}", "not a length of time"),
        ("sandbox: {mcp: {tool_policy: Allowlist}}", "unknown value"),
        ("sandbox: {mcp: {version_pinning: {on_change: ignore}}}", "unknown value"),
        ("sandbox: {mcp: {allowed_tools: [{server: a}]}}", "which tool"),
        ("sandbox: {mcp: {allowed_tools: [{server: a, tool: b, content_hash: abc}]}}", "not a hash"),
        ("sandbox: {mcp: {allowed_servers: [internal]}}", "must be a map"),
        ("sandbox: {mcp: {servers: [{command: x}]}}", "no id"),
        ("sandbox: {mcp: {servers: [{id: a, command: x}, {id: a}]}}", "two servers"),
        ("sandbox: {mcp: {servers: [{id: 'a*', command: x}]}}", "plain name"),
        ("sandbox: {mcp: {servers: [{id: a, command: x, url: 'https://x'}]}}", "not both"),
        ("sandbox: {mcp: {servers: [{id: a, args: [x]}]}}", "without a command"),
        ("sandbox: {mcp: {servers: [{id: a, command: x, env: {'A=B': c}}]}}", "not the name"),
        ("sandbox: {mcp: {rate_limits: {enabled: true, default_rpm: 0}}}", "not between"),
        ("sandbox: {mcp: {rate_limits: {per_server: {a: {rpm: 1}}}}}", "unknown key"),
        ("sandbox: {mcp: {cross_server: {burst: {window: 5}}}}", "must be text"),
        ("sandbox: {mcp: {cross_server: {shadow_tool: {similarity_threshold: 2.0}}}}", "between 0.0 and 1.0"),
        ("sandbox: {mcp: {output_inspection: {on_detection: shout}}}", "unknown value"),
        ("sandbox: {mcp: {detection: {custom_patterns: [{name: a}]}}}", "no `pattern`"),
        ("sandbox: {mcp: {allowed_transports: [carrier-pigeon]}}", "unknown transport"),
        ("tests: [{read: a}]", "expects nothing"),
        ("tests: [{read: a, write: b, expect: allow}]", "exactly one question"),
        ("tests: [{connect: example.com, expect: allow}]", "port is missing"),
        ("tests: [{connect: 'example.com:x', expect: allow}]", "not a port"),
        ("tests: [{tool: x, expect: allow}]", "which server"),
        ("tests: [{tool: a/x, from: b, expect: allow}]", "another server"),
        ("tests: [{read: a, expect: maybe}]", "unknown value"),
    ] {
        match parse("p", text) {
            Ok(_) => assert!(expected.is_empty(), "{text} was accepted"),
            Err(error) => {
                assert!(
                    !expected.is_empty() && error.render().contains(expected),
                    "{text}: {}",
                    error.render()
                );
            }
        }
    }
}

#[test]
fn a_bomb_is_refused_quickly() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let before = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    assert!(bad(&text).contains("too large"), "{}", bad(&text));
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000), "a:\n ".repeat(10_000)] {
        assert!(parse("p", &text).is_err());
    }
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a, ".repeat(900));
    assert!(bad(&long).contains("too large"));
    let wide = format!("agent: {{env_allow: [{}]}}", "A,".repeat(200_000));
    assert!(parse("p", &wide).is_err());
}

#[test]
fn at_most_twenty_mistakes_are_shown() {
    let text: String = (0..1_000).map(|number| format!("key{number}: 1\n")).collect();
    assert_eq!(parse("p", &text).unwrap_err().diagnostics().len(), 20);
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
    fn any_text_is_survived(text in "(?s).{0,200}") {
        if let Err(error) = parse("p", &text) {
            prop_assert!(!error.render().is_empty());
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_small_change_to_a_good_file_is_survived(at in 0..DOCUMENTED.len(), with in "[a-z:\\-\\[{\"\n *&!]{0,3}") {
        let mut text = DOCUMENTED.to_owned();
        if text.is_char_boundary(at) {
            text.insert_str(at, &with);
            if let Err(error) = parse("p", &text) {
                let _ = error.render();
            }
        }
    }
}
