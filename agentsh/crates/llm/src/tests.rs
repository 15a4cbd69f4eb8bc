#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use proptest::prelude::*;

use crate::canary::{Needle, REPLACEMENT};
use crate::{Answer, Call, EngineEvent, Judge, LlmError, MAX_HELD, Provider, Ruling, Stream};

/// Refuses tools whose name says so, and arguments that hold a word.
struct Strict;

impl Judge for Strict {
    fn judge(&mut self, call: &Call) -> Ruling {
        if call.name.contains("send") || call.arguments.contains("secret") {
            Ruling::Block("not allowed here".to_owned())
        } else {
            Ruling::Allow
        }
    }
}

fn cut(provider: Provider, text: &str, cuts: &[usize], needle: Option<Needle>) -> (String, Vec<EngineEvent>) {
    let mut stream = Stream::new(provider, needle, REPLACEMENT).of_choices();
    let (mut out, mut at) = (Vec::new(), 0);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
    cuts.push(text.len());
    cuts.sort_unstable();
    for cut in cuts {
        stream.push(&text.as_bytes()[at..cut], &mut Strict, &mut out).unwrap();
        at = cut;
    }
    stream.finish(&mut Strict, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), stream.take_events())
}

fn through(provider: Provider, text: &str) -> (String, Vec<EngineEvent>) {
    cut(provider, text, &[], None)
}

fn events(lines: &[&str]) -> String {
    let event = |line: &&str| {
        let kind = line.split("\"type\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        format!("event: {kind}\ndata: {line}\n\n")
    };
    lines.iter().map(event).collect()
}

fn chunks(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("data: {line}\n\n")).collect()
}

const START: &str = r#"{"type":"message_start","message":{"id":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1}}}"#;

