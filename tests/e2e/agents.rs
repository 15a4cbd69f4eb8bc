//! Claude Code and Codex against a scripted model, with the real filesystem server.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::model::tls::{Behind, Front};
use crate::model::{FAREWELL, Model, Script, anthropic, openai};
use crate::place::{Ended, Place, Starter, run};
use crate::support::patience;

pub const NOTE: &str = "line one\n\ttabs, \"quotes\", \\ and ümläüts 🦀\nlast line without an end";
pub const SERVER: &str = "@modelcontextprotocol/server-filesystem";
const SERVER_ENTRY: &str = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";
const DENY_WRITING: &str = "version: 1
sandbox:
  mcp:
    enforce_policy: true
    tool_policy: denylist
    denied_tools: [{server: fs, tool: write_file}]
";

pub fn script() -> Script {
    Script {
        server: "fs",
        tool: "read_text_file",
        arguments: json!({"path": "note.txt"}),
        insists: false,
        hold: None,
    }
}

/// A project with a note and the packages of the server, which `.mcp.json` names as its users write it.
pub fn project(starter: Starter) -> Place {
    let place = Place::new(starter);
    place.node_modules();
    place.write(&place.project.join("note.txt"), NOTE);
    let configuration = json!({"mcpServers": {"fs": {"command": "npx", "args": ["-y", SERVER, "."]}}});
    place.write(&place.project.join(".mcp.json"), &configuration.to_string());
    place
}

pub fn claude_environment(command: &mut Command, model: &Model) {
    command
        .env("ANTHROPIC_BASE_URL", format!("http://{}", model.address))
        .env("ANTHROPIC_API_KEY", "sk-test")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        // The model is shown every tool at once, and not before the servers are connected.
        .env("ENABLE_TOOL_SEARCH", "false")
        .env("MCP_CONNECTION_NONBLOCKING", "false");
}

pub const CLAUDE: [&str; 7] = [
    "claude",
    "-p",
    "read the note please",
    "--allowedTools",
    "mcp__fs__read_text_file",
    "--output-format",
    "json",
];

/// Claude Code as a user starts it who does not have agentsh.
fn claude_alone(place: &Place, model: &Model) -> Ended {
    let mut command = place.command(CLAUDE[0]);
    command.args(&CLAUDE[1..]).args(["--strict-mcp-config", "--mcp-config", ".mcp.json"]);
    claude_environment(&mut command, model);
    run(&mut command)
}

fn claude_guarded(place: &Place, model: &Model, options: &[&str]) -> Ended {
    let mut command = place.agentsh(["run"].iter().chain(options).chain(&["--"]).chain(&CLAUDE));
    claude_environment(&mut command, model);
    run(&mut command)
}

/// What the model heard about one server: every tool of it, and the last result.
fn heard_by_claude(model: &Model) -> (Vec<Value>, Option<Value>) {
    let conversation = model.conversation();
    let tools = conversation.iter().flat_map(|body| body["tools"].as_array().into_iter().flatten());
    let mut own: Vec<Value> = tools
        .filter(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with("mcp__")))
        .cloned()
        .collect();
    own.sort_by_key(|tool| tool["name"].to_string());
    own.dedup();
    (own, anthropic::result(&conversation))
}

fn assert_finished(ended: &Ended) {
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    let said: Value = serde_json::from_str(ended.stdout.trim()).expect("the agent prints JSON");
    assert_eq!(said["result"], FAREWELL, "{}\n{}", ended.stdout, ended.stderr);
}

