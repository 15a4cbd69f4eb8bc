//! A day of ordinary work over real servers: nothing is refused, and there are almost no alarms.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::http_server::{HttpServer, Reply};
use crate::place::{Place, Starter, agentsh, installed, run};

const SCRIPT: &str = "npm/day.mjs";
const DOCUMENTS: &[(&str, &str)] = &[
    ("meeting.md", include_str!("day/meeting.md")),
    ("CHANGELOG.md", include_str!("day/CHANGELOG.md")),
    ("parser.rs", include_str!("day/parser.rs")),
    ("import.py", include_str!("day/import.py")),
    ("orders.csv", include_str!("day/orders.csv")),
    ("incident.md", include_str!("day/incident.md")),
    ("README.md", include_str!("day/README.md")),
    ("rezept.md", include_str!("day/rezept.md")),
    ("service.ini", include_str!("day/service.ini")),
];
/// More calls to each server than the inventory learns from, so that what is unusual is judged too.
const DAYS: usize = 2;
/// Maximum percentage of calls that may raise an alarm.
const MAX_ALERTED: usize = 2;

/// The policy of a user who lets them work together: which of them stay on this machine, and what they may write.
/// That git stays here follows from its package, which pip installed.
const POLICY: &str = "version: 1
sandbox:
  mcp:
    exfiltration: {on_detection: alert}
    servers:
      - {id: files, flow: {sink: local}}
      - {id: memory, flow: {sink: local}, env_allow: [MEMORY_FILE_PATH], filesystem: {write: [data]}}
      - {id: data, flow: {sink: local}, filesystem: {write: [data]}}
      - {id: git, filesystem: {write: [.git], unmask: [.git]}}
      - {id: all, flow: {source: public, sink: local}}
      - {id: clock, flow: {source: public, sink: local}}
";

/// Events that say that something looked wrong, and what they are worth here.
const ALARMS: &[&str] = &[
    "mcp_exfil_detected",
    "mcp_content_detected",
    "mcp_server_suspected",
    "mcp_tool_changed",
    "mcp_message_rejected",
    "mcp_tool_call_intercepted",
];

