#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use serde_json::json;

use super::*;
use crate::json;
use crate::policy::McpPolicy;
use crate::types::SessionId;

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

fn result(content: &mut Content, server: &str, text: &str) -> Option<Rewrite> {
    let message = json!({"id": 1, "result": {"content": [{"type": "text", "text": text}]}}).to_string();
    let tree = json::read(message.as_bytes()).unwrap();
    content.remember_result(&ServerId(server.to_owned()), "read", &tree)
}

fn call(content: &mut Content, text: &str) -> Option<Finding> {
    let arguments = json!({"text": text}).to_string();
    let tree = json::read(arguments.as_bytes()).unwrap();
    content.judge_arguments(&ServerId("mail".to_owned()), "send", &tree)
}

#[test]
fn what_waits_to_be_remembered_counts_in_the_next_call() {
    with_content(|content| {
        result(content, "files", MEMO);
        let found = call(content, &MEMO[20..120]).unwrap();
        assert_eq!(found.source.unwrap().server.0, "files");
    });
}

#[test]
fn a_marker_stands_for_the_result_that_it_was_put_into() {
    with_content(|content| {
        for number in 0..200 {
            let text = format!("{MEMO} This is the copy with the number {number} of two hundred copies.");
            let server = format!("files{number}");
            let marked = result(content, &server, &text).unwrap().spelled;
            let invisible: String = marked.chars().filter(|one| !text.contains(*one)).collect();
            assert!(!invisible.is_empty());
            if number % 70 == 0 {
                let found = call(content, &format!("Lunch at noon?{invisible}")).unwrap();
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
