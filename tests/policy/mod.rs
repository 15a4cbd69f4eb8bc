//! `agentsh policy`, with the files that people write.

mod allow;
mod arguments;
mod bundles;
mod generate;
mod layers;
mod reference;

use crate::support::{Mode, Outcome, Place};

/// Standard output, standard error and exit code, with this directory's name removed.
fn policy(place: &Place, words: &[&str]) -> String {
    let outcome = Outcome::of(place.agentsh(&["policy"]).args(words));
    let root = place.path("x").parent().unwrap().display().to_string();
    format!("{}{}exit {}", outcome.stdout, outcome.stderr, outcome.code).replace(&root, "ROOT")
}

#[test]
fn policy_mistakes_have_a_place_and_a_suggestion() {
    let place = Place::new(Mode::Invoker);
    let check = |text: &str| {
        place.write("broken.yaml", text);
        policy(&place, &["check", "broken.yaml"])
    };
    insta::assert_snapshot!(check("version: 1\nagents: {}\n"));
    insta::assert_snapshot!(check("agent:\n  network:\n    alow: [a.example]\n"));
    insta::assert_snapshot!(check("agent:\n  limits: {memory: lots}\n"));
    insta::assert_snapshot!(check("agent:\n  env_allow: PATH\n"));
    insta::assert_snapshot!(check("sandbox:\n  mcp:\n    tool_policy: allowlst\n"));
    insta::assert_snapshot!(check("sandbox:\n  mcp:\n    denied_tools: [{tool: x}]\n"));
    insta::assert_snapshot!(check("agent: [\n"));
    insta::assert_snapshot!(check("version: 2\n"));
    insta::assert_snapshot!(check("agent: {filesystem: {read: [a]}}\nagent: {}\n"));
    insta::assert_snapshot!(check("sandbox: {mcp: {request_timeout: 10}}\n"));
}

#[test]
fn malformed_policy_stops_the_start() {
    let place = Place::new(Mode::Invoker);
    for text in ["agents: {}", "agent: [", "agent: {limits: {memory: lots}}", "\u{0}", "- a\n- b\n"] {
        place.policy(text);
        let outcome = place.shell("echo ran");
        assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{text} {outcome}");
        assert!(outcome.stderr.contains("policy.yaml"), "{outcome}");
    } // An empty policy is nobody's intention; an empty file in the project may be a stub.
    place.policy("");
    assert_eq!(place.shell("echo ran").code, 125);
    place.policy("version: 1\n");
    place.write(".agentsh.yaml", "");
    assert_eq!(place.shell("echo ran").stdout, "ran\n");
}

/// The forms that people are told to write.
const EXAMPLES: [&str; 9] = [
    REFERENCE,
    "version: 1\nagent:\n  network: {allow: [\"api.example.com\", \"*.githubusercontent.com\", {host: \"db.example.com\", port: 5432, protocol: tcp}], loopback: [5432]}\n",
    "version: 1\nagent:\n  filesystem: {read: [\"~/src/lib\"], write: [\".\"], deny: [\"secrets/**\"]}\n  env_allow: [LANG, \"CI_*\"]\n",
    "agent:\n  limits: {memory: 4GiB, pids: 512, open_files: 4096, cpu: 200%}\n  exec: {allow: [\"**\"]}\n",
    "sandbox:\n  mcp:\n    enforce_policy: true\n    fail_closed: true\n    server_policy: allowlist\n    allowed_servers: [{id: github}, {id: \"db-*\"}]\n",
    "mcp_rules:\n  enforce_policy: true\n  tool_policy: denylist\n  denied_tools:\n    - {server: \"*\", tool: \"exec_*\"}\n",
    "sandbox:\n  mcp:\n    servers:\n      - {id: github, command: npx, args: [-y, \"@modelcontextprotocol/server-github\"], env_allow: [GITHUB_TOKEN], network: {allow: [\"api.github.com\"]}}\n",
    "sandbox:\n  mcp:\n    rate_limits: {enabled: true, default_rpm: 60, default_burst: 10, per_server: {slow: {calls_per_minute: 6, burst: 1}}}\n    version_pinning: {enabled: true, on_change: block, auto_trust_first: false, pin_binary: true}\n",
    "tests:\n  - {connect: \"api.github.com:443\", from: github, expect: deny}\n  - {read: \"~/.ssh/id_ed25519\", expect: deny}\n  - {write: src/x, expect: allow}\n",
];

