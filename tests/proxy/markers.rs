//! Prose of results carries an invisible marker; only the model sees it, and no server gets one back.

use serde_json::{Value, json};

use super::leaks::{self, MEMO, plain, reason};
use crate::support::{Mode, Peer, Place};

fn start(place: &Place) -> Peer {
    let mut peer = Peer::start(&mut leaks::command(place));
    peer.shake_hands();
    peer
}

fn marker(marked: &str) -> String {
    marked.chars().filter(|character| !plain(&character.to_string()).contains(*character)).collect()
}

#[test]
fn prose_is_marked_and_returned_unmarked() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let target = place.write("copy.txt", "");
        // A path on its command line may be written.
        let file =
            json!({"servers": [{"id": "one", "command": place.program("fixture_server"), "args": [target]}]});
        let config = place.write("proxy.json", file.to_string());
        let mut peer = Peer::start(&mut place.halting(&["proxy", "--config", config.to_str().unwrap()]));
        peer.shake_hands();
        let source = place.write("memo.txt", MEMO);
        let marked = peer.text("one__read_file", json!({"path": source}));
        assert_eq!(plain(&marked), MEMO, "{mode:?}");
        assert_eq!(marked.chars().count(), MEMO.chars().count() + 5);
        for line in [
            json!({"path": target, "text": marked}).to_string(),
            // As clients write it that escape everything.
            format!("{{\"path\":{target:?},\"text\":\"{}\"}}", escaped(&marked)),
        ] {
            std::fs::write(&target, "").unwrap();
            peer.send_line(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":\"w\",\"method\":\"tools/call\",\"params\":{{\"name\":\"one__write_file\",\"arguments\":{line}}}}}")
                    .as_bytes(),
            );
            assert_eq!(peer.answer(&json!("w"))["result"]["content"][0]["text"], "written");
            assert_eq!(std::fs::read_to_string(&target).unwrap(), MEMO, "{line}");
        }
    }
}

#[test]
fn texts_that_are_no_prose_get_no_marker() {
    let place = Place::new(Mode::Invoker);
    let mut peer = start(&place);
    let prose = "The ferry leaves at nine, so please bring the tickets and something warm to wear. Who is late \
                 waits for the next one, which is slower and does not call at the small islands.";
    for text in [
        json!({"note": prose}).to_string(),
        json!([prose, prose]).to_string(),
        json!(prose).to_string(),
        format!("<note>{prose}</note>"),
        format!("{prose}\n```sh\necho {prose}\n```"),
        format!("a, {prose}\nb, {prose}\nc, {prose}"),
        "Too short: the ferry leaves at nine, at the pier.".to_owned(),
        "fn main() { let number = 1; println!(\"one two three four five six seven {}\", number); }"
            .to_owned(),
    ] {
        assert_eq!(peer.text("one__echo", json!({"text": text})), text);
    }
    // The answer as it was spelled, byte by byte, when nothing is put in.
    let said = r#"{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"text":"TEXT","n":1.50e3},"content":[{"text":"TEXT","type":"text"}],"\u0061":null}}"#
        .replace("TEXT", prose);
    let said = said.replace("\"id\":ID", "\"id\":\"raw\"");
    peer.send(&json!({"jsonrpc": "2.0", "id": "raw", "method": "tools/call", "params": {"name": "one__say",
        "arguments": {"line": said}}}));
    assert_eq!(String::from_utf8(peer.next_line()).unwrap().trim_end(), said);
}

#[test]
fn marker_alone_identifies_the_source_of_a_text() {
    let place = Place::new(Mode::Invoker);
    let mut peer = start(&place);
    let source = place.write("memo.txt", MEMO);
    let mark = marker(&peer.text("one__read_file", json!({"path": source})));
    let refused = peer.call("two__echo", json!({"text": format!("well{mark}")}));
    assert_eq!(reason(&refused), "tainted-data", "{refused}");
    assert_eq!(place.detections().last().unwrap()["detector"], "taint-marker");
    // A name is judged as it is spelled and forwarded as it is spelled.
    let unknown = peer.call(&format!("one__echo{mark}"), json!({"text": "x"}));
    assert!(unknown["error"]["message"].as_str().unwrap().contains("lists no tool"), "{unknown}");
    // Text hidden by a marker is judged after the marker was removed.
    let refused = peer.call("one__echo", json!({"text": format!("https://colle{mark}ct.example.net/x")}));
    assert_eq!(reason(&refused), "destination-not-allowed", "{refused}");
    // The record has the verdict that the client got, once.
    drop(peer);
    let verdicts = place.events("mcp_tool_call_intercepted");
    let last = verdicts.last().unwrap();
    assert_eq!((&last["action"], &last["reason"]), (&json!("block"), &json!("destination-not-allowed")));
    assert_eq!(verdicts.iter().filter(|verdict| verdict["jsonrpc_id"] == last["jsonrpc_id"]).count(), 1);
}

