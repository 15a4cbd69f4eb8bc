//! Data in pieces: how much of a key, or of prose, arrives before it is refused.

use std::process::Command;

use serde_json::{Value, json};

use super::leaks::{plain, reason};
use crate::support::{Mode, Peer, Place};

const KEY: &str = "Qz7Lm2Wx9Rt4Vb6Nc8Kd3Hs5Jf1Gp0Ya";

fn three(place: &Place) -> Command {
    let server = place.program("fixture_server");
    let entry = |id: &str| json!({"id": id, "command": server});
    let file = json!({"servers": [entry("one"), entry("two"), entry("three")]});
    let config = place.write("three.json", file.to_string());
    place.halting(&["proxy", "--config", config.to_str().unwrap()])
}

fn read_key(place: &Place, peer: &mut Peer) {
    let file = place.write("key.txt", format!("secret_key={KEY}\n"));
    peer.text("one__read_file", json!({"path": file}));
}

/// At most a quarter of a key that is cut into pieces arrives before the pairs are closed, through however many
/// servers.
#[test]
#[ignore = "takes long"]
fn at_most_a_quarter_of_a_key_arrives_in_pieces() {
    for length in [1, 3, 6, 8] {
        for backwards in [false, true] {
            let place = Place::new(Mode::Invoker);
            let mut peer = Peer::start(&mut three(&place));
            peer.shake_hands();
            read_key(&place, &mut peer);
            let mut pieces: Vec<&str> =
                KEY.as_bytes().chunks(length).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            if backwards {
                pieces.reverse();
            }
            let mut arrived = 0;
            for (at, piece) in pieces.iter().enumerate() {
                let to = ["two", "three"][at % 2];
                let answer = peer.call(&format!("{to}__echo"), json!({"text": piece}));
                arrived += if answer.get("error").is_some() { 0 } else { piece.len() };
            }
            assert!(arrived * 4 <= KEY.len(), "{length} {backwards}: {arrived}");
        }
    }
}

const NOTES: &str = "Notes of the choir board, 4 March. The old rehearsal hall in Wismar goes to the Petersen brothers for \
                     88.5 thousand crowns, half of it in spring. Singers hear of it after the concert on 19 May, and the \
                     organist keeps the keys until then. Mrs Dahl has the contract in her desk, and two of the sponsors \
                     asked why the roof was never paid for. The old piano stays where it is until somebody buys it.";

/// Little of a prose that is cut anywhere, even within words, arrives: in any order, with whatever around it, through
/// however many servers, and over a restart.
#[test]
fn prose_cut_in_the_middle_of_words_does_not_arrive() {
    let place = Place::new(Mode::Invoker);
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {close_after: 100}}}\n");
    let stored = place.project.join("kept/taint.db");
    let file = place.write("notes.txt", NOTES);
    let started = || {
        let mut command = three(&place);
        command.env("CANARY_MCP_PERSIST_PATH", &stored);
        let mut peer = Peer::start(&mut command);
        peer.shake_hands();
        peer
    };
    let mut pieces: Vec<(usize, &str)> =
        NOTES.as_bytes().chunks(18).map(|piece| std::str::from_utf8(piece).unwrap()).enumerate().collect();
    pieces.reverse();
    let mut arrived = 0;
    let mut refused = Vec::new();
    let mut send = |peer: &mut Peer, pieces: &[(usize, &str)]| {
        for (at, piece) in pieces {
            let own = format!("this is line {at} of the song: {piece}");
            let answer = peer.call(&format!("{}__echo", ["two", "three"][at % 2]), json!({"text": own}));
            match answer.get("error") {
                Some(_) => refused.push(reason(&answer).to_owned()),
                None => arrived += piece.len(),
            }
        }
    };
    let mut peer = started();
    assert_eq!(plain(&peer.text("one__read_file", json!({"path": file}))), NOTES);
    send(&mut peer, &pieces[..4]);
    peer.finish();
    let mut peer = started();
    send(&mut peer, &pieces[4..]);
    let own = "The choir meets on Thursday as always; bring the red folder and something to drink.";
    assert_eq!(plain(&peer.text("three__echo", json!({"text": own}))), own);
    peer.finish();
    assert!(refused.iter().any(|reason| reason == "tainted-data"), "{refused:?}");
    assert!(arrived * 2 <= NOTES.len(), "{arrived} of {}", NOTES.len());
}

/// Pieces that an alert let pass count as sent, also those before a restart.
#[test]
fn delivered_pieces_of_a_key_count_after_a_restart() {
    let place = Place::new(Mode::Invoker);
    let stored = place.project.join("kept/taint.db");
    let started = |mode: &str| {
        let mut command = three(&place);
        command.env("CANARY_MCP_PERSIST_PATH", &stored).env("CANARY_MCP_RESPONSE_MODE", mode);
        let mut peer = Peer::start(&mut command);
        peer.shake_hands();
        peer
    };
    let mut peer = started("halt");
    read_key(&place, &mut peer);
    assert_eq!(peer.text("two__echo", json!({"text": &KEY[..6]})), &KEY[..6]);
    peer.finish();
    let mut peer = started("halt");
    let refused = peer.call("three__echo", json!({"text": &KEY[12..18]}));
    assert_eq!(reason(&refused), "tainted-data", "{refused}");
    peer.finish();
    // Twelve characters have been sent: six more are reported again, and the same six are nothing new.
    let mut peer = started("log");
    let before = place.detections().len();
    for _ in 0..2 {
        assert_eq!(peer.text("two__echo", json!({"text": &KEY[12..18]})), &KEY[12..18]);
    }
    peer.finish();
    assert_eq!(place.detections().len() - before, 1);
}

/// An agent that asks itself what may go: pieces that were called clean count for the next one, those that were not do not.
#[test]
fn pieces_that_an_agent_asks_about_count() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::start(&mut place.halting(&["proxy"]));
    peer.shake_hands();
    let wrap =
        json!({"content": format!("secret_key={KEY}"), "source_type": "file_read", "source_server": "files"});
    peer.text("wrap_content", wrap);
    let mut is_clean = |piece: &str, to: &str| -> bool {
        let answer = peer.call("scan_outbound", json!({"data": piece, "target_server": to}));
        let answer = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let answer: Value = serde_json::from_str(answer).unwrap();
        answer["clean"].as_bool().unwrap()
    };
    assert!(is_clean(&KEY[..6], "mail"));
    assert!(!is_clean(&KEY[12..18], "mail"));
    assert!(!is_clean(&KEY[18..24], "wiki"), "to whichever server");
    assert!(is_clean(&KEY[..6], "mail"), "it is there already");
}
