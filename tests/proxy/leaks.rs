//! Data of one server does not reach another one, and arguments name no unlisted host.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place, eventually};

pub const MEMO: &str = "Minutes of the harvest council: the orchard at Lindenau goes to the Brandt family before winter, \
                    the price of 310 thousand crowns was agreed orally, and nobody in the village knows of it yet.";

fn config(place: &Place) -> String {
    let server = place.program("fixture_server");
    let file = json!({
        "servers": [{"id": "one", "command": server}, {"id": "two", "command": server}],
        "allowed_domains": ["api.example.com", "*.example.org"],
    });
    place.write("proxy.json", file.to_string()).to_str().unwrap().to_owned()
}

pub fn command(place: &Place) -> Command {
    let config = config(place);
    place.halting(&["proxy", "--config", &config])
}

/// A proxy whose server `one` has just read the memo.
fn informed(place: &Place, command: &mut Command) -> Peer {
    let file = place.write("memo.txt", MEMO);
    let mut peer = Peer::start(command);
    peer.shake_hands();
    assert_eq!(plain(&peer.text("one__read_file", json!({"path": file}))), MEMO);
    peer
}

/// A text without the invisible marker.
pub fn plain(text: &str) -> String {
    text.replace(|character| matches!(character, '\u{2060}' | '\u{fe00}'..='\u{fe0f}'), "")
}

pub fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["reason"].as_str().unwrap_or("none")
}

fn base64(text: &str) -> String {
    base64_of(text.as_bytes())
}

fn base64_of(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            out.push(char::from(LETTERS[(word >> (18 - 6 * at) & 63) as usize]));
        }
    }
    out
}

/// Without the alerts about servers that offer tools of the same names.
fn leaks(place: &Place) -> Vec<Value> {
    let mut found = place.detections();
    found.retain(|found| found["type"] == "mcp_exfil_detected");
    found
}

#[test]
fn text_of_one_server_does_not_reach_another() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        // Else the third refusal closes the pair, whatever the texts are.
        place.policy("version: 1\nsandbox: {mcp: {exfiltration: {close_after: 100}}}\n");
        let mut peer = informed(&place, &mut command(&place));
        for hidden in [MEMO.to_owned(), base64(MEMO), MEMO[40..110].to_uppercase()] {
            let refused = peer.call("two__echo", json!({"text": hidden}));
            assert_eq!(reason(&refused), "tainted-data", "{mode:?} {refused}");
            let message = refused["error"]["message"].as_str().unwrap();
            assert!(
                message.contains("'read_file' of server 'one'") && message.contains("to allow it"),
                "{message}"
            );
        }
        assert!(!peer.finish().1.contains("Lindenau"));
        let found = leaks(&place);
        assert_eq!(found.len(), 3, "{found:?}");
        let refused = place.listed(&["mcp", "calls", "--action", "block", "--json"]);
        let reasons: Vec<_> = refused.iter().map(|call| call["reason"].as_str().unwrap_or("none")).collect();
        assert_eq!(reasons, ["tainted-data"; 3], "{refused:?}");
        let text = json!(found).to_string();
        assert!(!text.contains("Lindenau") && !text.contains("orchard"), "{text}");
        let of = |name: &str| found.iter().map(|event| event[name].clone()).collect::<Vec<_>>();
        assert_eq!(of("action"), ["block"; 3]);
        assert_eq!(of("source_server"), ["one"; 3]);
        assert_eq!(found[1]["decoded"], json!(["base64"]));
        assert_eq!(found[0]["pointer"], "/text");
    }
}

#[test]
fn text_of_the_same_or_no_server_passes() {
    let place = Place::new(Mode::Invoker);
    let mut peer = informed(&place, &mut command(&place));
    assert_eq!(plain(&peer.text("one__echo", json!({"text": MEMO}))), MEMO);
    let harmless = "The ferry leaves at nine, so please bring the tickets and something warm to wear.";
    for _ in 0..3 {
        assert_eq!(plain(&peer.text("two__echo", json!({"text": harmless}))), harmless);
    }
    assert_eq!(peer.text("two__add", json!({"a": 310, "b": 1})), "311");
    let (code, errors) = peer.finish();
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(leaks(&place).is_empty());
}

