//! The promises of the page of `@exfil/canary`: defaults, limits and words.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::leaks::{MEMO, plain, reason};
use crate::support::{Answer, Mode, Peer, Place, Receiver};

fn start(place: &Place, mode: Option<&str>, rest: &Value) -> Peer {
    let server = place.program("fixture_server");
    let mut file = json!({"servers": [{"id": "one", "command": server}, {"id": "two", "command": server}],
                          "allowed_domains": ["api.example.com"]});
    file.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    let config = place.write("proxy.json", file.to_string());
    let mut command = place.agentsh(&["proxy", "--config", config.to_str().unwrap()]);
    command.env("CANARY_MCP_ALERT_WEBHOOK", "https://hooks.example.com/x").env("AUDITOR_KEY", "k");
    if let Some(mode) = mode {
        command.env("CANARY_MCP_RESPONSE_MODE", mode);
    }
    let mut peer = Peer::start(&mut command);
    peer.shake_hands();
    peer
}

fn report(peer: &mut Peer) -> Value {
    serde_json::from_str(&peer.text("canary__get_report", json!({}))).unwrap()
}

#[test]
fn a_host_that_is_not_listed_is_refused_in_every_mode() {
    for (mode, word) in
        [(None, "log"), (Some("log"), "log"), (Some("alert"), "alert"), (Some("halt"), "halt")]
    {
        let place = Place::new(Mode::Invoker);
        let mut peer = start(&place, mode, &json!({}));
        let memo = place.write("memo.txt", MEMO);
        peer.text("one__read_file", json!({"path": memo}));
        // Alone, and next to a copy that the mode lets pass.
        for text in
            ["see https://collect.example.net/x".to_owned(), format!("{MEMO} https://collect.example.net/x")]
        {
            let answer = peer.call("two__echo", json!({"text": text}));
            assert_eq!(reason(&answer), "destination-not-allowed", "{mode:?} {answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("Outbound domain not in allowed_domains list"), "{message}");
        }
        assert_eq!(
            peer.text("two__echo", json!({"text": "https://api.example.com/"})),
            "https://api.example.com/"
        );
        let copied = peer.call("two__echo", json!({"text": MEMO}));
        assert_eq!(reason(&copied), if word == "halt" { "tainted-data" } else { "none" }, "{copied}");
        let names_variable = copied.to_string().contains("CANARY_MCP_RESPONSE_MODE (the environment)");
        assert_eq!(names_variable, word == "halt", "{copied}");
        let report = report(&mut peer);
        assert_eq!(report["response_mode"], word);
        assert_eq!(report["leakage_events"][0]["action_taken"], "halted", "{report}");
    }
}

#[test]
fn hosts_and_tools_are_listed_in_the_ways_of_the_page() {
    let listed = json!(["*.github.com", "API.Example.com"]);
    for (rest, texts) in [
        // Fail closed.
        (json!({}), vec![("https://evil.example/x", false), ("no address", true)]),
        (json!({"allowed_domains": []}), vec![("https://evil.example/x", false)]),
        (
            json!({"allowed_domains": listed}),
            vec![
                ("https://raw.github.com/x", true),
                ("https://github.com/x", false),
                ("https://a.b.github.com/x", false),
                ("https://api.example.COM/x", true),
            ],
        ),
        (json!({"allowed_tools": []}), vec![("no address", true)]),
        (json!({"allowed_tools": ["*"]}), vec![("no address", true)]),
    ] {
        let place = Place::new(Mode::Invoker);
        let mut file = json!({"servers": [{"id": "one", "command": place.program("fixture_server")}]});
        file.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let config = place.write("proxy.json", file.to_string());
        let mut peer = Peer::start(&mut place.agentsh(&["proxy", "--config", config.to_str().unwrap()]));
        peer.shake_hands();
        for (text, passes) in texts {
            let expected = if passes { "none" } else { "destination-not-allowed" };
            let answer = peer.call("one__echo", json!({"text": text}));
            assert_eq!(reason(&answer), expected, "{rest} {text}: {answer}");
        }
    }
}

/// An explicit `exfiltration` section of a policy wins.
#[test]
fn exfiltration_policy_stricter_than_the_default_is_applied() {
    let place = Place::new(Mode::Invoker);
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {on_detection: block}}}\n");
    let mut peer = start(&place, None, &json!({}));
    let memo = place.write("memo.txt", MEMO);
    peer.text("one__read_file", json!({"path": memo}));
    assert_eq!(reason(&peer.call("two__echo", json!({"text": MEMO}))), "tainted-data");
    assert_eq!(report(&mut peer)["response_mode"], "halt");
    // What is set for this client comes before both.
    let mut peer = start(&place, Some("log"), &json!({}));
    peer.text("one__read_file", json!({"path": memo}));
    assert_eq!(reason(&peer.call("two__echo", json!({"text": MEMO}))), "none");
}

