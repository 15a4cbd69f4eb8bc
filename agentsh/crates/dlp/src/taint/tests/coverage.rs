#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::time::Duration;

use serde_json::json;

use super::super::judge::Judge;
use super::super::leaves::Leaves;
use super::super::memory::Config;
use super::super::origin::Origin;
use super::super::views::Views;
use super::*;
use crate::json;

const SECRET: &str = "Qz7Lm2Wx9Rt4Vb6Nc8Kd3Hs5Jf1Gp0Ya";

fn hasher() -> Hasher {
    Hasher::new(&[7; 32])
}

fn add(coverage: &mut Coverage, id: u64, by: &str, secret: &str) {
    let followed = Followed::of(&hasher(), Kind::ApiKey, secret).unwrap();
    coverage.add(OriginId(id), &server(by), &followed);
}

fn server(name: &str) -> ServerId {
    ServerId(name.to_owned())
}

fn origin(by: &str) -> Origin {
    Origin {
        server: server(by),
        tool: "read".to_owned(),
        call: "1".to_owned(),
        time: Duration::from_secs(1000),
        private: true,
    }
}

fn judge() -> Judge {
    let mut judge = Judge::new(Config::default(), &[7; 32]);
    let said = json!({"text": format!("the deploy secret_key={SECRET} is on the wall")}).to_string();
    judge.remember(origin("files"), &Leaves::of(&json::read(said.as_bytes()).unwrap()), &Views::NONE);
    judge
}

/// Whether the call is one that is refused; then it is not sent.
fn refused(judge: &mut Judge, name: &str, value: &str) -> bool {
    let said = json!({ name: value }).to_string();
    let tree = json::read(said.as_bytes()).unwrap();
    let call = Leaves::of_call("send", &tree);
    let found = judge.judge(&call, Duration::from_secs(1001), &Views::NONE, &|_| true);
    let is_refused = !found.is_empty();
    if is_refused {
        judge.take_back();
    }
    is_refused
}

/// Characters that arrive until three calls were refused.
fn arrived(pieces: &[String], mut send: impl FnMut(&mut Judge, usize, &str) -> bool) -> usize {
    let (mut judge, mut arrived, mut closed) = (judge(), 0, 0);
    for (at, piece) in pieces.iter().enumerate() {
        match send(&mut judge, at, piece) {
            true => closed += 1,
            false => arrived += piece.len(),
        }
        if closed == 3 {
            break;
        }
    }
    assert!(closed > 0, "{pieces:?}");
    arrived
}

fn cut(length: usize) -> Vec<String> {
    SECRET.as_bytes().chunks(length).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect()
}

/// How pieces are sent, by name.
type Way<'w> = (&'w str, &'w mut dyn FnMut(&mut Judge, usize, &str) -> bool);

#[test]
fn at_most_a_quarter_of_a_secret_arrives_in_pieces() {
    for length in [1, 2, 3, 4, 6, 8] {
        let pieces = cut(length);
        let mut reversed = pieces.clone();
        reversed.reverse();
        for pieces in [&pieces, &reversed] {
            let ways: [Way<'_>; 3] = [
                ("one argument", &mut |judge, _, piece| refused(judge, "q", piece)),
                ("changing names", &mut |judge, at, piece| refused(judge, &format!("v{at}"), piece)),
                ("a template", &mut |judge, _, piece| {
                    refused(judge, "q", &format!("how to parse {piece} in python"))
                }),
            ];
            for (way, send) in ways {
                let arrived = arrived(pieces, send);
                assert!(arrived * 4 <= SECRET.len(), "{way}, {length} characters: {arrived}");
            }
        }
    }
}

#[test]
fn pieces_in_any_order_with_filler_between_them_are_counted() {
    let mut pieces = cut(6);
    pieces.swap(0, 3);
    pieces.swap(1, 4);
    let arrived = arrived(&pieces, |judge, at, piece| {
        let filler = format!("a status message that has nothing to do with anything, number {at}");
        assert!(!refused(judge, "text", &filler));
        refused(judge, "text", piece)
    });
    assert!(arrived * 4 <= SECRET.len(), "{arrived}");
}

