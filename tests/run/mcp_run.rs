//! One server alone: `agentsh mcp run -- CMD`, for clients that agentsh did not start.

use std::io::{BufRead, Write};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place, Pty};

#[test]
fn mcp_run_is_transparent() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut peer = Peer::server(&place, &[]);
        let hello = peer.shake_hands();
        assert_eq!(hello["result"]["serverInfo"]["name"], "fixture", "{mode:?} {hello}");
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
        let tools = peer.request("tools/list", json!({}));
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 16);
        assert_eq!(tools["result"]["tools"][1]["outputSchema"]["properties"]["sum"]["type"], "integer");
        assert_eq!(peer.text("echo", json!({"text": "äöü \u{0} \u{1F600}"})), "äöü \u{0} \u{1F600}");
        assert_eq!(peer.text("big", json!({"bytes": 2_000_000})).len(), 2_000_000);
        let (code, errors) = peer.finish();
        assert_eq!((code, errors.as_str()), (0, ""), "{mode:?}");
    }
}

#[test]
fn the_newer_handshake_works_as_well() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::server(&place, &[]);
    let meta = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let found = peer.request("server/discover", meta.clone());
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]), "{found}");
    assert_eq!(peer.request("tools/list", meta)["result"]["tools"].as_array().unwrap().len(), 16);
    assert_eq!(peer.text("add", json!({"a": 1, "b": 2})), "3");
}

#[test]
fn notifications_of_a_server_arrive_in_order() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    let id =
        peer.ask("tools/call", json!({"name": "notify", "arguments": {}, "_meta": {"progressToken": "p-1"}}));
    let mut methods = Vec::new();
    loop {
        let message = peer.next();
        if message["id"] == id {
            break;
        }
        if message["method"] == "notifications/progress" {
            assert_eq!(message["params"]["progressToken"], "p-1");
        }
        methods.push(message["method"].as_str().unwrap().to_owned());
    }
    let expected = ["progress", "message", "tools/list_changed", "resources/updated"];
    assert_eq!(methods, expected.map(|name| format!("notifications/{name}")));
}

#[test]
fn a_server_may_ask_the_client() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    for (method, params, result) in [
        (
            "sampling/createMessage",
            json!({"messages": [], "maxTokens": 5}),
            json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}),
        ),
        (
            "elicitation/create",
            json!({"message": "name?", "requestedSchema": {"type": "object"}}),
            json!({"action": "decline"}),
        ),
        ("roots/list", json!({}), json!({"roots": [{"uri": "file:///x"}]})),
        ("ping", json!({}), json!({})),
    ] {
        let call =
            peer.ask("tools/call", json!({"name": "ask", "arguments": {"method": method, "params": params}}));
        let asked = peer.next();
        assert_eq!((&asked["method"], &asked["params"]), (&json!(method), &params));
        peer.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        let answer = peer.answer(&call);
        let heard: Value =
            serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(heard["result"], result);
    }
}

#[test]
fn mcp_run_passes_standard_error_and_exit_status_of_the_server() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut peer = Peer::server(&place, &["exit", "23"]);
        // A server is started for the first message.
        let id = peer.ask("ping", json!({}));
        assert!(peer.answer(&id)["error"]["message"].as_str().unwrap().contains("exit code 23"));
        let (code, errors) = peer.finish();
        assert!(errors.contains("the fixture server was told to end"), "{mode:?} {errors}");
        assert_eq!(code, 23, "{mode:?} {errors}");
    }
}

#[test]
fn server_without_input_is_started_and_its_status_counts() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let server = ["mcp", "run", "--id", "s", "--", "sh", "-c", "cat; echo ended >&2; exit 3"];
        let outcome = Outcome::of(place.agentsh(&server).stdin(Stdio::null())).expect_code(3);
        assert!(outcome.stderr.contains("ended"), "{mode:?} {outcome}");
    }
}

#[test]
fn missing_server_program_is_reported_to_the_client() {
    let place = Place::new(Mode::Invoker);
    let mut command = place.agentsh(&["mcp", "run", "--", "no-such-server-here"]);
    let mut peer = Peer::start(&mut command);
    let id = peer
        .ask("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}));
    let answer = peer.answer(&id);
    assert!(answer["error"]["message"].as_str().unwrap().contains("no-such-server-here"), "{answer}");
}

/// Nobody speaks the protocol there, so nobody would see an answer.
#[test]
fn missing_server_program_is_reported_at_once_on_a_terminal() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = Pty::start(place.agentsh(&["mcp", "run", "--", "no-such-server-here"]));
        terminal.expect("no-such-server-here: no such command in PATH");
        assert_eq!(terminal.wait(), 127, "{mode:?} {}", terminal.text());
    }
}

