//! The package that a launcher would download is fetched once, in a sandbox, and then runs without the registry.

mod advisories;
mod authorities;
mod large;
mod python;
mod registry;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::sandbox::script_with;
use crate::support::{Mode, Peer, Place, Pty, skip};
use registry::Registry;

/// Answers the first request with the value of a JavaScript expression, and waits for the end.
fn answering(expression: &str) -> String {
    format!(
        "process.stdin.once('data', () => {{ const answer = {expression};\n\
         process.stdout.write(JSON.stringify({{jsonrpc: '2.0', id: 1, result: {{answer}}}}) + '\\n'); }});\n\
         process.stdin.on('end', () => process.exit(0)); process.stdin.resume();\n"
    )
}

fn has_npm() -> bool {
    let found = ["npm", "npx", "node"].iter().all(|name| Path::new("/usr/bin").join(name).exists());
    if !found {
        skip("npm is not installed in /usr/bin");
    }
    found
}

fn place(mode: Mode, registry: &Registry) -> Place {
    let place = Place::new(mode);
    place.write(place.home.join(".npmrc"), format!("registry=http://127.0.0.1:{}/\n", registry.port));
    place
}

struct Started {
    answer: Value,
    errors: String,
}

fn start(place: &Place, id: &str, words: &[&str], env: &[(&str, &str)]) -> Started {
    launch(place, id, &[&["npx", "-y"], words].concat(), env)
}

fn launch(place: &Place, id: &str, words: &[&str], env: &[(&str, &str)]) -> Started {
    let mut command = place.agentsh(&["mcp", "run", "--id", id, "--"]);
    let mut peer = Peer::start(command.args(words).envs(env.iter().copied()));
    peer.ask("ping", json!({}));
    let answer = peer.next();
    Started { answer, errors: peer.finish().1 }
}

impl Started {
    #[track_caller]
    fn said(&self) -> &Value {
        assert!(self.answer.get("result").is_some(), "{}\n{}", self.answer, self.errors);
        &self.answer["result"]["answer"]
    }

    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let message = self.answer["error"]["message"].as_str().unwrap_or_default();
        for word in words {
            assert!(message.contains(word), "no {word:?} in {}\n{}", self.answer, self.errors);
        }
    }
}

fn store(place: &Place) -> PathBuf {
    place.home.join(".local/share/agentsh/store")
}

/// Every file below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
#[ignore = "takes long"]
fn the_first_start_fetches_and_the_second_needs_no_registry() {
    if !has_npm() {
        return;
    }
    for mode in Mode::all() {
        let mut registry = Registry::start();
        registry.publish("greeter", "1.0.0", &answering("'one'"), &json!({}));
        let place = place(mode, &registry);
        assert_eq!(*start(&place, "g", &["greeter"], &[]).said(), "one", "{mode:?}");
        // A newer version changes nothing until somebody asks for it.
        registry.publish("greeter", "2.0.0", &answering("'two'"), &json!({}));
        assert_eq!(*start(&place, "g", &["greeter"], &[]).said(), "one");
        let reset = place.agentsh(&["mcp", "pins", "reset", "--server", "g"]).output().unwrap();
        assert!(reset.status.success(), "{reset:?}");
        assert_eq!(*start(&place, "g", &["greeter"], &[]).said(), "two");
        registry.stop();
        assert_eq!(*start(&place, "g", &["greeter"], &[]).said(), "two");
        assert_eq!(std::fs::read_dir(store(&place).join("staging")).unwrap().count(), 0);
    }
}