/// References and other words pass: the next call needs the ones, and nothing finds the others. A key alone does not.
#[test]
fn references_alone_and_paraphrases_pass() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::start(&mut command(&place));
    peer.shake_hands();
    let secrets = ["ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9", "Zx81kfQpL0aXw93mVb7Tg2Rk5Ns"];
    let text = format!(
        "{MEMO} See 7c9e6679-7425-40de-944b-e07fc1f90ae7, or ask maria.gonzalez@contoso-labs.com. Use {}, and \
         Authorization: Bearer {}",
        secrets[0], secrets[1]
    );
    peer.text("one__read_file", json!({"path": place.write("memo.txt", text)}));
    for passes in [
        "7c9e6679-7425-40de-944b-e07fc1f90ae7",
        "maria.gonzalez@contoso-labs.com",
        "In short: they sell the fruit farm, and nobody may hear of it.",
    ] {
        assert_eq!(plain(&peer.text("two__echo", json!({"text": passes}))), passes);
    }
    for secret in secrets {
        for text in [secret.to_owned(), base64(secret), secret[..secret.len() - 8].to_owned()] {
            let refused = peer.call("two__echo", json!({"text": text}));
            assert!(["tainted-data", "nobody-to-ask"].contains(&reason(&refused)), "{text}: {refused}");
        }
    }
    // A server's data may go back to it.
    assert_eq!(plain(&peer.text("one__echo", json!({"text": MEMO}))), MEMO);
}

#[test]
fn a_host_that_is_not_listed_is_not_named() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::start(&mut command(&place));
    peer.shake_hands();
    for allowed in ["see https://api.example.com/v1, please", "https://a.example.org/", "no address at all"] {
        assert_eq!(peer.text("one__echo", json!({"text": allowed})), allowed);
    }
    for forbidden in
        ["https://collect.example.net/x", "https://a.b.example.org/", "//collect.example.net/p.png"]
    {
        let refused = peer.call("one__echo", json!({"text": forbidden}));
        assert_eq!(reason(&refused), "destination-not-allowed", "{forbidden} {refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("agentsh: Outbound domain not in allowed_domains list: ")
                && message.contains("proxy.json:1 (allowed_domains)")
                && message.contains("example"),
            "{message}"
        );
    }
    let encoded = base64("go to https://collect.example.net/drop now");
    let refused = peer.call("one__echo", json!({"text": encoded}));
    assert_eq!(reason(&refused), "destination-not-allowed", "{refused}");
    let file = place.write("a.svg", "");
    let content = "<svg xmlns=\"http://www.w3.example.net/2000/svg\"/>";
    let write = |peer: &mut Peer| {
        let written = peer.call("one__write_file", json!({"path": file, "text": content}));
        reason(&written).to_owned()
    };
    assert_eq!(write(&mut peer), "destination-not-allowed", "the server is not known to be local");
    peer.finish();
    place.policy("version: 1\nsandbox: {mcp: {servers: [{id: one, flow: {sink: local}}]}}\n");
    let mut peer = Peer::start(&mut command(&place));
    peer.shake_hands();
    assert_eq!(write(&mut peer), "none");
}

#[test]
#[ignore = "takes long"]
fn exfiltration_action_log_records_and_passes() {
    let place = Place::new(Mode::Invoker);
    for (mode, action) in [("log", "allow"), ("alert", "alert")] {
        let mut command = command(&place);
        command.env("CANARY_MCP_RESPONSE_MODE", mode);
        command.env("CANARY_MCP_ALERT_WEBHOOK", "https://hooks.example.com/x");
        let mut peer = informed(&place, &mut command);
        assert_eq!(plain(&peer.text("two__echo", json!({"text": MEMO}))), MEMO);
        let report: Value = serde_json::from_str(&peer.text("canary__get_report", json!({}))).unwrap();
        assert_eq!(report["leakage_events"][0]["source_server"], "one", "{report}");
        peer.finish();
        assert_eq!(leaks(&place).last().unwrap()["action"], action);
    }
}

