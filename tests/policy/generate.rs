//! `agentsh policy generate`: makes a policy from what a session needed, under which it runs again.

use serde_json::{Value, json};

use crate::support::sandbox::script_with;
use crate::support::{Mode, Outcome, Peer, Place};

fn generate(place: &Place) -> std::path::PathBuf {
    let file = place.home.join("narrow.yaml");
    let _none = std::fs::remove_file(&file);
    Outcome::of(place.agentsh(&["policy", "generate", "latest", "--output"]).arg(&file)).expect_code(0);
    file
}

#[test]
fn the_same_tools_may_be_called_again_and_no_others() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.user_policy(
            "version: 1\nsandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: \"*\", tool: crash}]}}\n",
        );
        let mut peer = Peer::ready(&place, &[]);
        peer.request("tools/list", json!({}));
        assert_eq!(peer.text("echo", json!({"text": "x"})), "x");
        peer.call("crash", json!({}));
        peer.finish();
        let file = generate(&place);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            text.contains("        # Provenance: 1 call (")
                && text.contains("tool: \"echo\", content_hash: \"sha256:"),
            "{text}"
        );
        assert!(text.contains("    # - {server: \"fixture\", tool: \"crash\"}  # 1 refusal ("), "{text}");
        assert!(text.contains("      # - {server: \"fixture\", tool: \"add\"}"), "{text}");
        for rule in ["shadow_tool", "read_then_send", "cross_server_flow"] {
            assert!(text.contains(&format!("      {rule}: {{enabled: true}}\n")), "{rule}\n{text}");
        }
        assert!(text.contains("on_change: block") && !text.contains("auto_trust_first"), "{text}");
        let check = Outcome::of(place.agentsh(&["policy", "check"]).arg(&file));
        assert_eq!(check.code, 0, "{check}\n{text}");
        // The same session under it: nothing is refused; what was not needed is.
        let policy = file.to_str().unwrap();
        let mut command = place.agentsh(&["mcp", "run", "--id", "fixture", "--policy", policy, "--"]);
        let mut peer = Peer::start(command.arg(place.program("fixture_server")));
        peer.shake_hands();
        let listed = peer.request("tools/list", json!({}));
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(peer.text("echo", json!({"text": "again"})), "again");
        assert!(peer.call("add", json!({"a": 1, "b": 2})).get("error").is_some());
        peer.finish();
        // An existing file is kept.
        let again = Outcome::of(place.agentsh(&["policy", "generate", "--output"]).arg(&file));
        assert_eq!(again.code, 2, "{again}");
        let unknown = Outcome::of(&mut place.agentsh(&["policy", "generate", "0190nothing"]));
        assert_eq!(unknown.code, 2, "{unknown}");
    }
}

