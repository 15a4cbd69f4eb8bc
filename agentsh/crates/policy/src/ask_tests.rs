#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use proptest::prelude::*;

use super::Policy;
use super::explain::Answer;
use super::model::Question;
use super::{PathContext, parse};
use crate::types::ServerId;

const POLICY: &str = r#"version: 1
agent:
  network: {allow: [api.example.com, {host: db.example.com, port: 5432, protocol: tcp}], loopback: [8080]}
  filesystem:
    read: [~/src/lib, /data]
    write: [".", "~/out"]
    deny: ["secrets/**", "**/*.pem"]
    unmask: [.envrc, ~/.ssh/known_hosts]
  env_allow: [CI_*]
  exec: {allow: ["/usr/**", "**/run.sh"]}
sandbox:
  mcp:
    enforce_policy: true
    server_policy: denylist
    denied_servers: [{id: "bad*"}]
    tool_policy: allowlist
    allowed_tools: [{server: fs, tool: "read_*"}]
    servers:
      - {id: fs, command: fs, env: {MODE: x}, network: {allow: ["*.example.net"]}, filesystem: {read: [docs]}}
"#;

fn context() -> PathContext {
    PathContext { home: "/home/u".into(), project: "/home/u/src/app".into() }
}

fn policy() -> Policy {
    parse("p.yaml", POLICY).unwrap_or_else(|error| panic!("{}", error.render()))
}

fn ask(from: &str, question: &Question) -> Answer {
    let server = (!from.is_empty()).then(|| ServerId(from.to_owned()));
    policy().ask(server.as_ref(), question, &context())
}

#[test]
fn connect_questions_are_answered_by_rule() {
    for (from, host, port, allow, rule) in [
        ("", "api.example.com", 443, true, "p.yaml:3 (agent.network.allow[0])"),
        ("", "API.example.com.", 80, true, "p.yaml:3 (agent.network.allow[0])"),
        ("", "api.example.com", 22, false, "p.yaml:3 (agent.network.allow[0])"),
        ("", "x.api.example.com", 443, false, "default (agent.network.allow)"),
        ("", "db.example.com", 5432, true, "p.yaml:3 (agent.network.allow[1])"),
        ("", "127.0.0.1", 8080, true, "p.yaml:3 (agent.network.loopback[0])"),
        ("", "::1", 8080, true, "p.yaml:3 (agent.network.loopback[0])"),
        ("", "::ffff:127.0.0.1", 8081, false, "default (agent.network.loopback)"),
        ("", "localhost", 22, false, "default (agent.network.loopback)"),
        ("", "169.254.169.254", 80, false, "default (agent.network.allow)"),
        ("fs", "a.example.net", 443, true, "p.yaml:19 (sandbox.mcp.servers[0].network.allow[0])"),
        ("fs", "api.example.com", 443, false, "default (sandbox.mcp.servers.network.allow)"),
        ("other", "a.example.net", 443, false, "default (sandbox.mcp.servers.network.allow)"),
        ("bad1", "a.example.net", 443, false, "p.yaml:15 (sandbox.mcp.denied_servers[0])"),
    ] {
        let answer = ask(from, &Question::Connect(host.to_owned(), port));
        assert_eq!((answer.allow, answer.rule.to_string().as_str()), (allow, rule), "{from} {host}:{port}");
    }
}

