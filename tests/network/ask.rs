//! Hosts that no rule names: a person is asked while the connection waits, and nothing leaves before the answer.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{backends, heard};
use crate::support::asking::ended;
use crate::support::{Mode, Outcome, Place, Pty, skip, within};

const POLICY: &str = "sandbox: {mcp: {approvals: {wait: 20s, headless: wait}}}\n";

fn agent(place: &Place, script: &str) -> Child {
    let mut command = place.agentsh(&["run", "--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn say(place: &Place, words: &[&str]) -> Outcome {
    Outcome::of(place.agentsh(&["approvals"]).args(words)).expect_code(0)
}

fn waiting(place: &Place) -> Vec<Value> {
    serde_json::from_str(&say(place, &["list", "--json"]).stdout).unwrap()
}

/// The question about a host, as soon as it waits.
fn question(place: &Place, host: &str) -> String {
    let find = || waiting(place).into_iter().find(|item| item["host"] == host);
    assert!(within(Duration::from_secs(30), || find().is_some()), "{host}: {:?}", waiting(place));
    find().unwrap()["id"].as_str().unwrap().to_owned()
}

const GET: &str = "get() { curl -sS -m 40 -o /dev/null -w '%{http_code}\\n' \"http://$1/\"; }; ";

fn places() -> Vec<Place> {
    if !Mode::Invoker.is_root() {
        skip("a person beside the small internet: the tests are not run by root");
        return Vec::new();
    }
    backends().into_iter().map(|(mode, backend)| Place::new(mode).online().policed_by(backend)).collect()
}

#[test]
fn unknown_host_is_allowed_or_refused_by_a_person() {
    for place in places() {
        place.user_policy(POLICY);
        // Two connections to one host are one question; the other host is another, and waits meanwhile.
        let script = format!(
            "{GET} get other.test & get other.test & get v4.test & wait; get other.test; get v4.test"
        );
        let child = agent(&place, &script);
        let (other, v4) = (question(&place, "other.test"), question(&place, "v4.test"));
        assert_eq!(waiting(&place).len(), 2);
        assert!(
            !heard(&place).contains("name other.test") && !heard(&place).contains("tcp "),
            "{}",
            heard(&place)
        );
        // Only what is about a host: the rows of tool calls say nothing here.
        let shown = say(&place, &["show", &v4]).stdout;
        assert!(shown.contains("host       v4.test:80\n") && shown.contains("\nrule "), "{shown}");
        assert!(
            !["server ", "carries ", "interface ", "arguments "].iter().any(|row| shown.contains(row)),
            "{shown}"
        );
        say(&place, &["deny", &v4]);
        say(&place, &["approve", &other]);
        let (out, err) = ended(child);
        let mut first: Vec<&str> = out.lines().take(3).collect();
        first.sort_unstable();
        assert_eq!(first, ["200", "200", "403"], "{out}{err}");
        assert!(out.ends_with("200\n403\n"), "{out}{err}");
        assert!(err.contains("a connection to 'other.test:80' waits for your answer"), "{err}");
        assert!(err.contains("a person said no"), "{err}");
        assert!(!heard(&place).contains("name v4.test"), "{}", heard(&place));
        assert_eq!(place.events("approval_decided").len(), 2);
        assert!(!std::fs::exists(place.home.join(".config/agentsh/approved.yaml")).unwrap());
    }
}

/// curl leaves a terminal in line mode. A program that reads single keys draws there, so the terminal notifies the person.
#[test]
fn question_is_printed_on_a_terminal_unless_a_program_draws_there() {
    const NOTICE: &str = "agentsh: a connection to 'other.test:80' waits for your answer";
    for place in places() {
        place.user_policy(POLICY);
        for (modes, is_printed) in [("", true), ("stty raw -echo; ", false)] {
            let script = format!("{modes}curl -sS -m 3 http://other.test/");
            let mut terminal = Pty::start(place.agentsh(&["run", "--quiet", "--", "sh", "-c", &script]));
            terminal.expect(NOTICE);
            let (_, text) = terminal.whole();
            assert_eq!(text.contains("answers it"), is_printed, "{text:?}");
            assert_eq!(text.contains(&format!("\x1b]9;{NOTICE}")), !is_printed, "{text:?}");
        }
    }
}

#[test]
fn permanent_answer_becomes_a_policy_line() {
    for place in places() {
        place.user_policy(POLICY);
        let child = agent(&place, &format!("{GET} get other.test"));
        let id = question(&place, "other.test");
        let said = say(&place, &["approve", &id, "--always"]);
        assert!(said.stdout.contains("approved.yaml: - \"other.test\""), "{said}");
        assert_eq!(ended(child).0, "200\n");
        let (out, err) = ended(agent(&place, &format!("{GET} get other.test")));
        assert!(out == "200\n" && !err.contains("waits for your answer"), "{out}{err}");
    }
}

#[test]
fn unknown_host_is_refused_where_nobody_can_answer() {
    for place in places() {
        for policy in
            ["", "agent: {network: {unknown: deny}}\nsandbox: {mcp: {approvals: {headless: wait}}}\n"]
        {
            place.user_policy(&format!("version: 1\n{policy}"));
            let began = std::time::Instant::now();
            let (out, err) = ended(agent(&place, &format!("{GET} get other.test")));
            assert!(began.elapsed() < Duration::from_secs(15), "{err}");
            assert!(out == "000\n" && err.contains("refused: the agent -> other.test ("), "{out}{err}");
        }
        // Nobody answers in time.
        place.user_policy("sandbox: {mcp: {approvals: {wait: 1s, headless: wait}}}\n");
        let (out, err) = ended(agent(&place, &format!("{GET} get other.test; get other.test")));
        assert!(out == "403\n403\n" && err.contains("nobody answered in time"), "{out}{err}");
        assert!(!heard(&place).contains("name other.test"));
    }
}

/// The program gave up, or the run ended, while the question was open.
#[test]
fn a_question_that_is_open_at_the_end_is_told_as_a_refusal() {
    for place in places() {
        place.user_policy(POLICY);
        let child = agent(&place, "curl -sS -m 2 -o /dev/null http://other.test/");
        let (out, err) = ended(child);
        assert!(err.contains("refused: the agent -> other.test"), "{out}{err}");
        assert!(err.contains("nobody answered in time"), "{err}");
        assert!(err.contains("agentsh policy allow other.test"), "{err}");
        let refused = place.events("net_connect_blocked");
        assert!(refused.iter().any(|event| event["reason"] == "approval-timed-out"), "{refused:?}");
    }
}

/// Hosts that an agent contacts by itself are refused at once, and only recorded.
#[test]
fn telemetry_hosts_of_an_agent_are_refused_without_a_question() {
    for place in places() {
        place.user_policy(POLICY);
        let hello = place.write("ech.py", include_str!("clients/ech.py")).display().to_string();
        let script = format!(
            "#!/bin/sh\n{GET}get ab.chatgpt.com; get github.com; python3 {hello} ab.chatgpt.com:443 2>/dev/null; get other.test\n"
        );
        place.script(place.path("bin/codex"), &script);
        place.set("PATH", format!("{}:/usr/bin:/bin", place.path("bin").display()));
        let mut command = place.agentsh(&["run", "--", "codex", "exec"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let id = question(&place, "other.test");
        assert_eq!(waiting(&place).len(), 1);
        say(&place, &["approve", &id]);
        let (out, err) = ended(child);
        assert!(out == "403\n403\n200\n", "{out}{err}");
        assert!(!err.contains("ab.chatgpt.com") && !err.contains("github.com"), "{err}");
        assert!(err.contains(": 2 telemetry or update hosts refused"), "{err}");
        let refused = place.events("net_connect_blocked");
        assert_eq!(refused.len(), 3, "{refused:?}");
        assert!(refused.iter().all(|event| event["reason"] == "telemetry-or-update"), "{refused:?}");
        assert!(!heard(&place).contains("name ab.chatgpt.com"), "{}", heard(&place));
    }
}

/// A host that serves the user's work, too, is refused without a question only while the agent starts.
#[test]
fn hosts_that_an_agent_contacts_at_its_start_are_asked_about_later() {
    for place in places().into_iter().take(1) {
        place.user_policy(&format!("{POLICY}agent: {{network: {{allow: [allowed.test]}}}}\n"));
        let script = format!("#!/bin/sh\n{GET}get github.com; get allowed.test; sleep 21; get github.com\n");
        place.script(place.path("bin/codex"), &script);
        place.set("PATH", format!("{}:/usr/bin:/bin", place.path("bin").display()));
        let mut command = place.agentsh(&["run", "--", "codex", "exec"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let id = question(&place, "github.com");
        say(&place, &["deny", &id]);
        let (out, err) = ended(child);
        assert_eq!(out, "403\n200\n403\n", "{err}");
        let refused = place.events("net_connect_blocked");
        let reasons: Vec<_> = refused.iter().map(|event| event["reason"].as_str().unwrap()).collect();
        assert_eq!(reasons, ["telemetry-or-update", "approval-denied"], "{refused:?}");
    }
}