pub fn claude_reads(starter: Starter) {
    let place = project(starter);
    let direct = anthropic::start(script());
    assert_finished(&claude_alone(&place, &direct));
    let guarded = anthropic::start(script());
    let ended = claude_guarded(&place, &guarded, &[]);
    assert_finished(&ended);

    let (tools, result) = heard_by_claude(&guarded);
    let result = result.unwrap_or_else(|| panic!("the tool was called: {}", ended.stderr));
    assert!(result.to_string().contains("ümläüts 🦀"), "{result}");
    assert!(result["is_error"] != true, "{result}");
    let (tools_alone, result_alone) = heard_by_claude(&direct);
    assert_eq!(tools, tools_alone, "the tools that the model is offered");
    assert_eq!(Some(result), result_alone, "the result that the model receives");

    let calls = place.ask(&["mcp", "calls", "--json"]);
    let calls = calls.as_array().expect("a list");
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(calls[0]["server_id"], "fs");
    assert_eq!(calls[0]["tool_name"], "read_text_file");
    assert_eq!(calls[0]["action"], "allow", "{calls:?}");
    assert_eq!(calls[0]["input"]["path"], "note.txt", "{calls:?}");
}

/// One server that never answers: the agent stops waiting when it would without agentsh, at a limit of its own.
fn beside_a_mute_server(speak: impl Fn(bool) -> Ended) {
    let time = |guarded: bool| {
        let started = Instant::now();
        let ended = speak(guarded);
        assert!(ended.status == Some(0) && ended.stdout.contains(FAREWELL), "{ended:?}");
        started.elapsed()
    };
    let (direct, guarded) = (time(false), time(true));
    assert!(
        guarded < direct + patience(Duration::from_secs(15)),
        "directly {direct:?}, through agentsh {guarded:?}"
    );
}

pub fn claude_beside_a_mute_server(starter: Starter) {
    let place = project(starter);
    let mut servers: Value =
        serde_json::from_str(&std::fs::read_to_string(place.project.join(".mcp.json")).unwrap()).unwrap();
    servers["mcpServers"]["mute"] = json!({"command": "sleep", "args": ["600"]});
    place.write(&place.project.join(".mcp.json"), &servers.to_string());
    beside_a_mute_server(|guarded| {
        let model = anthropic::start(script());
        let alone = ["--strict-mcp-config", "--mcp-config", ".mcp.json"];
        let mut command = match guarded {
            true => place.agentsh(["run", "--"].iter().chain(&CLAUDE)),
            false => place.command(CLAUDE[0]),
        };
        if !guarded {
            command.args(&CLAUDE[1..]).args(alone);
        }
        claude_environment(&mut command, &model);
        let ended = run(command.env("MCP_TIMEOUT", "4000"));
        assert!(heard_by_claude(&model).1.is_some(), "the other server was used: {ended:?}");
        ended
    });
}

pub fn codex_beside_a_mute_server(starter: Starter) {
    let place = project(starter);
    beside_a_mute_server(|guarded| {
        let model = openai::start(script());
        codex_configuration(&place, &model);
        let file = place.home.join(".codex/config.toml");
        let mute = "\n[mcp_servers.mute]\ncommand = \"sleep\"\nargs = [\"600\"]\nstartup_timeout_sec = 4\n";
        place.write(&file, &(std::fs::read_to_string(&file).unwrap() + mute));
        let mut command = match guarded {
            true => place.agentsh(["run", "--"].iter().chain(&CODEX)),
            false => place.command(CODEX[0]),
        };
        if !guarded {
            command.args(&CODEX[1..]);
        }
        let ended = run(command.env("SCRIPTED_KEY", "sk-test"));
        assert!(heard_by_codex(&model).1.is_some(), "the other server was used: {ended:?}");
        ended
    });
}

pub fn claude_denied(starter: Starter) {
    let place = project(starter);
    let policy = place.home.join("policy.yaml");
    place.write(&policy, DENY_WRITING);
    // A model that insists on what it cannot see.
    let model = anthropic::start(Script {
        tool: "write_file",
        arguments: json!({"path": "note.txt", "content": "changed"}),
        ..script()
    });
    let ended = claude_guarded(&place, &model, &["--policy", &policy.display().to_string()]);
    assert_finished(&ended);
    let (tools, result) = heard_by_claude(&model);
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"mcp__fs__read_text_file"), "{names:?} {}", ended.stderr);
    assert!(!names.contains(&"mcp__fs__write_file"), "{names:?}");
    assert_eq!(result, None, "nothing was called");
    assert_eq!(std::fs::read_to_string(place.project.join("note.txt")).unwrap(), NOTE);
}

