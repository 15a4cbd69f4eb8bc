//! Receipts of hosts that are enrolled: a record that was rewritten as a whole does not fit what the server was told before.

use super::{Server, forward};
use crate::day::has;
use crate::run::receipts::{refused, rewrite, session};
use crate::support::{Mode, Outcome, Place};

#[test]
fn a_receipt_of_a_record_that_was_rewritten_does_not_fit_what_the_server_keeps() {
    if !has("git") {
        return;
    }
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    let host = Place::new(Mode::Invoker);
    server.enrol(&host, "one");
    let (file, _) = session(&host);
    let verify = || Outcome::of(&mut host.agentsh(&["receipt", "verify", file.to_str().unwrap()]));
    assert_eq!(forward(&host, &[]).code, 0);
    let good = verify().expect_code(0);
    assert!(good.stdout.contains("the fleet server keeps the same head of its record"), "{good}");

    // Another host checks it without the record, and the server is asked anyway.
    let other = Place::new(Mode::Invoker);
    let line = Outcome::of(&mut host.agentsh(&["receipt", "key"])).expect_code(0).stdout;
    let key = other.write(other.path("allowed"), format!("ada@example.org {line}"));
    let there = || {
        let words = ["receipt", "verify", file.to_str().unwrap(), "--key", key.to_str().unwrap()];
        Outcome::of(&mut other.agentsh(&words))
    };
    assert!(!there().expect_code(0).stdout.contains("fleet server"));
    server.enrol(&other, "two");
    let kept = there().expect_code(0);
    assert!(kept.stdout.contains("its record is not here\nthe fleet server keeps the same head"), "{kept}");

    // Rewritten as a whole, and signed again: only the server notices.
    rewrite(&host.home.join(".local/state/agentsh/agentsh.db"), "\"verb\":\"run\"", "\"verb\":\"ran\"");
    std::fs::remove_file(&file).unwrap();
    Outcome::of(&mut host.agentsh(&["receipt", "--output", file.to_str().unwrap()])).expect_code(0);
    for verified in [verify(), there()] {
        refused(verified, "the fleet server has a different record of its session");
    }
    drop(server);
    let silent = there().expect_code(0);
    assert!(silent.stdout.contains("the fleet server was not asked: cannot reach"), "{silent}");
}
