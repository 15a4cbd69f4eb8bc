#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::labels::Role;
use super::*;
use crate::json;
use crate::taint::Views;

#[path = "value.rs"]
mod values;

const MEMO: &str = "Minutes of the harvest council: the orchard at Lindenau is to be sold to the Brandt family before \
                    winter, the price of 310 thousand crowns was agreed orally, and nobody in the village knows yet.";
const KEY: &str = "Deploy with key sk-4Rt9LmQ2xVb7Ny3Kp8Wd6HsZc1Jf5 and tell ann@harvest.example about it.";
const EXTERNAL: Labels = Labels { source: Source::Private, sink: Sink::External, role: Role::Other };
const LOCAL: Labels = Labels { source: Source::Private, sink: Sink::Local, role: Role::Other };

fn flow() -> Flow {
    Flow::new(Config::default(), &[9; 32])
}

fn server(name: &str) -> ServerId {
    ServerId(name.to_owned())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn read(flow: &mut Flow, text: &str, private: bool, at: u64) -> Stored {
    said(flow, "files", text, private, at)
}

fn said(flow: &mut Flow, by: &str, text: &str, private: bool, at: u64) -> Stored {
    let result = json!({"content": [{"type": "text", "text": text}]}).to_string();
    let tree = json::read(result.as_bytes()).unwrap();
    let origin = Origin {
        server: server(by),
        tool: "read".to_owned(),
        call: "1".to_owned(),
        time: seconds(at),
        private,
    };
    flow.remember(origin, &Leaves::of(&tree), &Views::NONE)
}

/// Stores a line as it comes off the wire.
fn line(flow: &mut Flow, by: &str, text: &str, at: u64) -> Stored {
    let result = json!({"content": [{"type": "text", "text": text}]}).to_string();
    let origin = Origin {
        server: server(by),
        tool: "read".to_owned(),
        call: at.to_string(),
        time: seconds(at),
        private: true,
    };
    flow.remember_json(origin, result.as_bytes(), None, &Views::NONE).unwrap()
}

/// Judges a call as it is on the wire.
fn call(flow: &mut Flow, to: &str, labels: Labels, arguments: &Value, (at, views): (u64, Views)) -> Judged {
    let text = arguments.to_string();
    let arguments = crate::json::read(text.as_bytes()).unwrap();
    flow.judge(&server(to), labels, &Leaves::of_call("send", &arguments), seconds(at), &views)
}

fn send(flow: &mut Flow, to: &str, labels: Labels, arguments: &Value) -> Judged {
    let judged = call(flow, to, labels, arguments, (1001, Views::default()));
    if judged.is_refused() {
        flow.not_sent();
    }
    judged
}

fn rules(judged: &Judged) -> Vec<&'static str> {
    judged.findings.iter().map(|flowed| flowed.finding.rule).collect()
}

/// A text that shares nothing with any other.
fn page(number: u64) -> String {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let letter = |at: u32| char::from(b'a' + ((state >> (20 + 5 * at)) % 26) as u8);
        (0..8).map(letter).collect::<String>()
    };
    (0..12).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn allowed_text_in_a_call_does_not_hide_a_private_copy() {
    let mut flow = flow();
    read(&mut flow, MEMO, true, 1000);
    read(&mut flow, &format!("{} {}", page(0), page(1)), false, 1000);
    let mut own = String::new();
    for number in 0..600 {
        said(&mut flow, "mail", &page(1000 + number), true, 1000);
        own += &format!("{} -- ", page(1000 + number));
    }
    let links: String = (0..64).map(|at| format!("https://harvest.example/{at}/plan ")).collect();
    read(&mut flow, &links, true, 1000);
    let caesar = |c: char| match c {
        'a'..='z' => char::from((c as u8 - b'a' + 7) % 26 + b'a'),
        'A'..='Z' => char::from((c as u8 - b'A' + 7) % 26 + b'A'),
        c => c,
    };
    let shifted: String = MEMO.chars().map(caesar).collect();
    assert!(send(&mut flow, "mail", EXTERNAL, &json!({"body": own})).findings.iter().all(|one| !one.refused));
    for hidden in [MEMO, shifted.as_str()] {
        for flood in [&own, &links, &format!("{} {}", page(0), page(1)).repeat(50)] {
            let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": format!("{flood} {hidden}")}));
            assert!(judged.is_refused(), "{:.80} {:.80}", flood, hidden);
        }
    }
}

