//! The Chat Completions API, streamed, as used by most agents whose user can choose the provider.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{Answer, FAREWELL, Model, Request, Script};

/// A model that asks for the tool of the script when it sees it, and ends the conversation after any result.
pub fn start(script: Script) -> Model {
    Model::start(move |request, received| answer(&script, request, received))
}

/// The names of all tools that the model was told about.
pub fn tools(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["function"]["name"].as_str()).collect()
}

/// The last tool result of a conversation.
pub fn result(conversation: &[Value]) -> Option<Value> {
    conversation.iter().filter_map(|body| last_result(body).cloned()).next_back()
}

fn last_result(body: &Value) -> Option<&Value> {
    body["messages"].as_array()?.iter().rfind(|message| message["role"] == "tool")
}

/// Whether the model has asked for a tool whose name ends like this.
fn has_called(body: &Value, end: &str) -> bool {
    let messages = body["messages"].as_array().into_iter().flatten();
    let calls = messages.flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
    calls.filter_map(|call| call["function"]["name"].as_str()).any(|name| name.ends_with(end))
}

fn answer(script: &Script, request: &Request, received: &Mutex<Vec<Value>>) -> Answer {
    if request.method != "POST" || !request.path.ends_with("/chat/completions") {
        return Answer::Json(json!({"data": []}));
    }
    let body = &request.body;
    received.lock().expect("no thread panicked").push(body.clone());
    let names = tools(body);
    let find = |end: &str| names.iter().copied().find(|name| name.ends_with(end) && !has_called(body, name));
    let call = match find(script.tool) {
        Some(name) => Some(("call_1", name, script.arguments.clone())),
        // Some agents show the tools of servers only to a model that looks for them.
        None => find("tool_search").filter(|_| !has_called(body, script.tool)).map(|name| {
            let query = format!("select:mcp__{}__{}", script.server, script.tool);
            ("call_0", name, json!({"query": query}))
        }),
    };
    let (delta, reason) = match call {
        Some((id, name, arguments)) => {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            let call = json!({"index": 0, "id": id, "type": "function", "function": function});
            (json!({"role": "assistant", "tool_calls": [call]}), "tool_calls")
        }
        None => (json!({"role": "assistant", "content": FAREWELL}), "stop"),
    };
    let chunk = |delta: Value, reason: Value| {
        json!({
            "id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": body["model"],
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        })
    };
    if body["stream"] != true {
        let message = json!({"role": "assistant", "content": FAREWELL});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        return Answer::Json(json!({"id": "chat_1", "object": "chat.completion", "choices": [choice]}));
    }
    let events = [chunk(delta, Value::Null), chunk(json!({}), reason.into())];
    Answer::Events(events.into_iter().map(|event| (String::new(), event)).collect())
}