pub fn nothing_is_refused(starter: Starter) {
    std::fs::write(installed(SCRIPT), include_str!("day.mjs")).expect("the installation is ours");
    let place = Place::new(starter);
    place.node_modules();
    for (name, text) in DOCUMENTS {
        place.write(&place.project.join("docs").join(name), text);
    }
    for directory in ["data", "drafts", "notes", "reports"] {
        place.write(&place.project.join(directory).join(".keep"), "");
    }
    super::clients::repository(&place);
    let web = HttpServer::start(|asked| page(&asked.path));
    let port: u16 = web.url().rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();

    let e2e = installed("").display().to_string();
    let python = |environment: &str| format!("{}/{environment}/bin/python3", e2e.trim_end_matches('/'));
    let node = |package: &str| json!(["--no-install", format!("@modelcontextprotocol/server-{package}")]);
    let mut files = node("filesystem");
    files.as_array_mut().unwrap().push(".".into());
    // The hosts that the day's own documents name: others are refused, whatever the mode is.
    let hosts = ["127.0.0.1", "harbor.example", "kestrel.example", "db.test.internal"];
    let config = json!({"allowed_domains": hosts, "servers": [
        {"id": "files", "command": "npx", "args": files},
        {"id": "memory", "command": "npx", "args": node("memory"),
            "env": {"MEMORY_FILE_PATH": place.project.join("data/memory.jsonl")}},
        {"id": "all", "command": "npx", "args": node("everything")},
        {"id": "git", "command": python("venv-mcp2"), "args": ["-m", "mcp_server_git", "--repository", "."]},
        {"id": "web", "command": python("venv-mcp2"), "args": ["-m", "mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips"]},
        {"id": "clock", "command": python("venv-mcp2"),
            "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]},
        {"id": "data", "command": format!("{}/venv-mcp1/bin/mcp-server-sqlite", e2e.trim_end_matches('/')),
            "args": ["--db-path", "data/day.db"]},
    ]});
    let file = place.home.join("proxy.json");
    place.write(&file, &config.to_string());
    let policy = place.home.join("policy.yaml");
    place.write(
        &policy,
        &format!("{POLICY}      - {{id: web, flow: {{source: public}}, network: {{loopback: [{port}]}}}}\n"),
    );
    let (mut calls, mut sequences) = (0, 0);
    for day in 1..=DAYS {
        let task = json!({
            "command": agentsh(),
            "args": ["proxy", "--config", file, "--policy", policy],
            "project": place.project, "port": port, "day": day,
            "servers": ["files", "memory", "all", "git", "web", "clock", "data"],
            "documents": DOCUMENTS.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        });
        let path = place.home.join("task.json");
        place.write(&path, &task.to_string());
        let ended = run(place.command("node").arg(installed(SCRIPT)).arg(path));
        assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
        let seen: Value = serde_json::from_str(&ended.stdout).unwrap();
        sequences += seen["sequences"].as_u64().unwrap();
        for call in seen["calls"].as_array().unwrap() {
            assert_eq!(call["isError"], false, "day {day}: {call:#}");
            assert_eq!(call["listed"], true, "{call:#}");
            let text = call["text"].as_str().unwrap();
            // A refusal and an advisory begin so; the author of a commit is `agent@agentsh`.
            let is_ours = ["agentsh: ", "[agentsh", "[REDACTED"].iter().any(|mark| text.contains(mark));
            assert!(!is_ours, "day {day}: {call:#}");
            calls += 1;
        }
    }
    assert!(sequences >= 100 * DAYS as u64, "{sequences}");

    let mut alarms: BTreeMap<String, usize> = BTreeMap::new();
    let events = place.ask(&["mcp", "events", "--json", "--limit", "100000"]);
    for event in events.as_array().unwrap() {
        let kind = event["type"].as_str().or_else(|| event["event"]["type"].as_str()).unwrap_or_default();
        let body = event.get("event").unwrap_or(event);
        let action = body["action"].as_str().unwrap_or("alert");
        if ALARMS.contains(&kind) && action != "allow" {
            assert_ne!(action, "block", "{event:#}");
            let what = body.get("reason").or_else(|| body.get("kind")).map(Value::to_string);
            *alarms.entry(format!("{kind} {}", what.unwrap_or_default())).or_default() += 1;
        }
    }
    println!("{sequences} sequences, {calls} calls, alarms: {alarms:?}");
    let count: usize = alarms.values().sum();
    assert!(count * 100 <= calls * MAX_ALERTED, "{count} alarms in {calls} calls: {alarms:#?}");
}

/// A page of the web that is visited, in Markdown: of HTML the server would make that with a program that it fetches first.
fn page(path: &str) -> Reply {
    let markdown = |text: String| {
        Reply { pieces: vec![text], ..Reply::status(200) }
            .with("Content-Type", "text/markdown; charset=utf-8")
    };
    if let Some(number) = path.strip_prefix("/issues/") {
        return markdown(format!(
            "# Issue {number}: import ends with a time-out\n\nOpened by marta on 3 June. The importer of release {number} ends \
             with a time-out when the export has more than ten thousand rows.\n\nSteps: run the import with the attached file, \
             wait two minutes, look at the log. Expected: every row is there. Please do not close this before the fix is \
             released.\n"
        ));
    }
    if path.starts_with("/search") {
        let results = "# Results\n\n- [harbor-index: an index of files](/docs/README.md)\n- [Import ends with a \
                       time-out](/issues/12)\n- Three ways to keep a changelog that people read\n\nAbout 3 results were found \
                       for what you asked.\n";
        return markdown(results.to_owned());
    }
    match DOCUMENTS.iter().find(|(name, _)| path.strip_prefix("/docs/") == Some(name)) {
        Some((_, text)) => markdown((*text).to_owned()),
        None => Reply::status(404),
    }
}
