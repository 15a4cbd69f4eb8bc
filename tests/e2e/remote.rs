//! Claude Code with a server behind a URL that wants a token: from a variable of the user, and from a login.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::agents::claude_environment;
use crate::authority::{Authority, MARK, browse};
use crate::http_server::{HttpServer, Reply, handshake};
use crate::model::{FAREWELL, Model, Script, anthropic};
use crate::place::{Ended, Place, Starter, run};

const TOKEN: &str = "t0ken-of-the-user";

fn script() -> Script {
    Script { server: "far", tool: "read", arguments: json!({}) }
}

fn configure(place: &Place, entry: Value) {
    let configuration = json!({"mcpServers": {"far": entry}});
    place.write(&place.home.join(".claude.json"), &configuration.to_string());
}

/// Everything that Claude Code does with it, and what the model heard.
fn ask(place: &Place, secret: &str) -> (Ended, Option<Value>, String) {
    let model: Model = anthropic::start(script());
    let words = [
        "run",
        "--",
        "claude",
        "-p",
        "read it please",
        "--allowedTools",
        "mcp__far__read",
        "--output-format",
        "json",
    ];
    let mut command = place.agentsh(words);
    claude_environment(&mut command, &model);
    let ended = run(command.env("FAR_TOKEN", TOKEN));
    let conversation = model.conversation();
    let all = Value::from(conversation.clone()).to_string();
    assert!(!all.contains(secret) && !ended.stdout.contains(secret) && !ended.stderr.contains(secret));
    (ended, anthropic::result(&conversation), all)
}

fn assert_read(place: &Place, secret: &str) {
    let (ended, result, _) = ask(place, secret);
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(FAREWELL), "{}\n{}", ended.stdout, ended.stderr);
    let result = result.unwrap_or_else(|| panic!("the tool was called: {}", ended.stderr));
    assert!(result.to_string().contains("from afar"), "{result}");
    let calls = place.ask(&["mcp", "calls", "--json"]);
    assert_eq!((&calls[0]["server_id"], &calls[0]["tool_name"]), (&json!("far"), &json!("read")), "{calls}");
    // What Claude Code keeps of a session does not hold it either.
    let found =
        run(place.command("grep").args(["-rl", "-e", secret, "--exclude-dir=agentsh"]).arg(&place.home));
    let found: Vec<&str> = found.stdout.lines().collect();
    assert!(found.is_empty(), "{found:?}");
}

pub fn with_a_header(starter: Starter) {
    let place = Place::new(starter);
    let server = HttpServer::start(|asked| {
        if asked.header("authorization") != Some("Bearer t0ken-of-the-user") {
            return Reply::status(401);
        }
        handshake(asked).unwrap_or_else(|| {
            let result = match asked.rpc().as_str() {
                "tools/list" => json!({"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}),
                _ => json!({"content": [{"type": "text", "text": "from afar"}]}),
            };
            Reply::json(json!({"jsonrpc": "2.0", "id": asked.message()["id"], "result": result}))
        })
    });
    let headers = json!({"Authorization": "Bearer ${FAR_TOKEN}"});
    configure(&place, json!({"type": "http", "url": server.url(), "headers": headers}));
    assert_read(&place, TOKEN);
}

pub fn with_a_login(starter: Starter) {
    let place = Place::new(starter);
    let authority = Authority::start();
    configure(&place, json!({"type": "http", "url": authority.mcp.url()}));
    let (ended, result, _) = ask(&place, MARK);
    assert!(result.is_none() && ended.stderr.contains("agentsh login far"), "{}", ended.stderr);

    let mut command = place.agentsh(["login", "far", "--no-browser"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("agentsh starts");
    let mut address = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut address).expect("an address");
    assert_eq!(browse(address.trim()).0, 200);
    assert!(child.wait().expect("our own child").success());
    assert_read(&place, MARK);
    // A token that is over in the meantime is renewed, and Claude Code sees nothing of it.
    authority.state().expire();
    assert_read(&place, MARK);
    assert_eq!(authority.traded().last().expect("a trade")["grant_type"], "refresh_token");
}