#[test]
fn file_questions_are_answered_by_rule() {
    let (read, write) = (Question::Read as fn(String) -> Question, Question::Write as fn(String) -> Question);
    for (from, question, path, allow, rule) in [
        ("", read, "src/x", true, "agent.filesystem.write[0]"),
        ("", write, "src/x", true, "agent.filesystem.write[0]"),
        ("", read, "secrets/a", false, "agent.filesystem.deny[0]"),
        ("", write, "a/b.pem", false, "agent.filesystem.deny[1]"),
        ("", read, "~/src/lib/x", true, "agent.filesystem.read[0]"),
        ("", write, "~/src/lib/x", false, "agent.filesystem.write"),
        ("", read, "/data/../etc/shadow", false, "agent.filesystem.read"),
        ("", read, "~/other", false, "agent.filesystem.read"),
        ("", read, "~/.ssh/id_rsa", false, "mask:~/.ssh"),
        ("", read, "/home/u/src/app/../../.ssh/id_rsa", false, "mask:~/.ssh"),
        ("", read, "~/.ssh/known_hosts", false, "agent.filesystem.read"),
        ("", write, ".git/hooks/pre-commit", false, "read-only:.git/hooks"),
        ("", read, ".git/hooks/pre-commit", true, "agent.filesystem.write[0]"),
        ("", write, ".git/index", true, "agent.filesystem.write[0]"),
        ("", write, "a/b/c/d/e/.git/hooks/x", false, "read-only:.git/hooks"),
        ("", write, "~/out/repo/.git/config", false, "read-only:.git/config"),
        ("", write, ".envrc", true, "agent.filesystem.write[0]"),
        ("", write, "sub/.envrc", true, "agent.filesystem.write[0]"),
        ("", write, ".mcp.json", false, "read-only:.mcp.json"),
        ("", write, "~/.bashrc", false, "agent.filesystem.write"),
        ("", read, "/usr/lib/x", true, "system_read"),
        ("", read, "/etc/passwd", true, "system_read"),
        ("", read, "/etc/shadow", false, "agent.filesystem.read"),
        ("", write, "/usr/bin/x", false, "agent.filesystem.write"),
        ("", write, "/tmp/x", true, "private"),
        ("", read, "/run/docker.sock", false, "agent.filesystem.read"),
        ("fs", read, "docs/a", true, "sandbox.mcp.servers[0].filesystem.read[0]"),
        ("fs", read, "src/x", false, "sandbox.mcp.servers.filesystem.read"),
        ("other", read, "src/x", true, "sandbox.mcp.servers.filesystem.read"),
        ("other", write, "src/x", false, "sandbox.mcp.servers.filesystem.write"),
    ] {
        let question = question(path.to_owned());
        let answer = ask(from, &question);
        assert_eq!((answer.allow, answer.rule.id.as_str()), (allow, rule), "{from} {question:?}: {answer:?}");
    }
}

#[test]
fn writable_home_keeps_guarded_files_closed() {
    let text = "agent: {filesystem: {write: [\"~/*\", \"/home\"]}}";
    let policy = parse("p", text).unwrap();
    for path in
        ["~/.bashrc", "~/.config/fish/config.fish", "~/bin/ls", "~/.ssh/authorized_keys", "~/.aws/config"]
    {
        assert!(!policy.ask(None, &Question::Write(path.into()), &context()).allow, "{path}");
    }
    assert!(policy.ask(None, &Question::Write("~/notes".into()), &context()).allow);
    let lifted = "agent: {filesystem: {write: [\"/home\"], unmask: [~/.bashrc, ~/.ssh]}}";
    let policy = parse("p", lifted).unwrap();
    for path in ["~/.bashrc", "~/.ssh/authorized_keys"] {
        assert!(policy.ask(None, &Question::Write(path.into()), &context()).allow, "{path}");
    }
    let all = parse("p", "agent: {filesystem: {write: [\"/home\"], unmask: [\"~\", \"**\"]}}").unwrap();
    assert!(!all.ask(None, &Question::Read("~/.ssh/id".into()), &context()).allow);
}

#[test]
fn a_project_below_tmp_is_not_the_sandboxs_own_tmp() {
    let context = PathContext { home: "/home/u".into(), project: "/tmp/p".into() };
    let policy = parse("p", "version: 1").unwrap();
    let ask =
        |from: Option<&ServerId>, path: &str| policy.ask(from, &Question::Write(path.into()), &context).allow;
    let server = ServerId("s".into());
    assert!(ask(None, "x") && !ask(Some(&server), "x") && ask(Some(&server), "/tmp/other"));
}