pub fn claude_tampered(starter: Starter) {
    let place = project(starter);
    let model = anthropic::start(script());
    assert_finished(&claude_guarded(&place, &model, &[]));
    assert!(heard_by_claude(&model).1.is_some(), "the untouched server answers");
    tamper(&place, &place.project.join(SERVER_ENTRY));

    let model = anthropic::start(script());
    let ended = claude_guarded(&place, &model, &[]);
    assert_finished(&ended);
    let (tools, result) = heard_by_claude(&model);
    assert_eq!((tools, result), (Vec::new(), None), "the server is not there");
    assert!(!place.project.join("ran").exists(), "the tampered server ran");
    let events = place.ask(&["mcp", "events", "--json", "--type", "mcp_server_binary_mismatch"]);
    assert!(events.to_string().contains("server-filesystem/dist/index.js"), "{events}");
    assert!(ended.stderr.contains("server-filesystem/dist/index.js"), "says which file: {}", ended.stderr);
    assert_eq!(place.ask(&["mcp", "calls", "--json"]).as_array().map(Vec::len), Some(1));
}

/// Replaces the file by one that leaves a trace when it runs.
fn tamper(place: &Place, path: &Path) {
    let original = std::fs::read_to_string(path).expect("the server's entry");
    let (first, rest) = original.split_once('\n').expect("a shebang line");
    place.write(
        path,
        &format!("{first}\nimport {{ writeFileSync }} from 'fs'; writeFileSync('ran', '');\n{rest}"),
    );
}

pub fn claude_fails(starter: Starter) {
    let place = Place::new(starter);
    let arguments = ["claude", "--no-such-option"];
    let alone = run(place.command(arguments[0]).args(&arguments[1..]));
    assert!(alone.status.is_some_and(|status| status != 0), "{alone:?}");
    let guarded = run(&mut place.agentsh(["run", "--"].iter().chain(&arguments)));
    assert_eq!(guarded.status, alone.status, "{guarded:?}");
    assert_eq!(guarded.stdout, alone.stdout);
    assert!(guarded.stderr.contains(alone.stderr.trim()), "{}\n---\n{}", guarded.stderr, alone.stderr);
}

/// The filesystem server, as Codex's users write it.
fn codex_server() -> String {
    format!(
        "[mcp_servers.fs]\ncommand = \"npx\"\nargs = [\"--no-install\", \"{SERVER}\", \".\"]\nrequired = true\n\
         startup_timeout_sec = 60\n"
    )
}

/// Writes the model's address into Codex's own configuration, as users of another provider do.
fn codex_configuration(place: &Place, model: &Model) {
    let content = format!(
        "model = \"scripted\"\nmodel_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\n\
         base_url = \"http://{}/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n\n{}",
        model.address,
        codex_server()
    );
    place.write(&place.home.join(".codex/config.toml"), &content);
}

pub const CODEX: [&str; 5] = [
    "codex",
    "exec",
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "read the note please",
];

fn codex_alone(place: &Place, model: &Model) -> Ended {
    codex_configuration(place, model);
    run(place.command(CODEX[0]).args(&CODEX[1..]).env("SCRIPTED_KEY", "sk-test"))
}

fn codex_guarded(place: &Place, model: &Model, options: &[&str]) -> Ended {
    codex_configuration(place, model);
    let mut command = place.agentsh(["run"].iter().chain(options).chain(&["--"]).chain(&CODEX));
    run(command.env("SCRIPTED_KEY", "sk-test"))
}

fn heard_by_codex(model: &Model) -> (Vec<Value>, Option<Value>) {
    let conversation = model.conversation();
    let tools = conversation.last().and_then(|body| body["tools"].as_array().cloned()).unwrap_or_default();
    let server = tools.into_iter().filter(|tool| tool["name"] == "mcp__fs").collect();
    let output = openai::result(&conversation).map(|item| timeless(&item["output"]));
    (server, output)
}

