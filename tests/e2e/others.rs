//! Agents that are described by a table, against a scripted model, with the real filesystem server.

use serde_json::{Value, json};

use crate::agents::{NOTE, SERVER, script};
use crate::model::{FAREWELL, chat, gemini};
use crate::place::{Ended, Place, Starter, installed, run};

const FS: &str =
    r#"{"command": "npx", "args": ["--no-install", "@modelcontextprotocol/server-filesystem", "."]}"#;

fn project(starter: Starter) -> Place {
    let place = Place::new(starter);
    place.node_modules();
    place.write(&place.project.join("note.txt"), NOTE);
    place
}

/// One call, allowed and on record, with the note in its result, and the model's last word printed.
fn assert_read(place: &Place, ended: &Ended, result: Option<Value>) {
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(FAREWELL), "{}\n{}", ended.stdout, ended.stderr);
    let result = result.unwrap_or_else(|| panic!("the tool was called: {}", ended.stderr));
    assert!(result.to_string().contains("ümläüts 🦀"), "{result}");
    let calls = place.ask(&["mcp", "calls", "--json"]);
    let calls = calls.as_array().expect("a list");
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!((&calls[0]["server_id"], &calls[0]["tool_name"]), (&json!("fs"), &json!("read_text_file")));
    assert_eq!(calls[0]["action"], "allow", "{calls:?}");
}

pub fn gemini_reads(starter: Starter) {
    let place = project(starter);
    let settings = format!(
        r#"{{"mcpServers": {{"fs": {FS}}}, "security": {{"auth": {{"selectedType": "gemini-api-key"}}}}}} // end"#
    );
    place.write(&place.home.join(".gemini/settings.json"), &settings);
    let trusted = json!({place.project.to_str().expect("a path in UTF-8"): "TRUST_FOLDER"});
    place.write(&place.home.join(".gemini/trustedFolders.json"), &trusted.to_string());
    let model = gemini::start(script());
    let words = ["run", "--", "gemini", "-m", "gemini-2.5-flash", "-y", "-p", "read the note please"];
    let mut command = place.agentsh(words);
    command
        .env("GEMINI_API_KEY", "k")
        .env("GOOGLE_GEMINI_BASE_URL", format!("http://{}", model.address))
        .env("GEMINI_CLI_NO_RELAUNCH", "true");
    let ended = run(&mut command);
    assert_read(&place, &ended, gemini::result(&script(), &model.conversation()));
}

pub fn opencode_reads(starter: Starter) {
    let place = project(starter);
    let model = chat::start(script());
    let configuration = json!({
        "model": "scripted/m",
        "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": format!("http://{}/v1", model.address), "apiKey": "k"},
            "models": {"m": {"name": "m"}},
        }},
        "mcp": {"fs": {"type": "local", "command": ["npx", "--no-install", SERVER, "."]}},
    });
    place.write(&place.home.join(".config/opencode/opencode.json"), &configuration.to_string());
    // Its own package chooses one for the machine, which not every registry has for all machines.
    let program = installed("npm/node_modules/opencode-linux-x64/bin/opencode").display().to_string();
    let ended = run(&mut place.agentsh(["run", "--", &program, "run", "read the note please"]));
    assert_read(&place, &ended, chat::result(&model.conversation()));
    assert!(!place.project.join(".opencode").exists(), "the project stays as it is");
}

/// Where an agent is that not every registry has for every machine.
fn program(agent: &str) -> std::path::PathBuf {
    match agent {
        "aider" => installed("venv-aider/bin/aider"),
        agent => installed("npm-agents/node_modules/.bin").join(agent),
    }
}

/// Why an agent cannot be tried.
pub fn missing(agent: &str) -> Option<&'static str> {
    (!program(agent).exists()).then_some("this agent is not installed: it cannot be had for this machine")
}

/// The agent with a model of the user's own, which speaks Chat Completions.
fn started(place: &Place, agent: &str, words: &[&str], variables: &[(&str, String)]) -> Ended {
    let program = program(agent).display().to_string();
    let mut command = place.agentsh(["run", "--", &program].into_iter().chain(words.iter().copied()));
    run(command.envs(variables.iter().map(|(name, value)| (name, value))))
}

pub fn qwen_reads(starter: Starter) {
    let place = project(starter);
    let settings =
        format!(r#"{{"mcpServers": {{"fs": {FS}}}, "security": {{"auth": {{"selectedType": "openai"}}}}}}"#);
    place.write(&place.home.join(".qwen/settings.json"), &settings);
    let model = chat::start(script());
    let variables = [
        ("OPENAI_API_KEY", "k".to_owned()),
        ("OPENAI_BASE_URL", format!("http://{}/v1", model.address)),
        ("OPENAI_MODEL", "m".to_owned()),
    ];
    let ended = started(&place, "qwen", &["-y", "-p", "read the note please"], &variables);
    assert_read(&place, &ended, chat::result(&model.conversation()));
}

pub fn copilot_reads(starter: Starter) {
    let place = project(starter);
    let mut server: Value = serde_json::from_str(FS).expect("JSON");
    (server["type"], server["tools"]) = (json!("local"), json!(["*"]));
    let servers = json!({"mcpServers": {"fs": server}});
    place.write(&place.home.join(".copilot/mcp-config.json"), &servers.to_string());
    let model = chat::start(script());
    let variables = [
        ("COPILOT_PROVIDER_BASE_URL", format!("http://{}/v1", model.address)),
        ("COPILOT_MODEL", "m".to_owned()),
        ("COPILOT_OFFLINE", "true".to_owned()),
    ];
    let ended = started(&place, "copilot", &["-p", "read the note please", "--allow-all-tools"], &variables);
    assert_read(&place, &ended, chat::result(&model.conversation()));
}

/// It has no servers; its requests contain the file, and the briefing about its sandbox.
pub fn aider_reads(starter: Starter) {
    let place = project(starter);
    let model = chat::start(script());
    let variables =
        [("OPENAI_API_KEY", "k".to_owned()), ("OPENAI_API_BASE", format!("http://{}/v1", model.address))];
    let quiet =
        ["--model", "openai/m", "--no-check-update", "--no-show-model-warnings", "--yes-always", "--no-git"];
    let words = [&quiet[..], &["--message", "read the note please", "note.txt"]].concat();
    let ended = started(&place, "aider", &words, &variables);
    assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(FAREWELL), "{}\n{}", ended.stdout, ended.stderr);
    let sent = json!(model.conversation()).to_string();
    assert!(sent.contains("ümläüts 🦀") && sent.contains("agentsh"), "{sent}");
}
