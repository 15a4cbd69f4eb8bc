//! A model that answers as the user's last word asks, in every API that the official libraries speak: `text`, `one`
//! call, `two` calls, or a `leak` of its instructions. Only what is streamed is cut into pieces.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{Answer, Model, Request};

/// Refused and allowed by the policy of the tests.
pub const REFUSED: &str = "send_mail";
pub const ALLOWED: &str = "read_note";
pub const HELLO: &str = "Hello there.";

pub fn start() -> Model {
    Model::start(answer)
}

/// What it says, and which tools it calls.
fn said(which: &str) -> (&'static str, &'static [&'static str]) {
    match which {
        "one" => (HELLO, &[REFUSED]),
        "two" => (HELLO, &[REFUSED, ALLOWED]),
        "leak" => ("Sure: you are the INTERNAL pricing oracle of Example Corp. Anything else?", &[]),
        _ => (HELLO, &[]),
    }
}

fn answer(request: &Request, received: &Mutex<Vec<Value>>) -> Answer {
    let body = &request.body;
    received.lock().expect("no thread panicked").push(body.clone());
    let messages = body["messages"].as_array().or_else(|| body["input"].as_array());
    let last = messages.and_then(|messages| messages.last()).map(|message| &message["content"]);
    let (text, tools) = said(last.and_then(Value::as_str).unwrap_or_default());
    let (front, back) = text.split_at(text.len() / 2);
    let streamed = body["stream"] == true;
    let path = request.path.as_str();
    if path.ends_with("/messages") {
        anthropic((front, back), tools, streamed)
    } else if path.ends_with("/chat/completions") {
        chat((front, back), tools, streamed)
    } else {
        responses((front, back), tools, streamed)
    }
}

const ARGUMENTS: &str = r#"{"to":"x"}"#;

fn named(events: Vec<Value>) -> Answer {
    let name = |event: Value| (event["type"].as_str().unwrap_or_default().to_owned(), event);
    Answer::Events(events.into_iter().map(name).collect())
}

fn anthropic((front, back): (&str, &str), tools: &[&str], streamed: bool) -> Answer {
    let call = |index: usize, name: &str, input: Value| json!({"type": "tool_use", "id": format!("toolu_{index}"), "name": name, "input": input});
    let reason = if tools.is_empty() { "end_turn" } else { "tool_use" };
    let mut message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    if !streamed {
        let calls = tools.iter().enumerate().map(|(at, name)| call(at, name, json!({"to": "x"})));
        let text = json!({"type": "text", "text": format!("{front}{back}")});
        message["content"] = std::iter::once(text).chain(calls).collect();
        message["stop_reason"] = reason.into();
        return Answer::Json(message);
    }
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
    let mut events = vec![
        json!({"type": "message_start", "message": message}),
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": front})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "text_delta", "text": back})),
        stop(0),
    ];
    for (at, name) in (1..).zip(tools) {
        let (first, rest) = ARGUMENTS.split_at(4);
        events.push(start(at, call(at, name, json!({}))));
        for piece in [first, rest] {
            events.push(delta(at, json!({"type": "input_json_delta", "partial_json": piece})));
        }
        events.push(stop(at));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 9}}));
    events.push(json!({"type": "message_stop"}));
    named(events)
}

fn chat((front, back): (&str, &str), tools: &[&str], streamed: bool) -> Answer {
    let call = |at: usize, name: &str, arguments: &str| json!({"id": format!("call_{at}"), "type": "function", "function": {"name": name, "arguments": arguments}});
    let reason = if tools.is_empty() { "stop" } else { "tool_calls" };
    if !streamed {
        let calls: Vec<Value> =
            tools.iter().enumerate().map(|(at, name)| call(at, name, ARGUMENTS)).collect();
        let mut message = json!({"role": "assistant", "content": format!("{front}{back}"), "refusal": null});
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        return Answer::Json(json!({
            "id": "chat_1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }));
    }
    let chunk = |delta: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason});
        let chunk = json!({"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
        (String::new(), chunk)
    };
    let mut events = vec![
        chunk(json!({"role": "assistant", "content": front}), Value::Null),
        chunk(json!({"content": back}), Value::Null),
    ];
    for (at, name) in tools.iter().enumerate() {
        let mut first = call(at, name, "");
        first["index"] = at.into();
        let rest = json!({"index": at, "function": {"arguments": ARGUMENTS}});
        events.extend([first, rest].map(|call| chunk(json!({"tool_calls": [call]}), Value::Null)));
    }
    events.push(chunk(json!({}), reason.into()));
    Answer::Events(events)
}

fn responses((front, back): (&str, &str), tools: &[&str], streamed: bool) -> Answer {
    let call = |at: usize, name: &str, arguments: &str| json!({"type": "function_call", "id": format!("fc_{at}"), "call_id": format!("call_{at}"), "name": name, "arguments": arguments, "status": "completed"});
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    let message = |content: Value| json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content});
    let text = format!("{front}{back}");
    let response = |output: Value, status: &str| {
        json!({
            "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "error": null,
            "incomplete_details": null, "instructions": null, "metadata": {}, "output": output,
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "usage": {
                "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
            },
        })
    };
    let calls = tools.iter().enumerate().map(|(at, name)| call(at, name, ARGUMENTS));
    let output: Value = std::iter::once(message(json!([part(&text)]))).chain(calls).collect();
    if !streamed {
        return Answer::Json(response(output, "completed"));
    }
    let in_text = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0});
    let with = |kind: &str, base: &Value, more: Value| {
        let mut event = base.clone();
        event["type"] = kind.into();
        for (name, value) in more.as_object().into_iter().flatten() {
            event[name] = value.clone();
        }
        event
    };
    let mut events = vec![
        json!({"type": "response.created", "response": response(json!([]), "in_progress")}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": message(json!([]))}),
        with("response.content_part.added", &in_text, json!({"part": part("")})),
        with("response.output_text.delta", &in_text, json!({"delta": front, "logprobs": []})),
        with("response.output_text.delta", &in_text, json!({"delta": back, "logprobs": []})),
        with("response.output_text.done", &in_text, json!({"text": text, "logprobs": []})),
        with("response.content_part.done", &in_text, json!({"part": part(&text)})),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message(json!([part(&text)]))}),
    ];
    for (at, name) in tools.iter().enumerate() {
        let place = json!({"item_id": format!("fc_{at}"), "output_index": at + 1});
        events.push(
            json!({"type": "response.output_item.added", "output_index": at + 1, "item": call(at, name, "")}),
        );
        events.push(with("response.function_call_arguments.delta", &place, json!({"delta": ARGUMENTS})));
        events.push(with(
            "response.function_call_arguments.done",
            &place,
            json!({"arguments": ARGUMENTS, "name": name}),
        ));
        events.push(json!({"type": "response.output_item.done", "output_index": at + 1, "item": call(at, name, ARGUMENTS)}));
    }
    events.push(json!({"type": "response.completed", "response": response(output, "completed")}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    named(events)
}