/// Codex puts the time that a call took before its result.
fn timeless(output: &Value) -> Value {
    match output.as_str() {
        Some(text) => {
            let lines = text.lines().filter(|line| !line.starts_with("Wall time"));
            Value::from(lines.collect::<Vec<_>>().join("\n"))
        }
        None => output.clone(),
    }
}

pub fn codex_reads(starter: Starter) {
    let place = project(starter);
    let direct = openai::start(script());
    let ended = codex_alone(&place, &direct);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let guarded = openai::start(script());
    let ended = codex_guarded(&place, &guarded, &[]);
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(FAREWELL), "{}\n{}", ended.stdout, ended.stderr);

    let (tools, result) = heard_by_codex(&guarded);
    let result = result.unwrap_or_else(|| panic!("the tool was called: {}", ended.stderr));
    assert!(result.to_string().contains("ümläüts 🦀"), "{result}");
    let (tools_alone, result_alone) = heard_by_codex(&direct);
    assert_eq!(tools, tools_alone, "the tools that the model is offered");
    assert_eq!(Some(result), result_alone, "the result that the model receives");

    let calls = place.ask(&["mcp", "calls", "--server", "fs", "--json"]);
    let calls = calls.as_array().expect("a list");
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!((&calls[0]["server_id"], &calls[0]["tool_name"]), (&json!("fs"), &json!("read_text_file")));
    // It asks its provider to look in the live web as well: that stays in the index.
    let hosted = place.ask(&["mcp", "calls", "--server", "agent", "--json"]);
    assert_eq!((&hosted[0]["tool_name"], &hosted[0]["action"]), (&json!("web_search"), &json!("rewrite")));
}

pub fn codex_denied(starter: Starter) {
    let place = project(starter);
    let policy = place.home.join("policy.yaml");
    place.write(&policy, DENY_WRITING);
    let model = openai::start(script());
    let ended = codex_guarded(&place, &model, &["--policy", &policy.display().to_string()]);
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    let conversation = model.conversation();
    let offered = |tool| conversation.iter().any(|body| openai::tool(body, "fs", tool).is_some());
    assert!(offered("read_text_file"), "{}", ended.stderr);
    assert!(!offered("write_file"));
}

const DENY_READING: &str = "version: 1
sandbox:
  mcp:
    enforce_policy: true
    tool_policy: denylist
    denied_tools: [{server: fs, tool: read_text_file}]
";
const BLOCKED: &str = "read_text_file' blocked by policy";

/// An agent without configuration finds its model behind TLS, which ends at the session: it trusts the session's authority,
/// what the policy denies becomes a text, and with the channel off it speaks with the model itself.
pub fn trusts_the_session(
    place: &Place,
    (model, host): (&Model, &str),
    run_agent: impl Fn(&Behind) -> Ended,
    result: impl Fn(&[Value]) -> Option<Value>,
) {
    let behind = Behind::new(model, &[host]);
    let policy = |text: &str| place.write(&place.home.join(".config/agentsh/policy.yaml"), text);
    let events = |name: &str| {
        let found = place.ask(&["mcp", "events", "--json", "--type", name]);
        found.as_array().cloned().unwrap_or_default()
    };
    let ended = run_agent(&behind);
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(FAREWELL), "{}\n{}", ended.stdout, ended.stderr);
    assert!(result(&model.conversation()).is_some(), "the tool was called: {}", ended.stderr);
    let way = format!("{host}:443 (TLS ends at the session's authority)");
    let layers = events("enforcement");
    let layer = layers.iter().find(|event| event["layer"] == "model").expect("the way is on record");
    assert!(layer["got"].as_str().is_some_and(|got| got.contains(&way)), "{layer}");
    let called = events("model_called").len();
    assert!(called >= 2, "{called}");
    let judged = masked(&model.conversation());

    let before = model.conversation().len();
    policy(DENY_READING);
    let ended = run_agent(&behind);
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(BLOCKED), "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(result(&model.conversation()[before..]), None, "nothing was called");

    let called = events("model_called").len();
    policy("version: 1\nllm: {enabled: false}\nagent: {env_allow: [NODE_EXTRA_CA_CERTS]}\n");
    let mut differences = Vec::new();
    // An agent on a busy machine may ask before its servers are ready: it gets three attempts to say the same again.
    for _ in 0..3 {
        let before = model.conversation().len();
        let ended = run_agent(&behind);
        assert!(ended.stdout.contains(FAREWELL), "{}\n{}", ended.stdout, ended.stderr);
        assert!(result(&model.conversation()[before..]).is_some(), "the tool was called: {}", ended.stderr);
        assert_eq!(events("model_called").len(), called, "nobody read it");
        // The requests through the channel equal those without it.
        let plain = masked(&model.conversation()[before..]);
        if plain == judged {
            return;
        }
        differences.push(difference(&judged, &plain));
    }
    panic!("the agent says something else without the channel: {differences:#?}");
}