#[test]
fn server_in_a_directory_that_is_no_project_starts_without_one() {
    let place = Place::new(Mode::Invoker);
    let mut command = place.agentsh(&["mcp", "run", "--id", "x", "--"]);
    command.arg(place.program("fixture_server")).current_dir("/");
    let mut peer = Peer::start(&mut command);
    peer.shake_hands();
    assert_eq!(peer.text("echo", json!({"text": "x"})), "x");
    assert_eq!(peer.text("try", json!({"line": "list / root"})), "REFUSED NotFound");
}

/// Paths on its command line are what the user wants it to have: writable, and nothing around them.
#[test]
fn paths_on_the_servers_command_line_are_granted() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let letter = place.write(place.home.join("Documents/letter.txt"), "PLAIN");
        place.write(place.home.join("Music/song"), "TOPSECRET");
        let mut peer = Peer::ready(&place, &[place.home.join("Documents").to_str().unwrap()]);
        assert_eq!(peer.text("read_file", json!({"path": letter})), "PLAIN");
        peer.text("write_file", json!({"path": letter, "text": "changed"}));
        assert_eq!(std::fs::read_to_string(&letter).unwrap(), "changed", "{mode:?}");
        assert_eq!(
            peer.call("read_file", json!({"path": place.home.join("Music/song")}))["result"]["isError"],
            true
        );
        let own = peer.call("write_file", json!({"path": place.project.join("x"), "text": ""}));
        assert_eq!(own["result"]["isError"], true, "the project is only to be read");
    }
}

#[test]
fn server_ends_with_its_client() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    peer.ask("tools/call", json!({"name": "hang", "arguments": {}}));
    peer.text("echo", json!({"text": "x"}));
    let start = std::time::Instant::now();
    assert_eq!(peer.finish().0, 0);
    assert!(start.elapsed() < Duration::from_secs(4));
}

/// The end of a file says nothing about who reads the answers.
#[test]
#[ignore = "takes long"]
fn calls_of_a_file_finish_before_the_server_ends() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let file =
            place.write("calls.jsonl", format!("{OPENING}{}\n", call(5, "slow", &json!({"ms": 4000}))));
        let mut command = place.agentsh(&["mcp", "run", "--id", "x", "--"]);
        command.arg(place.program("fixture_server")).stdin(std::fs::File::open(file).unwrap());
        let output = command.output().unwrap();
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(text.contains("slept"), "{mode:?} {text} {errors}");
        assert_eq!(output.status.code(), Some(0), "{mode:?} {errors}");
    }
}

/// A server that continues after the end of its input may finish its calls, as long as the answers are read; one that
/// does not end by itself gets SIGTERM before it is killed.
#[test]
#[ignore = "takes long"]
fn calls_of_a_client_that_closed_its_input_finish_while_it_reads() {
    let script = r#"trap 'echo terminated >&2; exit 7' TERM; while read -r line; do case $line in *'"id":5'*) break;; *'"id":1,'*)
        echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}';;
        esac; done; cat >/dev/null; sleep 3.5; echo '{"jsonrpc":"2.0","id":5,"result":{"done":true}}'; while :; do sleep 0.1; done"#;
    let place = Place::new(Mode::Invoker);
    place.without_definitions();
    let start = |place: &Place| {
        let mut peer =
            Peer::start(&mut place.agentsh(&["mcp", "run", "--id", "s", "--", "sh", "-c", script]));
        peer.shake_hands();
        peer.send_line(call(5, "any", &json!({})).as_bytes());
        peer
    };
    let mut reads = start(&place);
    reads.close();
    assert_eq!(reads.next()["result"]["done"], true, "{}", reads.errors());
    let (_, errors) = reads.finish();
    assert!(errors.contains("[s] terminated"), "{errors}");
    // The output is not read, so there is nothing to wait for.
    let mut command = place.agentsh(&["mcp", "run", "--id", "s", "--", "sh", "-c", script]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{OPENING}{}", call(5, "any", &json!({}))).unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    drop((input, output));
    let start = std::time::Instant::now();
    crate::support::outcome::wait(&mut child);
    assert!(start.elapsed() < Duration::from_millis(3400), "{:?}", start.elapsed());
}