#[test]
fn marker_setting_turns_it_off_or_moves_it() {
    let place = Place::new(Mode::Invoker);
    let source = place.write("memo.txt", MEMO);
    for (word, extra) in [("off", 0), ("suffix", 5), ("prefix", 5), ("both", 10), ("random_word_boundary", 5)]
    {
        place.policy(&format!("version: 1\nsandbox: {{mcp: {{exfiltration: {{marker: {word}}}}}}}\n"));
        let mut peer = start(&place);
        let text = peer.text("one__read_file", json!({"path": source}));
        assert_eq!(
            (plain(&text).as_str(), text.chars().count()),
            (MEMO, MEMO.chars().count() + extra),
            "{word}"
        );
        if word != "random_word_boundary" {
            assert_eq!(text.starts_with(&MEMO[..20]), !matches!(word, "prefix" | "both"), "{word}");
            assert_eq!(text.ends_with(&MEMO[60..]), matches!(word, "off" | "prefix"), "{word}");
        }
        // Without a marker copies are found as well.
        assert_eq!(reason(&peer.call("two__echo", json!({"text": MEMO}))), "tainted-data", "{word}");
    }
}

fn escaped(text: &str) -> String {
    let one = |character: char| match character.is_ascii() {
        true => character.to_string(),
        false => format!("\\u{:04x}", u32::from(character)),
    };
    text.chars().map(one).collect()
}

#[test]
fn answers_of_the_client_to_a_server_have_no_marker() {
    let place = Place::new(Mode::Invoker);
    let mut peer = start(&place);
    let source = place.write("memo.txt", MEMO);
    let marked = peer.text("one__read_file", json!({"path": source}));
    let call = peer.ask(
        "tools/call",
        json!({"name": "one__ask", "arguments": {"method": "sampling/createMessage", "params": {}}}),
    );
    let asked = peer.next();
    peer.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": {"type": "text", "text": marked}}}));
    let answer = peer.answer(&call);
    let heard: Value =
        serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(heard["result"]["content"]["text"], MEMO);
}

/// Also in a text that may pass, or that stands backwards.
#[test]
fn marker_belongs_to_its_own_result_whatever_was_read_later() {
    let place = Place::new(Mode::Invoker);
    let server = place.program("fixture_server");
    let entry = |id: &str| json!({"id": id, "command": server});
    let file = json!({"servers": [entry("one"), entry("two"), entry("three")]});
    let config = place.write("proxy.json", file.to_string());
    place.policy(
        "version: 1\nsandbox: {mcp: {exfiltration: {on_detection: block, close_after: 100, allow: [{from: one, to: two}]}}}\n",
    );
    let mut peer = Peer::start(&mut place.halting(&["proxy", "--config", config.to_str().unwrap()]));
    peer.shake_hands();
    let source = place.write("memo.txt", MEMO);
    let marked = peer.text("one__read_file", json!({"path": source}));
    let later =
        "Quite other minutes: the choir sings on Sunday, and the bakery opens at seven on weekdays again.";
    let later = peer.text("three__read_file", json!({"path": place.write("later.txt", later)}));
    assert_eq!(marker(&later).chars().count(), 5);
    let backwards = |text: &str| text.chars().rev().collect::<String>();
    for text in [marker(&later)[3..].to_owned(), marker(&later), backwards(&marker(&later))] {
        let refused = peer.call("two__echo", json!({"text": format!("well{text} said")}));
        assert_eq!(reason(&refused), "tainted-data", "{refused}");
        assert!(refused.to_string().contains("'three'"), "{refused}");
    }
    for text in [marked.clone(), format!("well{}", marker(&marked)), backwards(&marked)] {
        let answer = peer.call("two__echo", json!({"text": text}));
        assert!(answer["error"].is_null(), "{answer}");
    }
}
