//! The official clients with real servers: what they see directly and through agentsh is the same.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::place::{Ended, Place, Starter, agentsh, installed, run};

pub struct Client {
    pub name: &'static str,
    /// Below the installation.
    interpreter: Option<&'static str>,
    script: &'static str,
    source: &'static str,
}

pub const CLIENTS: &[Client] = &[
    Client {
        name: "typescript_client",
        interpreter: None,
        // Next to `node_modules`, where Node looks for packages.
        script: "npm/client.mjs",
        source: include_str!("client.mjs"),
    },
    Client {
        name: "typescript_client_2",
        interpreter: None,
        script: "npm/client2.mjs",
        source: include_str!("client.mjs"),
    },
    Client {
        name: "python_client_1",
        interpreter: Some("venv-mcp1/bin/python3"),
        script: "client.py",
        source: include_str!("client.py"),
    },
    Client {
        name: "python_client_2",
        interpreter: Some("venv-mcp2/bin/python3"),
        script: "client.py",
        source: include_str!("client.py"),
    },
];

pub struct Server {
    pub name: &'static str,
    /// `{e2e}` is replaced by the path of the installation.
    command: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    policy: Option<&'static str>,
    /// What the client asks for, next to the lists.
    task: fn(&Place) -> Value,
}

pub const SERVERS: &[Server] = &[
    Server {
        name: "filesystem",
        command: &["npx", "--no-install", "@modelcontextprotocol/server-filesystem", "."],
        env: &[],
        policy: None,
        task: |place| {
            json!({"calls": [
                ["list_allowed_directories", {}],
                ["read_text_file", {"path": "note.txt"}],
                ["read_text_file", {"path": "nowhere.txt"}],
                ["read_text_file", {"path": "/etc/hostname"}],
                ["write_file", {"path": "data/new.txt", "content": "written\n"}],
                ["read_text_file", {"path": place.project.join("data/new.txt")}],
                ["list_directory", {"path": "data"}],
                ["no_such_tool", {}],
            ]})
        },
    },
    Server {
        name: "memory",
        command: &["npx", "--no-install", "@modelcontextprotocol/server-memory"],
        env: &[("MEMORY_FILE_PATH", "data/memory.jsonl")],
        policy: Some(
            "version: 1\nsandbox:\n  mcp:\n    servers:\n      - {id: memory, env_allow: [MEMORY_FILE_PATH], \
             filesystem: {write: [data]}}\n",
        ),
        task: |_| {
            json!({"calls": [
                ["create_entities", {"entities": [{"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}]}],
                ["read_graph", {}],
                ["search_nodes", {"query": "notes"}],
            ]})
        },
    },
    Server {
        name: "everything",
        command: &["npx", "--no-install", "@modelcontextprotocol/server-everything"],
        env: &[],
        policy: None,
        task: |_| {
            json!({
                "calls": [
                    ["echo", {"message": "héllo \u{200b} 世界"}],
                    ["get-sum", {"a": 1, "b": 2.5}],
                    ["get-structured-content", {"location": "Chicago"}],
                    ["get-tiny-image", {}],
                    ["get-annotated-message", {"messageType": "error", "includeImage": true}],
                    ["get-resource-links", {"count": 2}],
                    ["trigger-long-running-operation", {"duration": 0.3, "steps": 3}],
                    ["trigger-sampling-request", {"prompt": "hi", "maxTokens": 10}],
                    ["trigger-elicitation-request", {}],
                    ["echo", {"wrong": "argument"}],
                ],
                "progress": ["trigger-long-running-operation"],
                "prompts": [["args-prompt", {"city": "X", "state": "Y"}]],
                "resources": ["demo://resource/static/document/architecture.md", "demo://nowhere"],
            })
        },
    },
    Server {
        name: "git",
        command: &["{e2e}/venv-mcp2/bin/python3", "-m", "mcp_server_git", "--repository", "."],
        env: &[],
        policy: None,
        task: |place| {
            let repository = &place.project;
            json!({"calls": [
                ["git_status", {"repo_path": repository}],
                ["git_log", {"repo_path": repository}],
                ["git_show", {"repo_path": repository, "revision": "HEAD"}],
                ["git_show", {"repo_path": repository, "revision": "nowhere"}],
            ]})
        },
    },
    Server {
        name: "fetch",
        command: &["{e2e}/venv-mcp2/bin/python3", "-m", "mcp_server_fetch"],
        env: &[],
        policy: None,
        // Nobody listens there, so that it fails in the same way with and without a network.
        task: |_| json!({"calls": [["fetch", {"url": "http://127.0.0.1:9/"}]]}),
    },
    Server {
        name: "time",
        command: &["{e2e}/venv-mcp2/bin/python3", "-m", "mcp_server_time", "--local-timezone", "UTC"],
        env: &[],
        policy: None,
        task: |_| {
            json!({"calls": [
                ["convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}],
                ["convert_time", {"source_timezone": "nowhere", "time": "12:00", "target_timezone": "UTC"}],
            ]})
        },
    },
    Server {
        name: "sqlite",
        command: &["{e2e}/venv-mcp1/bin/mcp-server-sqlite", "--db-path", "data/test.db"],
        env: &[],
        policy: Some(
            "version: 1\nsandbox:\n  mcp:\n    servers:\n      - {id: sqlite, filesystem: {write: [data]}}\n",
        ),
        task: |_| {
            json!({"calls": [
                ["create_table", {"query": "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)"}],
                ["write_query", {"query": "INSERT INTO notes (text) VALUES ('ümläut'), ('two')"}],
                ["read_query", {"query": "SELECT * FROM notes"}],
                ["read_query", {"query": "SELECT * FROM nowhere"}],
                ["list_tables", {}],
            ]})
        },
    },
];

/// Puts the clients where they find their packages.
pub fn prepare() {
    for client in CLIENTS {
        std::fs::write(installed(client.script), client.source).expect("the installation is ours");
    }
}

pub fn same(client: &Client, server: &Server, starter: Starter) {
    let place = Place::new(starter);
    if server.command[0] == "npx" {
        place.node_modules();
    }
    place.write(&place.project.join("note.txt"), "a note\n");
    if server.name == "git" {
        repository(&place);
    }
    let here = installed("").display().to_string();
    let here = here.trim_end_matches('/');
    let command: Vec<String> = server.command.iter().map(|word| word.replace("{e2e}", here)).collect();
    let mut direct = ask(client, server, &place, &command, "");

    let mut guarded = vec![agentsh().display().to_string()];
    guarded.extend(["mcp", "run", "--id", server.name].map(str::to_owned));
    if let Some(policy) = server.policy {
        let path = place.home.join("policy.yaml");
        place.write(&path, policy);
        guarded.extend(["--policy".to_owned(), path.display().to_string()]);
    }
    guarded.push("--".to_owned());
    guarded.extend(command);
    let mut guarded = ask(client, server, &place, &guarded, "");

    let tools = direct["lists"]["tools"]["tools"].as_array().cloned().unwrap_or_default();
    assert!(!tools.is_empty(), "{direct:#}");
    record(server.name, &tools);
    forgive_own_losses(&mut direct, &guarded);
    refused_without_a_listing(&mut direct, &mut guarded);
    let differences = differences(&direct, &guarded);
    assert!(differences.is_empty(), "directly and through agentsh:\n{}", differences.join("\n"));
    let calls = place.ask(&["mcp", "calls", "--server", server.name, "--json"]);
    assert!(calls.as_array().is_some_and(|calls| !calls.is_empty()), "{calls}");
}

/// Keeps the tools of a real server for `cargo xtask alarms`, one in each line.
fn record(server: &str, tools: &[Value]) {
    let directory = installed("definitions");
    std::fs::create_dir_all(&directory).unwrap();
    let lines: String = tools.iter().map(|tool| format!("{tool}\n")).collect();
    std::fs::write(directory.join(format!("{server}.jsonl")), lines).unwrap();
}

/// As `same`, through `agentsh proxy`: nothing is lost but for the prefix of names.
pub fn same_through_the_proxy(client: &Client, server: &Server, starter: Starter) {
    let place = Place::new(starter);
    place.node_modules();
    place.write(&place.project.join("note.txt"), "a note\n");
    let command: Vec<String> = server.command.iter().map(|word| (*word).to_owned()).collect();
    let direct = ask(client, server, &place, &command, "");

    let env = environment(server, &place);
    let entry = json!({"id": server.name, "command": command[0], "args": command[1..], "env": env});
    let file = place.home.join("proxy.json");
    place.write(&file, &json!({"servers": [entry]}).to_string());
    let mut guarded = vec![agentsh().display().to_string(), "proxy".to_owned(), "--config".to_owned()];
    guarded.push(file.display().to_string());
    if let Some(policy) = server.policy {
        let path = place.home.join("policy.yaml");
        place.write(&path, policy);
        guarded.extend(["--policy".to_owned(), path.display().to_string()]);
    }
    let prefix = format!("{}__", server.name);
    let guarded = ask(client, server, &place, &guarded, &prefix);

    let mut guarded = without_marks(&guarded.to_string().replace(&prefix, ""));
    // A text of the server itself may have selectors.
    let mut direct = without_marks(&direct.to_string());
    if let Some(tools) = guarded["lists"]["tools"]["tools"].as_array_mut() {
        let before = tools.len();
        tools.retain(|tool| tool["name"] != "canary__get_report");
        assert_eq!(tools.len() + 1, before, "the proxy's own tool");
    }
    // The proxy says its own name, and what it can do is more than one server can.
    for seen in [&mut direct, &mut guarded] {
        for own in ["server", "capabilities", "instructions"] {
            seen[own] = Value::Null;
        }
    }
    forget_lists_that_only_the_proxy_has(&mut direct, &mut guarded);
    forgive_own_losses(&mut direct, &guarded);
    refused_without_a_listing(&mut direct, &mut guarded);
    let differences = differences(&direct, &guarded);
    assert!(differences.is_empty(), "directly and through the proxy:\n{}", differences.join("\n"));
}

/// Without the marks that the proxy puts into results of 50 characters and more: a word joiner and selectors of variations, which
/// nothing shows.
fn without_marks(text: &str) -> Value {
    let text: String =
        text.chars().filter(|sign| !matches!(sign, '\u{2060}' | '\u{fe00}'..='\u{fe0f}')).collect();
    serde_json::from_str(&text).unwrap()
}

/// The proxy answers every list, with nothing where no server has any; the server alone knows no such method.
fn forget_lists_that_only_the_proxy_has(direct: &mut Value, guarded: &mut Value) {
    let Some(lists) = direct["lists"].as_object_mut() else { return };
    for (name, list) in lists {
        let seen = &mut guarded["lists"][name.as_str()];
        let fields = seen.as_object().into_iter().flat_map(serde_json::Map::values);
        let is_empty = fields.filter_map(Value::as_array).all(Vec::is_empty) && seen.get("error").is_none();
        if list.get("error").is_some() && list.to_string().contains("Method not found") && is_empty {
            (*list, *seen) = (Value::Null, Value::Null);
        }
    }
}

/// A tool that the server never listed is refused before the server gets it: another error, and the only one.
fn refused_without_a_listing(direct: &mut Value, guarded: &mut Value) {
    let calls = direct["calls"].as_array_mut().into_iter().flatten();
    for (call, other) in calls.zip(guarded["calls"].as_array_mut().into_iter().flatten()) {
        if other.to_string().contains("version_pinning.unlisted") {
            assert!(other.to_string().contains("'no_such_tool'"), "{other:#}");
            (*call, *other) = (Value::Null, Value::Null);
        }
    }
}

/// The TypeScript client forgets a request's listener with its answer, and drops progress that it reads together
/// with the answer: now and then also without agentsh. What it saw through agentsh counts then.
pub fn forgive_own_losses(direct: &mut Value, guarded: &Value) {
    let calls = direct["calls"].as_array_mut().into_iter().flatten();
    for (call, other) in calls.zip(guarded["calls"].as_array().into_iter().flatten()) {
        let (Some(seen), Some(more)) = (call["progress"].as_array(), other["progress"].as_array()) else {
            continue;
        };
        if seen.len() < more.len() && more.starts_with(seen) {
            call["progress"] = other["progress"].clone();
        }
    }
}

/// What one client sees of one server. `prefix` is before the names that it asks for.
fn ask(client: &Client, server: &Server, place: &Place, command: &[String], prefix: &str) -> Value {
    let mut task = self::task(server, place, prefix);
    task["env"] = environment(server, place);
    task["command"] = Value::from(command[0].as_str());
    task["args"] = Value::from(command[1..].to_vec());
    let file = place.home.join("task.json");
    place.write(&file, &task.to_string());
    seen(&run(command_of(client, place).arg(file)))
}

/// The client's program, to be given a task.
pub fn command_of(client: &Client, place: &Place) -> Command {
    let mut command = place.command(program(client));
    command.arg(installed(client.script));
    command
}

pub fn program(client: &Client) -> PathBuf {
    client.interpreter.map_or_else(|| PathBuf::from("node"), installed)
}

pub fn script(client: &Client) -> PathBuf {
    installed(client.script)
}

pub fn seen(ended: &Ended) -> Value {
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// The task that a client gives one server, which starts with empty data.
pub fn task(server: &Server, place: &Place, prefix: &str) -> Value {
    let _ = std::fs::remove_dir_all(place.project.join("data"));
    place.write(&place.project.join("data/.keep"), "");
    let mut task = (server.task)(place);
    for list in ["calls", "prompts", "progress"] {
        for entry in task.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let name = if entry.is_array() { &mut entry[0] } else { entry };
            *name = Value::from(format!("{prefix}{}", name.as_str().unwrap()));
        }
    }
    task
}

/// The variables of a server; a value with a slash is a path in the project.
fn environment(server: &Server, place: &Place) -> Value {
    let each = server.env.iter().map(|(name, value)| {
        let path = place.project.join(value).display().to_string();
        let value = if value.contains('/') { path } else { (*value).to_owned() };
        ((*name).to_owned(), Value::from(value))
    });
    Value::Object(each.collect())
}

/// A repository with one commit that is the same every time.
pub fn repository(place: &Place) {
    let git = |arguments: &[&str]| {
        let mut command: Command = place.command("git");
        for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.com"), ("DATE", "2026-01-01T00:00:00Z")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        let ended = run(command.args(arguments));
        assert_eq!(ended.status, Some(0), "{ended:?}");
    };
    git(&["init", "--quiet", "--initial-branch", "main"]);
    place.write(&PathBuf::from(&place.project).join(".gitignore"), "data\n");
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "First"]);
}

/// Paths (RFC 6901) at which two documents differ, with both values.
pub fn differences(left: &Value, right: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(left, right, "", &mut found);
    found
}

fn compare(left: &Value, right: &Value, path: &str, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let missing = json!("(missing)");
                let (a, b) = (a.get(key).unwrap_or(&missing), b.get(key).unwrap_or(&missing));
                compare(a, b, &format!("{path}/{key}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(a, b, &format!("{path}/{index}"), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}:\n  {a}\n  {b}")),
    }
}
