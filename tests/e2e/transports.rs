//! The official clients with a server in each transport: what they see of the server directly, through `agentsh mcp
//! run --url`, through `agentsh gateway` and under `agentsh run` is the same.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clients::{self, Client, SERVERS, Server};
use crate::place::{Place, Starter, agentsh, installed, run};

/// How the server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Stdio,
    Sse,
    Http,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Url,
    Gateway,
    Run,
}

pub const CASES: [(Transport, Way); 8] = [
    (Transport::Sse, Way::Url),
    (Transport::Http, Way::Url),
    (Transport::Stdio, Way::Gateway),
    (Transport::Sse, Way::Gateway),
    (Transport::Http, Way::Gateway),
    (Transport::Stdio, Way::Run),
    (Transport::Sse, Way::Run),
    (Transport::Http, Way::Run),
];

impl Transport {
    pub fn word(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Sse => "sse",
            Self::Http => "http",
        }
    }
}

impl Way {
    pub fn word(self) -> &'static str {
        match self {
            Self::Url => "mcp_run",
            Self::Gateway => "the_gateway",
            Self::Run => "run",
        }
    }
}

/// A process that is ended with the case.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SERVER: &str = "npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js";

fn everything() -> &'static Server {
    SERVERS.iter().find(|server| server.name == "everything").expect("it is in the list")
}

/// The server, where it listens, and its URL; nothing of both where a client starts it.
fn start(place: &Place, transport: Transport) -> (Option<Serving>, String) {
    let (word, path) = match transport {
        Transport::Stdio => return (None, String::new()),
        Transport::Sse => ("sse", "sse"),
        Transport::Http => ("streamableHttp", "mcp"),
    };
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
    let mut command = place.command("node");
    command.arg(installed(SERVER)).arg(word).env("PORT", port.to_string());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let serving = Serving(child.expect("the server starts"));
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(since.elapsed() < Duration::from_secs(60), "the server does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    (Some(serving), format!("http://127.0.0.1:{port}/{path}"))
}

/// `command` of a server that is a program.
fn program(task: &mut Value, words: &[String]) {
    task["env"] = json!({});
    task["command"] = json!(words[0]);
    task["args"] = json!(words[1..]);
}

fn ask(client: &Client, place: &Place, task: &Value) -> Value {
    let file = place.project.join("task.json");
    place.write(&file, &task.to_string());
    clients::seen(&run(clients::command_of(client, place).arg(file)))
}

pub fn same(client: &Client, (transport, way): (Transport, Way), starter: Starter) {
    let place = Place::new(starter);
    let (_serving, url) = start(&place, transport);
    let started = ["node".to_owned(), installed(SERVER).display().to_string(), "stdio".to_owned()];
    let mut task = clients::task(everything(), &place, "");
    // With and without sessions is a difference that a client may see: here it speaks the one that all servers know.
    task["mode"] = json!("legacy");
    let mut direct = task.clone();
    match transport {
        Transport::Stdio => program(&mut direct, &started),
        _ => direct["url"] = json!(url),
    }
    if transport == Transport::Sse {
        direct["transport"] = json!("sse");
    }
    let mut direct = ask(client, &place, &direct);
    let tools = direct["lists"]["tools"]["tools"].as_array().map_or(0, Vec::len);
    assert!(tools > 5, "{direct:#}");

    let ask_guarded = || match way {
        Way::Url => {
            let mut task = task.clone();
            let words = [&agentsh().display().to_string(), "mcp", "run", "--id", "everything", "--url", &url];
            program(&mut task, &words.map(str::to_owned));
            ask(client, &place, &task)
        }
        Way::Gateway => through_the_gateway(client, &place, task.clone(), (transport, &url), &started),
        Way::Run => under_run(client, &place, task.clone(), (transport, &url), &started),
    };
    let mut guarded = ask_guarded();
    clients::forgive_own_losses(&mut direct, &guarded);
    // It loses what it reads together with the answer: not every time.
    for _ in 0..3 {
        let lost = clients::differences(&direct, &guarded);
        if lost.is_empty() || !lost.iter().all(|one| one.contains("/progress")) {
            break;
        }
        guarded = ask_guarded();
    }
    let differences = clients::differences(&direct, &guarded);
    assert!(differences.is_empty(), "directly and through agentsh:\n{}", differences.join("\n"));
    let calls = place.ask(&["mcp", "calls", "--server", "everything", "--json"]);
    assert!(calls.as_array().is_some_and(|calls| calls.len() > 5), "{calls}");
}

fn through_the_gateway(
    client: &Client,
    place: &Place,
    mut task: Value,
    (transport, url): (Transport, &str),
    started: &[String],
) -> Value {
    let endpoint = match transport {
        Transport::Stdio => json!({"id": "everything", "command": started[0], "args": started[1..]}),
        _ => json!({"id": "everything", "url": url}),
    };
    let file = place.home.join("gateway.yaml");
    let text = json!({"listen": "127.0.0.1:0", "auth": {"open": true}, "endpoints": [endpoint]});
    place.write(&file, &text.to_string());
    let mut command = place.agentsh(["gateway", "--config"]);
    command.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut gateway = Serving(command.spawn().expect("agentsh starts"));
    let mut said = BufReader::new(gateway.0.stderr.take().expect("a pipe"));
    let address = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).expect("a line") > 0, "the gateway ended");
        if let Some((_, rest)) = line.split_once("listening on ") {
            break rest.split(',').next().unwrap_or_default().to_owned();
        }
    };
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    task["url"] = json!(format!("http://{address}/mcp/everything"));
    ask(client, place, &task)
}

fn under_run(
    client: &Client,
    place: &Place,
    mut task: Value,
    (transport, url): (Transport, &str),
    started: &[String],
) -> Value {
    let entry = match transport {
        Transport::Stdio => json!({"command": started[0], "args": started[1..]}),
        _ => json!({"type": "http", "url": url}),
    };
    let list = place.home.join("servers.json");
    place.write(&list, &json!({"mcpServers": {"everything": entry}}).to_string());
    let policy = place.home.join("policy.yaml");
    let text = json!({"version": 1, "agent": {"mcp_config": list, "filesystem": {"read": [list]}}});
    place.write(&policy, &text.to_string());
    task["config"] = json!(list);
    task["server"] = json!("everything");
    let file = place.project.join("task.json");
    place.write(&file, &task.to_string());
    let mut command = place.agentsh(["run", "--quiet", "--policy"]);
    command.arg(policy).arg("--read").arg(installed("")).arg("--");
    command.arg(clients::program(client)).arg(clients::script(client)).arg(file);
    clients::seen(&run(&mut command))
}