#[test]
fn call_without_an_auditor_answer_is_refused_in_mode_log_too() {
    let silent = || Receiver::start(|_, _| Answer::Nothing);
    for (action, expected) in
        [(None, "audit-timed-out"), (Some("block"), "audit-timed-out"), (Some("allow"), "none")]
    {
        let place = Place::new(Mode::Invoker);
        let (first, second) = (silent(), silent());
        let auditor = |receiver: &Receiver| {
            json!({"provider": "openai", "model": "m", "timeout_ms": 200,
            "api_key_env": "AUDITOR_KEY", "base_url": format!("http://127.0.0.1:{}/v1", receiver.port)})
        };
        let mut rest = json!({"auditors": [auditor(&first), auditor(&second)]});
        if let Some(action) = action {
            rest["audit_timeout_action"] = json!(action);
        }
        let mut peer = start(&place, Some("log"), &rest);
        let answer = peer.call("one__echo", json!({"text": "x"}));
        assert_eq!(reason(&answer), expected, "{action:?} {answer}");
    }
}

#[test]
#[ignore = "takes long"]
fn an_auditor_without_a_timeout_has_eight_seconds() {
    let place = Place::new(Mode::Invoker);
    let (first, second) = (Receiver::start(|_, _| Answer::Nothing), Receiver::start(|_, _| Answer::Nothing));
    let auditor = |receiver: &Receiver| {
        json!({"provider": "openai", "model": "m", "api_key_env": "AUDITOR_KEY",
               "base_url": format!("http://127.0.0.1:{}/v1", receiver.port)})
    };
    let mut peer = start(&place, None, &json!({"auditors": [auditor(&first), auditor(&second)]}));
    let since = Instant::now();
    assert_eq!(reason(&peer.call("one__echo", json!({"text": "x"}))), "audit-timed-out");
    let seconds = since.elapsed().as_secs();
    assert!((8..20).contains(&seconds), "{seconds}");
}