/// In one session; each server has its own answer from then on.
#[test]
#[ignore = "takes long"]
fn two_servers_of_one_package_fetch_it_once() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    registry.publish("greeter", "1.0.0", &answering("'one'"), &json!({}));
    let place = place(Mode::Invoker, &registry);
    let server = json!({"command": "npx", "args": ["-y", "greeter"]});
    let servers = json!({"mcpServers": {"a": server, "b": server}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    let looked = place.agentsh(&["scan", "servers"]).output().unwrap();
    assert_eq!(registry.downloads(), 1, "{}", String::from_utf8_lossy(&looked.stderr));
    assert_eq!(files(&store(&place).join("requests")).len(), 2);
    // After a reset of its pin, a server gets the newest version, even if another has just fetched an older one.
    registry.publish("greeter", "2.0.0", &answering("'two'"), &json!({}));
    let reset = place.agentsh(&["mcp", "pins", "reset", "--server", "a"]).output().unwrap();
    assert!(reset.status.success(), "{reset:?}");
    place.agentsh(&["scan", "servers"]).output().unwrap();
    assert_eq!(registry.downloads(), 2);
    registry.stop();
    assert_eq!(*start(&place, "a", &["greeter"], &[]).said(), "two");
    assert_eq!(*start(&place, "b", &["greeter"], &[]).said(), "one");
}

/// Next to what the agent draws, where terminals show such things, and not only when it has ended.
#[test]
fn fetch_is_reported_while_the_agent_draws() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    registry.publish("greeter", "1.0.0", &answering("'one'"), &json!({}));
    registry.slow_down();
    let place = place(Mode::Invoker, &registry);
    let servers = json!({"mcpServers": {"g": {"command": "npx", "args": ["-y", "greeter"]}}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    let steps = json!([{"server": "g", "call": "ping", "params": {}}]).to_string();
    let agent = place.program("claude");
    let words = ["run", "--quiet", "--", agent.to_str().unwrap(), "-p", &steps];
    let mut terminal = Pty::start(place.agentsh(&words));
    terminal.expect("\x1b]9;agentsh: fetching greeter for server 'g'");
    // The server speaks no protocol, and its agent would wait for it.
    terminal.child.kill().unwrap();
    terminal.wait();
}

#[test]
#[ignore = "takes long"]
fn fetched_versions_are_kept_side_by_side() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    for version in ["1.0.0", "1.4.0", "2.0.0"] {
        registry.publish("greeter", version, &answering(&format!("'{version}'")), &json!({}));
    }
    let place = place(Mode::Invoker, &registry);
    assert_eq!(*start(&place, "old", &["greeter@^1"], &[]).said(), "1.4.0");
    assert_eq!(*start(&place, "new", &["greeter@latest"], &[]).said(), "2.0.0");
    registry.stop();
    assert_eq!(*start(&place, "old", &["greeter@^1"], &[]).said(), "1.4.0");
    assert_eq!(*start(&place, "new", &["greeter@latest"], &[]).said(), "2.0.0");
    assert_eq!(std::fs::read_dir(store(&place).join("trees")).unwrap().count(), 2);
}

#[test]
#[ignore = "takes long"]
fn install_scripts_run_only_when_the_policy_says_so() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    let script = json!({"scripts": {"postinstall": "echo x > ran"}});
    registry.publish("scripted", "1.0.0", &answering("'ok'"), &script);
    let place = place(Mode::Invoker, &registry);
    let ran = || files(&store(&place)).iter().any(|path| path.ends_with("ran"));
    let first = start(&place, "s", &["scripted"], &[]);
    assert_eq!(*first.said(), "ok");
    assert!(!ran());
    assert!(first.errors.contains("install scripts of scripted did not run"), "{}", first.errors);
    place.policy("version: 1\nsandbox: {mcp: {servers: [{id: t, install_scripts: allow}]}}\n");
    assert_eq!(*start(&place, "t", &["scripted"], &[]).said(), "ok");
    assert!(ran());
}

