#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::collections::BTreeMap;
use std::fs;

use clap::Parser;

use super::{CommandContext, PolicyArgs, run};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: PolicyArgs,
}

fn waiting(run: impl Future<Output = u8>) -> u8 {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run)
}

struct Place {
    directory: tempfile::TempDir,
    here: CommandContext,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let here = CommandContext {
            project: path("home/app"),
            directory: path("home/app"),
            home: path("home"),
            system: path("system.yaml"),
            config_home: path("home/.config"),
            state: path("home/.local/state/agentsh"),
            env: BTreeMap::new(),
        };
        fs::create_dir_all(&here.project).unwrap();
        fs::create_dir_all(here.config_home.join("agentsh")).unwrap();
        Self { directory, here }
    }

    /// Standard output, standard error and exit code in one text.
    fn run(&self, line: &str) -> String {
        let root = self.directory.path().display().to_string();
        let line = line.replace("ROOT", &root);
        let parsed = Line::try_parse_from(["policy"].into_iter().chain(line.split(' '))).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = waiting(run(&parsed.args, &self.here, &mut out, &mut err));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        // Which toolchains there are is the machine's.
        let is_of_machine = |line: &str| {
            ["# toolchains found", "toolchain: ", "cache: "].iter().any(|start| line.starts_with(start))
        };
        let out: String = text(out).split_inclusive('\n').filter(|line| !is_of_machine(line)).collect();
        format!("{out}{}exit {code}", text(err)).replace(&root, "ROOT")
    }
}