/// The first place where two conversations differ, short enough to read.
fn difference(one: &[String], other: &[String]) -> String {
    let Some((a, b)) = one.iter().zip(other).find(|(a, b)| a != b) else {
        return format!("{} requests, {} requests", one.len(), other.len());
    };
    let at = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        let (start, end) = (at.saturating_sub(200), (at + 400).min(text.len()));
        String::from_utf8_lossy(&text.as_bytes()[start..end]).into_owned()
    };
    format!("{} and {} requests, at byte {at}:\n{}\n{}", one.len(), other.len(), around(a), around(b))
}

/// Requests as text, without what is another one in each run: ids, times, counts, checksums; of Codex what it says of itself, in
/// an order that changes, and updates that it sends or not. In an order of their own, since an agent may ask two things at once.
fn masked(conversation: &[Value]) -> Vec<String> {
    let mask = |body: &Value| {
        let mut body = body.clone();
        body.as_object_mut().and_then(|body| body.remove("client_metadata"));
        if let Some(input) = body["input"].as_array_mut() {
            input.retain(|item| item["type"] != "configuration_update");
        }
        let (text, mut out, mut run) = (body.to_string(), String::new(), String::new());
        for one in text.chars().chain(['\n']) {
            if one.is_ascii_hexdigit() || (one == '-' && !run.is_empty()) {
                run.push(one);
                continue;
            }
            let is_id = run.len() >= 5 || run.chars().all(|one| one.is_ascii_digit());
            out.push_str(if is_id && run.contains(|one: char| one.is_ascii_digit()) { "#" } else { &run });
            run.clear();
            out.push(one);
        }
        out
    };
    let mut bodies: Vec<String> = conversation.iter().map(mask).collect();
    bodies.sort();
    bodies
}

/// A model that asks for the tool whether it sees it or not.
pub fn insisting() -> Script {
    Script { insists: true, ..script() }
}

pub fn claude_trusts_the_session(starter: Starter) {
    let place = project(starter);
    let model = anthropic::start(insisting());
    let run_agent = |behind: &Behind| {
        let authority = place.project.join("authority.pem");
        place.write(&authority, &behind.authority);
        let mut command = place.agentsh(["run", "--"].iter().chain(&CLAUDE));
        claude_environment(&mut command, &model);
        run(command.env_remove("ANTHROPIC_BASE_URL").env("NODE_EXTRA_CA_CERTS", authority))
    };
    trusts_the_session(&place, (&model, "api.anthropic.com"), run_agent, anthropic::result);
}

pub fn codex_trusts_the_session(starter: Starter) {
    let place = project(starter);
    let model = openai::start(insisting());
    place.write(&place.home.join(".codex/config.toml"), &codex_server());
    let run_agent = |behind: &Behind| {
        let authority = place.project.join("authority.pem");
        place.write(&authority, &behind.authority);
        let mut command = place.agentsh(["run", "--"].iter().chain(&CODEX));
        run(command.env("CODEX_API_KEY", "sk-test").env("CODEX_CA_CERTIFICATE", authority))
    };
    trusts_the_session(&place, (&model, "api.openai.com"), run_agent, openai::result);
}