/// An install script can write only what its sandbox shows, and nothing is written on its behalf outside.
#[test]
#[ignore = "takes long"]
fn install_scripts_see_no_credentials_and_cannot_redirect_the_fetch() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    for mode in Mode::all() {
        let place = place(mode, &registry);
        let victim = place.write(place.home.join("victim"), "untouched");
        let config = std::fs::read_to_string(place.home.join(".npmrc")).unwrap();
        let credentials = format!("{config}//127.0.0.1:{}/:_authToken=TOPSECRET\n", registry.port);
        place.write(place.home.join(".npmrc"), credentials);
        let tells = format!(
            "ln -sf {victim} ../../../record; cat $HOME/.npmrc > found 2>&1; env >> found; \
             (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>> found && printf CONN%sED ECT >> found; true",
            victim = victim.display(),
            port = registry.port
        );
        let script = json!({"scripts": {"postinstall": format!("bash -c '{tells}'")}});
        registry.publish("hostile", "1.0.0", &answering("'ok'"), &script);
        place.policy("version: 1\nsandbox: {mcp: {servers: [{id: t, install_scripts: allow}]}}\n");
        assert_eq!(*start(&place, "t", &["hostile"], &[]).said(), "ok");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched", "{mode:?}");
        let found = files(&store(&place)).into_iter().find(|path| path.ends_with("found")).unwrap();
        let found = std::fs::read_to_string(found).unwrap();
        assert!(found.contains("PATH="), "{found}");
        assert!(!found.contains("TOPSECRET") && !found.contains("CONNECTED"), "{mode:?} {found}");
    }
}

#[test]
#[ignore = "takes long"]
fn npm_fetch_errors_are_shown_and_a_changed_store_is_refused() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    registry.publish("greeter", "1.0.0", &answering("'one'"), &json!({}));
    let wrong = format!("sha512-{}==", "A".repeat(86));
    registry.publish("broken", "1.0.0", &answering("'one'"), &json!({"integrity": wrong}));
    let place = place(Mode::Invoker, &registry);
    start(&place, "a", &["no-such-package"], &[]).refused(&["no-such-package", "no such package"]);
    start(&place, "b", &["greeter@9"], &[]).refused(&["no such package or version"]);
    start(&place, "c", &["broken"], &[]).refused(&["integrity"]);
    assert_eq!(*start(&place, "g", &["greeter"], &[]).said(), "one");
    let entry = files(&store(&place)).into_iter().find(|path| path.ends_with("greeter/index.js")).unwrap();
    let text = std::fs::read_to_string(&entry).unwrap();
    std::fs::write(&entry, text.replace("'one'", "'evil'")).unwrap();
    start(&place, "g", &["greeter"], &[]).refused(&["is not what was fetched"]);
    registry.stop();
    start(&place, "d", &["another"], &[]).refused(&["cannot reach the registry"]);
}

/// The record says why a build ended, and the user which line decides.
#[test]
#[ignore = "takes long"]
fn a_build_that_takes_more_memory_than_the_agent_may_is_ended() {
    if !has_npm() {
        return;
    }
    for mode in Mode::all() {
        let mut registry = Registry::start();
        let script = json!({"scripts": {"postinstall": "tail /dev/zero"}});
        registry.publish("greedy", "1.0.0", &answering("'ok'"), &script);
        let place = place(mode, &registry);
        place.policy(
            "version: 1\nagent: {limits: {memory: 600MiB}}\n\
             sandbox: {mcp: {servers: [{id: t, install_scripts: allow}]}}\n",
        );
        start(&place, "t", &["greedy"], &[]).refused(&["more memory than", "agent.limits.memory"]);
        let exits = place.events("process_exited");
        let last = exits.iter().find(|event| event["cause"] == "memory-limit");
        assert_eq!(last.map(|event| event["server_id"] == "t"), Some(true), "{mode:?} {exits:?}");
    }
}

