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
use crate::types::ServerId;

const MEMO: &str = "Notes of the choir board, 4 March. The old rehearsal hall in Wismar goes to the Petersen brothers for \
                    88.5 thousand crowns, half of it in spring. Singers hear of it after the concert on 19 May, and the \
                    organist keeps the keys until then. Mrs Dahl has the contract in her desk, and two of the sponsors \
                    asked why the roof was never paid for.";

fn server(name: &str) -> ServerId {
    ServerId(name.to_owned())
}

fn remember(judge: &mut Judge, by: &str, private: bool, text: &str) {
    let said = json!({ "text": text }).to_string();
    let origin = Origin {
        server: server(by),
        tool: "read".to_owned(),
        call: "1".to_owned(),
        time: Duration::from_secs(1000),
        private,
    };
    judge.remember(origin, &Leaves::of(&json::read(said.as_bytes()).unwrap()), &Views::NONE);
}

fn judge() -> Judge {
    let mut judge = Judge::new(Config::default(), &[7; 32]);
    remember(&mut judge, "files", true, MEMO);
    judge
}

/// Whether the call is refused; then it is not sent.
fn refused(judge: &mut Judge, name: &str, value: &str) -> bool {
    let said = json!({ name: value }).to_string();
    let tree = json::read(said.as_bytes()).unwrap();
    let call = Leaves::of_call("send", &tree);
    let found = judge.judge(&call, Duration::from_secs(1001), &Views::NONE, &|origin| origin.private);
    let is_refused = !found.is_empty();
    if is_refused {
        judge.take_back();
    }
    is_refused
}

fn cut(length: usize) -> Vec<String> {
    MEMO.as_bytes().chunks(length).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect()
}

/// How pieces are sent, by name.
type Way<'w> = (&'w str, &'w mut dyn FnMut(&mut Judge, usize, &str) -> bool);

#[test]
fn little_prose_arrives_in_pieces_of_any_length() {
    for length in [18, 21, 26] {
        let pieces = cut(length);
        let mut reversed = pieces.clone();
        reversed.reverse();
        for pieces in [&pieces, &reversed] {
            let ways: [Way<'_>; 4] = [
                ("one argument", &mut |judge, _, piece| refused(judge, "q", piece)),
                ("a counter", &mut |judge, at, piece| {
                    refused(judge, "q", &format!("item {at} of the list: {piece}"))
                }),
                ("changing names", &mut |judge, at, piece| refused(judge, &format!("v{at}"), piece)),
                ("filler", &mut |judge, at, piece| {
                    let filler = format!("a ferry leaves at nine, and this is message {at} about it");
                    assert!(!refused(judge, "q", &filler));
                    refused(judge, "q", &format!("{piece} / many greetings from all of us here"))
                }),
            ];
            for (way, send) in ways {
                let (mut judge, mut arrived) = (judge(), 0);
                for (at, piece) in pieces.iter().enumerate() {
                    arrived += if send(&mut judge, at, piece) { 0 } else { piece.len() };
                }
                assert!(arrived * 2 <= MEMO.len(), "{way}, {length} characters: {arrived} of {}", MEMO.len());
            }
        }
    }
}

#[test]
fn paraphrases_of_a_text_are_no_pieces_of_it() {
    let mut judge = judge();
    for text in [
        "the choir sells its hall in Wismar, ask Mrs Dahl about the contract",
        "is the rehearsal on 19 May or in the week after the concert?",
        "remind the sponsors of the roof; the organist has the keys",
        "The Petersen brothers called again, please call them back in spring.",
    ] {
        assert!(!refused(&mut judge, "q", text), "{text}");
    }
}

#[test]
fn pieces_of_public_texts_and_of_code_are_not_followed() {
    let mut judge = Judge::new(Config::default(), &[7; 32]);
    remember(&mut judge, "web", false, MEMO);
    let code =
        "fn main() { let total = items.iter().map(|item| item.price).sum::<u32>(); println!(\"{total}\"); }";
    remember(&mut judge, "files", true, code);
    assert!(judge.memory.entries.iter().all(|entry| entry.kept_of_prose == 0));
    for piece in cut(18) {
        refused(&mut judge, "q", &piece);
    }
    assert!(judge.all.pieces.covered.is_empty());
}

#[test]
fn pieces_that_arrive_during_a_search_on_another_thread_are_kept() {
    let pieces = cut(18);
    let mut judge = judge();
    let mut copy = judge.clone();
    assert!(!refused(&mut copy, "q", &pieces[0]));
    assert!(!refused(&mut judge, "q", &pieces[1]));
    let before = judge.all.pieces.covered.values().next().unwrap().len();
    judge.adopt(copy);
    let after = judge.all.pieces.covered.values().next().unwrap().len();
    assert!(before >= 10 && after >= before + 10, "{before} {after}");
}

