//! Claude Code and Codex with a server behind a URL that wants a token: from a variable of the user, and from a login.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::{CODEX, claude_environment};
use crate::authority::{Authority, MARK, browse};
use crate::http_server::{HttpServer, Reply, handshake};
use crate::inside::Watch;
use crate::model::{FAREWELL, Script, anthropic, openai};
use crate::place::{Ended, Place, Starter, installed, is_root, run};

const TOKEN: &str = "t0ken-of-the-user";

fn script() -> Script {
    Script { server: "far", tool: "read", arguments: json!({}), insists: false, hold: None }
}

#[derive(Clone, Copy)]
enum Agent {
    Claude,
    Codex,
}

impl Agent {
    /// As the kernel calls its process.
    fn program(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

/// One run of an agent: its end, the result that its model received, and all requests to the model.
fn ask(place: &Place, agent: Agent, server: &str, watch: Option<&Watch>) -> (Ended, Option<Value>, String) {
    // The agent lives until the watch has seen it.
    let script = Script { hold: watch.map(|watch| Arc::clone(&watch.has_looked)), ..script() };
    let (ended, result, conversation) = match agent {
        Agent::Claude => {
            let model = anthropic::start(script);
            let words = ["run", "--", "claude", "-p", "read it please", "--allowedTools", "mcp__far__read"];
            let mut command = place.agentsh(words);
            command.args(["--output-format", "json"]).env("FAR_TOKEN", TOKEN);
            claude_environment(&mut command, &model);
            let ended = run(&mut command);
            let conversation = model.conversation();
            (ended, anthropic::result(&conversation), conversation)
        }
        Agent::Codex => {
            let model = openai::start(script);
            let content = format!(
                "model = \"scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
                 base_url = \"http://{}/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n\n[mcp_servers.far]\n{server}",
                model.address
            );
            place.write(&place.home.join(".codex/config.toml"), &content);
            let mut command = place.agentsh(["run", "--"].iter().chain(&CODEX));
            let ended = run(command.env("SCRIPTED_KEY", "sk-test").env("FAR_TOKEN", TOKEN));
            let conversation = model.conversation();
            (ended, openai::result(&conversation).map(|item| item["output"].clone()), conversation)
        }
    };
    (ended, result, Value::from(conversation).to_string())
}

fn assert_read(place: &Place, agent: Agent, (server, secret): (&str, &str)) {
    let known = match agent {
        Agent::Claude => "read it please",
        Agent::Codex => CODEX[CODEX.len() - 1],
    };
    // Only root may look into the memory of others.
    let watch = is_root().then(|| Watch::start(secret, known, agent.program(), &place.home));
    let (ended, result, heard) = ask(place, agent, server, watch.as_ref());
    if let Some(seen) = watch.map(Watch::finish) {
        assert_eq!(seen.secret, BTreeSet::new(), "the secret is inside");
        assert!(seen.known.iter().any(|program| program.contains(agent.program())), "{seen:?}");
    }
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(FAREWELL), "{}\n{}", ended.stdout, ended.stderr);
    let result = result.unwrap_or_else(|| panic!("the tool was called: {}", ended.stderr));
    assert!(result.to_string().contains("from afar"), "{result}");
    let calls = place.ask(&["mcp", "calls", "--server", "far", "--json"]);
    assert_eq!((&calls[0]["server_id"], &calls[0]["tool_name"]), (&json!("far"), &json!("read")), "{calls}");
    assert!(!heard.contains(secret) && !ended.stdout.contains(secret) && !ended.stderr.contains(secret));
    // The agent's own session files do not contain it either.
    let found =
        run(place.command("grep").args(["-rl", "-e", secret, "--exclude-dir=logins"]).arg(&place.home));
    assert_eq!(found.stdout, "");
}

/// Declares the server for an agent; for Codex that is a part of its configuration.
fn declare(place: &Place, agent: Agent, url: &str, with_header: bool) -> String {
    match agent {
        Agent::Claude => {
            let mut entry = json!({"type": "http", "url": url});
            if with_header {
                entry["headers"] = json!({"Authorization": "Bearer ${FAR_TOKEN}"});
            }
            let configuration = json!({"mcpServers": {"far": entry}});
            place.write(&place.home.join(".claude.json"), &configuration.to_string());
            String::new()
        }
        Agent::Codex => {
            let bearer = if with_header { "bearer_token_env_var = \"FAR_TOKEN\"\n" } else { "" };
            format!("url = \"{url}\"\n{bearer}")
        }
    }
}

fn header(starter: Starter, agent: Agent) {
    let place = Place::new(starter);
    let server = HttpServer::start(|asked| {
        if asked.header("authorization") != Some("Bearer t0ken-of-the-user") {
            return Reply::status(401);
        }
        handshake(asked).unwrap_or_else(|| {
            let result = match asked.rpc().as_str() {
                "tools/list" => json!({"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}),
                _ => {
                    // Long enough for who looks into the agent meanwhile.
                    std::thread::sleep(Duration::from_secs(1));
                    json!({"content": [{"type": "text", "text": "from afar"}]})
                }
            };
            Reply::json(json!({"jsonrpc": "2.0", "id": asked.message()["id"], "result": result}))
        })
    });
    let declared = declare(&place, agent, &server.url(), true);
    assert_read(&place, agent, (&declared, TOKEN));
}

/// Logs in with a browser that follows where it is sent.
fn log_in(place: &Place) {
    let mut command = place.agentsh(["login", "far", "--no-browser"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("agentsh starts");
    let mut address = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut address).expect("an address");
    assert_eq!(browse(address.trim()).0, 200);
    assert!(child.wait().expect("our own child").success());
}

/// A process that is ended with the case.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn with_the_official_server(starter: Starter) {
    let place = Place::new(starter);
    let port =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("its address").port();
    let program = place.home.join("authority.py");
    place.write(&program, include_str!("authority.py"));
    let mut command = place.command(installed("venv-mcp1/bin/python3"));
    command.arg(&program).args([&port.to_string(), MARK]).stdout(Stdio::null()).stderr(Stdio::null());
    let _serving = Serving(command.spawn().expect("the server starts"));
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(since.elapsed() < Duration::from_secs(60), "the server does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    declare(&place, Agent::Claude, &format!("http://127.0.0.1:{port}/mcp"), false);
    log_in(&place);
    assert_read(&place, Agent::Claude, ("", MARK));
    std::thread::sleep(Duration::from_secs(3));
    assert_read(&place, Agent::Claude, ("", MARK));
    let events = place.ask(&["mcp", "events", "--type", "server_login", "--json"]).to_string();
    assert!(events.contains("\"renewed\""), "{events}");
    let ended = run(&mut place.agentsh(["logout", "far"]));
    // This library's endpoint for that refuses clients without a secret, which is reported.
    assert!(ended.status == Some(0) && ended.stderr.contains("logged out of 'far'"), "{}", ended.stderr);
    assert!(ask(&place, Agent::Claude, "", None).1.is_none());
}

fn login(starter: Starter, agent: Agent) {
    let place = Place::new(starter);
    let authority = Authority::start();
    let declared = declare(&place, agent, &authority.mcp.url(), false);
    let (ended, result, _) = ask(&place, agent, &declared, None);
    assert!(result.is_none() && ended.stderr.contains("agentsh login far"), "{}", ended.stderr);

    log_in(&place);
    assert_read(&place, agent, (&declared, MARK));
    // A token that is over in the meantime is renewed, and the agent sees nothing of it.
    authority.state().expire();
    assert_read(&place, agent, (&declared, MARK));
    assert_eq!(authority.traded().last().expect("a trade")["grant_type"], "refresh_token");
}

pub fn with_a_header(starter: Starter) {
    header(starter, Agent::Claude);
}

pub fn with_a_login(starter: Starter) {
    login(starter, Agent::Claude);
}

pub fn codex_with_a_header(starter: Starter) {
    header(starter, Agent::Codex);
}

pub fn codex_with_a_login(starter: Starter) {
    login(starter, Agent::Codex);
}