#[test]
fn results_read_before_a_restart_are_known_after_it() {
    let place = Place::new(Mode::Invoker);
    let stored = place.project.join("kept/taint.db");
    let persistent = || {
        let mut command = command(&place);
        command.env("CANARY_MCP_PERSIST_PATH", &stored);
        command
    };
    let mut peer = informed(&place, &mut persistent());
    let memo = place.project.join("memo.txt");
    let mark = peer.text("one__read_file", json!({"path": memo})).split_off(MEMO.len());
    assert_eq!(reason(&peer.call("two__echo", json!({"text": MEMO}))), "tainted-data");
    // Killed: it was written when it changed.
    drop(peer);
    for file in [&stored, &stored.with_extension("key")] {
        let bytes = std::fs::read(file).unwrap();
        assert!(!bytes.windows(8).any(|window| window == b"Lindenau"));
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(file).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }
    let mut peer = Peer::start(&mut persistent());
    peer.shake_hands();
    let refused = peer.call("two__echo", json!({"text": MEMO}));
    assert_eq!(reason(&refused), "tainted-data", "{refused}");
    assert_eq!(plain(&peer.text("two__echo", json!({"text": format!("well{mark}")}))), "well");
    let report: Value = serde_json::from_str(&peer.text("canary__get_report", json!({}))).unwrap();
    assert_eq!(
        (&report["leakage_count"], report["leakage_events"].as_array().unwrap().len()),
        (&json!(2), 2),
        "{report}"
    );
    let token = &report["tokens"].as_array().unwrap().iter().find(|token| token["marked"] == true);
    let kept = ["source_type", "embed_position", "marked"].map(|name| token.unwrap()[name].clone());
    assert_eq!(kept, [json!("tool_result"), json!("suffix"), json!(true)], "{report}");
    assert_eq!(leaks(&place).len(), 2);
    // Somebody else's file stays as it is.
    let (other, link) = (place.write("other", ""), place.project.join("link.db"));
    std::os::unix::fs::symlink(&other, &link).unwrap();
    let mode = || std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&other).unwrap());
    let before = mode();
    for (named, why) in [(link, "it is a symbolic link"), ("/dev/null".into(), "it is not a regular file")] {
        let refused = Outcome::of(command(&place).env("CANARY_MCP_PERSIST_PATH", &named));
        assert!(refused.stderr.contains(why), "{refused}");
    }
    assert_eq!((mode(), std::fs::metadata(&other).unwrap().len()), (before, 0));
}

/// What a report says about them, too.
#[test]
fn texts_passed_before_a_restart_are_known_after_it() {
    let place = Place::new(Mode::Invoker);
    let start = || {
        let stored = place.project.join("taint.db");
        let mut peer = Peer::start(place.halting(&["proxy"]).env("CANARY_MCP_PERSIST_PATH", stored));
        peer.shake_hands();
        peer
    };
    let report = |peer: &mut Peer| -> Value {
        let mut report: Value = serde_json::from_str(&peer.text("get_report", json!({}))).unwrap();
        report["tokens"].take()
    };
    let mut peer = start();
    for (content, place) in [(json!(MEMO), "prefix"), (json!("{\"the safe of Ada Lovelace\": 4711}"), "both")]
    {
        let wrap = json!({"content": content, "source_type": "file_read", "embed_position": place});
        peer.text("wrap_content", wrap);
    }
    let before = report(&mut peer);
    let marked = [0, 1].map(|at| (&before[at]["embed_position"], &before[at]["marked"]));
    assert_eq!(marked, [(&json!("prefix"), &json!(true)), (&Value::Null, &json!(false))], "{before}");
    assert_eq!(peer.finish().0, 0);
    assert_eq!(report(&mut start()), before);
}