/// Read again with a few words that change, in front of it or behind: what went before counts on.
#[test]
fn piece_count_continues_when_a_text_is_read_again() {
    for in_front in [true, false] {
        for many in [1, 4] {
            let (mut judge, mut arrived) = (judge(), 0);
            for (at, piece) in cut(18).iter().enumerate() {
                for copy in 0..if at % 4 == 3 { many } else { 0 } {
                    let number = at * 10 + copy;
                    let words = format!("This is copy {number}{}.", &"abcde"[..number % 5]);
                    let text = if in_front { format!("{words} {MEMO}") } else { format!("{MEMO} {words}") };
                    remember(&mut judge, "files", true, &text);
                }
                let value = format!("item {at} of the list: {piece}");
                arrived += if refused(&mut judge, "q", &value) { 0 } else { piece.len() };
            }
            assert!(arrived * 2 <= MEMO.len(), "{in_front} {many}: {arrived} of {}", MEMO.len());
        }
    }
}

/// The same, while a call is judged elsewhere.
#[test]
fn piece_count_continues_when_a_text_is_read_during_a_search() {
    let mut judge = judge();
    let (mut copy, piece) = (judge.clone(), &MEMO[..26]);
    assert!(!refused(&mut copy, "q", piece));
    remember(&mut judge, "files", true, &format!("{MEMO} This is copy 1."));
    judge.adopt(copy);
    let newest = judge.memory.entries.back().unwrap().id;
    assert!(judge.all.pieces.covered.get(&newest).is_some_and(|covered| covered.len() >= 10));
}

#[test]
fn refused_call_uses_no_piece_memory() {
    let mut pieces = Pieces::default();
    for number in 0..MAX_RESULTS as u64 {
        pieces.mark_covered(OriginId(number), 4..14);
    }
    pieces.begin();
    pieces.mark_covered(OriginId(9999), 0..10);
    pieces.forget();
    assert!(pieces.covered.contains_key(&OriginId(0)) && !pieces.covered.contains_key(&OriginId(9999)));
    pieces.mark_covered(OriginId(9999), 0..10);
    pieces.begin();
    assert!(!pieces.covered.contains_key(&OriginId(0)) && pieces.covered.contains_key(&OriginId(9999)));
}

/// One piece again and again takes the room of no other.
#[test]
fn repeated_piece_does_not_hide_others() {
    let pieces = cut(18);
    for many in [1400, 40_000] {
        let mut judge = judge();
        let call = format!(
            "{} / greetings / {}",
            vec![pieces[0].as_str(); many].join(" ; "),
            pieces.join(" / many greetings from us / ")
        );
        assert!(refused(&mut judge, "q", &call), "{many}");
        assert!(!refused(&mut judge, "q", &vec![pieces[0].as_str(); many].join(" ; ")), "{many}");
    }
}

/// Text that is no longer counted is reported, and none of it becomes the agent's own words.
#[test]
fn more_pieces_than_the_limit_are_a_finding() {
    let mut judge = Judge::new(Config::default(), &[7; 32]);
    // Each of different words.
    let word = |number: usize| {
        let letter = |at: u32| char::from(b'a' + (number * 7919 / 26_usize.pow(at) % 26) as u8);
        (0..6).map(letter).collect::<String>()
    };
    let results: Vec<Vec<String>> =
        (0..60).map(|result| (0..1800).map(|at| word(result * 1800 + at)).collect()).collect();
    for words in &results {
        remember(&mut judge, "files", true, &format!("Here is what was said: {}.", words.join(" ")));
    }
    // Less than a quarter of each result.
    let pieces: Vec<String> = results
        .iter()
        .enumerate()
        .flat_map(|(number, words)| {
            let chunks = words[..420].chunks(3).enumerate();
            chunks.map(move |(at, three)| format!("{} zq{number}x{at}", three.join(" ")))
        })
        .collect();
    let few = pieces[..800].join(" / ");
    assert!(!refused(&mut judge, "q", &few));
    assert!(refused(&mut judge, "q", &pieces.join(" / ")));
}

/// A text of one word again and again, and a call made of it, cost no more than their symbols.
#[test]
fn repetitive_text_counts_once() {
    let mut judge = Judge::new(Config::default(), &[7; 32]);
    let said = "orchard meadow ".repeat(900);
    remember(&mut judge, "files", true, &said);
    judge.all.scan(&judge.memory, &super::super::symbols::Folded::of(&said.repeat(8)), &|_| true);
    for number in 0..2 * MAX_RESULTS as u64 {
        judge.all.pieces.mark_covered(OriginId(number), 4..14);
        judge.all.pieces.begin();
    }
    assert_eq!(judge.all.pieces.covered.len(), MAX_RESULTS);
}