#[test]
fn policy_check_output() {
    let place = Place::new();
    fs::write(place.here.home.join("good.yaml"), "mcp_rules:\n  tool_policy: allowlist\n").unwrap();
    fs::write(place.here.home.join("bad.yaml"), "version: 1\nagents:\n  env_allow: []\n").unwrap();
    insta::assert_snapshot!(place.run("check ROOT/home/good.yaml ROOT/home/bad.yaml"), @r#"
    ROOT/home/good.yaml: ok, 0 tests
    error: unknown key `agents`
     --> ROOT/home/bad.yaml:2:1
      |
    2 | agents:
      | ^^^^^^ not a key of a policy
      = help: did you mean `agent`?
    exit 1
    "#);
    insta::assert_snapshot!(place.run("check --json ROOT/home/good.yaml ROOT/home/bad.yaml"), @r#"
    [{"file":"ROOT/home/good.yaml","ok":true,"warnings":[]},{"file":"ROOT/home/bad.yaml","ok":false,"error":"ROOT/home/bad.yaml:2:1: unknown key `agents` (did you mean `agent`?)","mistakes":[{"file":"ROOT/home/bad.yaml","line":2,"column":1,"message":"unknown key `agents`","help":"did you mean `agent`?"}]}]
    error: unknown key `agents`
     --> ROOT/home/bad.yaml:2:1
      |
    2 | agents:
      | ^^^^^^ not a key of a policy
      = help: did you mean `agent`?
    exit 1
    "#);
    insta::assert_snapshot!(place.run("check"), @r#"
    built-in:default: ok, 20 tests
    exit 0
    "#);
    insta::assert_snapshot!(place.run("check ROOT/none.yaml"), @r#"
    error: cannot read the policy ROOT/none.yaml: there is no such file
    exit 1
    "#);
}

#[test]
fn policy_show_output() {
    let place = Place::new();
    fs::write(
        place.here.config_home.join("agentsh/policy.yaml"),
        "agent:\n  network:\n    allow: [a.example, b.example]\n",
    )
    .unwrap();
    fs::write(place.here.project.join(".agentsh.yaml"), "agent:\n  network:\n    allow: [a.example]\n")
        .unwrap();
    insta::assert_snapshot!(place.run("show"), @r#"
    # built-in:default + ROOT/home/.config/agentsh/policy.yaml, narrowed by ROOT/home/app/.agentsh.yaml
    agent.network.allow: a.example              # ROOT/home/app/.agentsh.yaml:3 (agent.network.allow[0])
    agent.filesystem.write: .                   # built-in:default:10 (agent.filesystem.write[0])
    agent.env_allow: LC_*                       # built-in:default:13 (agent.env_allow[0])
    agent.env_allow: TZ                         # built-in:default:14 (agent.env_allow[1])
    agent.env_allow: COLORTERM                  # built-in:default:15 (agent.env_allow[2])
    agent.env_allow: NO_COLOR                   # built-in:default:16 (agent.env_allow[3])
    agent.env_allow: FORCE_COLOR                # built-in:default:17 (agent.env_allow[4])
    agent.env_allow: COLUMNS                    # built-in:default:18 (agent.env_allow[5])
    agent.env_allow: LINES                      # built-in:default:19 (agent.env_allow[6])
    agent.env_allow: TERM_PROGRAM               # built-in:default:20 (agent.env_allow[7])
    agent.env_allow: EDITOR                     # built-in:default:21 (agent.env_allow[8])
    agent.env_allow: VISUAL                     # built-in:default:22 (agent.env_allow[9])
    agent.env_allow: LOGNAME                    # built-in:default:23 (agent.env_allow[10])
    agent.env_allow: CI                         # built-in:default:24 (agent.env_allow[11])
    agent.env_allow: CC                         # built-in:default:25 (agent.env_allow[12])
    agent.env_allow: CXX                        # built-in:default:26 (agent.env_allow[13])
    agent.env_allow: CFLAGS                     # built-in:default:27 (agent.env_allow[14])
    agent.env_allow: CXXFLAGS                   # built-in:default:28 (agent.env_allow[15])
    agent.env_allow: CPPFLAGS                   # built-in:default:29 (agent.env_allow[16])
    agent.env_allow: LDFLAGS                    # built-in:default:30 (agent.env_allow[17])
    agent.env_allow: GOFLAGS                    # built-in:default:31 (agent.env_allow[18])
    agent.env_allow: JAVA_HOME                  # built-in:default:32 (agent.env_allow[19])
    agent.env_allow: MAKEFLAGS                  # built-in:default:33 (agent.env_allow[20])
    agent.env_allow: NODE_ENV                   # built-in:default:34 (agent.env_allow[21])
    agent.env_allow: RUSTFLAGS                  # built-in:default:35 (agent.env_allow[22])
    agent.env_allow: RUST_BACKTRACE             # built-in:default:36 (agent.env_allow[23])
    agent.env_allow: RUST_LOG                   # built-in:default:37 (agent.env_allow[24])
    agent.env_allow: SOURCE_DATE_EPOCH          # built-in:default:38 (agent.env_allow[25])
    agent.limits.memory: 50% RAM                # default (agent.limits.memory)
    agent.limits.pids: 2048                     # built-in:default:39 (agent.limits.pids)
    agent.limits.open_files: 4096               # built-in:default:39 (agent.limits.open_files)
    agent.limits.cpu: 400%                      # built-in:default:39 (agent.limits.cpu)
    mcp.enforce_policy: true                    # built-in:default:43 (sandbox.mcp.enforce_policy)
    mcp.fail_closed: false                      # default (sandbox.mcp.fail_closed)
    mcp.server_policy: none                     # default (sandbox.mcp.server_policy)
    mcp.tool_policy: none                       # default (sandbox.mcp.tool_policy)
    mcp.version_pinning.enabled: true           # built-in:default:44 (sandbox.mcp.version_pinning.enabled)
    mcp.version_pinning.on_change: block        # built-in:default:44 (sandbox.mcp.version_pinning.on_change)
    mcp.version_pinning.auto_trust_first: true  # built-in:default:44 (sandbox.mcp.version_pinning.auto_trust_first)
    mcp.version_pinning.pin_binary: true        # built-in:default:44 (sandbox.mcp.version_pinning.pin_binary)
    mcp.version_pinning.unlisted: block         # default (sandbox.mcp.version_pinning.unlisted)
    mcp.version_pinning.ignore: none            # default (sandbox.mcp.version_pinning.ignore)
    mcp.version_pinning.ignore_in: none         # default (sandbox.mcp.version_pinning.ignore_in)
    mcp.max_line_bytes: 16MiB                   # default (sandbox.mcp.max_line_bytes)
    mcp.exfiltration.enabled: true              # default (sandbox.mcp.exfiltration)
    mcp.exfiltration.on_detection: alert        # default (sandbox.mcp.exfiltration)
    mcp.exfiltration.marker: off                # default (sandbox.mcp.exfiltration)
    mcp.secrets.arguments: audit                # default (sandbox.mcp.secrets.arguments)
    mcp.secrets.results: audit                  # default (sandbox.mcp.secrets.results)
    mcp.content.definitions: alert              # default (sandbox.mcp.content.definitions)
    mcp.content.results: advise                 # default (sandbox.mcp.content.results)
    mcp.content.requests: block                 # default (sandbox.mcp.content.requests)
    mcp.content.arguments: alert                # default (sandbox.mcp.content.arguments)
    mcp.content.sanitize: true                  # default (sandbox.mcp.content.sanitize)
    mcp.advisories.dependency: warn             # default (sandbox.mcp.advisories.dependency)
    mcp.advisories.vendor: warn                 # default (sandbox.mcp.advisories.vendor)
    mcp.advisories.community: warn              # default (sandbox.mcp.advisories.community)
    mcp.advisories.availability: warn           # default (sandbox.mcp.advisories.availability)
    exit 0
    "#);
    let json = place.run("show --json");
    let value: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(value["parts"][0]["rule"]["line"], 3);
    let unknown = place.run("check nosuchpolicy");
    assert!(
        unknown.contains("policies are") && unknown.contains("strict") && unknown.ends_with("exit 1"),
        "{unknown}"
    );
    assert!(place.run("show --policy strict").starts_with("error: this file would allow `a.example`"));
    fs::remove_file(place.here.project.join(".agentsh.yaml")).unwrap();
    assert!(place.run("show --policy strict").starts_with("# built-in:strict\n"));
    insta::assert_snapshot!(place.run("show --policy srtict"), @r#"
    error: there is no policy `srtict`: did you mean `strict`?
    exit 125
    "#);
}

#[test]
fn policy_explain_output() {
    let place = Place::new();
    insta::assert_snapshot!(place.run("explain --connect example.com:443"), @r#"
    denied: no rule names `example.com`
      rule: default (agent.network.allow)
      to allow it: agentsh policy allow example.com
    exit 1
    "#);
    insta::assert_snapshot!(place.run("explain --agent claude --connect api.anthropic.com:443"), @r#"
    allowed: `api.anthropic.com:443` covers it
      rule: agent (Anthropic API)
    exit 0
    "#);
    insta::assert_snapshot!(place.run("explain --read ~/.ssh/id_rsa"), @r#"
    denied: `~/.ssh` is never visible: SSH keys
      rule: built-in (mask:~/.ssh)
      to allow it: agentsh policy allow ~/.ssh/id_rsa
      beware: `~/.ssh` contains SSH keys: every program in the sandbox can use them, and send them wherever it may connect
    exit 1
    "#);
    insta::assert_snapshot!(place.run("explain --write .git/hooks/pre-commit"), @r#"
    denied: `.git/hooks` stays read-only: git runs the hooks in it
      rule: built-in (read-only:.git/hooks)
      to allow it: agentsh policy allow --write .git/hooks
      beware: what is written to `.git/hooks` takes effect outside of the sandbox, in every project: git runs the hooks in it
    exit 1
    "#);
    insta::assert_snapshot!(place.run("explain --server fs --write src/x --json"), @r#"
    {"allow":false,"rule":{"id":"sandbox.mcp.servers.filesystem.write","file":"default","line":0},"text":"`.` is granted only for reading","change":"sandbox: {mcp: {servers: [{id: \"fs\", filesystem: {write: [\"src/x\"]}}]}}","policy":"built-in:default","note":"this answer covers the policy only: when the server starts, it can also read and write the paths on its command line and what its profile takes from its arguments and variables"}
    note: no server 'fs' is pinned or in the policy: this is the answer for any unknown server
    exit 1
    "#);
    insta::assert_snapshot!(place.run("explain --policy strict --tool fs/read_file"), @r#"
    denied: its server is not in allowed_servers
      rule: built-in:strict:22 (sandbox.mcp.server_policy)
      to allow it, add: sandbox: {mcp: {allowed_servers: [{id: "fs"}]}}
    exit 1
    "#);
    insta::assert_snapshot!(place.run("explain --env LD_PRELOAD"), @r#"
    denied: it decides what programs load; only its full name in env_allow lets it pass
      rule: default (agent.env_loader)
      to allow it: agentsh policy allow --env LD_PRELOAD
      beware: `LD_PRELOAD` decides what programs load: whoever sets it runs code in them
    exit 1
    "#);
    assert_eq!(place.run("explain --connect example.com"), place.run("explain --connect example.com:443"));
    insta::assert_snapshot!(place.run("explain --tool x"), @r#"
    error: which server's tool is `x`? write SERVER/TOOL
    exit 125
    "#);
    for name in ["", "A=B"] {
        let line = place.run(&format!("explain --env={name}"));
        assert!(line.contains("is not a variable name") && line.ends_with("exit 125"), "{line}");
    }
    assert!(place.run("explain --exec /usr/bin/env").ends_with("exit 0"));
}

#[test]
fn policy_explain_takes_one_question() {
    for line in [
        &["policy", "explain"][..],
        &["policy", "explain", "--read", "a", "--write", "b"],
        &["policy", "explain", "--agent", "cluade", "--read", "a"],
    ] {
        assert!(Line::try_parse_from(line).is_err());
    }
}

#[test]
fn policy_test_output() {
    let place = Place::new();
    let file = place.here.home.join("p.yaml");
    fs::write(
        &file,
        "tests:\n  - {read: a, expect: allow}\n  - {connect: \"x.example:80\", expect: allow}\n",
    )
    .unwrap();
    insta::assert_snapshot!(place.run("test ROOT/home/p.yaml"), @r#"
    ok     line 2: read a -> allow: `.` covers it [built-in:default:10 (agent.filesystem.write[0])]
    FAILED line 3: connect x.example:80 -> deny: no rule names `x.example` [default (agent.network.allow)]
    ROOT/home/p.yaml: 2 tests, 1 failed
    exit 1
    "#);
    assert!(place.run("test").ends_with("0 failed\nexit 0"));
    assert!(place.run("test --json").ends_with("exit 0"));
}

#[test]
fn output_to_a_closed_pipe_is_no_error() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let place = Place::new();
    let parsed = Line::try_parse_from(["policy", "show"]).unwrap();
    assert_eq!(waiting(run(&parsed.args, &place.here, &mut Closed, &mut Vec::new())), 0);
}