#[test]
fn program_variable_and_tool_questions_are_answered() {
    for (from, question, allow) in [
        ("", Question::Exec("/usr/bin/git".into()), true),
        ("", Question::Exec("git".into()), true),
        ("", Question::Exec("./build/tool".into()), false),
        ("", Question::Exec("./scripts/run.sh".into()), true),
        ("", Question::Exec("~/run.sh".into()), false),
        ("fs", Question::Exec("/usr/bin/git".into()), true),
        ("", Question::Env("CI_JOB".into()), true),
        ("", Question::Env("CI_JOB_TOKEN".into()), false),
        ("", Question::Env("HOME".into()), true),
        ("fs", Question::Env("MODE".into()), true),
        ("fs", Question::Env("CI_JOB".into()), false),
        ("fs", Question::Tool("read_file".into()), true),
        ("fs", Question::Tool("write_file".into()), false),
        ("other", Question::Tool("read_file".into()), false),
        ("bad", Question::Tool("read_file".into()), false),
        ("", Question::Tool("read_file".into()), false),
    ] {
        let answer = ask(from, &question);
        assert_eq!(answer.allow, allow, "{from} {question:?}: {answer:?}");
    }
}

#[test]
fn suggested_policy_line_changes_the_answer() {
    for (from, question) in [
        ("", Question::Connect("new.example".into(), 443)),
        ("", Question::Connect("new.example".into(), 8443)),
        ("", Question::Connect("2001:db8::1".into(), 22)),
        ("", Question::Connect("127.0.0.1".into(), 5432)),
        ("other", Question::Connect("new.example".into(), 443)),
        ("", Question::Read("~/notes".into())),
        ("", Question::Read("~/.ssh/id_rsa".into())),
        ("", Question::Write("/srv/x".into())),
        ("", Question::Write(".mcp.json".into())),
        ("other", Question::Write("src/x".into())),
        ("", Question::Env("GITHUB_TOKEN".into())),
        ("", Question::Env("LD_PRELOAD".into())),
        ("other", Question::Env("X".into())),
    ] {
        let server = (!from.is_empty()).then(|| ServerId(from.to_owned()));
        let empty = parse("p", "version: 1").unwrap();
        let before = empty.ask(server.as_ref(), &question, &context());
        assert!(!before.allow, "{question:?}");
        let line = before.change.unwrap();
        let after = parse("p", &line).unwrap_or_else(|error| panic!("{line}: {}", error.render()));
        let answer = after.ask(server.as_ref(), &question, &context());
        assert!(answer.allow, "{question:?} with {line}: {answer:?}");
    }
}

#[test]
fn lists_that_are_not_enforced_allow_with_an_alert() {
    let text = "mcp_rules: {tool_policy: denylist, denied_tools: [{server: '*', tool: rm}]}";
    let answer =
        parse("p", text).unwrap().ask(Some(&ServerId("a".into())), &Question::Tool("rm".into()), &context());
    assert!(answer.allow && answer.text.contains("alert is recorded"), "{answer:?}");
}

#[test]
fn fail_closed_refuses_what_no_rule_allows() {
    let text = "mcp_rules: {enforce_policy: true, fail_closed: true, allowed_tools: [{server: a, tool: b}]}";
    let policy = parse("p", text).unwrap();
    let ask =
        |tool: &str| policy.ask(Some(&ServerId("a".into())), &Question::Tool(tool.into()), &context()).allow;
    assert_eq!((ask("b"), ask("c")), (true, false));
}

proptest! {
    #[test]
    fn masked_secret_is_not_readable_under_any_spelling(
        detour in "(\\./|src/\\.\\./|\\.\\./app/){0,4}",
        write in prop::bool::ANY,
    ) {
        let text = format!("/home/u/src/app/{detour}../../.ssh/id_rsa");
        let policy = parse("p", "agent: {filesystem: {write: [\"~/*\", \"/home\", \"**\"]}}").unwrap();
        let question = if write { Question::Write(text) } else { Question::Read(text) };
        prop_assert!(!policy.ask(None, &question, &context()).allow);
    }

    #[test]
    fn policy_answers_any_question_without_a_panic(text in ".{0,60}", port: u16) {
        let policy = policy();
        for question in [
            Question::Connect(text.clone(), port), Question::Read(text.clone()), Question::Write(text.clone()),
            Question::Exec(text.clone()), Question::Env(text.clone()), Question::Tool(text),
        ] {
            let _ = policy.ask(None, &question, &context());
            let _ = policy.ask(Some(&ServerId("fs".into())), &question, &context());
        }
    }
}
