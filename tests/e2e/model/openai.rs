//! The Responses API, streamed, as Codex speaks it: every MCP server is one tool of the type `namespace`.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{Answer, FAREWELL, Model, Request, Script};

/// A model that asks for the tool of the script when it sees it, and ends the conversation after any result.
pub fn start(script: Script) -> Model {
    Model::start(move |request, received| answer(&script, request, received))
}

/// What the model was told about one server's tool.
pub fn tool<'a>(body: &'a Value, server: &str, name: &str) -> Option<&'a Value> {
    let namespace = format!("mcp__{server}");
    let server = body["tools"].as_array()?.iter().find(|tool| tool["name"] == *namespace)?;
    server["tools"].as_array()?.iter().find(|tool| tool["name"] == name)
}

/// The last tool result of a conversation.
pub fn result(conversation: &[Value]) -> Option<Value> {
    conversation.iter().filter_map(|body| last_result(body).cloned()).next_back()
}

fn last_result(body: &Value) -> Option<&Value> {
    body["input"].as_array()?.iter().rfind(|item| item["type"] == "function_call_output")
}

fn answer(script: &Script, request: &Request, received: &Mutex<Vec<Value>>) -> Answer {
    if request.method != "POST" || !request.path.ends_with("/responses") {
        return Answer::Json(json!({"data": [], "models": []}));
    }
    let body = &request.body;
    received.lock().expect("no thread panicked").push(body.clone());
    let is_shown = script.insists || tool(body, script.server, script.tool).is_some();
    let asks = is_shown && last_result(body).is_none();
    let item = if asks {
        json!({
            "type": "function_call", "id": "fc_1", "call_id": "call_1",
            "namespace": format!("mcp__{}", script.server), "name": script.tool,
            "arguments": script.arguments.to_string(),
        })
    } else {
        script.wait();
        json!({"type": "message", "id": "m_1", "role": "assistant", "content": [{"type": "output_text", "text": FAREWELL}]})
    };
    let usage = json!({
        "input_tokens": 1, "input_tokens_details": null, "output_tokens": 1, "output_tokens_details": null,
        "total_tokens": 2,
    });
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_1"}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}),
    ];
    let named = |event: Value| (event["type"].as_str().unwrap_or_default().to_owned(), event);
    Answer::Events(events.into_iter().map(named).collect())
}