#[test]
#[ignore = "takes long"]
fn a_project_that_adds_code_to_a_package_does_not_get_its_profile() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    let server = "const answers = {initialize: {protocolVersion: '2025-06-18', capabilities: {tools: {}}, serverInfo: {name: 'x', \
                  version: '1'}}, 'tools/list': {tools: [{name: 'x', inputSchema: {type: 'object'}}]}, 'tools/call': {content: \
                  [{type: 'text', text: 'ok'}]}};\n\
                  require('readline').createInterface({input: process.stdin}).on('line', line => {\n\
                  const {id, method} = JSON.parse(line); if (id === undefined) return;\n\
                  process.stdout.write(JSON.stringify({jsonrpc: '2.0', id, result: answers[method] || {}}) + '\\n'); });\n";
    for name in ["tavily-mcp", "other"] {
        registry.publish(name, "1.0.0", server, &json!({}));
    }
    let place = place(Mode::Invoker, &registry);
    let config = json!({"mcpServers": {
        "plain": {"command": "npx", "args": ["-y", "tavily-mcp"]},
        "more": {"command": "npx", "args": ["-y", "-p", "tavily-mcp", "-p", "other", "tavily-mcp"]},
        "set": {"command": "env", "args": ["NODE_OPTIONS=--import=data:text/javascript,0", "npx", "-y", "tavily-mcp"]},
    }});
    place.write(".mcp.json", config.to_string());
    let ask = |server: &str| json!({"server": server, "tool": "x", "arguments": {}});
    let answers = script_with(&place, &[], &json!([ask("plain"), ask("more"), ask("set")]));
    let said: Vec<_> = (0..3).map(|index| answers.text(index)).collect();
    assert_eq!(said, ["ok", "ok", "ok"], "{}", answers.outcome);
    let notes = &answers.outcome.stderr;
    assert!(
        notes.contains("server 'more' does not get the profile tavily: the project adds code"),
        "{notes}"
    );
    assert!(!notes.contains("server 'plain' does not get the profile"), "{notes}");
    let with_profile: Vec<Value> = place.events("enforcement");
    let has =
        |id: &str| with_profile.iter().any(|event| event["layer"] == "profile" && event["server_id"] == id);
    assert_eq!((has("plain"), has("more"), has("set")), (true, false, true), "{with_profile:?}");
}

#[test]
#[ignore = "takes long"]
fn a_profile_is_for_the_package_and_not_for_the_name() {
    if !has_npm() {
        return;
    }
    let mut registry = Registry::start();
    let tells = answering("process.env.TAVILY_API_KEY || 'nothing'");
    registry.publish("tavily-mcp", "1.0.0", &tells, &json!({}));
    registry.publish("other", "1.0.0", &tells, &json!({}));
    let count = "(() => { const fs = require('fs'), file = process.env.MEMORY_FILE_PATH; \
                 fs.appendFileSync(file, 'x'); return fs.readFileSync(file, 'utf8').length; })()";
    registry.publish("@modelcontextprotocol/server-memory", "1.0.0", &answering(count), &json!({}));
    let place = place(Mode::Invoker, &registry);
    let key = [("TAVILY_API_KEY", "k"), ("GITHUB_PERSONAL_ACCESS_TOKEN", "g")];
    assert_eq!(*start(&place, "any", &["tavily-mcp"], &key).said(), "k");
    assert_eq!(*start(&place, "tavily", &["other"], &key).said(), "nothing");
    let explain = |id: &str| {
        let words = ["policy", "explain", "--server", id, "--connect", "api.tavily.com:443"];
        String::from_utf8(place.agentsh(&words).output().unwrap().stdout).unwrap()
    };
    let answer = explain("any");
    let profile = "built-in:servers/tavily.yaml, for npm:tavily-mcp@1.0.0, which is pinned";
    assert!(answer.starts_with("allowed: ") && answer.contains(profile), "{answer}");
    assert!(explain("tavily").starts_with("denied: "));
    let memory = ["@modelcontextprotocol/server-memory"];
    assert_eq!(*start(&place, "memory", &memory, &[]).said(), 1);
    assert_eq!(*start(&place, "memory", &memory, &[]).said(), 2);
    assert!(place.home.join(".local/state/agentsh/servers/memory/memory.jsonl").is_file());
    // The same name out of the project is somebody else's program.
    let root = place.project.join("node_modules/tavily-mcp");
    place.write(root.join("package.json"), r#"{"name":"tavily-mcp","version":"9.0.0","bin":"index.js"}"#);
    place.write(root.join("index.js"), format!("#!/usr/bin/env node\n{tells}"));
    // Without `--no-install` the project does not count, and the registry has no such version.
    let local = start(&place, "local", &["--no-install", "tavily-mcp@9.0.0"], &key);
    assert_eq!(*local.said(), "nothing");
    assert!(local.errors.contains("is in the project"), "{}", local.errors);
    let answer = explain("local");
    assert!(answer.starts_with("denied: ") && answer.contains("is in the project"), "{answer}");
}
