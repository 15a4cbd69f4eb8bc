//! Messages about a file that is not a policy.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at the first surprise")]

use super::parse;

fn bad(text: &str) -> String {
    parse("policy.yaml", text).expect_err("the policy was accepted").render()
}

#[test]
fn unknown_key_is_shown_with_its_place() {
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
      = help: the keys here are `enforce_policy`, `fail_closed`, `server_policy`, `allowed_servers`, `denied_servers`, `tool_policy`, `allowed_tools`, `denied_tools`, `version_pinning`, `rate_limits`, `max_line_bytes`, `request_timeout`, `max_argument_bytes`, `exfiltration`, `detection`, `output_inspection`, `sampling`, `secrets`, `content`, `classifier`, `advisories`, `rules`, `risk_names`, `approvals`, `approved`, `anomaly`, `cross_server`, `allowed_transports` or `servers`
    "#);
}

#[test]
fn wrong_types_are_shown_with_their_place() {
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
    error: `https://example.com/x` is a URL or a path; write only the host, as `example.com`
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
    error: duplicate key `version`
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
        ("sandbox: {mcp: {request_timeout: soon}}", "not a duration"),
        ("sandbox: {mcp: {tool_policy: Allowlist}}", "unknown value"),
        ("sandbox: {mcp: {version_pinning: {on_change: ignore}}}", "unknown value"),
        ("sandbox: {mcp: {allowed_tools: [{server: a}]}}", "needs a server and a tool"),
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
        ("tests: [{connect: 'example.com:x', expect: allow}]", "not a port"),
        ("tests: [{tool: x, expect: allow}]", "which server"),
        ("tests: [{tool: a/x, from: b, expect: allow}]", "different server"),
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
fn lists_that_would_not_do_what_they_say_are_refused() {
    for whole in ["~", "~/", "~/**", "/", "/**", "**/.."] {
        let shown = bad(&format!("agent: {{filesystem: {{write: [\"{whole}\"]}}}}"));
        assert!(shown.contains("never writable") || whole.ends_with(".."), "{whole}: {shown}");
    }
    assert!(
        parse("p", "agent: {filesystem: {write: [\"~/notes\", \"~/*\"], read: [\"~\", \"a[b]\"]}}").is_ok()
    );
    insta::assert_snapshot!(bad("agent:\n  filesystem:\n    deny: [\"s[e]c/**\", \"{sec,x}/a\", \"s?e?c\"]\n"), @r#"
    error: `[` is not a wildcard here, so that this would deny next to nothing
     --> policy.yaml:3:12
      |
    3 |     deny: ["s[e]c/**", "{sec,x}/a", "s?e?c"]
      |            ^^^^^^^^^^
      = help: write one line for each, with `*`, `?` and `**`; a `?` in a name also matches itself

    error: `{` is not a wildcard here, so that this would deny next to nothing
     --> policy.yaml:3:24
      |
    3 |     deny: ["s[e]c/**", "{sec,x}/a", "s?e?c"]
      |                        ^^^^^^^^^^^
      = help: write one line for each, with `*`, `?` and `**`; a `?` in a name also matches itself
    "#);
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