/// A server's request to a client that has closed its input is answered on its behalf.
#[test]
fn request_of_a_server_is_answered_after_its_client_ended() {
    let place = Place::new(Mode::Invoker);
    let ask = json!({"method": "ping", "params": {}});
    let file = place.write("calls.jsonl", format!("{OPENING}{}\n", call(5, "ask", &ask)));
    let mut command = place.agentsh(&["mcp", "run", "--id", "x", "--"]);
    command.arg(place.program("fixture_server")).stdin(std::fs::File::open(file).unwrap());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the client closed its input and cannot answer"), "{text}");
}

const OPENING: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\
                       \"capabilities\":{},\"clientInfo\":{\"name\":\"x\",\"version\":\"1\"}}}\n\
                       {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

fn call(id: u32, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// Lines of a log on standard output, and ids as text: both official clients live with that.
#[test]
fn a_server_that_logs_to_its_output_answers_all_the_same() {
    let script = r#"read -r line; echo 'Listening'; echo '{"level":"info","msg":"up"}'; echo '{}'
        echo '{"jsonrpc":"2.0","id":"1","result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}'
        read -r line; read -r line; echo '{"level":"info","msg":"called"}'; sleep 1.5
        echo '{"jsonrpc":"2.0","id":2.0,"result":{"content":[]}}'; cat >/dev/null"#;
    let place = Place::new(Mode::Invoker);
    place.without_definitions();
    let mut peer = Peer::start(&mut place.agentsh(&["mcp", "run", "--id", "s", "--", "sh", "-c", script]));
    assert_eq!(peer.shake_hands()["id"], 1);
    assert_eq!(peer.call("any", json!({}))["result"], json!({"content": []}));
    assert!(peer.aside.is_empty(), "{:?}", peer.aside);
    peer.finish();
    let servers = place.listed(&["mcp", "servers", "--json"]);
    assert_eq!(servers[0]["dropped"], 4, "{servers:?}");
}

#[test]
fn terminal_or_file_as_standard_input_works() {
    let place = Place::new(Mode::Invoker);
    let file = place.write("calls.jsonl", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
    let mut command = place.agentsh(&["mcp", "run", "--id", "x", "--"]);
    command.arg(place.program("fixture_server")).stdin(std::fs::File::open(file).unwrap());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_name_of_a_server_is_taken_from_its_command() {
    let place = Place::new(Mode::Invoker);
    let mut command = place.agentsh(&["mcp", "run", "--"]);
    let mut peer = Peer::start(command.arg(place.program("fixture_server")));
    peer.shake_hands();
    peer.finish();
    let servers = Outcome::of(&mut place.agentsh(&["mcp", "servers", "--json"])).expect_code(0);
    let servers: Value = serde_json::from_str(&servers.stdout).unwrap();
    assert_eq!(servers[0]["server_id"], "fixture_server", "{servers}");
}

/// Clients with a window start servers in the home or in `/`.
#[test]
fn server_starts_in_the_home_and_in_the_root_directory() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(place.home.join("tax.txt"), "TOPSECRET");
        for directory in [place.home.as_path(), std::path::Path::new("/")] {
            let mut command = place.agentsh(&["mcp", "run", "--"]);
            command.arg(place.program("fixture_server")).current_dir(directory);
            let mut peer = Peer::start(&mut command);
            peer.shake_hands();
            let line = format!("read {} TOPSECRET", place.home.join("tax.txt").display());
            assert_ne!(peer.text("try", json!({"line": line})), "DONE", "{mode:?} {directory:?}");
            let (code, errors) = peer.finish();
            assert_eq!((code, errors.as_str()), (0, ""), "{mode:?} {directory:?}");
        }
    }
}

/// Neither does it drive the terminal, nor pass for agentsh, nor fill a disk.
#[test]
fn standard_error_of_a_server_has_its_name_in_front() {
    let place = Place::new(Mode::Invoker);
    let script = "printf '\\033[2Jagentsh: all is well\\nsecond' >&2; \
                  i=0; while [ $i -lt 3000 ]; do echo \"line $i xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
                  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" >&2; \
                  i=$((i+1)); done; sleep 1.2; echo more >&2; cat >/dev/null";
    let mut peer = Peer::start(&mut place.agentsh(&["mcp", "run", "--id", "fx", "--", "sh", "-c", script]));
    peer.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while !peer.errors().contains("not shown") && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        // Lines over the limit are counted in a message that comes with the next line after that second.
        peer.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }
    let (_, errors) = peer.finish();
    assert!(errors.contains("\n[fx] \\u{1b}[2Jagentsh: all is well\n[fx] second"), "{errors:.300}");
    assert!(!errors.contains('\u{1b}') && !errors.contains("\nagentsh: all"), "{errors:.300}");
    assert!(errors.len() < 400_000 && errors.contains("not shown"), "{}", errors.len());
}
