//! The pages of `agentsh ui` in Debian's chromium, while Claude Code waits for an answer.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents;
use crate::model::anthropic;
use crate::place::{Starter, installed};

const CHROMIUM: &str = "/usr/bin/chromium";

const ASK: &str = "version: 1
sandbox:
  mcp:
    approvals: {wait: 10m, headless: wait}
    rules:
      - {server: fs, tool: read_text_file, action: ask, reason: notes are private}
";

/// Why no browser can be started.
pub fn unavailable() -> Option<&'static str> {
    (!Path::new(CHROMIUM).exists()).then_some("needs chromium: as root, apt-get install chromium")
}

/// Ends with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Keeps a registry on this machine, with one server in it.
fn register(place: &crate::place::Place) {
    let mut command = place.agentsh(["registry", "serve", "--open", "--listen", "127.0.0.1:0"]);
    let mut serve = Ending(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("agentsh"));
    let mut line = String::new();
    BufReader::new(serve.0.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let url = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
    let opening = json!({"result": {"capabilities": {"tools": {}}, "serverInfo": {"name": "notes"}}});
    let tool = json!({"name": "read", "description": "Reads one note, \u{e9}\u{200b}.",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}});
    let folder = place.home.join("listing");
    std::fs::create_dir_all(&folder).expect("a new directory");
    place.write(&folder.join("initialize.json"), &opening.to_string());
    let tools = json!({"result": {"tools": [tool]}}).to_string() + "\n";
    place.write(&folder.join("tools.json"), &tools);
    let folder = folder.display().to_string();
    let words = ["registry", "register", "--listing", folder.as_str(), "--registry", url.as_str()];
    let registered = crate::place::run(&mut place.agentsh(words));
    assert_eq!(registered.status, Some(0), "{registered:?}");
}

pub fn look(starter: Starter) {
    let place = agents::project(starter);
    // Something on record that failed, and a server of another name.
    let server = place.project.join("node_modules/.bin/mcp-server-memory").display().to_string();
    let _ended = crate::place::run(&mut place.agentsh(["mcp", "run", "--id", "<b>memory", "--", &server]));
    register(&place);
    let policy = place.home.join(".config/agentsh/policy.yaml");
    place.write(&policy, ASK);
    let mut command = place.agentsh(["ui", "--no-open", "--json"]);
    let mut ui = Ending(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("agentsh"));
    let link = {
        let mut line = String::new();
        BufReader::new(ui.0.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        said["url"].as_str().expect("a link").to_owned()
    };
    let model = anthropic::start(agents::script());
    let mut claude = place.agentsh(["run", "--"].iter().chain(&agents::CLAUDE));
    agents::claude_environment(&mut claude, &model);
    let claude =
        claude.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("agentsh");
    let started = Instant::now();
    while place.ask(&["approvals", "list", "--json"]) == json!([]) {
        assert!(started.elapsed() < Duration::from_secs(60), "Claude Code asked nothing");
        std::thread::sleep(Duration::from_millis(100));
    }
    let pictures = installed("pages").join(starter.word());
    std::fs::create_dir_all(&pictures).expect("a new directory");
    let paths = [
        "/",
        "/sessions",
        "/session/latest",
        "/servers",
        "/server/fs",
        "/registry",
        "/registry/1",
        "/approvals",
        "/policy",
        "/policy?server=fs&kind=connect&about=example.com:443&session=latest",
        "/nothing",
    ];
    // The modules of the installation are next to the script, not next to its source.
    let script = installed("npm").join("pages.mjs");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/e2e/pages.mjs"), &script).expect("a copy");
    let output =
        Command::new("node").arg(script).arg(&link).arg(&pictures).arg(CHROMIUM).args(paths).output();
    let output = output.expect("node");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    let found: Value = serde_json::from_str(out.trim()).expect("JSON");
    // And the answer to what was approved.
    assert_eq!(found["seen"], 4 * (paths.len() + 1), "{found:#}");
    for kind in ["serious", "wide"] {
        assert_eq!(found[kind], json!([]), "{found:#}");
    }
    // The page that does not exist is one, and nothing else is complained about.
    let complaints = found["console"].as_array().expect("a list");
    assert!(
        complaints.iter().all(|text| text.as_str().is_some_and(|text| text.contains("404"))),
        "{found:#}"
    );
    assert!(found["keyboard"].as_str().is_some_and(|text| text.starts_with("Approved")), "{found:#}");
    assert_eq!(found["live"], true, "{found:#}");
    // The call approved by keyboard reached the server, and Claude continued.
    let ended = claude.wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains(crate::model::FAREWELL), "{said}");
    let result = anthropic::result(&model.conversation()).expect("a result");
    assert!(result.to_string().contains("line one"), "{result}");
}
