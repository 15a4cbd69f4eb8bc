//! A person answers while a call waits: `agentsh approvals`.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::asking::{ended, question};
use crate::support::browser::Ui;
use crate::support::http_server::{HttpServer, Reply};
use crate::support::{Mode, Outcome, Place};

const POLICY: &str = "version: 1\nsandbox:\n  mcp:\n    approvals: {wait: 60s, headless: wait}\n    rules:\n      \
    - {name: sums, tool: add, when: [{path: /b, equals: \"40\"}], action: ask, reason: sums of forty are delicate}\n      \
    - {name: words, tool: echo, when: [{path: /text, matches: \"(?i)forbidden\"}], action: block}\n";

/// A shell as the agent, with the server `fixture`; it runs on.
fn agent(place: &Place, script: &str) -> Child {
    let servers = json!({"mcpServers": {"fixture": {"command": place.program("fixture_server"), "args": []},
                               "mail": {"command": place.program("fixture_server"), "args": []}}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    let script = format!("#!/bin/sh\ncall() {{ /run/agentsh/agentsh call \"$@\"; }}\n{script}\n");
    let claude = place.script(place.project.join("bin/claude"), &script);
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(claude).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn say(place: &Place, words: &[&str]) -> Outcome {
    Outcome::of(place.agentsh(&["approvals"]).args(words))
}

#[test]
#[ignore = "takes long"]
fn call_waits_for_a_person_who_allows_or_refuses_it() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.user_policy(POLICY);
        let script = "call fixture add '{\"a\": 2, \"b\": 40}'; echo \"first $?\"\n\
            call fixture add '{\"b\": 40, \"a\": 2}'; echo \"second $?\"\n\
            call fixture add '{\"b\":40,\"a\": 2}'; echo \"third $?\"\n\
            call fixture add '{\"b\": 41, \"a\": 2}'; echo \"other $?\"\n\
            call fixture echo '{\"text\": \"a FORBIDDEN word\"}'; echo \"blocked $?\"\n\
            ls -a ~/.local/state/agentsh 2>&1; ls ~/.local/state/agentsh/approvals 2>&1";
        let child = agent(&place, script);
        let first = question(&place);
        assert_eq!(first["name"], "add", "{mode:?} {first}");
        assert_eq!(first["why"], "sums of forty are delicate");
        assert!(first["rule"].as_str().unwrap().contains("policy.yaml:6"), "{first}");
        let id = first["id"].as_str().unwrap();
        let shown = say(&place, &["show", id]).expect_code(0);
        assert!(shown.stdout.contains("\"b\": 40") && shown.stdout.contains("\ninterface "), "{shown}");
        say(&place, &["approve", "nobody-1"]).expect_code(1);
        say(&place, &["approve", id]).expect_code(0);
        say(&place, &["approve", id]).expect_code(1);
        // That was for once: the same call waits again, and a denial holds for it from then on.
        let second = question(&place);
        assert_eq!(second["arguments_hash"], first["arguments_hash"]);
        say(&place, &["deny", second["id"].as_str().unwrap()]).expect_code(0);
        let (out, err) = ended(child);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0..2], ["42", "first 0"], "{out}\n{err}");
        assert!(out.contains("second 1\nthird 1\n43\nother 0\nblocked 1\n"), "{out}\n{err}");
        assert!(err.contains("the user said no"), "{err}");
        assert!(err.contains("'add' of server 'fixture' waits for your answer"), "{err}");
        assert!(!out.contains("journal") && !out.contains(first["session"].as_str().unwrap()), "{out}");
        let words: Vec<Value> =
            place.events("approval_decided").iter().map(|event| event["word"].clone()).collect();
        assert_eq!(words, [json!("approved"), json!("denied")]);
        assert_eq!(place.events("approval_requested").len(), 2);
        let calls = place.listed(&["mcp", "calls", "--json"]);
        let blocked = calls.iter().filter(|call| call["action"] == "block").count();
        assert_eq!((calls.len(), blocked), (5, 3), "{calls:?}");
    }
}

#[test]
#[ignore = "takes long"]
fn approval_holds_for_the_session_or_permanently_as_chosen() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(POLICY);
    let twice = "for i in 1 2; do call fixture add '{\"a\": 1, \"b\": 40}'; done";
    let child = agent(&place, twice);
    let id = question(&place)["id"].as_str().unwrap().to_owned();
    say(&place, &["approve", &id, "--session"]).expect_code(0);
    assert_eq!(ended(child).0, "41\n41\n");
    let child = agent(&place, twice);
    let id = question(&place)["id"].as_str().unwrap().to_owned();
    let said = say(&place, &["approve", &id, "--always"]).expect_code(0);
    assert!(
        said.stdout.contains("approved.yaml: - {server: \"fixture\", tool: \"add\", arguments: "),
        "{said}"
    );
    assert_eq!(ended(child).0, "41\n41\n");
    // This is not asked about again, and everything else still is.
    let child = agent(&place, &format!("{twice}\ncall fixture add '{{\"a\": 2, \"b\": 40}}'"));
    let other = question(&place);
    say(&place, &["deny", other["id"].as_str().unwrap()]).expect_code(0);
    assert_eq!(ended(child).0, "41\n41\n");
    let show = Outcome::of(&mut place.agentsh(&["policy", "show"])).expect_code(0);
    assert!(
        show.stdout.contains("sandbox.mcp.approved") && show.stdout.contains("approved.yaml:5"),
        "{show}"
    );
}

