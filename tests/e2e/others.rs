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
