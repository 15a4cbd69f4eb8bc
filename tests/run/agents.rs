//! Agents other than Claude Code and Codex: a fixture under the name of each finds bridges where the real one looks.

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place};

/// The scripted agent in the project, under the name of another one.
fn named(place: &Place, program: &str, name: &str) -> String {
    let path = place.project.join(name);
    std::fs::copy(place.program(program), &path).unwrap();
    place.own(&path);
    format!("./{name}")
}

#[test]
#[ignore = "takes long"]
fn agents_use_their_servers_through_bridges() {
    for mode in Mode::all() {
        for (program, file) in [
            ("gemini", ".gemini/settings.json"),
            ("qwen", ".qwen/settings.json"),
            ("copilot", ".copilot/mcp-config.json"),
            ("cursor-agent", ".cursor/mcp.json"),
            ("cline", ".cline/data/settings/cline_mcp_settings.json"),
        ] {
            let place = Place::new(mode);
            let server =
                json!({"command": place.program("fixture_server"), "args": [], "env": {"WORD": program}});
            let text = json!({"mcpServers": {"own": server}, "keep": "this"}).to_string();
            let path = place.write(place.home.join(file), &text);
            let agent = named(&place, "claude", program);
            let script =
                json!([{"servers": true}, {"server": "own", "tool": "env", "arguments": {"name": "WORD"}}]);
            let config = format!("--mcp-config={}", path.display());
            let words = ["run", "--quiet", "--", &agent, &config, &script.to_string()];
            let outcome = Outcome::of(&mut place.agentsh(&words)).expect_code(0);
            let answers: Vec<Value> =
                outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(answers[0], json!(["own"]), "{program} {outcome}");
            assert_eq!(answers[1]["result"]["content"][0]["text"], program, "{outcome}");
            let calls = place.listed(&["mcp", "calls", "--json"]);
            assert_eq!(calls.len(), 1, "{program}: {calls:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{program}");
        }
    }
}

#[test]
fn opencode_and_amp_configurations_are_rewritten() {
    for (program, file, list, command) in [
        (
            "opencode",
            ".config/opencode/opencode.json",
            "mcp",
            json!(["/run/agentsh/agentsh", "bridge", "own"]),
        ),
        ("amp", ".config/amp/settings.json", "amp.mcpServers", json!("/run/agentsh/agentsh")),
    ] {
        let place = Place::new(Mode::Invoker);
        let entry = if program == "amp" {
            json!({"command": "no-such-server"})
        } else {
            json!({"type": "local", "command": ["no-such-server"]})
        };
        let path = place.write(place.home.join(file), json!({list: {"own": entry}}).to_string());
        let script = format!("#!/bin/sh\ncat {}\n", path.display());
        place.script(program, &script);
        let agent = format!("./{program}");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", &agent])).expect_code(0);
        let seen: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(seen[list]["own"]["command"], command, "{outcome}");
    }
}

/// It writes a file into `.opencode` wherever there is one, and ends when it cannot.
#[test]
fn opencode_can_write_beside_its_settings_without_changing_the_project() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.script(
            "opencode",
            "#!/bin/sh\ncat .opencode/agent.md 2>/dev/null; echo x > .opencode/.gitignore && echo written\n",
        );
        let run = || Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "./opencode"]));
        assert_eq!(run().stdout, "written\n", "{mode:?} {}", run());
        assert!(!place.project.join(".opencode").exists());
        place.write(".opencode/agent.md", "mine\n");
        assert_eq!(run().stdout, "mine\nwritten\n", "{mode:?} {}", run());
        assert!(!place.project.join(".opencode/.gitignore").exists());
        let kept = place.home.join(".local/state/agentsh/agents/opencode");
        let copies = std::fs::read_dir(kept)
            .unwrap()
            .flatten()
            .flat_map(|project| std::fs::read_dir(project.path()).unwrap());
        assert!(copies.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with("copies")));
    }
}

#[test]
fn unknown_agent_is_reported_with_what_it_lacks() {
    let place = Place::new(Mode::Invoker);
    place.script("myagent", "#!/bin/sh\necho \"$MYAGENT_MODE-$FOO_API_KEY-$OTHER\"\n");
    place.write(place.home.join(".myagent/settings"), "x");
    let run = |program: &str, options: &[&str]| {
        let words: Vec<&str> = ["run"].iter().chain(options).chain(&["--", program]).copied().collect();
        let mut command = place.agentsh(&words);
        Outcome::of(command.env("MYAGENT_MODE", "m").env("FOO_API_KEY", "k3y").env("OTHER", "o"))
            .expect_code(0)
    };
    let outcome = run("./myagent", &[]);
    assert!(outcome.stdout.starts_with("--"), "{outcome}");
    assert!(outcome.stderr.contains("`--env MYAGENT_MODE`"), "{outcome}");
    // A key of some vendor is named, and no line gives it away.
    assert!(
        outcome.stderr.contains("FOO_API_KEY") && !outcome.stderr.contains("--env FOO_API_KEY"),
        "{outcome}"
    );
    assert!(outcome.stderr.contains("`--write ~/.myagent`"), "{outcome}");
    assert!(!outcome.stderr.contains("k3y"), "{outcome}");
    let following =
        run("./myagent", &["--env", "FOO_API_KEY", "--env", "MYAGENT_MODE", "--write", "~/.myagent"]);
    assert!(following.stdout.starts_with("m-k3y-"), "{following}");
    assert!(!following.stderr.contains("add `--write ~/.myagent"), "{following}");
    // Programs of the distribution are no agents, whatever is in the environment or the home.
    place.write(place.home.join(".cat/settings"), "x");
    for program in ["true", "cat"] {
        let outcome = run(program, &[]);
        assert!(!outcome.stderr.contains("does not"), "{program}: {outcome}");
    }
}