/// Every key of the page of the product that is called agentsh, too.
const REFERENCE: &str = r#"
sandbox:
  mcp:
    enforce_policy: true
    fail_closed: false
    server_policy: "allowlist"
    allowed_servers: [{id: "internal-*"}]
    denied_servers: [{id: "untrusted_*"}]
    tool_policy: "allowlist"
    allowed_tools: [{server: "database", tool: "query_*", content_hash: "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}]
    denied_tools: [{server: "*", tool: "exec_*"}]
    version_pinning: {enabled: true, on_change: "block", auto_trust_first: true, pin_binary: true}
    rate_limits: {enabled: true, default_rpm: 100, default_burst: 10, per_server: {external-api: {calls_per_minute: 10, burst: 2}}}
    cross_server:
      enabled: true
      shadow_tool: {enabled: true, similarity_check: true, similarity_threshold: 0.85}
      read_then_send: {enabled: true, window: "30s"}
      burst: {enabled: true, max_calls: 10, window: "5s"}
      cross_server_flow: {enabled: true, same_turn_only: true, window: "30s"}
    detection:
      enabled: true
      custom_patterns: [{name: "internal_api", pattern: "internal\\.corp\\.example\\.com", category: "exfiltration", severity: "critical", description: "Reference to internal API endpoint"}]
    output_inspection: {enabled: true, on_detection: "block"}
    servers: [{id: "my-server", command: "npx", args: ["-y", "@modelcontextprotocol/server-example"], env_allow: ["GITHUB_TOKEN"], env_deny: ["AWS_*"]}]
"#;

#[test]
fn example_policies_are_valid() {
    let place = Place::new(Mode::Invoker);
    for text in EXAMPLES {
        let file = place.policy(text);
        let answer = policy(&place, &["check", file.to_str().unwrap()]);
        assert!(answer.contains("policy.yaml: ok") && answer.ends_with("exit 0"), "{text}{answer}");
        let answer = policy(&place, &["test", file.to_str().unwrap()]);
        assert!(answer.ends_with("exit 0"), "{text}{answer}");
        let outcome = place.shell("echo ran");
        assert_eq!(outcome.stdout, "ran\n", "{text}{outcome}");
    }
}

#[test]
fn the_policies_that_ship_can_be_named() {
    let place = Place::new(Mode::Invoker);
    for name in ["default", "claude", "codex", "strict", "observe", "gateway"] {
        let shown = policy(&place, &["show", "--policy", name]);
        assert!(shown.starts_with(&format!("# built-in:{name}\n")), "{shown}");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--policy", name, "--", "echo", "ran"]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "ran\n"), "{name} {outcome}");
    }
}

/// A policy that grants parts of the project: the rest is denied, says `explain`.
#[test]
fn project_parts_that_are_not_granted_are_hidden() {
    let place = Place::new(Mode::Invoker);
    place.policy("agent:\n  filesystem: {write: [src], read: [docs]}\n");
    place.write("other/file", "PLAIN");
    place.write("docs/file", "PLAIN");
    assert!(policy(&place, &["explain", "--read", "other/file"]).starts_with("denied"));
    assert_eq!(place.shell("cat docs/file").stdout, "PLAIN");
    assert_eq!(place.shell("cat other/file").stdout, "");
}

/// `explain` says what the sandbox does.
#[test]
fn explain_agrees_with_the_sandbox() {
    let place = Place::new(Mode::Invoker);
    place.policy("agent:\n  filesystem: {write: [src], read: [docs], deny: [\"docs/secret*\"]}\n");
    for (path, read, write) in [
        ("src/main.rs", true, true),
        ("docs/a.md", true, false),
        ("docs/secret.md", false, false),
        (".git/config", false, false),
    ] {
        place.write(path, "PLAIN");
        let says = |verb: &str| policy(&place, &["explain", verb, path]).starts_with("allowed");
        assert_eq!((says("--read"), says("--write")), (read, write), "{path}");
        let real = place.shell(&format!("cat {path}; echo x >> {path}"));
        let written = std::fs::read_to_string(place.project.join(path)).unwrap().ends_with("x\n");
        let did = (real.stdout.contains("PLAIN"), written);
        assert_eq!(did, (read, write), "{path} {real}");
    }
}

#[test]
fn the_command_that_explain_suggests_is_the_one_that_works() {
    let place = Place::new(Mode::Invoker);
    place.write(place.home.join("Documents/letter.txt"), "PLAIN");
    let target = place.home.join("Documents/letter.txt");
    let answer = policy(&place, &["explain", "--read", target.to_str().unwrap()]);
    let line = answer.lines().find_map(|line| line.trim().strip_prefix("to allow it: agentsh "));
    let root = place.path("x").parent().unwrap().display().to_string();
    let line = line.unwrap_or_else(|| panic!("{answer}")).replace("ROOT", &root);
    assert_eq!(place.shell("cat ~/Documents/letter.txt").stdout, "");
    let words: Vec<&str> = line.split(' ').collect();
    Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    assert_eq!(place.shell("cat ~/Documents/letter.txt").stdout, "PLAIN", "{line}");
}

#[test]
fn profiles_of_servers_are_listed_and_shown() {
    let place = Place::new(Mode::Invoker);
    let listed = policy(&place, &["show", "--profiles"]);
    assert!(listed.ends_with("exit 0") && listed.lines().count() > 20, "{listed}");
    let of_github =
        listed.lines().find(|line| line.starts_with("github ")).unwrap_or_else(|| panic!("{listed}"));
    let words: Vec<&str> = of_github.split_whitespace().collect();
    assert_eq!(words, ["github", "npm:@modelcontextprotocol/server-github", "api.github.com:443"]);
    let json = Outcome::of(&mut place.agentsh(&["policy", "show", "--profiles", "--json"])).expect_code(0);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let redis = json.as_array().unwrap().iter().find(|entry| entry["name"] == "redis").unwrap();
    assert_eq!(redis["hosts"], serde_json::json!(["localhost:6379"]), "{redis}");

    let shown = policy(&place, &["show", "github"]);
    assert!(shown.starts_with("# built-in:servers/github.yaml\nversion: 1\npackage: "), "{shown}");
    assert!(policy(&place, &["show", "strict"]).starts_with("# built-in:strict\n"));
    assert_eq!(
        policy(&place, &["show", "gihtub"]),
        "error: there is no profile `gihtub`: did you mean `github`?\nexit 125"
    );
    assert!(
        policy(&place, &["show", "srtict"]).contains("there is no policy `srtict`: did you mean `strict`?")
    );
    // One's own comes first.
    let text = "version: 1\npackage: {npm: mine}\nwhy: \"Mine.\"\nnetwork:\n  allow:\n    - {host: mine.example, why: \"it\"}\n";
    place.write(place.home.join(".config/agentsh/servers/mine.yaml"), text);
    let listed = policy(&place, &["show", "--profiles"]);
    assert!(listed.starts_with("mine ") && listed.contains("npm:mine "), "{listed}");
    assert!(policy(&place, &["show", "mine"]).ends_with(&format!("{text}exit 0")));
}

#[test]
fn built_in_policies_are_checked_and_tested_by_name() {
    let place = Place::new(Mode::Invoker);
    let checked = policy(&place, &["check", "github", "strict"]);
    let lines: Vec<&str> = checked.lines().collect();
    assert!(lines[0].starts_with("built-in:servers/github.yaml: ok, a profile with "), "{checked}");
    assert!(lines[1].starts_with("built-in:strict: ok, ") && lines[2] == "exit 0", "{checked}");
    let tested = policy(&place, &["test", "github"]);
    assert!(
        tested.contains("connect api.github.com:443") && tested.ends_with(" 0 failed\nexit 0"),
        "{tested}"
    );
    assert!(policy(&place, &["test", "strict"]).ends_with(" 0 failed\nexit 0"));
    for verb in ["check", "test"] {
        let answer = policy(&place, &[verb, "gihtub"]);
        assert!(answer.contains("did you mean `github`?") && answer.ends_with("exit 1"), "{answer}");
    }
    // A file of that name is meant before what ships.
    place.write("github", "version: 1\nagents: {}\n");
    assert!(policy(&place, &["check", "github"]).contains("unknown key `agents`"));
}

/// Nothing was started, nothing is written: the command in the policy says which package it will be.
#[test]
fn explain_knows_the_profile_of_a_configured_server() {
    let place = Place::new(Mode::Invoker);
    // The launchers have to be there, and are not started.
    for name in ["npx", "uvx"] {
        place.script(place.home.join("tools").join(name), "#!/bin/sh\ntouch started\n");
    }
    place.set("PATH", format!("{}:/usr/bin:/bin", place.home.join("tools").display()));
    let ask = |id: &str, host: &str| policy(&place, &["explain", "--server", id, "--connect", host]);
    place.policy(
        "sandbox: {mcp: {servers: [\
         {id: gh, command: npx, args: [-y, \"@modelcontextprotocol/server-github@2025.4.8\"]}, \
         {id: py, command: uvx, args: [\"mcp-server-fetch==1.0\"]}, \
         {id: own, command: npx, args: [-y, \"@modelcontextprotocol/server-github\"], network: {allow: [own.example]}}]}}",
    );
    let answer = ask("gh", "api.github.com:443");
    let profile = "profile: built-in:servers/github.yaml, for npm:@modelcontextprotocol/server-github, which its command \
                   in the policy starts";
    assert!(answer.starts_with("allowed: ") && answer.contains(profile), "{answer}");
    assert!(answer.contains("why: the only address in the program"), "{answer}");
    assert!(ask("gh", "example.com:443").starts_with("denied: "));
    // An explicit setting wins over the profile.
    assert!(ask("own", "api.github.com:443").starts_with("denied: "));
    assert!(ask("py", "example.com:443").contains("servers/fetch.yaml, for pypi:mcp-server-fetch, "));
    assert!(ask("github", "api.github.com:443").starts_with("denied: "), "a name is not a package");
    assert!(!place.home.join(".local/state").exists() && !place.project.join("started").exists());
}
