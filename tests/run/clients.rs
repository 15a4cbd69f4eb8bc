//! Configurations of MCP clients, and servers under a name.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place};

fn told(place: &Place, words: &[&str]) -> Outcome {
    Outcome::of(&mut place.agentsh(words)).expect_code(0)
}

#[test]
fn mcp_wrap_puts_servers_behind_agentsh_and_can_be_undone() {
    let place = Place::new(Mode::Invoker);
    let server = json!({"command": place.program("fixture_server"), "env": {"WORD": "given"}});
    let before =
        format!("{:#}\n", json!({"mcpServers": {"fix": server, "web": {"url": "https://x"}}, "other": 1}));
    let file = place.write(place.home.join(".cursor/mcp.json"), &before);
    let read = || std::fs::read_to_string(&file).unwrap();
    let shown = told(&place, &["mcp", "wrap", "--client", "cursor"]);
    assert!(shown.stdout.contains("+") && shown.stdout.contains("nothing was written"), "{shown}");
    assert!(shown.stdout.contains("server web is unchanged: it is a remote server"), "{shown}");
    assert_eq!(read(), before);
    told(&place, &["mcp", "wrap", "--client", "cursor", "--write"]);
    let wrapped = read();
    let backup = place.home.join(".cursor/mcp.json.agentsh-backup-1");
    assert_eq!(std::fs::read_to_string(backup).unwrap(), before);
    assert!(
        told(&place, &["mcp", "wrap", "--client", "cursor", "--write"]).stdout.contains("nothing to change")
    );
    assert_eq!(read(), wrapped);

    // As the client starts it.
    let document: Value = serde_json::from_str(&wrapped).unwrap();
    let entry = &document["mcpServers"]["fix"];
    let mut command = place.command(entry["command"].as_str().unwrap());
    command.args(entry["args"].as_array().unwrap().iter().filter_map(Value::as_str));
    command.env("WORD", entry["env"]["WORD"].as_str().unwrap());
    let mut peer = Peer::start(&mut command);
    peer.shake_hands();
    let answer = peer.call("env", json!({"name": "WORD"}));
    assert_eq!(answer["result"]["content"][0]["text"], "given", "{answer}");
    peer.close();
    peer.child.wait().unwrap();
    assert_eq!(place.listed(&["mcp", "calls", "--server", "fix", "--json"]).len(), 1);

    told(&place, &["mcp", "wrap", "--client", "cursor", "--write", "--undo"]);
    assert_eq!(read(), before);
}

#[test]
fn a_server_is_printed_for_a_client_and_written_once() {
    let place = Place::new(Mode::Invoker);
    // Clients start it from wherever they are.
    let words = ["client-config", "--client", "cursor", "here", "--", "./bin/server", "./data"];
    let printed: Value = serde_json::from_str(&told(&place, &words).stdout).unwrap();
    let args = printed["mcpServers"]["here"]["args"].as_array().unwrap();
    assert_eq!(args[args.len() - 2..], [json!(place.project.join("bin/server")), json!("./data")]);
    told(&place, &["profile", "add", "here", "--", "./bin/server"]);
    let kept = told(&place, &["profile", "show", "here"]).stdout;
    assert!(kept.contains(place.project.join("bin/server").to_str().unwrap()), "{kept}");
    let words = ["client-config", "--client", "vscode", "docs", "--url", "https://docs.example/mcp"];
    let printed: Value = serde_json::from_str(&told(&place, &words).stdout).unwrap();
    let args = json!(["mcp", "run", "--id", "docs", "--url", "https://docs.example/mcp"]);
    assert_eq!(printed["servers"]["docs"]["args"], args);
    let file = place.write(place.home.join(".config/Code/User/mcp.json"), "{\n\t\"inputs\": []\n}\n");
    for text in ["written", "nothing to change"] {
        let outcome = told(&place, &[&words[..3], &["--write"], &words[3..]].concat());
        assert!(outcome.stdout.contains(text), "{outcome}");
    }
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with("{\n\t\"inputs\": [],\n\t\"servers\""), "{text}");
    let unknown = Outcome::of(&mut place.agentsh(&["client-config", "--client", "vscode", "nobody"]));
    assert!(unknown.stderr.contains("agentsh profile add"), "{}", unknown.expect_code(2));
    let client = Outcome::of(&mut place.agentsh(&["client-config", "--client", "emacs", "x"]));
    assert!(client.stderr.contains("known are: claude,"), "{client}");
}

#[test]
fn profile_secret_is_only_in_its_file_and_reaches_the_server() {
    let place = Place::new(Mode::Invoker);
    let server = place.program("fixture_server").display().to_string();
    let mut add = place.agentsh(&["profile", "add", "db", "--secret-env", "WORD", "--", &server]);
    Outcome::with_input(&mut add, b"s3cret-value\n").expect_code(0);
    let file = place.home.join(".config/agentsh/profiles.json");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for words in [&["profile", "list"][..], &["profile", "list", "--json"], &["profile", "show", "db"]] {
        let outcome = told(&place, words);
        assert!(outcome.stdout.contains("fixture_server") && !outcome.stdout.contains("s3cret"), "{outcome}");
    }
    let tested = told(&place, &["profile", "test", "db"]);
    assert!(tested.stdout.contains("answers, with"), "{tested}");
    let printed = told(&place, &["client-config", "--client", "claude", "db"]);
    assert!(printed.stdout.contains("--profile") && !printed.stdout.contains("s3cret"), "{printed}");
    let far =
        ["profile", "add", "far", "--url", "https://far.example/mcp", "--secret-header", "Authorization"];
    Outcome::with_input(&mut place.agentsh(&far), b"Bearer s3cret-value\n").expect_code(0);
    let printed = told(&place, &["client-config", "--client", "claude", "far"]);
    assert!(printed.stdout.contains("--profile") && !printed.stdout.contains("s3cret"), "{printed}");
    let mut peer = Peer::start(&mut place.agentsh(&["mcp", "run", "--profile", "db"]));
    peer.shake_hands();
    let arguments = std::fs::read(format!("/proc/{}/cmdline", peer.child.id())).unwrap();
    assert!(!String::from_utf8_lossy(&arguments).contains("s3cret"));
    let answer = peer.call("env", json!({"name": "WORD"}));
    assert_eq!(answer["result"]["content"][0]["text"], "s3cret-value", "{answer}");
    peer.close();
    peer.child.wait().unwrap();
    told(&place, &["profile", "remove", "db"]);
    Outcome::of(&mut place.agentsh(&["profile", "test", "db"])).expect_code(2);
    let broken = Outcome::of(&mut place.agentsh(&["profile", "add", "x", "--secret-env", "A", "--", "y"]));
    assert!(broken.stderr.contains("no value for A"), "{}", broken.expect_code(2));
}