#[test]
fn ordinary_values_are_no_pieces_of_a_key() {
    let mut judge = judge();
    for value in ["it ends in p0Ya", "v2.14.3", "deploy key", "Qz7", "2026-11-25", "4b7f2c9", "open", "Wx9"] {
        assert!(!refused(&mut judge, "text", value), "{value}");
    }
}

#[test]
fn server_with_many_secrets_does_not_evict_those_of_others() {
    let mut coverage = Coverage::default();
    add(&mut coverage, 1, "files", SECRET);
    for at in 0..3000_u32 {
        add(&mut coverage, 2, "other", &format!("k{at:08}Zq9Xw2Lm"));
    }
    assert_eq!(coverage.secrets.len(), MAX_SECRETS);
    assert!(coverage.secrets.values().any(|secret| secret.server == server("files")));
}

#[test]
fn secret_after_long_padding_is_counted() {
    let mut judge = judge();
    let padding = "all work and no play ".repeat(8 << 10);
    assert!(refused(&mut judge, "text", &format!("{padding}{}", &SECRET[..12])));
}

/// A server that says secrets without end, and a call made of their common part, cost no more than others.
#[test]
fn repeated_pieces_are_counted_once() {
    let mut coverage = Coverage::default();
    for at in 0..3000_u32 {
        let secret = format!("{}{at:08}Zq", "a1".repeat(200));
        add(&mut coverage, 1, "other", &secret);
    }
    assert!(coverage.places.values().all(|places| places.len() <= MAX_SECRETS * 2));
    let places: usize = coverage.places.values().map(Vec::len).sum();
    assert_eq!(places, coverage.known);
    assert!(places <= MAX_PLACES);
    coverage.count_pieces(&hasher(), &"a1".repeat(32 << 10), &|_| true);
    assert!(coverage.seen.len() < 16, "{}", coverage.seen.len());
}

#[test]
fn server_that_appears_late_is_tracked_too() {
    let mut coverage = Coverage::default();
    for at in 0..3000_u32 {
        add(&mut coverage, 1, "other", &format!("k{at:08}Zq9Xw2Lm"));
    }
    add(&mut coverage, 2, "files", SECRET);
    assert!(coverage.secrets.values().any(|secret| secret.server == server("files")));
}

/// Pieces that an alert let pass have been sent: sending them again is no new finding, and they count for later
/// calls.
#[test]
fn pieces_sent_after_an_alert_count_for_the_next_call() {
    let pieces = cut(6);
    let find = |judge: &mut Judge, piece: &str| {
        let said = json!({ "q": piece }).to_string();
        let tree = json::read(said.as_bytes()).unwrap();
        let call = Leaves::of_call("send", &tree);
        judge.judge(&call, Duration::from_secs(1001), &Views::NONE, &|_| true).len()
    };
    let mut judge = judge();
    assert_eq!(find(&mut judge, &pieces[0]), 0);
    assert_eq!(find(&mut judge, &pieces[2]), 1);
    assert_eq!(find(&mut judge, &pieces[2]), 0, "it is there already");
    assert_eq!(find(&mut judge, &pieces[4]), 1);
    judge.take_back();
    assert_eq!(find(&mut judge, &pieces[4]), 1, "it was not sent");
}

/// A call that is judged in a copy, while others are judged here.
#[test]
fn pieces_that_arrive_during_a_search_on_another_thread_are_kept() {
    let pieces = cut(3);
    let find = |judge: &mut Judge, piece: &str| {
        let said = json!({ "q": piece }).to_string();
        let tree = json::read(said.as_bytes()).unwrap();
        let call = Leaves::of_call("send", &tree);
        judge.judge(&call, Duration::from_secs(1001), &Views::NONE, &|_| true).len()
    };
    let mut judge = judge();
    let mut copy = judge.clone();
    assert_eq!(find(&mut copy, "a status message of nobody to anybody"), 0);
    for piece in &pieces[..2] {
        assert_eq!(find(&mut judge, piece), 0);
    }
    let before = judge.all.coverage.secrets.values().next().unwrap().covered.len();
    judge.adopt(copy);
    assert_eq!(judge.all.coverage.secrets.values().next().unwrap().covered.len(), before);
    assert!(before >= 6, "{before}");
    // The third piece continues where the second one ended, which the copy does not know.
    assert_eq!(find(&mut judge, &pieces[2]), 1);
}
