//! A model that breaks the rules: each case ends with an event and an error that its provider's clients can read,
//! within bounded memory, and nothing hangs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Place, patience};

/// How a model ends what it says.
#[derive(Clone, Copy)]
enum End {
    Closes,
    Resets,
    Stalls,
}

/// The bytes that it writes, in pieces that may each be repeated.
type Said = Vec<(Vec<u8>, usize)>;

/// A model that says these bytes on every connection.
fn faulty(said: impl Fn() -> Said + Send + Sync + 'static, end: End) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let said = std::sync::Arc::new(said);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let said = std::sync::Arc::clone(&said);
            std::thread::spawn(move || speak(&stream, &said(), end));
        }
    });
    port
}

fn speak(mut stream: &TcpStream, said: &Said, end: End) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    for (piece, times) in said {
        for _ in 0..*times {
            stream.write_all(piece).ok()?;
        }
    }
    match end {
        End::Closes => {}
        End::Resets => {
            // Time for earlier data to arrive first.
            std::thread::sleep(Duration::from_millis(50));
            let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
            nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
        }
        End::Stalls => {
            // Until the other side has enough of it.
            let _ = reader.read(&mut [0; 1]);
        }
    }
    Some(())
}

fn head(kind: &str, more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}\r\n").into_bytes()
}

/// A stream whose length is its end.
fn events(text: &str) -> Said {
    vec![(head("text/event-stream", "Connection: close\r\n"), 1), (text.as_bytes().to_vec(), 1)]
}

const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// What the agent sees, and the most memory that its session took, in KiB.
fn ask(place: &Place, port: u16, stream: bool, more: &str) -> (String, u64) {
    let body = json!({"model": "m", "stream": stream, "messages": []});
    ask_at(place, port, "/v1/messages", &body, more)
}