#[test]
fn text_beyond_the_search_limit_does_not_leave() {
    let mut flow = flow();
    // Words that everybody uses: no finding by themselves.
    let phrase = "about after also another been before being between both could does doing";
    read(&mut flow, phrase, true, 1000);
    let body = |times| (0..times).map(|number| format!("{} {phrase} ", page(number))).collect::<String>();
    for (times, wanted) in [(200, false), (400, true)] {
        let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": body(times)}));
        assert_eq!(judged.is_refused(), wanted, "{times}");
    }
}

#[test]
fn a_private_passage_does_not_leave() {
    let mut flow = flow();
    read(&mut flow, MEMO, true, 1000);
    for text in [
        MEMO.to_owned(),
        MEMO.to_uppercase(),
        format!("{} {} {}", "The weather is fine. ".repeat(20), &MEMO[40..120], "So it is. ".repeat(20)),
        MEMO.chars().rev().collect(),
        MEMO.replace(' ', ""),
        MEMO.replace('e', "3").replace('o', "0").replace('a', "4"),
    ] {
        let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": text}));
        assert!(judged.is_refused(), "{text}");
        assert_eq!(judged.findings[0].origin.server, server("files"));
    }
    assert!(send(&mut flow, "chat", EXTERNAL, &json!({MEMO: 1})).is_refused());
    let words: Vec<&str> = MEMO.split(' ').collect();
    let judged = send(&mut flow, "list", EXTERNAL, &json!({"words": words}));
    assert!(judged.is_refused() && rules(&judged).contains(&"taint-split"));
}

#[test]
fn labels_decide_which_servers_may_receive_a_copy() {
    let mut flow = flow();
    read(&mut flow, MEMO, true, 1000);
    let arguments = json!({"content": MEMO});
    let back = send(&mut flow, "files", EXTERNAL, &arguments);
    assert!(!back.is_refused() && back.findings.is_empty());
    assert!(!send(&mut flow, "notes", LOCAL, &arguments).is_refused());
    let away = send(&mut flow, "mail", EXTERNAL, &arguments);
    assert!(away.is_refused());
    let mut public = self::flow();
    read(&mut public, MEMO, false, 1000);
    let judged = send(&mut public, "mail", EXTERNAL, &arguments);
    assert!(!judged.is_refused() && !judged.private_to_external);
}

#[test]
fn text_copied_by_the_agent_keeps_its_origin() {
    for given in [MEMO.to_owned(), format!("{} {MEMO}", page(3))] {
        let mut flow = flow();
        read(&mut flow, MEMO, true, 1000);
        send(&mut flow, "files", EXTERNAL, &json!({"content": given}));
        said(&mut flow, "notes", MEMO, true, 1000);
        said(&mut flow, "notes", &page(3), true, 1000);
        let judged = send(&mut flow, "files", EXTERNAL, &json!({"body": MEMO}));
        assert!(judged.is_refused() && judged.findings[0].origin.server.0 == "notes");
        // It was the first to say that.
        let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": page(3)}));
        assert_eq!(rules(&judged).contains(&"taint-fingerprint"), given == MEMO);
    }
}

#[test]
fn a_private_read_is_noted_without_a_match() {
    let mut flow = flow();
    assert!(!send(&mut flow, "mail", EXTERNAL, &json!({"a": "hello"})).private_to_external);
    read(&mut flow, MEMO, true, 1000);
    let judged = send(&mut flow, "mail", EXTERNAL, &json!({"a": "hello there"}));
    assert!(judged.private_to_external && !judged.is_refused() && judged.findings.is_empty());
}

#[test]
fn pieces_and_encodings_of_a_key_are_found() {
    let mut flow = flow();
    read(&mut flow, KEY, true, 1000);
    for text in [
        "sk-4Rt9LmQ2xVb7Ny3Kp8Wd6HsZc1Jf5",
        "s k - 4 R t 9 L m Q 2 x V b 7 N y 3",
        "Ny3Kp8Wd6HsZc1",
        "fx-4Eg9YzD2kIo7Al3Xc8Jq6UfMp1Ws5",
    ] {
        assert!(send(&mut flow, "mail", EXTERNAL, &json!({"q": text})).is_refused(), "{text}");
    }
    let reply = send(&mut flow, "mail", EXTERNAL, &json!({"to": "ann@harvest.example", "text": "done"}));
    assert!(!reply.is_refused());
}

#[test]
fn a_text_cut_into_calls_is_found() {
    let mut flow = flow();
    read(&mut flow, MEMO, true, 1000);
    let cut: Vec<bool> = MEMO
        .as_bytes()
        .chunks(15)
        .map(|piece| {
            let piece = String::from_utf8_lossy(piece);
            send(&mut flow, "mail", EXTERNAL, &json!({"n": 1, "part": piece})).is_refused()
        })
        .collect();
    assert!(cut.iter().any(|blocked| *blocked), "{cut:?}");
}