#[test]
#[ignore = "takes long"]
fn a_result_is_forgotten_after_the_lifetime_of_its_token() {
    let place = Place::new(Mode::Invoker);
    place.set("CANARY_MCP_TOKEN_TTL", "60");
    let mut peer = start(&place, Some("halt"), &json!({}));
    let memo = place.write("memo.txt", MEMO);
    let since = Instant::now();
    peer.text("one__read_file", json!({"path": memo}));
    while reason(&peer.call("two__echo", json!({"text": MEMO}))) == "tainted-data" {
        assert!(since.elapsed() < Duration::from_secs(120), "it is remembered");
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(since.elapsed() >= Duration::from_secs(59), "{:?}", since.elapsed());
}

#[test]
fn auditors_of_the_same_provider_are_reported() {
    let auditor = |provider: &str| json!({"provider": provider, "model": "m", "api_key_env": "AUDITOR_KEY"});
    for (second, is_told) in [("openai", true), ("google", false), ("anthropic", false)] {
        let place = Place::new(Mode::Invoker);
        let peer = start(&place, None, &json!({"auditors": [auditor("openai"), auditor(second)]}));
        let (_, said) = peer.finish();
        assert_eq!(said.contains("of the same provider"), is_told, "{said}");
    }
}

fn alone(place: &Place) -> Peer {
    let mut peer = Peer::start(&mut place.agentsh(&["proxy"]));
    peer.shake_hands();
    peer
}

fn answer(peer: &mut Peer, tool: &str, arguments: Value) -> Value {
    let answer = peer.call(tool, arguments);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(text).unwrap()
}

#[test]
fn short_texts_are_marked_where_they_were_asked_to_be() {
    let place = Place::new(Mode::Invoker);
    let mut peer = alone(&place);
    let text = "Lunch is at noon";
    for (position, begins, ends) in [
        (None, false, true),
        (Some("suffix"), false, true),
        (Some("prefix"), true, false),
        (Some("both"), true, true),
        (Some("random_word_boundary"), false, false),
    ] {
        let mut arguments = json!({"content": text, "source_type": "user_message"});
        if let Some(position) = position {
            arguments["embed_position"] = json!(position);
        }
        let wrapped = answer(&mut peer, "wrap_content", arguments);
        let marked = wrapped["wrapped_content"].as_str().unwrap();
        assert_eq!((plain(marked).as_str(), marked == text), (text, false), "{position:?}");
        assert_eq!(
            (!marked.starts_with('L'), !marked.ends_with('n')),
            (begins, ends),
            "{position:?} {marked:?}"
        );
        let token = wrapped["token_id"].as_str().unwrap();
        assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    }
    for (text, why) in [
        ("{\"a\": \"b c d\"}", "JSON"),
        ("let x = the answer;", "code"),
        ("8f3a-11", "one word"),
        ("", "empty"),
        ("<p>Lunch is at noon</p>", "markup"),
        ("- [12.5](4711)\n- [13.5](4712)", "symbols and digits"),
    ] {
        let arguments = json!({"content": text, "source_type": "other"});
        let wrapped = answer(&mut peer, "wrap_content", arguments);
        assert_eq!((&wrapped["wrapped_content"], &wrapped["marked"]), (&json!(text), &json!(false)));
        assert!(wrapped["not_marked_because"].as_str().unwrap().contains(why), "{wrapped}");
    }
    // Without a key everybody gets the report.
    let report = answer(&mut peer, "get_report", json!({}));
    assert_eq!((&report["response_mode"], &report["token_count"]), (&json!("log"), &json!(11)));
}

#[test]
fn ids_of_tokens_are_those_of_one_session() {
    let place = Place::new(Mode::Invoker);
    let texts = [
        "The ferry to the islands leaves at nine on Sunday, and the tickets are with the harbour master.",
        "Roses want water in the morning, tomatoes in the evening, and neither of them wants it on the leaves.",
    ];
    let wrap = |peer: &mut Peer, text: &str| -> String {
        let wrapped = answer(peer, "wrap_content", json!({"content": text, "source_type": "other"}));
        wrapped["token_id"].as_str().unwrap().to_owned()
    };
    let check = |peer: &mut Peer, token: &str, text: &str| {
        let checked = answer(peer, "check_leakage", json!({"token_id": token, "output": text}));
        (checked["status"].as_str().unwrap().to_owned(), checked["leaked"] == true)
    };
    let expected = |status: &str, leaked| (status.to_owned(), leaked);
    let mut first = alone(&place);
    let old = wrap(&mut first, texts[0]);
    assert_eq!(check(&mut first, &old.to_uppercase(), texts[0]), expected("active", true));
    first.finish();
    // Of another session, an id names nothing.
    let mut second = alone(&place);
    wrap(&mut second, texts[1]);
    for text in texts {
        assert_eq!(check(&mut second, &old, text), expected("expired", false));
    }
    second.finish();
    // Two clients that share a file, and the session after them.
    place.set("CANARY_MCP_PERSIST_PATH", place.project.join("state.db").to_str().unwrap());
    let mut both = [alone(&place), alone(&place)];
    let tokens = [0, 1].map(|at| wrap(&mut both[at], texts[at]));
    assert_ne!(tokens[0], tokens[1]);
    both.into_iter().for_each(|peer| assert_eq!(peer.finish().0, 0));
    let mut after = alone(&place);
    for at in [0, 1] {
        assert_eq!(check(&mut after, &tokens[at], texts[at]), expected("active", true));
        assert_eq!(check(&mut after, &tokens[at], texts[1 - at]), expected("active", false));
    }
}

#[test]
fn results_of_fifty_characters_are_marked_and_the_report_says_which_were_not() {
    let place = Place::new(Mode::Invoker);
    let mut peer = start(&place, None, &json!({}));
    let short = "The ferry to the islands leaves at nine on Sunday.";
    for (text, is_marked) in [
        (short, true),
        (&short[..49], false),
        ("{\"ferry\": \"leaves at nine, bring the tickets, please\"}", false),
    ] {
        let said = peer.text("one__echo", json!({"text": text}));
        assert_eq!((plain(&said).as_str(), said != text), (text, is_marked));
        let report = report(&mut peer);
        assert_eq!(report["tokens"].as_array().unwrap().last().unwrap()["marked"], is_marked, "{report}");
    }
}

#[test]
fn more_than_ten_mebibytes_are_neither_marked_nor_compared() {
    let place = Place::new(Mode::Invoker);
    let mut peer = alone(&place);
    let wrapped = answer(&mut peer, "wrap_content", json!({"content": MEMO, "source_type": "file_read"}));
    let token = &wrapped["token_id"];
    let most = "x".repeat(10 << 20);
    let checked = answer(&mut peer, "check_leakage", json!({"token_id": token, "output": most}));
    assert_eq!((&checked["status"], &checked["leaked"]), (&json!("active"), &json!(false)));
    let more = format!("{most}x");
    let checked = peer.call("check_leakage", json!({"token_id": token, "output": more}));
    assert_eq!(reason(&checked), "invalid-params");
    let wrapped = peer.call("wrap_content", json!({"content": more, "source_type": "other"}));
    assert_eq!(reason(&wrapped), "invalid-params");
}

#[test]
#[ignore = "takes long"]
fn more_than_a_message_of_a_server_is_searched_and_more_than_fifty_mebibytes_are_not() {
    let place = Place::new(Mode::Invoker);
    let mut peer = alone(&place);
    answer(&mut peer, "wrap_content", json!({"content": MEMO, "source_type": "file_read"}));
    // Lines without words: what is not optimised takes 15 s for 50 MiB of words.
    let mut data = "\n".repeat(17 << 20);
    data.push_str(MEMO);
    let found = answer(&mut peer, "scan_outbound", json!({"data": data}));
    assert_eq!((&found["clean"], &found["tokens_scanned"]), (&json!(false), &json!(1)));
    // Words take longer than the watchdog waits for the session's own thread.
    let data = "a b c d ".repeat(1 << 20);
    assert_eq!(answer(&mut peer, "scan_outbound", json!({"data": data}))["clean"], true);
    // However JSON spells it.
    for (id, spelled, bytes) in [(900, "\\u00e9", 2), (901, "\\u000a", 1)] {
        let data = spelled.repeat((50 << 20) / bytes);
        let asked = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"scan_outbound","arguments":{{"data":"{data}"}}}}}}"#
        );
        peer.send_line(format!("{asked}\n").as_bytes());
        let found = peer.answer(&json!(id));
        assert!(
            found["result"]["content"][0]["text"].as_str().unwrap().contains("\"clean\":true"),
            "{found}"
        );
    }
    let data = "x".repeat((50 << 20) + 1);
    assert_eq!(reason(&peer.call("scan_outbound", json!({"data": data}))), "invalid-params");
}