fn ask_at(place: &Place, port: u16, path: &str, body: &Value, more: &str) -> (String, u64) {
    place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    place.write(place.project.join("request.json"), body.to_string());
    let script = format!(
        "#!/bin/sh\nexec curl -sS -N --max-time 60 -w ' %{{http_code}}' -H 'Content-Type: application/json' {more} \
         \"$ANTHROPIC_BASE_URL{path}\"\n"
    );
    let claude = place.script(place.project.join("bin/claude"), &script);
    let mut command = place.agentsh(&["run", "--quiet", "--"]);
    command.arg(claude).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut output = child.stdout.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut text = Vec::new();
        output.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let high = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let high = high.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(high.unwrap_or(0));
        assert!(began.elapsed() < patience(Duration::from_secs(90)), "it hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(most > 4 << 10, "nothing was measured");
    (reading.join().unwrap(), most)
}

const POST: &str = "--data-binary @request.json";

fn place() -> Place {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nllm: {timeout: 1s}\n");
    place
}

#[track_caller]
fn is_withheld(place: &Place, seen: &str, why: &str) {
    assert!(seen.contains("[agentsh] ") && seen.contains("api_error") && seen.contains(why), "{seen}");
    let told = place.events("model_answer_withheld");
    let report = Outcome::of(&mut place.agentsh(&["report", "latest"])).expect_code(0).stdout;
    assert!(report.contains("request or answer of the model"), "{report}");
    assert!(told.last().is_some_and(|event| event["reason"].as_str().unwrap().contains(why)), "{told:?}");
}

#[test]
fn a_stream_that_stalls_is_reset_or_ends_in_the_middle_ends_with_an_error() {
    let place = place();
    let half = format!("{PING}event: message_start\ndata: {{\"type\":");
    for (text, end, why) in [
        (half.clone(), End::Stalls, "sent nothing for 1000 ms"),
        (half.clone(), End::Resets, "broke off"),
        (half, End::Closes, "not strict JSON"),
    ] {
        let (seen, _) = ask(&place, faulty(move || events(&text), end), true, POST);
        assert!(seen.starts_with(PING) && seen.contains("event: error"), "{why}: {seen}");
        is_withheld(&place, &seen, why);
    }
    // Chunks whose end never comes are not a whole answer either.
    let chunked = || {
        vec![
            (head("text/event-stream", "Transfer-Encoding: chunked\r\n"), 1),
            (format!("{:x}\r\n{PING}\r\n", PING.len()).into_bytes(), 1),
        ]
    };
    let (seen, _) = ask(&place, faulty(chunked, End::Closes), true, POST);
    assert!(seen.starts_with(PING), "{seen}");
    is_withheld(&place, &seen, "broke off");
    assert_eq!(place.events("model_answer_withheld").len(), 4);
}

#[test]
fn a_model_that_never_answers_is_given_up() {
    let place = place();
    for said in [Vec::new(), head("application/json", "Content-Length: 100\r\n")] {
        let said = move || vec![(said.clone(), 1)];
        let (seen, _) = ask(&place, faulty(said, End::Stalls), false, POST);
        assert!(seen.ends_with(" 504") || seen.ends_with(" 502"), "{seen}");
        is_withheld(&place, &seen, "sent nothing for 1000 ms");
    }
}

#[test]
fn model_answer_with_a_false_length_is_an_error() {
    let place = place();
    let answer = br#"{"content":[]}"#;
    for (length, why) in [(1000, "broke off"), (5, "not strict JSON")] {
        let said = move || {
            vec![
                (head("application/json", &format!("Content-Length: {length}\r\n")), 1),
                (answer.to_vec(), 1),
            ]
        };
        let (seen, _) = ask(&place, faulty(said, End::Closes), false, POST);
        assert!(seen.ends_with(" 502"), "{seen}");
        is_withheld(&place, &seen, why);
    }
    // Two lengths are read by everybody as he likes.
    let said = || {
        let two = head("application/json", "Content-Length: 14\r\nContent-Length: 5\r\n");
        vec![(two, 1), (br#"{"content":[]}"#.to_vec(), 1)]
    };
    let (seen, _) = ask(&place, faulty(said, End::Closes), false, POST);
    is_withheld(&place, &seen, "did not answer");
}

/// A proxy's page, or that of a login.
#[test]
fn a_page_in_place_of_an_answer_is_quoted() {
    let place = place();
    let said = || {
        let page = format!("\n<!DOCTYPE html><title>{}\nsecond", "x".repeat(300));
        vec![(head("text/html", "Connection: close\r\n"), 1), (page.into_bytes(), 1)]
    };
    for stream in [false, true] {
        let (seen, _) = ask(&place, faulty(said, End::Closes), stream, POST);
        assert!(seen.ends_with(" 502") && seen.contains("xx…'") && !seen.contains("second"), "{seen}");
        is_withheld(&place, &seen, "not JSON; it begins with '<!DOCTYPE html><title>xx");
    }
}

/// Clients that asked for no stream read JSON whatever its type says.
#[test]
fn json_declared_as_an_event_stream_is_judged_as_json() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nsandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: agent, tool: Bash}]}}\n",
    );
    let answer = |name: &str| {
        json!({"type": "message", "content": [{"type": "tool_use", "id": "t", "name": name, "input": {}}]})
            .to_string()
    };
    for (name, is_refused) in [("Bash", true), ("Read", false)] {
        let said = answer(name);
        let (seen, _) = ask(&place, faulty(move || events(&said), End::Closes), false, POST);
        assert_eq!(seen.contains("Tool 'Bash' blocked by policy"), is_refused, "{seen}");
        assert_eq!(seen.contains(&answer("Read")), !is_refused, "{seen}");
    }
    // An unrequested stream is read as a stream.
    let (seen, _) = ask(&place, faulty(|| events(PING), End::Closes), false, POST);
    assert!(seen.starts_with(PING), "{seen}");
}

