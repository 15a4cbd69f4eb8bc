//! The official clients in Debian's chromium, on a page of another origin, through `agentsh gateway`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use serde_json::{Value, json};

use crate::http_server::{HttpServer, Reply, handshake};
use crate::place::{Place, Starter, installed, run};

const CHROMIUM: &str = "/usr/bin/chromium";

/// Ends with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Answers at once, with progress, and by the stream that belongs to no request.
fn server() -> HttpServer {
    let general: Mutex<Option<Sender<String>>> = Mutex::default();
    HttpServer::start(move |asked| {
        if asked.method == "GET" {
            let (sender, receiver) = channel();
            *general.lock().unwrap() = Some(sender);
            return Reply::events(&[": here\n\n"]).fed(receiver);
        }
        let message = asked.message();
        let answer = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        let text = |text: &Value| answer(json!({"content": [{"type": "text", "text": text}]}));
        match (asked.rpc().as_str(), message["params"]["name"].as_str()) {
            ("tools/list", _) => {
                let tool = |name| json!({"name": name, "inputSchema": {"type": "object"}});
                Reply::json(answer(
                    json!({"tools": Value::from(["echo", "slow", "change"].map(tool).to_vec())}),
                ))
            }
            ("tools/call", Some("echo")) => Reply::json(text(&message["params"]["arguments"]["text"])),
            ("tools/call", Some("slow")) => {
                let token = &message["params"]["_meta"]["progressToken"];
                let step = |progress: u32| {
                    let params = json!({"progressToken": token, "progress": progress});
                    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
                };
                let each = [step(1), step(2), text(&json!("done"))].map(|event| format!("data: {event}\n\n"));
                Reply::events(&each.each_ref().map(String::as_str))
            }
            ("tools/call", Some("change")) => {
                let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                crate::support::eventually(|| general.lock().unwrap().is_some());
                let _heard =
                    general.lock().unwrap().as_ref().map(|general| general.send(changed.to_string()));
                Reply::json(text(&json!("told")))
            }
            _ => handshake(asked).unwrap_or_else(|| Reply::json(answer(json!({})))),
        }
    })
}

pub fn uses_the_gateway(starter: Starter) {
    let place = Place::new(starter);
    let server = server();
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address").port();
    let file = place.home.join("gateway.yaml");
    let text = json!({"listen": "127.0.0.1:0", "origins": [format!("http://127.0.0.1:{port}")],
        "endpoints": [{"id": "far", "url": server.url()}]});
    place.write(&file, &text.to_string());
    let file = file.display().to_string();
    let created = run(&mut place.agentsh(["gateway", "keys", "--config", file.as_str(), "create", "page"]));
    assert_eq!(created.status, Some(0), "{created:?}");
    let mut command = place.agentsh(["gateway", "--config", file.as_str()]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut gateway = Ending(command.spawn().expect("agentsh starts"));
    let mut said = BufReader::new(gateway.0.stderr.take().expect("a pipe"));
    let address = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).expect("a line") > 0, "the gateway ended");
        if let Some((_, rest)) = line.split_once("listening on ") {
            break rest.split(',').next().unwrap_or_default().to_owned();
        }
    };
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    // The modules of the installation are next to the script, not next to its source.
    let script = installed("npm").join("browser.mjs");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/e2e/browser.mjs"), &script).expect("a copy");
    // With a slash at its end, as people paste it.
    let url = format!("http://{address}/mcp/far/");
    let mut node = Command::new("node");
    let words = [url.as_str(), created.stdout.trim(), &port.to_string(), CHROMIUM];
    let output = node.arg(script).args(words).output().expect("node");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let found: Value = serde_json::from_str(out.trim()).expect("JSON");
    for client in ["one", "two"] {
        let seen = &found[client];
        assert_eq!(seen["tools"], json!(["echo", "slow", "change"]), "{found:#}");
        assert_eq!(seen["text"], "from a page", "{found:#}");
        assert_eq!(seen["progress"], json!([1, 2]), "{found:#}");
        assert_eq!(seen["changed"], "notifications/tools/list_changed", "{found:#}");
        assert!(seen["session"].is_string(), "{found:#}");
        assert!(seen["refused"].to_string().contains("no_such_tool"), "{found:#}");
        // The session is over, and the gateway is still there.
        assert_eq!((&seen["after"], &seen["head"]), (&json!(404), &json!(200)), "{found:#}");
        assert_eq!(seen["errors"], json!([]), "{found:#}");
    }
    // The browser itself complains of the session that is over, and of nothing else.
    let complaints = found["console"].as_array().expect("a list");
    let is_over = |text: &Value| text.as_str().is_some_and(|text| text.contains("404"));
    assert!(complaints.len() == 2 && complaints.iter().all(is_over), "{found:#}");
}