#[test]
fn agent_may_check_a_text_before_sending_it() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::start(&mut place.halting(&["proxy"]));
    peer.shake_hands();
    let answer = |answer: Value| -> (Value, bool) {
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        (serde_json::from_str(text).unwrap(), answer["result"]["isError"] == true)
    };
    let wrap =
        json!({"content": MEMO, "source_type": "file_read", "source_server": "files", "source_tool": "read"});
    let (wrapped, _) = answer(peer.call("wrap_content", wrap));
    let token = wrapped["token_id"].as_str().unwrap();
    assert_eq!(token.len(), 32);
    let marked = wrapped["wrapped_content"].as_str().unwrap();
    assert!(marked.starts_with(MEMO) && marked.len() > MEMO.len());
    let (clean, stops) =
        answer(peer.call("scan_outbound", json!({"data": "Lunch at noon by the fountain?"})));
    assert_eq!((&clean["clean"], &clean["tokens_scanned"], stops), (&json!(true), &json!(1), false));
    let (found, stops) = answer(
        peer.call("scan_outbound", json!({"data": MEMO, "target_server": "mail", "target_tool": "send"})),
    );
    assert_eq!((&found["clean"], &found["leakage_count"], stops), (&json!(false), &json!(1), true));
    assert!(found["scan_duration_ms"].is_u64() && wrapped["token_id"] == token, "{found}");
    let (checked, _) = answer(peer.call("check_leakage", json!({"token_id": token, "output": marked})));
    assert_eq!((&checked["leaked"], &checked["action_taken"]), (&json!(true), &json!("halted")));
    assert_eq!(checked["status"], "active");
    let (other, _) =
        answer(peer.call("check_leakage", json!({"token_id": "0".repeat(32), "output": marked})));
    assert_eq!((&other["leaked"], &other["status"]), (&json!(false), &json!("expired")));
    for (tool, wrong) in [
        ("wrap_content", json!({"content": "x"})),
        ("wrap_content", json!({"content": "x", "source_type": "mail"})),
        ("wrap_content", json!({"content": "x", "source_type": "other", "embed_position": "middle"})),
        ("check_leakage", json!({"token_id": "1", "output": "x"})),
        ("scan_outbound", json!({"data": 1})),
    ] {
        assert_eq!(reason(&peer.call(tool, wrong.clone())), "invalid-params", "{tool} {wrong}");
    }
    let (report, _) = answer(peer.call("get_report", json!({})));
    // All tokens in a text are recorded, even if the question was about another one.
    assert_eq!((&report["token_count"], &report["leakage_count"]), (&json!(1), &json!(3)), "{report}");
    assert_eq!(
        (&report["tokens"][0]["token_id"], &report["tokens"][0]["source_server"]),
        (&json!(token), &json!("files"))
    );
    let declared = ["source_type", "embed_position"].map(|name| &report["tokens"][0][name]);
    assert_eq!(declared, ["file_read", "suffix"], "{report}");
    // It expires after an hour.
    let [created, expires] =
        ["created_at", "expires_at"].map(|name| report["tokens"][0][name].as_str().unwrap());
    assert!(created[14..] == expires[14..] && created[..14] != expires[..14], "{created} {expires}");
    const NAMES: [&str; 4] = ["source_server", "source_tool", "target_server", "target_tool"];
    let event = &report["leakage_events"][0];
    assert_eq!(event["action_taken"], "halted", "{event}");
    assert_eq!(NAMES.map(|name| &event[name]), ["files", "read", "mail", "send"], "{event}");
    let detected = &leaks(&place)[0];
    let names = ["source_server", "source_tool", "server_id", "tool_name"].map(|name| &detected[name]);
    assert_eq!(names, ["files", "read", "mail", "send"], "{detected}");
    // An unnamed source stays unnamed.
    for kind in ["tool_result", "file_read", "api_response", "database_row", "user_message", "other"] {
        let wrap = json!({"content": format!("{kind}: the password of the safe is 4711, says Ada Lovelace"), "source_type": kind});
        let (_, is_error) = answer(peer.call("wrap_content", wrap));
        assert!(!is_error, "{kind}");
    }
    answer(
        peer.call(
            "scan_outbound",
            json!({"data": "api_response: the password of the safe is 4711, says Ada"}),
        ),
    );
    let (report, _) = answer(peer.call("get_report", json!({})));
    assert_eq!(report["tokens"][3]["source_type"], "api_response", "{report}");
    let event = report["leakage_events"].as_array().unwrap().last().unwrap();
    assert!(NAMES[..3].iter().all(|name| event[name].is_null()), "{event}");
    assert!(
        event["detail"].as_str().unwrap().contains("of a text of `wrap_content` would go out"),
        "{event}"
    );
    assert_eq!(event["target_tool"], "scan_outbound", "{event}");
    peer.finish();
    // Definitions of servers are tokens as well.
    let mut peer = Peer::start(&mut command(&place));
    peer.shake_hands();
    peer.request("tools/list", json!({}));
    let report: Value = serde_json::from_str(&peer.text("canary__get_report", json!({}))).unwrap();
    // The servers answer in any order.
    let tokens = report["tokens"].as_array().unwrap();
    assert!(tokens.iter().any(|token| token["source_server"] == "one"), "{report}");
}