#[test]
fn question_without_a_person_is_a_refusal_with_its_reason() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(&POLICY.replace(", headless: wait", ""));
    let (out, err) = ended(agent(&place, "call fixture add '{\"a\": 2, \"b\": 40}'; echo $?"));
    assert_eq!(out, "1\n", "{err}");
    assert!(err.contains("no terminal") && err.contains("policy.yaml:6"), "{err}");
    place.user_policy(&POLICY.replace("60s", "1s"));
    let (out, err) = ended(agent(&place, "call fixture add '{\"a\": 2, \"b\": 40}'; echo $?"));
    assert_eq!(out, "1\n", "{err}");
    assert!(err.contains("nobody answered in time"), "{err}");
    assert_eq!(place.events("approval_decided").last().unwrap()["word"], "timed-out");
    let empty = say(&place, &["list"]).expect_code(0);
    assert!(empty.stderr.contains("no pending approvals"), "{empty}");
}

#[test]
fn suspended_session_is_reported_at_once_and_hides_no_other() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(POLICY);
    let stopped = agent(&place, "call fixture add '{\"a\": 2, \"b\": 40}'");
    question(&place);
    let pid = rustix::process::Pid::from_raw(i32::try_from(stopped.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let ui = Ui::open(&place);
    let suspended = "it is suspended; `fg` in its terminal resumes it";
    // A session that does not answer is waited for 10 s.
    let at_once = |began: std::time::Instant| {
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    };
    let began = std::time::Instant::now();
    let listed = say(&place, &["list"]).expect_code(0);
    at_once(began);
    assert!(listed.stderr.contains(suspended), "{listed}");
    for page in ["/", "/sessions", "/approvals"] {
        let began = std::time::Instant::now();
        let got = ui.get(page);
        at_once(began);
        assert!(got.status == 200 && (page != "/approvals" || got.body.contains(suspended)), "{}", got.body);
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let asked = question(&place);
    say(&place, &["deny", asked["id"].as_str().unwrap()]).expect_code(0);
    ended(stopped);
}

const FLOWS: &str = "version: 1\nsandbox: {mcp: {approvals: {wait: 60s, headless: wait}, exfiltration: {marker: off, \
                     on_detection: ask}}}\n";
const MEMO: &str =
    "Minutes of the harvest council: the orchard at Lindenau goes to the Brandt family before winter.";

fn read_memo(place: &Place) -> String {
    format!("call fixture read_file '{{\"path\": \"{}\"}}'", place.write("memo.txt", MEMO).display())
}

fn send(text: &str) -> String {
    format!("call mail echo '{{\"text\": \"{text}\"}}'")
}

#[test]
fn flow_between_servers_is_approved_for_one_text() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(FLOWS);
    let read = read_memo(&place);
    let (one, other) = (send(&MEMO[10..80]), send(&MEMO[5..90]));
    let child = agent(&place, &format!("{read}\n{one}\n{one}\n{other}"));
    let item = question(&place);
    assert_eq!((item["from"].as_str(), item["server"].as_str()), (Some("fixture"), Some("mail")), "{item}");
    say(&place, &["approve", item["id"].as_str().unwrap(), "--session"]).expect_code(0);
    // The same text passes, another one is another question.
    let next = question(&place);
    assert_ne!(next["arguments_hash"], item["arguments_hash"]);
    let id = next["id"].as_str().unwrap();
    let said = say(&place, &["approve", id, "--always", "--any-arguments"]).expect_code(0);
    assert!(said.stdout.contains("{server: \"mail\", tool: \"*\", from: \"fixture\"}"), "{said}");
    let (out, err) = ended(child);
    assert_eq!(out.lines().count(), 4, "{out}\n{err}");
    // Another text of the same pair, in another session.
    let child = agent(&place, &format!("{read}\n{}", send(&MEMO[0..60])));
    assert_eq!(ended(child).0.lines().count(), 2);
}

#[test]
fn permanent_approval_of_a_text_covers_no_other_text() {
    let place = Place::new(Mode::Invoker);
    place.user_policy(FLOWS);
    let read = read_memo(&place);
    let (one, other) = (send(&MEMO[10..80]), send(&MEMO[5..90]));
    let child = agent(&place, &format!("{read}\n{one}"));
    let id = question(&place)["id"].as_str().unwrap().to_owned();
    let said = say(&place, &["approve", &id, "--always"]).expect_code(0);
    assert!(said.stdout.contains("from: \"fixture\", arguments: \"sha256:"), "{said}");
    assert_eq!(ended(child).0.lines().count(), 2);
    let child = agent(&place, &format!("{read}\n{one}\n{other}; echo $?"));
    let item = question(&place);
    say(&place, &["deny", item["id"].as_str().unwrap()]).expect_code(0);
    let (out, err) = ended(child);
    assert_eq!(out.lines().last(), Some("1"), "{out}\n{err}");
    assert_eq!(out.lines().count(), 3, "{out}\n{err}");
}

/// Without a rule, and if a person can answer: one question for each pair of servers, and none about small values.
#[test]
fn after_a_private_read_a_person_is_asked_once_for_the_pair() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nsandbox: {mcp: {approvals: {wait: 60s, headless: wait}}}\n");
    let read = read_memo(&place);
    let small = "call mail add '{\"a\": 2, \"b\": 40}'";
    let nested = format!("call mail echo '{{\"text\": {}true{}}}'", "[".repeat(40), "]".repeat(40));
    let child = agent(
        &place,
        &format!(
            "{read}\n{small}\n{}\n{}\n{nested} 2>&1 | head -c 0; echo end",
            send("of my own"),
            send("and more")
        ),
    );
    let item = question(&place);
    assert_eq!((item["from"].as_str(), &item["is_copy"]), (Some("fixture"), &json!(false)), "{item}");
    assert!(item["why"].as_str().unwrap().contains("returned private data"), "{item}");
    say(&place, &["approve", item["id"].as_str().unwrap()]).expect_code(0);
    let (out, err) = ended(child);
    assert!(out.ends_with("42\nof my own\nand more\nend\n"), "{out}\n{err}");
    assert_eq!(place.events("approval_requested").len(), 1);
}