/// Data flows between servers in a session are part of what it needs.
#[test]
fn a_session_with_several_servers_may_do_the_same_again_and_no_more() {
    let place = Place::new(Mode::Invoker);
    let server = |id: &str, tools: &[&str]| {
        let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
        let listed = json!({"tools": tools.iter().map(tool).collect::<Vec<_>>()});
        let file = place.write(format!("{id}.json"), json!({"tools/list": [listed]}).to_string());
        json!({"command": place.program("fixture_server"), "args": ["answers", file]})
    };
    let servers = json!({"files": server("files", &["read_file", "status"]), "mail": server("mail", &["send_mail", "list_mail"]),
        "notes": server("notes", &["write_note", "status"])});
    place.write(place.home.join(".claude.json"), json!({"mcpServers": servers}).to_string());
    let call = |server: &str, tool: &str| json!({"server": server, "tool": tool, "arguments": {}});
    let list = |server: &str| json!({"server": server, "call": "tools/list", "params": {}});
    let lists = [list("files"), list("mail"), list("notes")];
    let day = [
        &lists[..],
        &[call("files", "read_file"), call("mail", "send_mail"), call("files", "status")],
        &vec![call("mail", "list_mail"); 12],
    ]
    .concat();
    let ran = |policy: &[&str], steps: &[Value]| {
        let options = [&["--quiet"], policy].concat();
        let answers = script_with(&place, &options, &json!(steps));
        let refused =
            |answer: &Value| answer["error"]["data"]["reason"].as_str().unwrap_or_default().to_owned();
        (answers.json.iter().map(refused).collect::<Vec<String>>(), answers.outcome)
    };
    let (refused, outcome) = ran(&[], &day);
    assert!(refused.iter().all(String::is_empty), "{refused:?} {outcome}");
    let file = generate(&place);
    let text = std::fs::read_to_string(&file).unwrap();
    for line in [
        "      shadow_tool: {enabled: false}  # \"status\" is a tool of \"files\" and \"notes\"\n",
        "      read_then_send: {enabled: false}  # the session called \"send_mail\" of \"mail\" after \"read_file\" of \"files\"\n",
        "      cross_server_flow: {enabled: false}  # the session called \"send_mail\" of \"mail\" after \"read_file\"",
        "      burst: {max_calls: 13}  # all calls of server \"mail\"\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let policy = ["--policy", file.to_str().unwrap()];
    let (refused, outcome) = ran(&policy, &day);
    assert!(refused.iter().all(String::is_empty), "{refused:?} {outcome}\n{text}");
    let (refused, _) = ran(&policy, &[list("notes"), call("notes", "write_note")]);
    assert_eq!(refused, ["", "tool-not-allowlisted"]);
}

/// One rule may refuse what another one would have counted as read.
#[test]
fn a_session_that_breaks_two_rules_runs_again() {
    let place = Place::new(Mode::Invoker);
    let server = |id: &str, tools: Value| {
        let file = place.write(format!("{id}.json"), json!({"tools/list": [{"tools": tools}]}).to_string());
        json!({"command": place.program("fixture_server"), "args": ["answers", file]})
    };
    let tool = |name: &str, annotations: Value| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations});
    let servers = json!({
        "alpha": server("alpha", json!([tool("get_item", json!({})), tool("send_report", json!({}))])),
        "beta": server("beta", json!([tool("run_query", json!({"readOnlyHint": true}))])),
    });
    place.write(place.home.join(".claude.json"), json!({"mcpServers": servers}).to_string());
    let list = |server: &str| json!({"server": server, "call": "tools/list", "params": {}});
    let call = |server: &str, tool: &str| json!({"server": server, "tool": tool, "arguments": {}});
    let day = json!([
        list("alpha"),
        list("beta"),
        call("alpha", "get_item"),
        call("beta", "run_query"),
        call("alpha", "send_report"),
    ]);
    let ran = |options: &[&str]| {
        let answers = script_with(&place, options, &day);
        let is_refused = answers.json.iter().any(|answer| answer.get("error").is_some());
        (is_refused, answers.outcome)
    };
    let (is_refused, outcome) = ran(&["--quiet"]);
    assert!(!is_refused, "{outcome}");
    let file = generate(&place);
    let (is_refused, outcome) = ran(&["--quiet", "--policy", file.to_str().unwrap()]);
    assert!(!is_refused, "{outcome}\n{}", std::fs::read_to_string(&file).unwrap());
}

#[test]
fn generated_policy_lists_hosts_and_comments_refused_ones() {
    for mode in Mode::all() {
        let place = Place::new(mode).online();
        let fetch = "curl -sS -o /dev/null --max-time 5 http://allowed.test/; curl -sS -o /dev/null --max-time 5 http://other.test/";
        let mut command =
            place.agentsh(&["run", "--quiet", "--allow", "allowed.test", "--", "sh", "-c", fetch]);
        let first = Outcome::of(&mut command);
        let file = generate(&place);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            text.contains("allow:\n      replace:\n        - \"allowed.test\"  # 1 connection ("),
            "{mode:?} {first}\n{text}"
        );
        assert!(!text.lines().any(|line| line.contains("other.test") && !line.starts_with('#')), "{text}");
        let file = file.to_str().unwrap().to_owned();
        let script = "curl -sS -o /dev/null -w '%{http_code}' --max-time 5 http://allowed.test/";
        let again =
            Outcome::of(&mut place.agentsh(&["run", "--quiet", "--policy", &file, "--", "sh", "-c", script]));
        assert_eq!(again.stdout, "200", "{again}\n{text}");
    }
}

#[test]
fn policy_generate_needs_a_session() {
    let place = Place::new(Mode::Invoker);
    let outcome = Outcome::of(&mut place.agentsh(&["policy", "generate"]));
    assert_eq!(outcome.code, 1, "{outcome}");
    place.shell("true").expect_code(0);
    let outcome = Outcome::of(&mut place.agentsh(&["policy", "generate", "zzz"]));
    assert_eq!(outcome.code, 2, "{outcome}");
}

