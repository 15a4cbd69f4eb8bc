//! A call that needs further rights waits for them, in the queue of all questions to a person.

use std::time::Duration;

use serde_json::{Value, json};

use super::{log_in, peer};
use crate::support::authority::{Authority, MARK};
use crate::support::browser::Ui;
use crate::support::{Mode, Outcome, Peer, Place, patience, within};

const WAITS: &str = "version: 1\nsandbox: {mcp: {approvals: {wait: 60s, headless: wait}}}\n";

/// A session that is logged in, and a call of it that needs more: its id, and the question about it.
fn asked(place: &Place, authority: &Authority) -> (Peer, Value, String) {
    log_in(place, &[&authority.mcp.url()]).expect_code(0);
    let mut peer = peer(place, authority);
    peer.shake_hands();
    assert_eq!(peer.text("read", json!({})), "from afar");
    let id = peer.ask("tools/call", json!({"name": "write", "arguments": {}}));
    let waits = || place.listed(&["approvals", "list", "--json"]);
    assert!(within(patience(Duration::from_secs(20)), || !waits().is_empty()), "nothing was asked");
    let question = waits().remove(0);
    let url = authority.mcp.url();
    assert_eq!((&question["server"], &question["name"]), (&json!("far"), &json!("login files:write")));
    assert_eq!(question["login"], format!("agentsh login {url} --scope files:write"), "{question}");
    let question = question["id"].as_str().unwrap().to_owned();
    // Everything else in the session continues.
    assert_eq!(peer.text("read", json!({})), "from afar");
    (peer, id, question)
}

fn decided(place: &Place) -> Value {
    assert!(within(patience(Duration::from_secs(20)), || !place.events("approval_decided").is_empty()));
    let mut events = place.events("approval_decided");
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

#[test]
fn step_up_login_lets_the_waiting_call_continue() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    place.user_policy(WAITS);
    let (mut peer, id, question) = asked(&place, &authority);
    // A page offers what there is to answer, and no line of a policy.
    let page = Ui::open(&place).get("/approvals").body;
    assert!(page.contains("login files:write") && page.contains("Approve once"), "{page}");
    assert!(!page.contains("Approve always") && !page.contains("always would write"), "{page}");
    let always = Outcome::of(&mut place.agentsh(&["approvals", "approve", &question, "--always"]));
    assert!(always.code != 0 && always.stderr.contains("a login is kept anyway"), "{always}");

    log_in(&place, &[&authority.mcp.url(), "--scope", "files:write"]).expect_code(0);
    let answer = peer.answer(&id);
    assert_eq!(answer["result"]["content"][0]["text"], "from afar", "{answer}");
    let decided = decided(&place);
    assert_eq!((&decided["word"], &decided["by"]), (&json!("approved"), &json!("a login")), "{decided}");
    assert_eq!(peer.text("write", json!({})), "from afar");
    let (code, errors) = peer.finish();
    assert!(code == 0 && !errors.contains(MARK), "{errors}");
}

#[test]
fn step_up_login_starts_in_the_users_browser_after_a_yes() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    place.user_policy(WAITS);
    let browser = place.script(place.home.join("bin/browser"), "#!/bin/sh\nexec curl -sSL \"$1\"\n");
    place.set("BROWSER", browser.display().to_string());
    let (mut peer, id, question) = asked(&place, &authority);
    let yes = Outcome::of(&mut place.agentsh(&["approvals", "approve", &question])).expect_code(0);
    assert!(yes.stdout.contains("'login files:write' of server 'far'"), "{yes}");
    let answer = peer.answer(&id);
    assert_eq!(answer["result"]["content"][0]["text"], "from afar", "{answer}");
    assert_eq!(
        place.listed(&["login", "--list", "--json"])[0]["scopes"],
        json!(["files:read", "files:write"])
    );
    let by = decided(&place)["by"].clone();
    assert!(by.as_str().unwrap().starts_with("uid "), "{by}");
    let (_, errors) = peer.finish();
    assert!(
        errors.contains("log in to server 'far' with more scopes") && errors.contains("/authorize?"),
        "{errors}"
    );
}

#[test]
fn step_up_refusal_holds_for_the_session() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    place.user_policy(WAITS);
    let (mut peer, id, question) = asked(&place, &authority);
    Outcome::of(&mut place.agentsh(&["approvals", "deny", &question])).expect_code(0);
    for answer in [peer.answer(&id), peer.call("write", json!({}))] {
        let message = answer["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("'files:write'") && message.contains("approval-denied"), "{answer}");
        assert!(message.contains("--scope files:write`"), "{answer}");
    }
    let requested = || place.events("approval_requested").len();
    assert!(within(patience(Duration::from_secs(20)), || requested() > 0), "no event says what was asked");
    assert_eq!(requested(), 1);
    assert_eq!(peer.text("read", json!({})), "from afar");
}

/// The missing rights are not named: only a login gives further ones, and a renewal in the meantime is not a login.
#[test]
fn step_up_is_not_satisfied_by_a_token_renewal() {
    let (place, authority) = (Place::new(Mode::Invoker), Authority::start());
    place.user_policy(WAITS);
    authority.state().names_no_scope = true;
    let url = authority.mcp.url();
    log_in(&place, &[&url]).expect_code(0);
    let mut peer = peer(&place, &authority);
    peer.shake_hands();
    assert_eq!(peer.text("read", json!({})), "from afar");
    let id = peer.ask("tools/call", json!({"name": "write", "arguments": {}}));
    let waits = || place.listed(&["approvals", "list", "--json"]);
    assert!(within(patience(Duration::from_secs(20)), || !waits().is_empty()), "nothing was asked");
    authority.state().expire();
    assert_eq!(peer.text("read", json!({})), "from afar");
    let is_renewed = || place.events("server_login").iter().any(|event| event["what"] == "renewed");
    assert!(within(patience(Duration::from_secs(20)), is_renewed));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(waits().len(), 1, "{:?}", place.events("approval_decided"));
    assert!(place.events("approval_decided").is_empty());
    log_in(&place, &[&url, "--scope", "files:write"]).expect_code(0);
    let answer = peer.answer(&id);
    assert_eq!(answer["result"]["content"][0]["text"], "from afar", "{answer}");
    assert_eq!(decided(&place)["by"], "a login");
}
