//! Policy files that are combined, as people write them: over the built-in policy, over each other, on the command
//! line.

use serde_json::json;

use super::policy;
use crate::support::peer::Peer;
use crate::support::{Mode, Outcome, Place, skip};

#[test]
fn user_policy_line_changes_nothing_else() {
    let place = Place::new(Mode::Invoker);
    place.set("EDITOR", "vi");
    place.set("MINE", "mine");
    assert_eq!(place.shell("echo $EDITOR $MINE").stdout, "vi\n");
    let file = place.user_policy("version: 1\nagent: {env_allow: [MINE]}\n");
    assert_eq!(place.shell("echo $EDITOR $MINE").stdout, "vi mine\n");
    let shown = policy(&place, &["show", "--agent", "claude"]);
    for line in [
        "# built-in:claude + ROOT/home/.config/agentsh/policy.yaml\n",
        "agent.network.allow: api.anthropic.com",
        "# built-in:claude:",
        "agent.env_allow: MINE",
        "# ROOT/home/.config/agentsh/policy.yaml:2 (agent.env_allow[0])\n",
        "mcp.enforce_policy: true",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    std::fs::write(&file, "agent: {env_allow: {replace: [MINE]}}\n").unwrap();
    assert_eq!(place.shell("echo $EDITOR $MINE").stdout, "mine\n");
    std::fs::write(&file, "extends: none\nagent: {env_deny: [MINE]}\n").unwrap();
    assert_eq!(place.shell("echo $EDITOR $MINE").stdout, "vi\n");
}

#[test]
fn a_refusal_names_the_file_and_line_of_its_layer() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "sandbox:\n  mcp:\n    tool_policy: denylist\n    denied_tools:\n      - {server: fixture, tool: add}\n",
    );
    let mut peer = Peer::ready(&place, &[]);
    let refused = peer.call("add", json!({"a": 1, "b": 2})).to_string();
    peer.finish();
    assert!(refused.contains("policy.yaml:5 (sandbox.mcp.denied_tools[0])"), "{refused}");
}

#[test]
fn policy_file_lies_over_the_users_and_the_project_narrows_both() {
    let place = Place::new(Mode::Invoker);
    for name in ["A", "B", "C"] {
        place.set(name, name);
    }
    place.user_policy("agent: {env_allow: [A]}\n");
    place.write("more.yaml", "agent: {env_allow: [B]}\n");
    let run = |options: &[&str]| {
        let mut words = vec!["run", "--quiet"];
        words.extend(options);
        words.extend(["--", "sh", "-c", "echo $A $B $C"]);
        Outcome::of(&mut place.agentsh(&words))
    };
    assert_eq!(run(&["--policy", "more.yaml"]).stdout, "A B\n");
    place.write(".agentsh.yaml", "agent: {env_deny: [A]}\n");
    assert_eq!(run(&["--policy", "more.yaml"]).stdout, "B\n");
    // Command-line options win over the project's policy.
    assert_eq!(run(&["--policy", "more.yaml", "--env", "C"]).stdout, "B C\n");
    place.write(".agentsh.yaml", "agent: {env_allow: [C]}\n");
    let refused = run(&["--policy", "more.yaml"]);
    assert_eq!(refused.code, 125, "{refused}");
    assert!(refused.stderr.contains("this file would pass on `C`"), "{refused}");
}