/// A model that speaks HTTP/2 is spoken to in HTTP/2, by agents that know it and by those that do not; several requests share a
/// connection, and one for another host is refused.
pub fn http2_is_spoken(starter: Starter) {
    let place = Place::new(starter);
    let model = anthropic::start(insisting());
    let front = Front::new(&model, "api.anthropic.com");
    place.write(&place.home.join("policy.yaml"), DENY_READING);
    let authority = place.home.join("authority.pem");
    place.write(&authority, &front.authority);
    let body = json!({"model": "m", "stream": true, "tools": [{"name": "x"}], "messages": []});
    place.write(&place.project.join("request.json"), &body.to_string());
    let url = "https://api.anthropic.com/v1/messages";
    let ask = "curl -sS --max-time 20 -H 'Content-Type: application/json' --data-binary @request.json -w ' %{http_version} %{http_code} %{num_connects}\\n'";
    let claude = place.project.join("bin/claude");
    let script = format!(
        "#!/bin/sh\n{ask} --http2 {url}\n{ask} --http1.1 {url}\n{ask} --http2 -Z --parallel-max 4 {url} {url} {url} {url}\n\
         {ask} --http1.1 -H 'Host: other.example' {url}\n{ask} --http2 -H 'Host: other.example' {url}\n"
    );
    place.program(&claude, &script);
    let policy = place.home.join("policy.yaml").display().to_string();
    let words = ["run", "--quiet", "--policy", &policy, "--", &claude.display().to_string()];
    let ended = run(place.agentsh(words).env("ANTHROPIC_API_KEY", "sk-test").env("SSL_CERT_FILE", authority));
    let lines: Vec<&str> =
        ended.stdout.lines().filter(|line| line.ends_with(" 0") || line.ends_with(" 1")).collect();
    assert_eq!(lines.len(), 8, "{}\n{}", ended.stdout, ended.stderr);
    let codes: Vec<&str> =
        lines.iter().map(|line| line.trim_start_matches(|one| one != ' ')).map(str::trim).collect();
    assert!(codes[0].contains("2 200") && codes[1].contains("1.1 200"), "{codes:?}");
    assert!(codes[2..6].iter().all(|code| code.contains("2 200")), "{codes:?}");
    assert!(codes[6].contains("1.1 421") && codes[7].contains("2 421"), "{codes:?}");
    assert_eq!(ended.stdout.matches(BLOCKED).count(), 6, "{}\n{}", ended.stdout, ended.stderr);
    let heard = front.heard();
    assert_eq!(heard.len(), 6, "{heard:?}");
    assert!(heard.iter().all(|line| line == "HTTP 2.0 POST /v1/messages"), "{heard:?}");
}

/// Codex, whose library knows HTTP/2, with a model that does.
pub fn codex_speaks_http2(starter: Starter) {
    let place = project(starter);
    let model = openai::start(insisting());
    place.write(&place.home.join(".codex/config.toml"), &codex_server());
    let front = Front::new(&model, "api.openai.com");
    let authority = place.project.join("authority.pem");
    place.write(&authority, &front.authority);
    let mut command = place.agentsh(["run", "--"].iter().chain(&CODEX));
    let ended = run(command.env("CODEX_API_KEY", "sk-test").env("CODEX_CA_CERTIFICATE", authority));
    assert!(ended.stdout.contains(FAREWELL), "{}\n{}", ended.stdout, ended.stderr);
    assert!(openai::result(&model.conversation()).is_some(), "the tool was called: {}", ended.stderr);
    let heard = front.heard();
    assert!(heard.iter().filter(|line| *line == "HTTP 2.0 POST /v1/responses").count() >= 2, "{heard:?}");
}