/// Exactly what a session was granted, by its policy and its command line, is granted again.
#[test]
fn files_that_were_granted_are_granted_again() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let at = |name: &str| place.home.join(name);
        place.write(at("data/a"), "data\n");
        place.write(at("data/private/b"), "private\n");
        place.write(at("notes/today"), "note\n");
        place.write(at("other/c"), "other\n");
        place.user_policy(
            "agent: {filesystem: {write: [~/notes], deny: [~/data/private], unmask: [.envrc]}}\n",
        );
        let data = at("data").display().to_string();
        let script = "cat ~/data/a ~/data/private/b; echo more >> ~/notes/today; cat ~/other/c; \
                      /run/agentsh/agentsh why ~/other/c; /run/agentsh/agentsh why ~/.ssh/id";
        let words = ["run", "--quiet", "--read", &data, "--", "sh", "-c", script];
        let first = Outcome::of(&mut place.agentsh(&words));
        assert!(first.stdout.starts_with("data\n"), "{first}");
        let file = generate(&place);
        let text = std::fs::read_to_string(&file).unwrap();
        let granted = format!("      replace:\n        - \"{data}\"  # granted by command line");
        for part in [
            granted.as_str(),
            "- \"~/notes\"  # granted by ",
            "- \".\"  # granted by built-in:default",
            "- \"~/data/private\"  # denied by ",
            "# agent: unmask: \".envrc\"  # allowed by ",
            "# agent: read: \"~/other/c\"  # requested with `agentsh why`: no rule named it",
            "# agent: read: \"~/.ssh/id\"  # requested with `agentsh why`: `~/.ssh` is never visible: SSH keys",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        Outcome::of(place.agentsh(&["policy", "check"]).arg(&file)).expect_code(0);
        // In place of the user's own.
        place.user_policy(&text);
        let script =
            "cat ~/data/a; echo again >> ~/notes/today; echo x > made; cat ~/data/private/b ~/other/c";
        let again = place.shell(script);
        assert_eq!(again.stdout, "data\n", "{again}\n{text}");
        assert_eq!(std::fs::read_to_string(at("notes/today")).unwrap(), "note\nmore\nagain\n", "{again}");
        assert!(place.project.join("made").exists(), "{again}");
    }
}

/// Files that no rule names stay away while a run learns, and are there in the next one. Secrets and what is guarded stay
/// comments.
#[test]
fn files_missed_by_a_learning_run_are_generated() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let at = |name: &str| place.home.join(name);
        place.write(at("data/a"), "data\n");
        place.write(at("data/b"), "not looked for\n");
        place.write(at(".ssh/id"), "SECRET\n");
        place.write(".envrc", "before\n");
        place.write(at("out/known"), "");
        let script = "cat ~/data/a; cat ~/.ssh/id; echo x > ~/out/known; echo x > ~/out/made; echo x > .envrc; \
                      test -e ~/none; test -d ~/data";
        let file = at("learned.yaml");
        let mut command =
            place.agentsh(&["run", "--quiet", "--learn", file.to_str().unwrap(), "--", "sh", "-c"]);
        let first = Outcome::of(command.arg(script));
        assert_eq!(first.stdout, "", "what it looks for stays away: {first}");
        let text = std::fs::read_to_string(&file).unwrap();
        for part in
            ["    read:\n      - \"~/data/a\"  # refused", "    write:\n      - \"~/out/known\"  # refused"]
        {
            assert!(text.contains(part), "{mode:?} {part}\n{first}\n{text}");
        }
        for closed in ["~/.ssh/id", "~/project/.envrc", "~/out/made", "~/data"] {
            let lines: Vec<&str> =
                text.lines().filter(|line| line.contains(&format!("\"{closed}\""))).collect();
            assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("# ")), "{closed}\n{text}");
        }
        assert!(text.contains("SSH keys") && !text.contains("~/none") && !text.contains("data/b"), "{text}");
        Outcome::of(place.agentsh(&["policy", "check"]).arg(&file)).expect_code(0);
        let script = "cat ~/data/a; echo x > ~/out/known; cat ~/data/b ~/.ssh/id; echo x > .envrc";
        let policy = file.to_str().unwrap();
        let again = Outcome::of(
            &mut place.agentsh(&["run", "--quiet", "--policy", policy, "--", "sh", "-c", script]),
        );
        assert_eq!(again.stdout, "data\n", "{again}\n{text}");
        assert_eq!(std::fs::read_to_string(at("out/known")).unwrap(), "x\n", "{again}");
        assert_eq!(std::fs::read_to_string(place.project.join(".envrc")).unwrap(), "before\n");
        // A call that is refused for its arguments is refused in a learning run too.
        let late = at("later.yaml");
        let script = "umask 0; echo > f; chmod u+s f; python3 -c 'import os; os.open(\"g\", os.O_CREAT | os.O_WRONLY, 0o4755)'; \
                      find . -perm /6000; unshare -r true && echo unshared";
        let mut command =
            place.agentsh(&["run", "--quiet", "--learn", late.to_str().unwrap(), "--", "sh", "-c"]);
        let outcome = Outcome::of(command.arg(script));
        assert_eq!(outcome.stdout, "", "{outcome}");
        assert!(outcome.stderr.contains("Operation not permitted"), "{outcome}");
    }
}