/// As the approver signs it.
fn signed(secret: &str, question: &Value, answer: &str, scope: &str) -> Value {
    use hmac::{Hmac, KeyInit, Mac};
    let id = question["question"]["id"].as_str().unwrap();
    let nonce = question["nonce"].as_str().unwrap();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update([nonce, id, answer, scope, "ada"].join("\n").as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"nonce": nonce, "approval": id, "answer": answer, "scope": scope, "by": "ada", "signature": format!("sha256={hex}")})
}

/// Without a terminal and without `headless: wait`: the person is asked through a webhook.
#[test]
#[ignore = "takes long"]
fn a_signed_question_is_answered_by_a_signed_reply() {
    let place = Place::new(Mode::Invoker);
    // First nothing is known yet, then the reply is there; a reply of somebody else, or to another question, counts for
    // nothing.
    let hook = HttpServer::start(|asked| {
        let question = asked.message();
        assert_eq!(question["type"], "approval");
        let b = &question["question"]["arguments"];
        let a: Value = serde_json::from_str(b.as_str().unwrap()).unwrap();
        match a["a"].as_i64().unwrap() {
            1 => Reply::json(signed("the secret", &question, "approve", "")),
            2 => Reply::json(signed("the secret", &question, "deny", "once")),
            3 => Reply::json(signed("another secret", &question, "approve", "once")),
            4 => {
                let mut other = question.clone();
                other["nonce"] = json!("0".repeat(32));
                Reply::json(signed("the secret", &other, "approve", "once"))
            }
            _ => Reply::status(202),
        }
    });
    let policy = POLICY.replace(
        "approvals: {wait: 60s, headless: wait}",
        &format!(
            "approvals: {{wait: 4s, webhook: \"http://127.0.0.1:{}/ask\", webhook_secret_env: ASK_SECRET}}",
            hook.port
        ),
    );
    place.user_policy(&policy);
    place.set("ASK_SECRET", "the secret");
    let script: String = (1..=5)
        .map(|a| format!("call fixture add '{{\"a\": {a}, \"b\": 40}}' >/dev/null 2>&1; echo \"{a} $?\"\n"))
        .collect();
    let (out, err) = ended(agent(&place, &script));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "1 0", "{out} {err}");
    assert!(lines[1..].iter().all(|line| !line.ends_with(" 0")), "{out} {err}");
    let words: Vec<(Value, Value)> = place
        .events("approval_decided")
        .iter()
        .map(|event| (event["word"].clone(), event["by"].clone()))
        .collect();
    assert_eq!(words[0], (json!("approved"), json!("webhook: ada")));
    assert_eq!(words[1], (json!("denied"), json!("webhook: ada")));
    assert!(words[2..].iter().all(|(word, _)| word == "timed-out"), "{words:?}");
    assert!(err.contains("not signed with the secret") && err.contains("for another question"), "{err}");
    let first = &hook.asked()[0];
    assert!(first.header("x-canary-signature-256").unwrap().starts_with("sha256="), "{first:?}");
    assert!(!err.contains("the secret\""), "{err}");
}