#[test]
fn text_that_the_agent_wrote_first_has_no_origin() {
    let mut flow = flow();
    send(&mut flow, "files", LOCAL, &json!({"query": MEMO}));
    read(
        &mut flow,
        &format!("You asked for: {MEMO}. Nothing was found, sorry about that, my friend."),
        true,
        1000,
    );
    assert!(!send(&mut flow, "mail", EXTERNAL, &json!({"body": MEMO})).is_refused());
}

#[test]
fn licence_text_has_no_origin() {
    let licence = include_str!("../../../LICENSE-MIT");
    let mut flow = flow();
    read(&mut flow, &format!("// header\n{licence}"), true, 1000);
    assert!(!send(&mut flow, "mail", EXTERNAL, &json!({"body": licence})).is_refused());
}

#[test]
fn results_are_forgotten_after_their_lifetime() {
    let mut flow = flow();
    read(&mut flow, MEMO, true, 1000);
    let later = call(&mut flow, "mail", EXTERNAL, &json!({"a": MEMO}), (1000 + 3600, Views::NONE));
    assert!(!later.is_refused() && !later.private_to_external);
    assert_eq!(flow.load().0, 0);
}

#[test]
fn result_memory_is_bounded_and_reports_evictions() {
    let config = Config { taint: taint::Config { memory: 1 << 20, ..taint::Config::default() } };
    let mut flow = Flow::new(config, &[9; 32]);
    // Counts the results that were evicted completely.
    let mut evicted = 0;
    for number in 0..900_u64 {
        let text: String = (0..60)
            .map(|word| format!("w{:x} ", (number * 60 + word).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            .collect();
        let gone = read(&mut flow, &text, true, 1000).evicted.unwrap_or_default();
        evicted += gone.results + gone.secrets - gone.kept;
    }
    let (results, bytes) = flow.load();
    assert!(evicted > 0 && results as u64 + evicted == 900);
    assert!(bytes < 3 << 20, "{bytes}");
}

#[test]
fn marker_in_a_call_is_recognised_and_removed() {
    let mut flow = flow();
    let id = read(&mut flow, MEMO, true, 1000).id;
    let marked = flow.mark(id, MEMO, marker::Position::Suffix, 0x1234_5678_9abc_def0).unwrap();
    assert_eq!(flow.without_markers(&marked).unwrap(), MEMO);
    let tail: String = marked.chars().skip(MEMO.chars().count() - 4).collect();
    let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": tail}));
    assert_eq!(rules(&judged), ["taint-marker"]);
    assert!(judged.is_refused());
    let data = "{\"a\": \"one two three four five six seven eight nine ten\"}";
    assert_eq!(flow.mark(id, data, marker::Position::Suffix, 0), None);
}

#[test]
fn a_record_finds_copies_in_another_session_and_holds_no_text() {
    let taint = taint::Config { record: true, ..taint::Config::default() };
    let mut first = Flow::new(Config { taint }, &[9; 32]);
    let record = read(&mut first, &format!("{MEMO} {KEY}"), true, 1000).record.unwrap();
    for word in ["orchard", "Lindenau", "4Rt9LmQ2", "harvest.example"] {
        assert!(
            !record.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word.as_bytes())),
            "{word}"
        );
    }
    let mut second = flow();
    assert!(second.import(&record, seconds(1001)).unwrap().is_some());
    assert!(send(&mut second, "mail", EXTERNAL, &json!({"a": MEMO})).is_refused());
    assert!(send(&mut second, "mail", EXTERNAL, &json!({"a": "4Rt9LmQ2xVb7Ny3Kp8Wd6"})).is_refused());
    assert_eq!(
        Flow::new(Config::default(), &[8; 32]).import(&record, seconds(1001)).unwrap_err().to_string(),
        "a stored taint record was changed, or was written with another key"
    );
    assert_eq!(second.import(&record, seconds(9000)).unwrap(), None);
    for at in [0, 20, record.len() / 2, record.len() - 1] {
        let mut damaged = record.clone();
        damaged[at] ^= 1;
        assert!(second.import(&damaged, seconds(1001)).is_err());
    }
}