/// Its own directory belongs to an agent: settings and login are there for it, and for no other program.
#[test]
#[ignore = "takes long"]
fn files_of_lesser_known_agents_are_shown_to_that_agent_only() {
    for mode in Mode::all() {
        for (agent, files) in [
            ("pi", [".pi/agent/auth.json", ".pi/agent/settings.json", "two"]),
            ("droid", [".factory/auth.json", ".factory/settings.json", "two"]),
            ("crush", [".local/share/crush/crush.json", ".config/crush/crush.json", "two"]),
            ("kimi", [".kimi/credentials/kimi.json", ".kimi/config.toml", "two"]),
            // A key is not renewed.
            ("vibe", [".vibe/.env", ".vibe/config.toml", "one"]),
        ] {
            let place = Place::new(mode);
            let [login, settings, kept] = files;
            let account = |token: &str| format!("{{\"providers\": {{\"a\": 1, \"access\": \"{token}\"}}}}");
            place.write(place.home.join(login), account("one"));
            place.write(place.home.join(settings), "{\"b\": 2}");
            let look = format!(
                "#!/bin/sh\ncat ~/{login}; echo; cat ~/{settings}; echo '{}' >~/{login}; echo {{}} >~/{settings}\n",
                account("two")
            );
            place.script(agent, &look);
            place.script("other", &look);
            let run =
                |name: &str| Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", &format!("./{name}")]));
            let other = run("other");
            assert!(!other.stdout.contains("one") && !other.stdout.contains('2'), "{mode:?} {agent} {other}");
            let outcome = run(agent);
            let shown = outcome.stdout.replace([' ', '\n'], "");
            assert_eq!(shown, account("one").replace(' ', "") + "{\"b\":2}", "{mode:?} {agent} {outcome}");
            // A token is renewed; what it would start outside stays as the user wrote it.
            let now: serde_json::Value =
                serde_json::from_str(&std::fs::read_to_string(place.home.join(login)).unwrap()).unwrap();
            assert_eq!(now["providers"], serde_json::json!({"a": 1, "access": kept}), "{mode:?} {agent}");
            assert_eq!(
                std::fs::read_to_string(place.home.join(settings)).unwrap(),
                "{\"b\": 2}",
                "{mode:?} {agent}"
            );
        }
    }
}

/// If the run names its models, the sandbox gets no logins and keys of other providers. A renewal reaches the
/// login of its own provider.
#[test]
fn opencode_gets_the_accounts_that_it_uses() {
    const LOGINS: &str = ".local/share/opencode/auth.json";
    const CONFIG: &str = ".config/opencode/opencode.json";
    let login = |token: &str| json!({"type": "oauth", "access": token, "refresh": "r", "expires": 1});
    for mode in Mode::all() {
        for (model, words, expected) in [
            (json!("anthropic/claude"), &[][..], ["LOGIN-A", "KEY-A"].as_slice()),
            (json!("anthropic/claude"), &["-m", "openai/gpt"], &["LOGIN-A", "KEY-A", "LOGIN-O"]),
            (json!(null), &["--model=openai/gpt"], &["LOGIN-O"]),
            (json!(null), &[], &["LOGIN-A", "LOGIN-O", "KEY-A", "KEY-G"]),
        ] {
            let place = Place::new(mode);
            let logins = |openai: &str| json!({"anthropic": login("LOGIN-A"), "openai": login(openai)});
            place.write(place.home.join(LOGINS), logins("LOGIN-O").to_string());
            let key = |key: &str| json!({"options": {"apiKey": key}});
            let config =
                json!({"model": model, "provider": {"anthropic": key("KEY-A"), "groq": key("KEY-G")}});
            place.write(place.home.join(CONFIG), config.to_string());
            let program = format!(
                "#!/bin/sh\ncat ~/{LOGINS} ~/{CONFIG}\nsed -i s/LOGIN-O/LOGIN-N/ ~/{LOGINS} || \
                 {{ sed s/LOGIN-O/LOGIN-N/ ~/{LOGINS} >/tmp/l; cat /tmp/l >~/{LOGINS}; }}\n"
            );
            place.script("opencode", &program);
            let words = [&["run", "--", "./opencode"], words].concat();
            let outcome = Outcome::of(&mut place.agentsh(&words)).expect_code(0);
            for secret in ["LOGIN-A", "LOGIN-O", "KEY-A", "KEY-G"] {
                let is_shown = outcome.stdout.contains(secret);
                assert_eq!(is_shown, expected.contains(&secret), "{mode:?} {words:?} {secret} {outcome}");
            }
            let is_told = outcome.stderr.contains("gets no login and no key of ");
            assert_eq!(is_told, expected.len() < 4, "{mode:?} {words:?} {outcome}");
            let now: Value =
                serde_json::from_str(&std::fs::read_to_string(place.home.join(LOGINS)).unwrap()).unwrap();
            let token = if expected.contains(&"LOGIN-O") { "LOGIN-N" } else { "LOGIN-O" };
            assert_eq!(now, logins(token), "{mode:?} {words:?}");
        }
    }
}