fn anthropic(names: &[(&str, &[&str])]) -> String {
    let mut lines = vec![
        START.to_owned(),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned(),
        r#"{"type": "content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi\u00e9"}}"#
            .replace(": \"c", ":\"c"),
        r#"{"type":"content_block_stop","index":0}"#.to_owned(),
    ];
    for (index, (name, pieces)) in (1..).zip(names) {
        lines.push(format!(r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"t{index}","name":"{name}","input":{{}}}}}}"#));
        for piece in *pieces {
            let piece = crate::json::escape_text(piece);
            lines.push(format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{piece}"}}}}"#));
        }
        lines.push(format!(r#"{{"type":"content_block_stop","index":{index}}}"#));
    }
    lines.push(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}"#.to_owned());
    lines.push(r#"{"type":"message_stop"}"#.to_owned());
    events(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn allowed_answer_keeps_its_bytes() {
    let text = anthropic(&[("read", &["{\"a\":", "1}"]), ("list", &[])]);
    assert_eq!(through(Provider::Anthropic, &text), (text.clone(), vec![]));
    let returns = text.replace('\n', "\r\n") + ": comment\r\n\r\n";
    assert_eq!(through(Provider::Anthropic, &returns).0, returns);
}

#[test]
fn a_refused_block_becomes_a_text_block() {
    let (out, told) = through(
        Provider::Anthropic,
        &anthropic(&[("send_mail", &["{\"to\":", "\"x\"}"]), ("read", &["{}"])]),
    );
    let said = "[agentsh] Tool 'send_mail' blocked by policy: not allowed here";
    assert!(out.contains(&format!(r#""index":1,"delta":{{"type":"text_delta","text":"{said}"}}"#)), "{out}");
    assert!(!out.contains("\"t1\"") && out.contains("\"t2\"") && !out.contains("\"x\""), "{out}");
    assert!(out.contains(r#""stop_reason":"tool_use""#), "{out}");
    assert!(
        matches!(&told[..], [EngineEvent::Blocked { call, .. }] if call.name == "send_mail" && call.arguments == "{\"to\":\"x\"}")
    );
    // No call is left: the turn has ended. Other members stay.
    let (out, _) = through(Provider::Anthropic, &anthropic(&[("read", &["{\"a\":\"sec", "ret\"}"])]));
    assert!(
        out.contains(
            r#""delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}"#
        ),
        "{out}"
    );
}

/// The agent tells its model what is wrong, and the model writes them again.
#[test]
fn arguments_that_are_no_strict_json_are_left_to_the_agent() {
    for arguments in ["{'a': 1}", "{\"a\": NaN}", "{\"a\": \"x\ny\"}", "a text", "{\"a\": 1, \"a\": 2}"] {
        let text = anthropic(&[("read", &[arguments])]);
        let (out, told) = through(Provider::Anthropic, &text);
        assert!(told.is_empty() && out == text, "{arguments}: {out}");
        let (out, told) = through(Provider::Anthropic, &anthropic(&[("send_mail", &[arguments])]));
        assert!(told.len() == 1 && out.contains("blocked by policy"), "{arguments}: {out}");
    }
}

#[test]
fn arguments_that_never_end_are_refused() {
    let whole = anthropic(&[("read", &["{\"a\":"])]);
    let broken = whole
        .split("event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}")
        .next()
        .unwrap();
    let (out, told) = through(Provider::Anthropic, broken);
    assert!(out.contains("no complete JSON") && told.len() == 1, "{out}");
}

#[test]
fn refused_hosted_call_is_removed_with_its_result() {
    let lines = [
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"mcp_tool_use","id":"m1","name":"send","server_name":"s","input":{"a":1}}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"mcp_tool_result","tool_use_id":"m1","content":[{"type":"text","text":"hidden"}]}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let (out, told) = through(Provider::Anthropic, &events(&lines));
    assert!(!out.contains("hidden") && !out.contains("mcp_tool"), "{out}");
    assert!(
        matches!(&told[..], [EngineEvent::Blocked { call, .. }] if call.at_provider && call.namespace.as_deref() == Some("s"))
    );
}

const CHUNK: &str = r#""id":"c","object":"chat.completion.chunk","created":1,"model":"m""#;

fn chat(parts: &[&str]) -> String {
    let lines: Vec<String> = parts.iter().map(|part| format!(r#"{{{CHUNK},"choices":[{part}]}}"#)).collect();
    chunks(&lines.iter().map(String::as_str).collect::<Vec<_>>()) + "data: [DONE]\n\n"
}

#[test]
fn calls_of_choices_are_taken_out_by_their_place() {
    let text = chat(&[
        r#"{"index":0,"delta":{"role":"assistant","content":"Well"},"finish_reason":null}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"send","arguments":""}}]},"finish_reason":null}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}},{"index":1,"id":"b","type":"function","function":{"name":"read","arguments":"{}"}}]},"finish_reason":null}"#,
        r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#,
    ]);
    let (out, told) = through(Provider::OpenAiChat, &text);
    assert!(!out.contains("\"a\"") && out.contains(r#"{"index":0,"id":"b""#), "{out}");
    assert!(
        out.contains(r#""delta":{"content":"[agentsh] Tool 'send' blocked by policy: not allowed here"}"#),
        "{out}"
    );
    assert!(out.contains(r#""finish_reason":"tool_calls""#) && out.ends_with("data: [DONE]\n\n"), "{out}");
    assert_eq!(told.len(), 1);
    assert_eq!(through(Provider::OpenAiChat, &text.replace("send", "look")).0, text.replace("send", "look"));
}

#[test]
fn one_chunk_may_hold_call_and_end_and_a_name_may_come_late() {
    let both = chat(&[
        r#"{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"a","function":{"name":"send","arguments":"{}"}}]},"finish_reason":"tool_calls"}"#,
    ]);
    let (out, _) = through(Provider::OpenAiChat, &both);
    assert!(out.contains(r#""finish_reason":"stop""#) && !out.contains("tool_calls"), "{out}");
    assert!(out.find("blocked by policy").unwrap() < out.find("\"stop\"").unwrap(), "{out}");
    let late = chat(&[
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a"}]},"finish_reason":null}"#,
        r#"{"index":1,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"read","arguments":"{}"}}]},"finish_reason":null}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"se"}}]},"finish_reason":null}"#,
        r#"{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"nd","arguments":"{}"}}]},"finish_reason":null}"#,
        r#"{"index":1,"delta":{},"finish_reason":"tool_calls"}"#,
        r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#,
    ]);
    let (out, told) = through(Provider::OpenAiChat, &late);
    assert!(told.len() == 1 && out.contains("\"b\"") && !out.contains("\"a\""), "{out}");
    let legacy = chat(&[
        r#"{"index":0,"delta":{"function_call":{"name":"send","arguments":"{}"}},"finish_reason":"function_call"}"#,
    ]);
    let (out, _) = through(Provider::OpenAiChat, &legacy);
    assert!(!out.contains("function_call") && out.contains(r#""finish_reason":"stop""#), "{out}");
}

const ITEMS: [&str; 8] = [
    r#"{"type":"response.created","sequence_number":0,"response":{"id":"r","output":[]}}"#,
    r#"{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"type":"function_call","id":"i","call_id":"c1","namespace":"mcp__fs","name":"send","arguments":""}}"#,
    r#"{"type":"response.function_call_arguments.delta","sequence_number":2,"output_index":0,"item_id":"i","delta":"{}"}"#,
    r#"{"type":"response.function_call_arguments.done","sequence_number":3,"output_index":0,"item_id":"i","arguments":"{}"}"#,
    r#"{"type":"response.output_item.done","sequence_number":4,"output_index":0,"item":{"type":"function_call","id":"i","call_id":"c1","namespace":"mcp__fs","name":"send","arguments":"{}"}}"#,
    r#"{"type":"response.output_item.added","sequence_number":5,"output_index":1,"item":{"type":"function_call","id":"j","call_id":"c2","name":"read","arguments":""}}"#,
    r#"{"type":"response.output_item.done","sequence_number":6,"output_index":1,"item":{"type":"function_call","id":"j","call_id":"c2","name":"read","arguments":"{}"}}"#,
    r#"{"type":"response.completed","sequence_number":7,"response":{"id":"r","output":[{"type":"function_call","id":"i","call_id":"c1","namespace":"mcp__fs","name":"send","arguments":"{}"},{"type":"function_call","id":"j","call_id":"c2","name":"read","arguments":"{}"}]}}"#,
];

fn call(index: &str, id: &str, name: &str, arguments: &str) -> String {
    let arguments = crate::json::escape_text(arguments);
    let id = if id.is_empty() { String::new() } else { format!(r#""id":"{id}","type":"function","#) };
    let name = if name.is_empty() { String::new() } else { format!(r#""name":"{name}","#) };
    format!(r#"{{{index}{id}"function":{{{name}"arguments":"{arguments}"}}}}"#)
}

fn chunk(calls: &str, end: &str) -> String {
    format!(r#"{{"index":0,"delta":{{"tool_calls":[{calls}]}},"finish_reason":{end}}}"#)
}

/// The calls that a client which goes by the index reads in a stream: id, name and arguments.
fn read_by_index(out: &str) -> Vec<(String, String, String)> {
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for data in out.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]") {
        let tree: serde_json::Value = serde_json::from_str(data).unwrap();
        for call in tree["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let place = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            if calls.len() <= place {
                calls.resize(place + 1, Default::default());
            }
            let said = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            calls[place].0.push_str(&said(&call["id"]));
            calls[place].1.push_str(&said(&call["function"]["name"]));
            calls[place].2.push_str(&said(&call["function"]["arguments"]));
        }
    }
    calls
}

#[test]
fn calls_with_the_same_or_no_index_are_judged_separately() {
    let zero = r#""index":0,"#;
    for (first, second) in [(zero, zero), ("", "")] {
        let chunks_of = |names: [&str; 2]| {
            chat(&[
                &chunk(&call(first, "a", names[0], "{\"x\":"), "null"),
                &chunk(&call(first, "", "", "1}"), "\"\""),
                &chunk(&call(second, "b", names[1], "{}"), "null"),
                r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#,
            ])
        };
        let (out, told) = through(Provider::OpenAiChat, &chunks_of(["read", "list"]));
        assert!(told.is_empty(), "{told:?}");
        let text = |text: &str| text.to_owned();
        let expected = [(text("a"), text("read"), text("{\"x\":1}")), (text("b"), text("list"), text("{}"))];
        assert_eq!(read_by_index(&out), expected, "{out}");
        let (out, told) = through(Provider::OpenAiChat, &chunks_of(["read", "send"]));
        assert_eq!(told.len(), 1, "each call is on record");
        assert!(!out.contains("\"send\"") && read_by_index(&out).len() == 1, "{out}");
        let (out, told) = through(Provider::OpenAiChat, &chunks_of(["send", "read"]));
        assert!(told.len() == 1 && read_by_index(&out)[0].1 == "read", "a later ruling undoes none: {out}");
    }
}

#[test]
fn call_data_after_its_end_starts_another_call() {
    let zero = r#""index":0,"#;
    let text = chat(&[
        &chunk(&call(zero, "a", "read", "{}"), "\"tool_calls\""),
        &chunk(&call(zero, "b", "send", "{}"), "\"tool_calls\""),
    ]);
    let (out, told) = through(Provider::OpenAiChat, &text);
    assert!(told.len() == 1 && !out.contains("\"send\"") && out.contains("\"read\""), "{out}");
    let pieces = chat(&[
        &chunk(&call(zero, "a", "se", ""), "null"),
        &chunk(&call(zero, "", "nd", "{}"), "null"),
        r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#,
    ]);
    let (out, told) = through(Provider::OpenAiChat, &pieces);
    assert!(told.len() == 1 && read_by_index(&out).is_empty(), "{out}");
    let allowed = pieces.replace("\"se\"", "\"re\"").replace("\"nd\"", "\"ad\"");
    let (out, _) = through(Provider::OpenAiChat, &allowed);
    assert_eq!(read_by_index(&out)[0].1, "read");
}

/// With every piece of a call some gateways say its id and name again, some an empty name, and some a new id; some say in every
/// chunk that it is the last one.
#[test]
fn piece_that_repeats_id_and_name_starts_no_new_call() {
    let repeated = [("a", "read"), ("a", ""), ("", ""), ("b", ""), ("", "read"), ("b", "read")];
    let ends = ["null", "\"tool_calls\""];
    for ((again, name), end) in repeated.into_iter().flat_map(|piece| ends.map(|end| (piece, end))) {
        let piece = format!(
            r#"{{"index":0,"id":"{again}","type":"function","function":{{"name":"{name}","arguments":"1}}"}}}}"#
        );
        let text = chat(&[
            &chunk(&call(r#""index":0,"#, "a", "read", ""), end),
            &chunk(&call(r#""index":0,"#, "", "", "{\"x\":"), end),
            &chunk(&piece, end),
            r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#,
        ]);
        let (out, told) = through(Provider::OpenAiChat, &text);
        assert!(told.is_empty(), "{again} {name}: {told:?}");
        assert_eq!(read_by_index(&out), [("a".into(), "read".into(), "{\"x\":1}".into())], "{out}");
        let (out, told) = through(Provider::OpenAiChat, &text.replace("read", "send"));
        assert!(told.len() == 1 && out.matches("blocked by policy").count() == 1, "{again} {name}: {out}");
    }
}

/// Gemini's OpenAI endpoint refuses the next question without the signature; some of its gateways repeat the id.
#[test]
fn rewritten_call_keeps_the_members_of_its_first_piece() {
    let first = call(r#""index":0,"extra_content":{"google":{"thought_signature":"s1"}},"#, "a", "read", "{");
    let text = chat(&[
        &chunk(&first, "null"),
        &chunk(&call(r#""index":0,"#, "a", "read", "}"), "null"),
        r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#,
    ]);
    let (out, _) = through(Provider::OpenAiChat, &text);
    assert_eq!(out.matches(r#""extra_content":{"google":{"thought_signature":"s1"}}"#).count(), 1, "{out}");
    assert_eq!(read_by_index(&out), [("a".into(), "read".into(), "{}".into())], "{out}");
}

#[test]
fn text_of_a_custom_tool_comes_in_pieces() {
    let piece = |of: &str, input: &str| {
        chunk(
            &format!(
                r#"{{"index":0,{of}"custom":{{{}"input":"{input}"}}}}"#,
                if of.is_empty() { "" } else { r#""name":"read","# }
            ),
            "null",
        )
    };
    for again in ["", r#""id":"a","type":"custom","#] {
        let text = chat(&[
            &piece(r#""id":"a","type":"custom","#, ""),
            &piece(again, r#"a \"b"#),
            &piece(again, r#"\" c"#),
            r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#,
        ]);
        let (out, told) = through(Provider::OpenAiChat, &text);
        assert!(told.is_empty(), "{told:?}");
        let is_one = out.contains(r#""type":"custom","custom":{"name":"read","input":"a \"b\" c"}"#);
        assert!(if again.is_empty() { out == text } else { is_one }, "{out}");
        let (out, told) = through(Provider::OpenAiChat, &text.replace("read", "send"));
        assert!(told.len() == 1 && !out.contains("\"custom\""), "{out}");
    }
}

#[test]
fn choices_and_calls_without_streaming_are_counted_by_position() {
    let call = |name: &str| {
        format!(
            r#"{{"index":0,"id":"{name}","type":"function","function":{{"name":"{name}","arguments":"{{}}"}}}}"#
        )
    };
    let choice = |calls: &str| {
        format!(
            r#"{{"index":0,"message":{{"role":"assistant","content":null,"tool_calls":[{calls}]}},"finish_reason":"tool_calls"}}"#
        )
    };
    let one = format!(r#"{{"id":"c","choices":[{}]}}"#, choice(&[call("send"), call("read")].join(",")));
    let two = format!(r#"{{"id":"c","choices":[{},{}]}}"#, choice(&call("send")), choice(&call("read")));
    for body in [one, two] {
        let answer =
            Answer::of(Provider::OpenAiChat, body.as_bytes(), None, REPLACEMENT, &mut Strict).unwrap();
        let out = answer.body.unwrap();
        assert!(
            answer.told.len() == 1 && !out.contains("\"name\":\"send\"") && out.contains("\"name\":\"read\""),
            "{out}"
        );
    }
}

#[test]
fn blocks_with_the_same_index_are_separated() {
    let block = |name: &str| {
        [
            format!(r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"{name}","name":"{name}","input":{{}}}}}}"#),
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#.to_owned(),
            r#"{"type":"content_block_stop","index":0}"#.to_owned(),
        ]
    };
    let stop = r#"{"type":"message_stop"}"#.to_owned();
    let text = |blocks: &[&[String]]| {
        let lines: Vec<&str> = [START]
            .into_iter()
            .chain(blocks.iter().flat_map(|block| block.iter().map(String::as_str)))
            .chain([stop.as_str()])
            .collect();
        events(&lines)
    };
    let (out, told) = through(Provider::Anthropic, &text(&[&block("read"), &block("list")]));
    assert!(told.is_empty() && out.contains(r#""index":1,"content_block""#), "{out}");
    let (out, told) = through(Provider::Anthropic, &text(&[&block("read"), &block("send")]));
    assert!(told.len() == 1 && !out.contains("\"name\":\"send\""), "{out}");
    // Without an end of the first: what is written is read as it was judged.
    let told_text = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned(),
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hm"}}"#.to_owned(),
    ];
    for (blocks, blocked) in [
        (text(&[&told_text, &block("read")]), 0),
        (text(&[&block("read")[..2], &block("list")]), 0),
        (text(&[&block("read")[..1], &block("send")]), 1),
        (text(&[&block("send")[..2], &block("read")]), 1),
        (text(&[&block("send")[..2], &block("read")[..2]]), 1),
    ] {
        let (out, told) = through(Provider::Anthropic, &blocks);
        assert_eq!(told.len(), blocked, "{out}");
        assert!(!out.contains("\"name\":\"send\""), "{out}");
        let begun =
            [0, 1].map(|index| out.find(&format!(r#""content_block_start","index":{index}"#)).unwrap());
        let ended = out.find(r#""content_block_stop","index":0"#).unwrap();
        assert!(begun[0] < ended && ended < begun[1], "{out}");
        assert_eq!(out.matches(r#""content_block_stop","index":0"#).count(), 1, "{out}");
        assert_eq!(through(Provider::Anthropic, &out), (out.clone(), vec![]));
    }
    // A call that is cut by the next block is judged when nothing follows.
    let cut = block("read")[1].replace("{}", "{");
    let (out, told) =
        through(Provider::Anthropic, &text(&[&[block("read")[0].clone(), cut], &block("list")]));
    assert!(told.len() == 1 && out.contains("came damaged") && out.contains("\"name\":\"list\""), "{out}");
}

/// The official client for TypeScript takes a message in place of all pieces.
#[test]
fn calls_repeated_in_a_whole_message_are_forwarded_once() {
    let first = chunk(&call(r#""index":0,"#, "a", "read", "{}"), "null");
    let message = |id: &str, name: &str| {
        let calls = call("", id, name, "{}");
        format!(
            r#"{{"index":0,"message":{{"role":"assistant","content":"Hm","tool_calls":[{calls}]}},"finish_reason":"tool_calls"}}"#
        )
    };
    let (out, told) = through(Provider::OpenAiChat, &chat(&[&first, &message("a", "send")]));
    assert!(told.is_empty() && !out.contains("\"message\""), "{out}");
    assert_eq!(read_by_index(&out), [("a".into(), "read".into(), "{}".into())], "{out}");
    assert!(out.contains(r#"{"index":0,"finish_reason":"tool_calls"}"#), "{out}");
    let refused = first.replace("read", "send");
    let (out, told) = through(Provider::OpenAiChat, &chat(&[&refused, &message("a", "send")]));
    assert!(told.len() == 1 && !out.contains("\"tool_calls\"") && out.contains("blocked by policy"), "{out}");
    // Only the pieces were judged.
    let other = chat(&[&first, &message("b", "read")]);
    let taken = Stream::new(Provider::OpenAiChat, None, REPLACEMENT).push(
        other.as_bytes(),
        &mut Strict,
        &mut Vec::new(),
    );
    assert!(matches!(taken, Err(LlmError::Shape(_))), "{taken:?}");
}

/// An item without its index is the one with its id, or a new one.
#[test]
fn items_without_an_index_are_judged_one_by_one() {
    let no_index = |line: &&str| line.replace(r#""output_index":0,"#, "").replace(r#""output_index":1,"#, "");
    let bare: Vec<String> = ITEMS.iter().map(no_index).collect();
    let of = |lines: &[String]| events(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let (out, told) = through(Provider::OpenAiResponses, &of(&bare));
    assert!(told.len() == 1 && !out.contains("\"c1\"") && out.contains("\"c2\""), "{out}");
    let (out, told) = through(Provider::OpenAiResponses, &of(&bare).replace("send", "look"));
    assert!(told.is_empty(), "{told:?}");
    for (index, count) in [(0, 4), (1, 2)] {
        assert_eq!(out.matches(&format!(r#""output_index":{index}"#)).count(), count, "{out}");
    }
    // An id in the last event does not make it one about that item.
    let last = bare[7].replacen("{", r#"{"item_id":"j","#, 1);
    let (out, told) = through(Provider::OpenAiResponses, &of(&[&bare[..7], &[last]].concat()));
    assert!(told.len() == 1 && !out.contains("\"c1\"") && out.contains("response.completed"), "{out}");
    // Without ids each is an item of its own.
    let no_ids = of(&bare).replace(r#""id":"i","#, "").replace(r#""id":"j","#, "");
    let (out, _) = through(Provider::OpenAiResponses, &no_ids);
    assert!(!out.contains("\"c1\"") && out.contains("\"c2\""), "{out}");
    // Interleaved ones, and pieces that only an id places.
    let order = [0, 1, 5, 2, 3, 6, 4, 7].map(|place: usize| bare[place].clone());
    let secret = of(&order).replace("send", "look").replace(r#""delta":"{}""#, r#""delta":"{\"secret\":1}""#);
    let cut = &secret[..secret.find("event: response.function_call_arguments.done").unwrap()];
    let (out, told) = through(Provider::OpenAiResponses, cut);
    assert!(
        matches!(&told[..], [EngineEvent::Blocked { call, .. }] if call.name == "look")
            && !out.contains("secret"),
        "{out}"
    );
    let (out, told) = through(Provider::OpenAiResponses, &of(&order));
    assert!(told.len() == 1 && !out.contains("\"c1\"") && out.contains("\"c2\""), "{out}");
}

#[test]
fn repeated_item_with_different_content_is_withheld() {
    let item = |kind: &str, name: &str| {
        format!(
            r#"{{"type":"response.output_item.{kind}","output_index":0,"item":{{"type":"function_call","id":"f","call_id":"{name}","name":"{name}","arguments":"{{}}"}}}}"#
        )
    };
    let mut stream = Stream::new(Provider::OpenAiResponses, None, REPLACEMENT);
    let mut out = Vec::new();
    let text = events(&[&item("added", "read"), &item("done", "read"), &item("done", "send")]);
    assert!(stream.push(text.as_bytes(), &mut Strict, &mut out).is_err());
    assert!(!String::from_utf8_lossy(&out).contains("send"));
    // Clients run what the end says.
    let spaced = |kind: &str| item(kind, "read").replace(r#""name""#, r#""namespace":"b","name""#);
    let arguments =
        r#"{"type":"response.function_call_arguments.done","output_index":0,"name":"send","arguments":"{}"}"#;
    for second in [item("done", "xsend"), spaced("done"), arguments.to_owned()] {
        let text = events(&[&item("added", "read"), &second]);
        let taken = Stream::new(Provider::OpenAiResponses, None, REPLACEMENT).push(
            text.as_bytes(),
            &mut Strict,
            &mut Vec::new(),
        );
        assert!(matches!(taken, Err(LlmError::Shape(_))), "{second}");
    }
}

/// Python's `str.splitlines`, with which some clients read a stream, ends a line at more than `\r` and `\n`.
#[test]
fn line_ends_of_python_splitlines_do_not_pass_in_a_stream() {
    let text = anthropic(&[("read", &["{}"])]);
    let call = r#"{"type":"content_block_start","index":7,"content_block":{"type":"tool_use","id":"s","name":"send","input":{}}}"#;
    for end in ["\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{2028}", "\u{2029}"] {
        for field in [":", "id:", "retry:"] {
            let (out, told) = through(Provider::Anthropic, &format!("{field} x{end}data: {call}\n\n{text}"));
            assert!(out == text && told.is_empty(), "{end:?} {field}");
        }
        let hidden =
            format!("event: message_start{end}data: {call}{end}x\n{}", &text[text.find("data:").unwrap()..]);
        let mut out = Vec::new();
        let taken = Stream::new(Provider::Anthropic, None, REPLACEMENT).push(
            hidden.as_bytes(),
            &mut Strict,
            &mut out,
        );
        assert!(taken.is_err() && out.is_empty(), "{end:?}");
    }
    // In a text the last three are ordinary.
    let said = r#"{"choices":[{"index":0,"delta":{"content":"a\u{2028}data: b\u{85}"}}]}"#
        .replace("\\u{2028}", "\u{2028}")
        .replace("\\u{85}", "\u{85}");
    let (out, _) = through(Provider::OpenAiChat, &chunks(&[&said]));
    assert_eq!(out, chunks(&[r#"{"choices":[{"index":0,"delta":{"content":"a\u2028data: b\u0085"}}]}"#]));
    let lines = "{\"message\":{\"content\":\"a\u{2028}b\"}}\n";
    assert_eq!(through(Provider::Ollama, lines).0, lines.replace('\u{2028}', "\\u2028"));
}

#[test]
fn events_that_clients_ignore_do_not_end_an_answer() {
    let text = anthropic(&[("read", &["{}"])]);
    let heartbeat = "event: heartbeat\ndata: tick\n\nevent: vendor\ndata: {\"a\":1}\n\n";
    let ping = "event: ping\ndata: {}\n\n";
    let (head, tail) = text.split_at(text.find("event: content_block_start").unwrap());
    let noisy = format!("{head}{heartbeat}{ping}data:\n\n{tail}data: [DONE]\n\nevent: x\ndata: not json\n\n");
    let (out, told) = through(Provider::Anthropic, &noisy);
    assert!(told.is_empty());
    let out = out.replace("event: vendor\ndata: {\"a\":1}\n\n", "");
    assert_eq!(out.replace(ping, "").replace("data:\n\n", "").replace("data: [DONE]\n\n", ""), text);
    // The name of an event is no way past the judge.
    let hidden = r#"{"type":"content_block_start","index":7,"content_block":{"type":"tool_use","id":"s","name":"send","input":{}}}"#;
    let stop = r#"{"type":"content_block_stop","index":7}"#;
    let hidden = format!("{head}event: ping\ndata: {hidden}\n\nevent: ping\ndata: {stop}\n\n{tail}");
    let mut stream = Stream::new(Provider::Anthropic, None, REPLACEMENT);
    let mut out = Vec::new();
    let _ = stream.push(hidden.as_bytes(), &mut Strict, &mut out);
    assert!(!String::from_utf8_lossy(&out).contains("\"name\":\"send\""));
}

/// A load balancer's own words; clients show them.
#[test]
fn error_event_passes_whatever_its_text_is() {
    let text = anthropic(&[("read", &["{}"])]);
    let head = &text[..text.find("event: content_block_start").unwrap()];
    for data in ["upstream connect error", r#"{"error":{"message":"boom"}}"#] {
        let cut = format!("{head}event: error\ndata: {data}\n\n");
        assert_eq!(through(Provider::Anthropic, &cut).0, cut);
    }
    // LiteLLM names neither the event nor its type, and some end a stream as another API does.
    let unnamed = format!("{head}data: {{\"error\":{{\"message\":\"boom\"}}}}\n\n");
    assert_eq!(through(Provider::Anthropic, &unnamed).0, unnamed);
    let done = text.replace("event: message_stop", "data: [DONE]\n\nevent: message_stop");
    assert_eq!(through(Provider::Anthropic, &done).0, done);
}

#[test]
fn truncated_call_is_reported_as_truncated() {
    let text = anthropic(&[("read", &["{\"a\": "])]);
    let (out, _) = through(Provider::Anthropic, &text);
    assert!(out.contains("came damaged and was not run") && !out.contains("blocked by policy"), "{out}");
    assert!(out.contains("no complete JSON") && !out.contains("token limit"), "{out}");
    let cut = text.replace("\"tool_use\",\"stop_sequence\"", "\"max_tokens\",\"stop_sequence\"");
    let (out, told) = through(Provider::Anthropic, &cut);
    assert!(out.contains("was not run: the answer was cut at its token limit"), "{out}");
    assert_eq!(told.len(), 1);
}

#[test]
fn an_item_that_is_refused_becomes_a_message() {
    let (out, told) = through(Provider::OpenAiResponses, &events(&ITEMS));
    assert!(!out.contains("\"c1\"") && out.contains("\"c2\""), "{out}");
    assert_eq!(out.matches("Tool 'send' blocked by policy").count(), 5, "{out}");
    assert!(
        matches!(&told[..], [EngineEvent::Blocked { call, .. }] if call.namespace.as_deref() == Some("mcp__fs"))
    );
    let allowed = events(&ITEMS).replace("send", "look");
    assert_eq!(through(Provider::OpenAiResponses, &allowed).0, allowed);
}

/// Some providers name an item only at its end, or only in the last event.
#[test]
fn call_that_only_the_end_of_an_answer_has_is_judged() {
    let ends = [ITEMS[0], ITEMS[4], ITEMS[6], ITEMS[7]];
    let (out, told) = through(Provider::OpenAiResponses, &events(&ends));
    assert!(!out.contains("\"c1\"") && out.contains("\"c2\""), "{out}");
    assert_eq!(out.matches("Tool 'send' blocked by policy").count(), 5, "{out}");
    assert_eq!(told.len(), 1);
    let (out, told) = through(Provider::OpenAiResponses, &events(&[ITEMS[0], ITEMS[7]]));
    assert!(!out.contains("\"c1\"") && out.contains("\"c2\"") && told.len() == 1, "{out}");
    // Other arguments than those that were judged before.
    let changed = events(&ITEMS).replace("send", "look").replacen(
        r#""name":"read","arguments":"{}"}]"#,
        r#""name":"read","arguments":"{\"secret\":1}"}]"#,
        1,
    );
    let (out, told) = through(Provider::OpenAiResponses, &changed);
    assert!(told.len() == 1 && !out.contains("secret"), "{out}");
    // Arguments that belong to no item.
    let delta =
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"secret\":1}"}"#;
    let done =
        r#"{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{\"secret\":1}"}"#;
    for arguments in [delta, done] {
        let (out, told) = through(Provider::OpenAiResponses, &events(&[ITEMS[0], ITEMS[5], arguments]));
        assert!(told.len() == 1 && !out.contains("secret"), "{out}");
    }
    let message = r#"{"type":"message","content":[{"type":"output_text","text":"LEAK"}]}"#;
    let done = format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{message}}}"#);
    let last = format!(r#"{{"type":"response.completed","response":{{"id":"r","output":[{message}]}}}}"#);
    for line in [&done, &last] {
        let text = events(&[ITEMS[0], &line.replace("LEAK", PROMPT)]);
        let (out, told) = cut(Provider::OpenAiResponses, &text, &[], Needle::arm(&[PROMPT]));
        assert!(
            told == [EngineEvent::Leaked] && !out.contains("oracle") && out.contains(REPLACEMENT),
            "{out}"
        );
    }
}

const CANDIDATES: [&str; 3] = [
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Let me"}]},"index":0}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":2}}"#,
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hm","thought":true},{"functionCall":{"name":"send","args":{"a":1}}},{"functionCall":{"id":"k","name":"read","args":{}}}]},"index":0}]}"#,
    r#"{"candidates":[{"content":{"role":"model","parts":[]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":9,"thoughtsTokenCount":1}}"#,
];

#[test]
fn a_call_of_a_candidate_becomes_a_text() {
    let text = chunks(&CANDIDATES);
    let (out, told) = through(Provider::Google, &text);
    assert!(out.contains(r#"{"text":"[agentsh] Tool 'send' blocked by policy: not allowed here"}"#), "{out}");
    assert!(!out.contains("\"send\"") && out.contains("\"read\"") && told.len() == 1, "{out}");
    let allowed = text.replace("send", "look");
    assert_eq!(through(Provider::Google, &allowed).0, allowed);
    let leaking = chunks(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"You are the internal pricing oracle"}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":" of Example Corp. More"}]}}]}"#,
    ]);
    let (out, told) = cut(Provider::Google, &leaking, &[], Needle::arm(&[PROMPT]));
    assert!(told == [EngineEvent::Leaked] && !out.contains("oracle") && out.contains(REPLACEMENT), "{out}");
    // Without `alt=sse` the stream is one list.
    for body in [format!("[{}]", CANDIDATES.join(",")), CANDIDATES[1].to_owned()] {
        let answer = Answer::of(Provider::Google, body.as_bytes(), None, REPLACEMENT, &mut Strict).unwrap();
        let out = answer.body.unwrap();
        assert!(
            out.contains("blocked by policy") && !out.contains("\"send\"") && out.contains("\"read\""),
            "{out}"
        );
    }
}

#[test]
fn tokens_are_counted_as_the_provider_says() {
    let used = |provider, text: &str| {
        let mut stream = Stream::new(provider, None, REPLACEMENT);
        stream.push(text.as_bytes(), &mut Strict, &mut Vec::new()).unwrap();
        (stream.usage().input, stream.usage().output)
    };
    assert_eq!(used(Provider::Google, &chunks(&CANDIDATES)), (7, 10));
    let anthropic = events(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":5,"cache_read_input_tokens":100,"output_tokens":1}}}"#,
        r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":20}}"#,
    ]);
    assert_eq!(used(Provider::Anthropic, &anthropic), (105, 20));
    assert_eq!(
        used(
            Provider::OpenAiChat,
            &chunks(&[r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#])
        ),
        (3, 4)
    );
    let last = events(&[
        r#"{"type":"response.completed","response":{"output":[],"usage":{"input_tokens":8,"output_tokens":9}}}"#,
    ]);
    assert_eq!(used(Provider::OpenAiResponses, &last), (8, 9));
}

const PROMPT: &str = "You are the internal pricing oracle of Example Corp. Be kind.";

fn said(pieces: &[&str]) -> String {
    let mut lines = vec![
        START.to_owned(),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned(),
    ];
    for piece in pieces {
        let piece = crate::json::escape_text(piece);
        lines.push(format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{piece}"}}}}"#
        ));
    }
    lines.push(r#"{"type":"content_block_stop","index":0}"#.to_owned());
    lines.push(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#.to_owned());
    lines.push(r#"{"type":"message_stop"}"#.to_owned());
    events(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn system_prompt_is_cut_before_its_first_byte_is_released() {
    let needle = Needle::arm(&[PROMPT]);
    let text = said(&["Sure: ", "You ARE the ", "internal\n pricing oracle", " of Example", " Corp. More"]);
    let (out, told) = cut(Provider::Anthropic, &text, &[], needle.clone());
    assert_eq!(told, [EngineEvent::Leaked]);
    assert!(
        out.contains("Sure")
            && out.contains(REPLACEMENT)
            && out.ends_with("data: {\"type\":\"message_stop\"}\n\n"),
        "{out}"
    );
    assert!(!out.contains("ARE the") && !out.contains("oracle") && !out.contains("More"), "{out}");
    // A beginning that does not become the sentence is forwarded unchanged.
    let text = said(&["Sure: ", "you are the ", "internal pricing", " queen"]);
    assert_eq!(cut(Provider::Anthropic, &text, &[], needle.clone()), (text, vec![]));
    let in_arguments =
        anthropic(&[("read", &["{\"a\":\"you are the internal\\npricing oracle of example corp.\"}"])]);
    let (out, told) = cut(Provider::Anthropic, &in_arguments, &[], needle.clone());
    assert!(told == [EngineEvent::Leaked] && !out.contains("oracle"), "{out}");
    let spoken = chat(&[
        r#"{"index":0,"delta":{"role":"assistant","content":"you are the internal "},"finish_reason":null}"#,
        r#"{"index":0,"delta":{"content":"pricing oracle of example corp. "},"finish_reason":null}"#,
    ]);
    let (out, told) = cut(Provider::OpenAiChat, &spoken, &[], needle);
    assert!(
        told == [EngineEvent::Leaked] && !out.contains("oracle") && out.ends_with("data: [DONE]\n\n"),
        "{out}"
    );
}

#[test]
fn answers_without_streaming_are_rewritten() {
    let of = |provider, body: &str, needle: Option<&Needle>| {
        Answer::of(provider, body.as_bytes(), needle, REPLACEMENT, &mut Strict)
    };
    let message = r#"{"id":"m", "content":[{"type":"text","text":"Hi"},{"type":"tool_use","id":"t","name":"send","input":{}}],"stop_reason":"tool_use","usage":{"x":1.0}}"#;
    let answer = of(Provider::Anthropic, message, None).unwrap();
    assert_eq!(
        answer.body.as_deref(),
        Some(
            r#"{"id":"m","content":[{"type":"text","text":"Hi"},{"type":"text","text":"[agentsh] Tool 'send' blocked by policy: not allowed here"}],"stop_reason":"end_turn","usage":{"x":1.0}}"#
        )
    );
    assert_eq!(of(Provider::Anthropic, &message.replace("send", "look"), None).unwrap(), Answer::default());
    let completion = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Hm","tool_calls":[{"id":"a","type":"function","function":{"name":"send","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"read","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let answer = of(Provider::OpenAiChat, completion, None).unwrap().body.unwrap();
    assert!(
        answer.contains(r#""content":"Hm\n[agentsh] Tool 'send' blocked"#)
            && answer.contains("\"b\"")
            && !answer.contains("\"a\""),
        "{answer}"
    );
    assert!(answer.contains(r#""finish_reason":"tool_calls""#), "{answer}");
    let response = r#"{"id":"r","output":[{"type":"function_call","id":"i","call_id":"c","name":"send","arguments":"{}"}]}"#;
    let answer = of(Provider::OpenAiResponses, response, None).unwrap().body.unwrap();
    assert!(answer.contains("msg_agentsh_0") && !answer.contains("function_call"), "{answer}");
    let needle = Needle::arm(&[PROMPT]);
    let leak = message.replace("Hi", PROMPT);
    let answer = of(Provider::Anthropic, &leak, needle.as_ref()).unwrap();
    assert!(answer.told == [EngineEvent::Leaked] && !answer.body.unwrap().contains("oracle"));
    for broken in ["", "{", "[]x"] {
        assert!(of(Provider::Anthropic, broken, None).is_err(), "{broken}");
    }
    // Clients take the last of two values, others the first.
    let twice = of(Provider::Anthropic, r#"{"content":[{"type":"tool_use","type":"text"}]}"#, None);
    let why = twice.unwrap_err().to_string();
    assert!(why.contains("two members with one name and different values"), "{why}");
}

/// Some client reads that place: text that was not judged is not passed on.
#[test]
fn call_at_an_unexpected_place_is_withheld() {
    let call = r#"{"type":"tool_use","id":"t","name":"send","input":{}}"#;
    let chat = r#"{"id":"c","type":"custom","function":{"name":"read","arguments":"{}"},"custom":{"name":"send","input":""}}"#;
    let item = r#"{"type":"function_call","call_id":"c","name":"send","arguments":"{}"}"#;
    for (provider, event) in [
        (Provider::Anthropic, START.replace(r#""content":[]"#, &format!(r#""content":[{call}]"#))),
        (Provider::Anthropic, format!(r#"{{"type":"message_delta","delta":{{"content":[{call}]}}}}"#)),
        (Provider::OpenAiChat, format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{chat}]}}}}]}}"#)),
        (Provider::OpenAiChat, r#"{"choices":[{"index":0,"delta":{},"message":{"tool_calls":[{"id":"c","function":{"name":"send"}}]}}]}"#.to_owned()),
        // An empty call does not count for another one.
        (Provider::Google, r#"{"candidates":[{"content":{"parts":[{"functionCall":{}}]},"functionCalls":[{"name":"send"}]}]}"#.to_owned()),
        (Provider::OpenAiChat, r#"{"choices":[{"index":0,"delta":{"function_call":{}},"message":{"tool_calls":[{"id":"c","function":{"name":"send"}}]}}]}"#.to_owned()),
        (Provider::OpenAiResponses, format!(r#"{{"type":"response.created","response":{{"output":[{item}]}}}}"#)),
        (Provider::Google, r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"read"},"executableCode":{"code":"x"}}]}}]}"#.to_owned()),
        (Provider::OpenAiChat, r#"{"choices":[{"index":0,"delta":{"tool_calls":{"0":{"function":{"name":"send"}}}}}]}"#.to_owned()),
        (Provider::OpenAiChat, r#"{"choices":[{"index":0,"delta":{"toolCalls":[{"function":{"name":"send"}}]}}]}"#.to_owned()),
        // Behind bytes that some readers of lines take off.
        (Provider::Ollama, r#"data: {"message":{"tool_calls":[{"function":{"name":"send"}}]}}"#.to_owned()),
        (Provider::Ollama, "\u{feff}{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"send\"}}]}}".to_owned()),
        (Provider::Ollama, r#"[{"message":{"tool_calls":[{"function":{"name":"send"}}]}}]"#.to_owned()),
    ] {
        let mut out = Vec::new();
        let text = if provider == Provider::Ollama { format!("{event}\n") } else { chunks(&[&event]) };
        let taken = Stream::new(provider, None, REPLACEMENT).push(text.as_bytes(), &mut Strict, &mut out);
        assert!(matches!(taken, Err(LlmError::Shape(_))) && out.is_empty(), "{event}: {taken:?}");
    }
    let twice = format!(r#"{{"choices":[{{"message":{{"tool_calls":[{chat}]}}}}]}}"#);
    assert!(Answer::of(Provider::OpenAiChat, twice.as_bytes(), None, REPLACEMENT, &mut Strict).is_err());
    // Arguments of a call may look like a call.
    let nested =
        format!(r#"{{"content":[{{"type":"tool_use","id":"t","name":"read","input":{{"a":{call}}}}}]}}"#);
    let answer = Answer::of(Provider::Anthropic, nested.as_bytes(), None, REPLACEMENT, &mut Strict).unwrap();
    assert_eq!((answer.body, answer.told), (None, vec![]));
}

/// Lines that belong to no event are not forwarded: a client that reads the whole as JSON would find calls in it.
#[test]
fn an_answer_that_only_claims_to_be_events_does_not_go_on() {
    let json = r#"{"content":[{"type":"tool_use","id":"t","name":"send","input":{}}]}"#;
    for text in [json.to_owned(), format!("{json}\n\n"), format!("{{\n\n{}", &json[1..])] {
        let (out, told) = through(Provider::Anthropic, &text);
        assert!(out.trim().is_empty() && told.is_empty(), "{out}");
    }
}

/// Google's Code Assist, which Gemini CLI asks with a login.
#[test]
fn calls_in_an_envelope_are_judged() {
    let inner = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"send","args":{}}}]}}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}"#;
    let envelope = format!(r#"{{"response":{inner},"traceId":"t"}}"#);
    let (out, told) = through(Provider::Google, &chunks(&[&envelope]));
    assert!(told.len() == 1 && !out.contains("functionCall"), "{out}");
    assert!(out.contains(r#"{"response":{"candidates":[{"content":{"parts":[{"text":"[agentsh]"#), "{out}");
    let answer = Answer::of(Provider::Google, envelope.as_bytes(), None, REPLACEMENT, &mut Strict).unwrap();
    assert_eq!((answer.usage.input, answer.usage.output, answer.told.len()), (3, 4, 1));
    let body = answer.body.unwrap();
    assert!(body.starts_with(r#"{"response":{"candidates""#) && body.contains("traceId"), "{body}");
    // Clients take off the namespace of Gemini's own.
    let own = envelope.replace("send", "default_api:send");
    let (_, told) = through(Provider::Google, &chunks(&[&own]));
    assert!(matches!(&told[..], [EngineEvent::Blocked { call, .. }] if call.name == "send"), "{told:?}");
}

#[test]
fn malformed_or_too_long_stream_is_withheld() {
    let push = |text: &[u8]| {
        Stream::new(Provider::Anthropic, None, REPLACEMENT).push(text, &mut Strict, &mut Vec::new())
    };
    assert!(matches!(push(b"data: {\n\n"), Err(LlmError::Json(_))));
    assert!(matches!(push(b"data: {\"x\":1}\n\n"), Err(LlmError::Shape(_))));
    assert!(matches!(push(&[b'x'; MAX_HELD + 1]), Err(LlmError::TooMuch)));
    let mut stream = Stream::new(Provider::Anthropic, None, REPLACEMENT);
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}"#;
    stream.push(events(&[start]).as_bytes(), &mut Strict, &mut Vec::new()).unwrap();
    let delta = format!(
        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":"{}"}}}}"#,
        "x".repeat(1 << 20)
    );
    let delta = events(&[&delta]);
    let result = (0..20).try_for_each(|_| stream.push(delta.as_bytes(), &mut Strict, &mut Vec::new()));
    assert_eq!(result, Err(LlmError::TooMuch));
}

proptest! {
    #[test]
    fn answer_rewriting_is_the_same_in_any_pieces(cuts in proptest::collection::vec(any::<usize>(), 0..12)) {
        let texts = [
            (Provider::Anthropic, anthropic(&[("send", &["{\"to\":", "1}"]), ("read", &["{}"])])),
            (Provider::Anthropic, said(&["Sure: ", "You are the internal pricing oracle of Example Corp. ", "x"])),
            (Provider::OpenAiResponses, events(&ITEMS)),
        ];
        for (provider, text) in texts {
            let needle = Needle::arm(&[PROMPT]);
            prop_assert_eq!(cut(provider, &text, &cuts, needle.clone()), cut(provider, &text, &[], needle));
        }
    }
}