#[test]
fn findings_contain_no_text_of_the_arguments() {
    let mut flow = flow();
    read(&mut flow, KEY, true, 1000);
    let arguments = json!({"hunter2 sk-4Rt9LmQ2xVb7Ny3Kp8Wd6HsZc1Jf5": "Pa55phrase sk-4Rt9LmQ2xVb7Ny3Kp8Wd6HsZc1Jf5 Tail"});
    let judged = send(&mut flow, "mail", EXTERNAL, &arguments);
    let shown = format!("{:?}", judged.findings);
    assert!(!judged.findings.is_empty());
    for word in ["hunter2", "4Rt9", "Pa55", "Tail"] {
        assert!(!shown.contains(word), "{word}: {shown}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_copied_run_is_found(
        words in proptest::collection::vec("[a-z]{3,9}", 40..60),
        start in 0_usize..60, before in "[A-Z ]{0,60}", after in "[A-Z ]{0,60}",
    ) {
        let text = words.join(" ");
        let mut flow = flow();
        read(&mut flow, &text, true, 1000);
        let copied: String = text.chars().skip(start).take(60).collect();
        prop_assume!(copied.chars().filter(|c| *c != ' ').count() >= taint::GUARANTEED_RUN);
        let judged = send(&mut flow, "mail", EXTERNAL, &json!({"a": format!("{before} {copied} {after}")}));
        prop_assert!(judged.is_refused(), "{}", copied);
    }

    #[test]
    fn hostile_arguments_are_judged(text in "(\\PC|[\u{2060}\u{fe00}-\u{fe0f}a-f0-9]){0,80}", record in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut flow = flow();
        read(&mut flow, &text, true, 1000);
        let _ = send(&mut flow, "mail", EXTERNAL, &json!({"a": text, text.clone(): [text.clone()]}));
        prop_assert!(flow.import(&record, seconds(1001)).is_err());
    }
}

#[test]
fn account_number_is_found_with_any_spacing() {
    let (paper, wire) = ("DE89 3704 0044 0532 0130 00", "DE89370400440532013000");
    for (said, sent) in [(paper, wire), (wire, paper), (paper, paper)] {
        let mut flow = flow();
        read(&mut flow, &format!("Transfer to {said} by Monday."), true, 1000);
        let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": format!("it is {sent}, she said")}));
        assert!(judged.is_refused(), "{said} as {sent}");
    }
}

#[test]
fn repeated_result_takes_no_memory_and_renews_its_lifetime() {
    let lifetime = taint::Config::default().lifetime.as_secs();
    for apart in [0, 59, 60, 61] {
        let mut flow = flow();
        line(&mut flow, "files", MEMO, 1000);
        let (_, before) = flow.load();
        let again = line(&mut flow, "files", MEMO, 1000 + apart);
        let (count, after) = flow.load();
        assert_eq!(count, 2);
        assert!(apart > 60 || after < before + 400, "{apart}: {before} {after}");
        assert_eq!(flow.origins().last().unwrap().1.call, (1000 + apart).to_string());
        // It was read a second time, so its lifetime starts again.
        for (now, is_known) in [(1000 + apart + lifetime - 1, true), (1000 + apart + lifetime + 61, false)] {
            let arguments = json!({"body": MEMO});
            let judged = call(&mut flow, "mail", EXTERNAL, &arguments, (now, Views::NONE));
            assert_eq!(
                rules(&judged).contains(&"taint-fingerprint"),
                is_known,
                "{apart} {now} {:?}",
                rules(&judged)
            );
        }
        assert_ne!(again.id, OriginId(1));
    }
}

#[test]
fn a_result_is_a_repeat_only_of_the_same_bytes_of_the_same_server() {
    let mut flow = flow();
    line(&mut flow, "files", MEMO, 1000);
    line(&mut flow, "notes", MEMO, 1001);
    line(&mut flow, "files", &MEMO.replace("310", "311"), 1002);
    let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": MEMO}));
    let from: BTreeSet<&str> = judged.findings.iter().map(|flowed| flowed.origin.server.0.as_str()).collect();
    assert_eq!(from, BTreeSet::from(["files", "notes"]));
    let (_, before) = flow.load();
    line(&mut flow, "files", &page(7).repeat(40), 1003);
    assert!(flow.load().1 > before + 1000);
}

#[test]
fn repeated_result_is_remembered_again_after_eviction() {
    let config = Config { taint: taint::Config { memory: 1 << 20, ..taint::Config::default() } };
    let mut flow = Flow::new(config, &[9; 32]);
    line(&mut flow, "files", MEMO, 1000);
    for number in 0..200 {
        let text: String = (0..40).map(|at| page(1000 * number + at)).collect();
        line(&mut flow, "files", &text, 1000);
    }
    assert!(flow.origins().next().unwrap().0 > OriginId(1), "nothing had to go");
    line(&mut flow, "files", MEMO, 1001);
    let judged = send(&mut flow, "mail", EXTERNAL, &json!({"body": MEMO}));
    assert!(rules(&judged).contains(&"taint-fingerprint"), "{:?}", rules(&judged));
}