/// `/etc/agentsh/policy.yaml`, in a mount namespace of its own.
#[test]
fn machine_policy_lies_below_the_users() {
    let place = Place::new(Mode::Invoker);
    if !place.mode.is_root() {
        return skip("only root can lay a file over /etc");
    }
    place.write(
        place.path("etc/agentsh/policy.yaml"),
        "agent: {env_allow: [OFFICE]}\nsandbox: {mcp: {tool_policy: denylist, denied_tools: [{server: s, tool: t}]}}\n",
    );
    place
        .user_policy("sandbox: {mcp: {tool_policy: allowlist, allowed_tools: [{server: s, tool: \"*\"}]}}\n");
    let script = "mount -t overlay overlay -o lowerdir=\"$1\":/etc /etc || exit 77; shift; exec \"$@\"";
    let mut command = place.command("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(place.path("etc")).arg(place.program("agentsh"));
    let outcome = Outcome::of(command.args(["policy", "explain", "--tool", "s/t"]));
    if outcome.code == 77 {
        return skip("nothing can be laid over /etc here");
    }
    assert!(outcome.stdout.starts_with("denied: it is in denied_tools"), "{outcome}");
    assert!(outcome.stdout.contains("/etc/agentsh/policy.yaml:2 (sandbox.mcp.denied_tools[0])"), "{outcome}");
}

#[test]
fn run_flags_hold_for_one_run_and_name_the_permanent_command() {
    let place = Place::new(Mode::Invoker);
    place.set("MINE", "mine");
    let book = place.write(place.home.join("Documents/book.txt"), "PLAIN");
    let out = place.home.join("out");
    place.make_directory(&out);
    let script = "echo $MINE; cat ~/Documents/book.txt; echo x > ~/out/new; cat ~/out/new";
    let run = |options: &[&str]| {
        let mut words = vec!["run", "--quiet"];
        words.extend(options);
        words.extend(["--", "sh", "-c", script]);
        Outcome::of(&mut place.agentsh(&words))
    };
    let closed = run(&[]);
    assert!(!closed.stdout.contains("mine") && !closed.stdout.contains("PLAIN"), "{closed}");
    assert!(!out.join("new").exists());
    let flags = [
        "--env",
        "MINE",
        "--read",
        book.to_str().unwrap(),
        "--write",
        "../out",
        "--allow",
        "example.com:8443",
    ];
    let open = run(&flags);
    assert_eq!(open.stdout, "mine\nPLAINx\n", "{open}");
    assert!(out.join("new").exists());
    let commands: Vec<&str> =
        open.stderr.split('`').filter(|part| part.starts_with("agentsh policy allow ")).collect();
    assert!(commands.len() == 2 && commands[0].contains("example.com:8443"), "{open}");
    // The commands do what the flags did.
    for command in commands {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    }
    assert_eq!(run(&[]).stdout, "mine\nPLAINx\n", "{open}");
}

#[test]
fn run_flag_without_effect_stops_the_start() {
    let place = Place::new(Mode::Invoker);
    place.write(place.home.join(".ssh/id_ed25519"), "KEY");
    place.user_policy("agent: {env_deny: [MINE], filesystem: {deny: [\"~/vault\"]}}\n");
    place.write(place.home.join("vault/x"), "PLAIN");
    for (flag, word, why) in [
        ("--read", "~/.ssh", "`~/.ssh` is never visible: SSH keys"),
        ("--read", "~/vault/x", "`~/vault` is denied by "),
        ("--read", "~/no-such-file", "there is no such path"),
        ("--env", "MINE", "env_deny lists it by "),
        ("--allow", "localhost", "name the port of this machine"),
        ("--allow", "exa mple", "is not"),
        ("--deny-tool", "fixture", "write SERVER/TOOL"),
    ] {
        let outcome = Outcome::of(&mut place.agentsh(&["run", flag, word, "--", "echo", "ran"]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{flag} {word} {outcome}");
        assert!(outcome.stderr.contains(why), "{flag} {word} {outcome}");
    }
}

#[test]
fn run_flag_opens_a_loopback_port() {
    let place = Place::new(Mode::Invoker);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut &stream, b"HELLO");
        }
    });
    let script = format!("cat < /dev/tcp/127.0.0.1/{port}");
    let run = |options: &[&str]| {
        let mut words = vec!["run", "--quiet"];
        words.extend(options);
        words.extend(["--", "bash", "-c", &script]);
        Outcome::of(&mut place.agentsh(&words)).stdout
    };
    assert_eq!(run(&[]), "");
    assert_eq!(run(&["--allow", &format!("localhost:{port}")]), "HELLO");
}

#[test]
fn run_flags_for_a_server_apply_to_that_server() {
    let place = Place::new(Mode::Invoker);
    place.set("MINE", "mine");
    let start = |options: &[&str]| {
        let mut words = vec!["mcp", "run", "--id", "fixture"];
        words.extend(options);
        words.push("--");
        let mut command = place.agentsh(&words);
        let mut peer = Peer::start(command.arg(place.program("fixture_server")));
        peer.shake_hands();
        peer
    };
    let seen = |peer: &mut Peer| peer.text("env", json!({"name": "MINE"}));
    let mut peer = start(&[]);
    let closed = seen(&mut peer);
    peer.finish();
    let mut peer = start(&["--env", "MINE", "--deny-tool", "fixture/add"]);
    let open = seen(&mut peer);
    let refused = peer.call("add", json!({"a": 1, "b": 2})).to_string();
    let (_, errors) = peer.finish();
    assert!(refused.contains("command line:1 (sandbox.mcp.denied_tools[0])"), "{refused}");
    assert!(
        errors.contains("to make it permanent: `agentsh policy allow --server fixture --env MINE`")
            && errors.contains("add to "),
        "{errors}"
    );
    assert_eq!((closed.as_str(), open.as_str()), ("(not set)", "mine"));
}

/// The tool is refused whatever lists the policy has, whether or not they are enforced, and however the server writes its
/// name.
#[test]
fn a_denied_tool_is_denied_over_every_policy() {
    for (name, denied) in
        [("default", "fixture/add"), ("observe", "fixture/add"), ("default", "fixture/\u{ff21}*D")]
    {
        let place = Place::new(Mode::Invoker);
        let words = ["mcp", "run", "--id", "fixture", "--policy", name, "--deny-tool", denied, "--"];
        let mut peer = Peer::start(place.agentsh(&words).arg(place.program("fixture_server")));
        peer.shake_hands();
        let refused = peer.call("add", json!({"a": 1, "b": 2}));
        let other = peer.call("echo", json!({"text": "hello"}));
        peer.finish();
        assert!(refused["error"].is_object(), "{name} {refused}");
        assert!(other["error"].is_null(), "{name} {other}");
    }
}

/// An agent may have put it there; a person can start without it.
#[test]
fn a_project_policy_that_is_no_plain_file_is_refused_with_what_helps() {
    let place = Place::new(Mode::Invoker);
    let file = place.project.join(".agentsh.yaml");
    let makes: [(&str, &str); 3] =
        [("ln -s /dev/null", "a symbolic link"), ("mkfifo", "not a plain"), ("mkdir", "not a plain")];
    for (make, why) in makes {
        Outcome::of(place.command("sh").args(["-c", &format!("{make} {}", file.display())])).expect_code(0);
        let refused = place.shell("true");
        assert!(refused.code == 125 && refused.stderr.contains(why), "{refused}");
        let remedy = refused.stderr.split('`').nth(1).expect(&refused.stderr);
        Outcome::of(place.command("sh").args(["-c", remedy])).expect_code(0);
        place.shell("true").expect_code(0);
        Outcome::of(place.command("sh").args(["-c", &format!("rm -r {}.aside", file.display())]))
            .expect_code(0);
    }
}