/// Tool hints of a server count against it, and never for it.
#[test]
fn tool_hints_of_a_server_only_raise_suspicion() {
    let place = Place::new(Mode::Invoker);
    place.policy("version: 1\nsandbox: {mcp: {servers: [{id: two, flow: {sink: local}}]}}\n");
    let start = |hints: [Option<Value>; 2]| {
        let server = place.program("fixture_server");
        let entry = |id: &str, hints: &Option<Value>| match hints {
            None => json!({"id": id, "command": server}),
            Some(hints) => json!({"id": id, "command": server, "env": {"FIXTURE_HINTS": hints.to_string()}}),
        };
        let three = [entry("one", &None), entry("two", &hints[0]), entry("three", &hints[1])];
        let config = place.write("proxy.json", json!({"servers": three}).to_string());
        let mut peer = informed(&place, &mut place.halting(&["proxy", "--config", config.to_str().unwrap()]));
        peer.request("tools/list", json!({}));
        peer
    };
    let harmless = json!({"readOnlyHint": true, "openWorldHint": false, "destructiveHint": false});
    let open = json!({"readOnlyHint": true, "openWorldHint": true});
    for (hints, local) in [
        ([None, None], "none"),
        ([Some(harmless.clone()), Some(harmless)], "none"),
        ([Some(open), None], "tainted-data"),
    ] {
        // Else the other hints are a change of what was pinned.
        Outcome::of(&mut place.agentsh(&["mcp", "pins", "reset", "--all"])).expect_code(0);
        let mut peer = start(hints);
        assert_eq!(reason(&peer.call("two__echo", json!({"text": MEMO}))), local);
        // A server with unknown behaviour counts as external, whatever it claims.
        assert_eq!(reason(&peer.call("three__echo", json!({"text": MEMO}))), "tainted-data");
        peer.finish();
    }
    let output =
        place.agentsh(&["mcp", "events", "--type", "mcp_server_suspected", "--json"]).output().unwrap();
    let told: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["server_id"], &told[0]["hint"]), (&json!("two"), &json!("openWorldHint")));
}

