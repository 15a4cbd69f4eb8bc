#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use serde_json::json;

use super::*;
use agentsh_base::json;
use agentsh_base::types::SessionId;
use agentsh_guard::{Finding, Rewrite};
use agentsh_policy::McpPolicy;

const MEMO: &str = "The board approves the sale of the Lindenau plant for eleven million and tells nobody before \
the first of May; the works council hears of it a day later, and the press a day after that.";

fn with_content(test: impl FnOnce(&mut Content)) {
    let state = tempfile::tempdir().unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let journal = Journal::open(state.path(), SessionId(uuid::Uuid::now_v7())).await.unwrap();
        let labels = std::rc::Rc::default();
        let settings = Settings::of_policy(&McpPolicy::default().exfiltration, labels);
        test(&mut Content::new(settings, journal.clone()).unwrap());
        journal.close().await.unwrap();
    });
}

fn result(content: &mut Content, server: &str, text: &str) -> Vec<Rewrite> {
    let message = json!({"id": 1, "result": {"content": [{"type": "text", "text": text}]}}).to_string();
    let tree = json::read(message.as_bytes()).unwrap();
    content.remember_result(&ServerId(server.to_owned()), "read", &tree)
}

fn call(content: &mut Content, text: &str) -> Vec<Finding> {
    let arguments = json!({"text": text}).to_string();
    let tree = json::read(arguments.as_bytes()).unwrap();
    content.carried_out(&ServerId("mail".to_owned()), "send", &tree, true, None)
}

#[test]
fn result_waiting_to_be_stored_counts_in_the_next_call() {
    with_content(|content| {
        result(content, "files", MEMO);
        let found = call(content, &MEMO[20..120]).remove(0);
        assert_eq!(found.source.unwrap().server.0, "files");
    });
}

#[test]
fn a_long_result_is_read_by_another_thread_unless_a_call_needs_it_first() {
    with_content(|content| {
        let held = std::sync::Arc::new(std::sync::Mutex::new(()));
        let holding = held.lock().unwrap();
        for held in [&held; 2].map(std::sync::Arc::clone) {
            agentsh_dlp::threads::run_in_pool(move || drop(held.lock()));
        }
        result(content, "files", &format!("{} {MEMO}", filler(1, 20_000)));
        assert!(!content.catch_up(), "nobody has read it");
        assert_eq!(call(content, &MEMO[20..120]).remove(0).source.unwrap().server.0, "files");
        assert!(content.catch_up());
        drop(holding);
    });
}

#[test]
fn marker_identifies_the_result_it_was_added_to() {
    with_content(|content| {
        for number in 0..200 {
            let text = format!("{MEMO} This is the copy with the number {number} of two hundred copies.");
            let server = format!("files{number}");
            let marked = result(content, &server, &text).remove(0).spelled;
            let invisible: String = marked.chars().filter(|one| !text.contains(*one)).collect();
            assert!(!invisible.is_empty());
            if number % 70 == 0 {
                let found = call(content, &format!("Lunch at noon?{invisible}")).remove(0);
                assert_eq!(
                    (found.detector.as_str(), found.source.unwrap().server.0),
                    ("taint-marker", server)
                );
            }
        }
        assert_eq!(content.report()["token_count"], 200);
        assert_eq!(content.report()["tokens"][199]["source_server"], "files199");
    });
}

/// Like [`call`], with the search done on another thread, and `meanwhile` what happens until it is back.
fn call_apart(content: &mut Content, text: &str, meanwhile: impl FnOnce(&mut Content)) -> Vec<Finding> {
    use agentsh_guard::{Guard, PrecomputedFinding};
    use std::cell::RefCell;
    use std::rc::Rc;
    let arguments = json!({"text": text}).to_string();
    let arguments = json::read(arguments.as_bytes()).unwrap();
    let server = ServerId("mail".to_owned());
    let matter = SubjectKind::Call { tool: "send", hash: None, unlisted: false, arguments: Some(&arguments) };
    let subject = Subject {
        server: &server,
        matter,
        audience: "",
        caller: None,
        now: Duration::ZERO,
        turn: None,
        is_promised: false,
        seen: PrecomputedFinding::NOTHING,
    };
    assert!(content.precompute_job(&subject).is_some(), "long enough to be searched elsewhere");
    let shared = Rc::new(RefCell::new(std::mem::replace(content, empty(content))));
    let mut guard = Guard::new(&McpPolicy::default());
    guard.add(Rc::clone(&shared));
    let errand = guard.offload_job(&server, matter, Duration::ZERO).unwrap();
    let seen = std::thread::spawn(move || errand.run()).join().unwrap();
    meanwhile(&mut shared.borrow_mut());
    let decision = guard.decide_parts(&server, &[(matter, &seen)], Duration::ZERO);
    drop(guard);
    *content = Rc::into_inner(shared).unwrap().into_inner();
    decision.findings
}

fn empty(content: &Content) -> Content {
    let settings = Settings::of_policy(&McpPolicy::default().exfiltration, std::rc::Rc::default());
    Content::new(settings, content.journal.clone()).unwrap()
}

/// Words that no server has sent before.
fn filler(number: u64, words: u64) -> String {
    let mut state = number;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 40
    };
    // Letters only: so many grouped digits would count as opaque bytes.
    let letters = |number: u64| -> String {
        let signs = format!("{number:x}").into_bytes().into_iter();
        signs
            .map(|sign| {
                char::from(
                    b"ghklmnoprstuvwyz"
                        [usize::from(if sign > b'9' { sign - b'a' + 10 } else { sign - b'0' })],
                )
            })
            .collect()
    };
    (0..words).map(|_| letters(next()) + " ").collect()
}

/// Pieces of the memo, each too short to be found alone.
fn pieces(which: std::ops::Range<usize>) -> String {
    which.map(|at| format!("{} quxly ", &MEMO[at * 28..at * 28 + 27])).collect()
}

#[test]
fn search_on_another_thread_finds_the_same_and_counts_later() {
    with_content(|content| {
        result(content, "files", MEMO);
        let long = filler(1, 60_000);
        assert!(call_apart(content, &long, |_| {}).is_empty());
        let found = call_apart(content, &format!("{long}{}", &MEMO[20..120]), |_| {});
        assert_eq!(found[0].source.as_ref().unwrap().server.0, "files");
        // Three pieces are in a long call, the others in the next one.
        assert!(call_apart(content, &format!("{long}{}", pieces(0..3)), |_| {}).is_empty());
        assert!(!call(content, &pieces(3..6)).is_empty());
    });
}

#[test]
fn call_sent_during_a_search_counts_when_the_search_returns() {
    with_content(|content| {
        result(content, "files", MEMO);
        let long = filler(2, 60_000);
        let found = call_apart(content, &format!("{}{long}", pieces(0..3)), |content| {
            assert!(call(content, &pieces(3..6)).is_empty());
        });
        assert_eq!(found.len(), 1, "three pieces, and the others that overtook them");
    });
}