/// A port behind which an agent of the user's own listens, in no sandbox, is never advised to be opened.
#[test]
fn advice_opens_no_port_of_an_agent_outside() {
    use std::io::{BufRead, BufReader};
    const LISTEN: &str = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); \
                          sys.stdin.read()";
    for mode in Mode::all() {
        let place = Place::new(mode);
        // The twin is a database, say.
        for (name, is_agent) in [("cline", true), ("database", false)] {
            let script = place.script(place.home.join(format!("bin/{name}")), LISTEN);
            let mut command = place.command("python3");
            command.arg(script).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut listener = command.spawn().unwrap();
            let mut port = String::new();
            BufReader::new(listener.stdout.take().unwrap()).read_line(&mut port).unwrap();
            let port = port.trim();
            let script =
                format!("/run/agentsh/agentsh why localhost:{port}; exec 3<>/dev/tcp/127.0.0.1/{port}");
            let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "bash", "-c", &script]));
            drop(listener.stdin.take());
            listener.wait().unwrap();
            let is_advised = outcome.stderr.contains(&format!("`agentsh policy allow localhost:{port}`"));
            assert_eq!(is_advised, !is_agent, "{mode:?} {name} {outcome}");
            assert_eq!(outcome.stderr.contains("Cline listens there"), is_agent, "{mode:?} {name} {outcome}");
            // Nor to an agent that asks.
            assert_eq!(outcome.stdout.contains("policy allow"), !is_agent, "{mode:?} {name} {outcome}");
            assert_eq!(outcome.stdout.contains("Cline listens there"), is_agent, "{mode:?} {name} {outcome}");
        }
    }
}

/// The Agent Client Protocol: an editor starts the agent and both ask each other, a line each.
#[test]
fn messages_of_an_editor_pass_both_ways() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.script(
            "acp-agent",
            "#!/bin/sh\nread -r hello\necho \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":0,\\\"result\\\":{\\\"protocolVersion\\\":1,\\\"heard\\\":$hello}}\"\n\
             echo '{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"session/request_permission\",\"params\":{\"text\":\"ü🦀\"}}'\nread -r answer\n\
             echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":1,\\\"result\\\":$answer}\"\n",
        );
        let mut editor = Peer::start(&mut place.agentsh(&["run", "--", "./acp-agent"]));
        let hello =
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}});
        editor.send(&hello);
        assert_eq!(editor.next()["result"]["heard"], hello, "{mode:?}");
        assert_eq!(editor.next()["params"]["text"], "ü🦀");
        let permission = json!({"jsonrpc": "2.0", "id": 7, "result": {"outcome": "selected"}});
        editor.send(&permission);
        assert_eq!(editor.next()["result"], permission);
        editor.close();
        assert!(editor.child.wait().unwrap().success());
    }
}

#[test]
fn the_sandbox_of_claude_code_itself_is_switched_off() {
    let place = Place::new(Mode::Invoker);
    place.script("claude", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
    let run = |words: &[&str]| {
        let words: Vec<&str> = ["run", "--", "./claude"].iter().chain(words).copied().collect();
        Outcome::of(&mut place.agentsh(&words)).expect_code(0)
    };
    assert!(!run(&[]).stdout.contains("--settings"));
    place.write(place.home.join(".claude/settings.json"), r#"{"sandbox": {"enabled": true}}"#);
    let outcome = run(&[]);
    assert!(outcome.stdout.contains("--settings={\"sandbox\":{\"enabled\":false}}"), "{outcome}");
    assert!(outcome.stderr.contains("own sandbox is off"), "{outcome}");
    assert!(
        run(&["--settings", "{\"sandbox\":{\"enabled\":true}}"]).stderr.contains("remove `sandbox` from")
    );
}