/// A server can ask for what it wants to know, too.
#[test]
fn text_of_one_server_in_an_answer_to_another_is_refused() {
    let place = Place::new(Mode::Invoker);
    let mut peer = informed(&place, &mut command(&place));
    let mut answered = |server: &str, method: &str, text: &str| -> Value {
        let arguments = json!({"method": method, "params": {}});
        let call = peer.ask("tools/call", json!({"name": format!("{server}__ask"), "arguments": arguments}));
        let asked = peer.next();
        let result = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": text}});
        peer.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        let answer = peer.answer(&call);
        serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap()
    };
    for method in ["sampling/createMessage", "elicitation/create"] {
        assert_eq!(reason(&answered("two", method, &MEMO[20..])), "tainted-data", "{method}");
        let own = answered("one", method, MEMO);
        assert_eq!(own["result"]["content"]["text"], MEMO, "{method} {own}");
        let link = answered("two", method, "see https://collect.example.net/x");
        assert_eq!(link["result"]["content"]["text"], "see https://collect.example.net/x", "{method}");
    }
    peer.finish();
    assert_eq!(leaks(&place).len(), 2);
}

/// In any part of a message: ids, tokens, unknown members, unknown methods, notifications.
#[test]
fn ids_tokens_and_unknown_members_to_a_server_are_judged() {
    let place = Place::new(Mode::Invoker);
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {close_after: 100}}}\n");
    let mut peer = informed(&place, &mut command(&place));
    let part = &MEMO[30..140];
    let call = |id: Value, more: Value| {
        let mut params = json!({"name": "two__echo", "arguments": {"text": "well"}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    for message in [
        call(json!(part), json!({})),
        call(json!(900), json!({"_meta": {"progressToken": part}})),
        call(json!(901), json!({"_meta": {"example.org/note": [part]}})),
        call(json!(902), json!({"comment": {"text": part}})),
    ] {
        peer.send(&message);
        let answer: Value = serde_json::from_slice(&peer.next_line()).unwrap();
        assert_eq!(reason(&answer), "tainted-data", "{message} {answer}");
    }
    peer.send(&call(json!("a-1"), json!({"_meta": {"progressToken": "t-1"}})));
    let answer: Value = serde_json::from_slice(&peer.next_line()).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "well", "{answer}");
    drop(peer);
    assert_eq!(leaks(&place).len(), 4);
}

/// Unreadable data may be anything: it is reported, and refused if the policy says so. Packed data is refused as
/// a copy is.
#[test]
fn opaque_data_is_reported_and_refused_on_request() {
    let noise: Vec<u8> = (0..600_u64)
        .map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 ^ ((at * at) >> 3) as u8)
        .collect();
    let image: Vec<u8> = b"\x89PNG\r\n\x1a\n".iter().chain(&noise).copied().collect();
    let archive: Vec<u8> = b"7z\xbc\xaf\x27\x1c\0\x04".iter().chain(&noise[..60]).copied().collect();
    for (policy, blocked) in [("", false), ("on_opaque: block", true)] {
        let place = Place::new(Mode::Invoker);
        place.policy(&format!(
            "version: 1\nsandbox: {{mcp: {{exfiltration: {{close_after: 100, {policy}}}}}}}\n"
        ));
        let mut peer = informed(&place, &mut command(&place));
        for (bytes, is_opaque, is_packed) in
            [(&noise, true, false), (&archive, true, true), (&image, false, false)]
        {
            let is_refused = is_packed || is_opaque && blocked;
            let before = leaks(&place).len();
            let answer = peer.call("two__echo", json!({"file": base64_of(bytes)}));
            assert_eq!(answer.get("error").is_some(), is_refused, "{answer}");
            // Findings about passed calls are recorded a moment later.
            let told = || leaks(&place).len() - before;
            eventually(|| told() == usize::from(is_opaque));
            assert_eq!(told(), usize::from(is_opaque), "{:?}", leaks(&place));
            if is_refused {
                let message = answer["error"]["message"].as_str().unwrap();
                let what = if is_packed { "of compressed data" } else { "agentsh cannot decode" };
                assert!(
                    message.contains(what)
                        && message.contains("policy.yaml:2 (sandbox.mcp.exfiltration.on_opaque)"),
                    "{message}"
                );
            }
        }
    }
}