/// A stream of Anthropic's with one call, which ends twice.
fn one_call(start: Value, pieces: &[&str], index: &str, reason: &str) -> String {
    let event = |text: String| {
        let value: Value = serde_json::from_str(&text).unwrap();
        format!("event: {}\ndata: {text}\n\n", value["type"].as_str().unwrap())
    };
    let stop = event(format!(r#"{{"type":"content_block_stop","index":{index}}}"#));
    let delta = |piece: &&str| {
        event(format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":{}}}}}"#,
            json!(piece)
        ))
    };
    [
        event(json!({"type": "message_start", "message": {"id": "m", "content": []}}).to_string()),
        event(format!(r#"{{"type":"content_block_start","index":{index},"content_block":{start}}}"#)),
        pieces.iter().map(delta).collect(),
        stop.clone(),
        stop,
        event(json!({"type": "message_delta", "delta": {"stop_reason": reason}}).to_string()),
        event(json!({"type": "message_stop"}).to_string()),
    ]
    .concat()
}

fn without_bash() -> Place {
    let place = Place::new(Mode::Invoker);
    place.user_policy(
        "version: 1\nsandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: agent, tool: Bash}]}}\n",
    );
    place
}

/// In the official clients the pieces of a call replace the input of its start, and a second end means nothing.
#[test]
fn odd_streams_that_the_official_clients_take_are_judged_and_forwarded() {
    let place = without_bash();
    let pieces = ["{\"path\":", "\"pieces\"}"];
    for (input, index) in [
        ("null", "0"),
        ("\"\"", "0"),
        ("[]", "0"),
        ("{\"path\":\"start\"}", "0"),
        ("{}", "0.0"),
        ("{}", "\"0\""),
        ("{}", "0"),
    ] {
        for name in ["Read", "Bash"] {
            let input: Value = serde_json::from_str(input).unwrap();
            let start = json!({"type": "tool_use", "id": "t", "name": name, "input": input});
            let said = one_call(start, &pieces, index, "tool_use");
            let (seen, _) = ask(&place, faulty(move || events(&said), End::Closes), true, POST);
            assert!(seen.contains("message_stop") && !seen.contains("\"start\""), "{input} {seen}");
            if name == "Bash" {
                assert!(seen.contains("Tool 'Bash' blocked by policy") && !seen.contains("pieces"), "{seen}");
            } else {
                assert!(!seen.contains("[agentsh]") && seen.contains("\\\"pieces\\\"}"), "{input} {seen}");
            }
            assert!(!seen.contains(r#""index":"0""#), "{seen}");
        }
    }
    // Arguments of spaces are none.
    for name in ["Read", "Bash"] {
        let start = json!({"type": "tool_use", "id": "t", "name": name, "input": {}});
        let said = one_call(start, &[" ", "\n "], "0", "tool_use");
        let (seen, _) = ask(&place, faulty(move || events(&said), End::Closes), true, POST);
        let is_refused = seen.contains("Tool 'Bash' blocked by policy");
        assert!(is_refused == (name == "Bash") && !seen.contains("came damaged"), "{seen}");
    }
}

#[test]
fn a_call_cut_at_the_token_limit_is_said_to_be() {
    let place = without_bash();
    let start = json!({"type": "tool_use", "id": "t", "name": "Read", "input": {}});
    for (reason, is_cut) in [("max_tokens", true), ("tool_use", false)] {
        let said = one_call(start.clone(), &["{\"path\":"], "0", reason);
        let (seen, _) = ask(&place, faulty(move || events(&said), End::Closes), true, POST);
        assert!(seen.contains("the call of tool 'Read' came damaged and was not run"), "{seen}");
        assert_eq!(seen.contains("the answer was cut at its token limit"), is_cut, "{seen}");
    }
    let call =
        json!({"id": "t", "type": "function", "function": {"name": "Read", "arguments": "{\"path\":"}});
    let answer = json!({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "length",
        "message": {"role": "assistant", "tool_calls": [call]}}]});
    let said = move || {
        vec![(head("application/json", "Connection: close\r\n"), 1), (answer.to_string().into_bytes(), 1)]
    };
    let body = json!({"model": "m", "messages": []});
    let (seen, _) = ask_at(&place, faulty(said, End::Closes), "/v1/chat/completions", &body, POST);
    assert!(seen.contains("the answer was cut at its token limit") && seen.ends_with(" 200"), "{seen}");
}

/// Some clients read the calls of all choices as those of one, and join them.
#[test]
fn calls_of_two_choices_are_withheld_unless_several_answers_were_asked_for() {
    let place = without_bash();
    let chunk = |choice: u64, call: Value, end: Value| {
        let choice = json!({"index": choice, "delta": {"tool_calls": [call]}, "finish_reason": end});
        format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": [choice]}))
    };
    let call = |id: Value, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"index": 0, "id": id, "type": "function", "function": function})
    };
    let end = || json!("tool_calls");
    let joined = |id: Value| {
        [
            chunk(0, call(json!("a"), "Ba", ""), Value::Null),
            chunk(1, call(id, "sh", "{\"command\":\"x\"}"), end()),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat()
    };
    let several = [
        chunk(0, call(json!("a"), "Read", "{}"), end()),
        chunk(1, call(json!("b"), "Read", "{}"), end()),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    for (said, n, passes) in [
        (joined(json!("b")), 1, false),
        (joined(Value::Null), 1, false),
        (joined(Value::Null), 2, false),
        (joined(json!("a")), 2, false),
        (several.clone(), 1, false),
        (several, 2, true),
    ] {
        let body = json!({"model": "m", "stream": true, "n": n, "messages": []});
        let port = faulty(move || events(&said), End::Closes);
        let (seen, _) = ask_at(&place, port, "/v1/chat/completions", &body, POST);
        assert_eq!(seen.contains("calls in two choices"), !passes, "{n} {seen}");
        assert!(!seen.contains("\"sh\""), "{seen}");
        assert_eq!(seen.contains("\"b\"") && seen.contains("[DONE]"), passes, "{n} {seen}");
    }
}

/// Clients pass over a byte order mark, and an encoding that is none.
#[test]
fn plain_json_with_a_mark_or_a_false_encoding_is_read() {
    let place = without_bash();
    for (more, mark) in [("", "\u{feff}"), ("Content-Encoding: UTF-8\r\n", "")] {
        for name in ["Read", "Bash"] {
            let answer = json!({"type": "message", "content": [{"type": "tool_use", "id": "t", "name": name, "input": {}}]});
            let body = format!("{mark}{answer}");
            let said = move || {
                vec![
                    (head("application/json", &format!("Connection: close\r\n{more}")), 1),
                    (body.clone().into_bytes(), 1),
                ]
            };
            let (seen, _) = ask(&place, faulty(said, End::Closes), false, POST);
            assert!(seen.ends_with(" 200"), "{seen}");
            assert_eq!(seen.contains("Tool 'Bash' blocked by policy"), name == "Bash", "{seen}");
        }
    }
}

/// Beyond what a session takes for a small answer, in KiB: the 16 MiB that may be held, as bytes and as text, and what is
/// on its way.
const ROOM: u64 = 72 << 10;

#[test]
fn an_event_without_end_and_a_bomb_take_bounded_memory() {
    let place = place();
    let small = faulty(|| events(PING), End::Closes);
    let (seen, usual) = ask(&place, small, true, POST);
    assert!(seen.starts_with(PING), "{seen}");

    let filler = vec![b'x'; 1 << 20];
    let endless = move || {
        let mut said = events("event: x\ndata: {\"type\":\"");
        said.push((filler.clone(), 100));
        said
    };
    let (seen, most) = ask(&place, faulty(endless, End::Closes), true, POST);
    is_withheld(&place, &seen, "without a complete tool call");
    assert!(most < usual + ROOM, "{most} KiB, and {usual} KiB for a small one");

    let zeros = "head -c 200M /dev/zero | gzip -1";
    let bomb = std::process::Command::new("sh").args(["-c", zeros]).output().unwrap().stdout;
    assert!(bomb.len() < 2 << 20);
    let body = place.project.join("bomb.gz");
    std::fs::write(&body, &bomb).unwrap();
    let said = move || {
        let length = format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", bomb.len());
        vec![(head("application/json", &length), 1), (bomb.clone(), 1)]
    };
    let (seen, most) = ask(&place, faulty(said, End::Closes), false, POST);
    is_withheld(&place, &seen, "more than 16777216 bytes");
    assert!(most < usual + ROOM, "{most} KiB, and {usual} KiB for a small one");

    // The same in a request, for which there is more room.
    let more = "-H 'Content-Encoding: gzip' --data-binary @bomb.gz";
    let (seen, most) = ask(&place, small, false, more);
    assert!(seen.contains("[agentsh] ") && seen.ends_with(" 415"), "{seen}");
    assert!(most < usual + 4 * ROOM, "{most} KiB, and {usual} KiB for a small one");
}

/// 64 MiB of text in small events are passed on without being kept.
#[test]
fn a_long_answer_is_not_kept() {
    let place = place();
    let small = faulty(|| events(PING), End::Closes);
    let (_, usual) = ask(&place, small, true, POST);
    let event =
        |value: serde_json::Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap());
    let start = event(
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    );
    let text = "lorem ipsum ".repeat(80);
    let delta = event(
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
    );
    let times = (64 << 20) / delta.len();
    let length = start.len() + delta.len() * times;
    let long = move || {
        let mut said = events(&start);
        said.push((delta.clone().into_bytes(), times));
        said
    };
    let (seen, most) = ask(&place, faulty(long, End::Closes), true, &format!("{POST} -o answer"));
    let size = std::fs::metadata(place.project.join("answer")).unwrap().len();
    assert_eq!(size, length as u64, "{seen}");
    assert!(most < usual + (24 << 10), "{most} KiB, and {usual} KiB for a small one");
}
