//! The Messages API, streamed.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{Answer, FAREWELL, Model, Request, Script};

/// A model that asks for the tool of the script when it sees it, and ends the conversation after any result.
pub fn start(script: Script) -> Model {
    Model::start(move |request, received| answer(&script, request, received))
}

/// What the model was told about a tool, by the name that the agent gives it.
pub fn tool<'a>(body: &'a Value, name: &str) -> Option<&'a Value> {
    body["tools"].as_array()?.iter().find(|tool| tool["name"] == name)
}

/// The last tool result of a conversation.
pub fn result(conversation: &[Value]) -> Option<Value> {
    conversation.iter().filter_map(|body| last_result(body).cloned()).next_back()
}

fn last_result(body: &Value) -> Option<&Value> {
    // Behind it an agent may have something of its own to say.
    let messages = body["messages"].as_array()?.iter().rev();
    let mut blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    blocks.find(|block| block["type"] == "tool_result")
}

fn answer(script: &Script, request: &Request, received: &Mutex<Vec<Value>>) -> Answer {
    if request.path != "/v1/messages" {
        return Answer::Json(json!({"input_tokens": 1}));
    }
    let body = &request.body;
    received.lock().expect("no thread panicked").push(body.clone());
    let name = format!("mcp__{}__{}", script.server, script.tool);
    let is_shown = match script.insists {
        true => body["tools"].as_array().is_some_and(|tools| !tools.is_empty()),
        false => tool(body, &name).is_some(),
    };
    let asks = is_shown && last_result(body).is_none();
    let (block, delta, reason) = if asks {
        (
            json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}),
            json!({"type": "input_json_delta", "partial_json": script.arguments.to_string()}),
            "tool_use",
        )
    } else {
        script.wait();
        (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": FAREWELL}), "end_turn")
    };
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ];
    let named = |event: Value| (event["type"].as_str().unwrap_or_default().to_owned(), event);
    Answer::Events(events.into_iter().map(named).collect())
}
