//! The Gemini API, streamed.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{Answer, FAREWELL, Model, Request, Script};

/// A model that asks for the tool of the script when it sees it, and ends the conversation after any result.
pub fn start(script: Script) -> Model {
    Model::start(move |request, received| answer(&script, request, received))
}

/// The names of all tools that the model was told about.
pub fn tools(body: &Value) -> Vec<&str> {
    let declared = body["tools"].as_array().into_iter().flatten();
    let functions = declared.flat_map(|tools| tools["functionDeclarations"].as_array().into_iter().flatten());
    functions.filter_map(|function| function["name"].as_str()).collect()
}

/// The result of the script's tool.
pub fn result(script: &Script, conversation: &[Value]) -> Option<Value> {
    conversation.iter().filter_map(|body| result_in(script, body)).next_back()
}

fn result_in(script: &Script, body: &Value) -> Option<Value> {
    let turns = body["contents"].as_array().into_iter().flatten();
    let mut parts = turns.flat_map(|turn| turn["parts"].as_array().into_iter().flatten());
    let is_it = |part: &&Value| {
        part["functionResponse"]["name"].as_str().is_some_and(|name| name.ends_with(script.tool))
    };
    parts.find(is_it).map(|part| part["functionResponse"]["response"].clone())
}

fn answer(script: &Script, request: &Request, received: &Mutex<Vec<Value>>) -> Answer {
    let body = &request.body;
    let tool = tools(body).into_iter().find(|name| name.ends_with(script.tool)).map(str::to_owned);
    let part = match tool.filter(|_| result_in(script, body).is_none()) {
        Some(name) => json!({"functionCall": {"name": name, "args": script.arguments}}),
        None => json!({"text": FAREWELL}),
    };
    let event = json!({
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    });
    if !request.path.ends_with(":streamGenerateContent") {
        return Answer::Json(event);
    }
    received.lock().expect("no thread panicked").push(body.clone());
    Answer::Events(vec![(String::new(), event)])
}
