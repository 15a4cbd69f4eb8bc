//! Nothing is lost on the wire: what is sent on one side comes out on the other, except white space between tokens.

mod differential;
mod documented;
mod hostile;
mod http;
mod messages;
mod speech;
mod vectors;

use std::fmt::Write;

use vectors::{Message, TO_CLIENT, TO_SERVER};

use crate::support::{Mode, Peer, Place};

/// Takes away what JSON does not mean: white space outside of strings.
fn bare(line: &[u8]) -> Vec<u8> {
    let (mut out, mut inside, mut escaped) = (Vec::new(), false, false);
    for &byte in line {
        if !inside && byte.is_ascii_whitespace() {
            continue;
        }
        out.push(byte);
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            _ => {}
        }
    }
    out
}

#[track_caller]
fn same(sent: &str, came: &[u8]) {
    assert_eq!(String::from_utf8_lossy(&bare(came)), String::from_utf8_lossy(&bare(sent.as_bytes())));
}

/// Every message of the table, each side in turn, through one connection. A message that answers something is sent
/// after what it answers.
#[test]
fn messages_are_forwarded_unchanged() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.without_definitions();
        let mut play = String::new();
        let mut plan = Vec::new();
        for Message { before, line } in TO_CLIENT {
            if let Some(request) = before {
                play.push_str("R\n");
                plan.push((true, request.to_string()));
            }
            // A client message of its own keeps the two sides in step.
            play.push_str("R\n");
            plan.push((true, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/step\"}".to_owned()));
            writeln!(play, "S {line}").unwrap();
            plan.push((false, line.to_string()));
        }
        for Message { before, line } in TO_SERVER {
            if let Some(request) = before {
                play.push_str("R\n");
                plan.push((true, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/step\"}".to_owned()));
                writeln!(play, "S {request}").unwrap();
                plan.push((false, request.to_string()));
            }
            play.push_str("R\n");
            plan.push((true, line.to_string()));
        }
        let script = place.write("play.txt", &play);
        let mut peer = Peer::server(&place, &["raw", script.to_str().unwrap()]);
        let mut sent = Vec::new();
        for (to_server, line) in &plan {
            if *to_server {
                peer.send_line(line.as_bytes());
                sent.push(line);
            } else {
                same(line, &peer.next_line());
            }
        }
        let (_, errors) = peer.finish();
        let got: Vec<&str> = errors.lines().filter_map(|line| line.strip_prefix("[fixture] GOT ")).collect();
        assert_eq!(got.len(), sent.len(), "{mode:?} {errors}");
        for (sent, got) in sent.into_iter().zip(got) {
            same(sent, got.as_bytes());
        }
    }
}
