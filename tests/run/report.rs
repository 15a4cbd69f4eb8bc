//! The summary and report after a run.

use serde_json::Value;

use crate::support::{Mode, Outcome, Place};

#[test]
fn summary_is_printed_on_standard_error_unless_quiet() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "true"])).expect_code(0);
        assert!(outcome.stderr.contains(": nothing refused"), "{outcome}");
        assert_eq!(
            outcome.stderr.contains("not fully enforced for the agent: memory limit"),
            mode == Mode::User,
            "{mode:?} {outcome}"
        );
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "true"])).expect_code(0);
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn report_is_written_as_a_file() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let words = ["run", "--quiet", "--report-json", "report.json", "--", "sh", "-c", "exit 5"];
        Outcome::of(&mut place.agentsh(&words)).expect_code(5);
        let text = std::fs::read_to_string(place.project.join("report.json")).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&report["exit_code"], &report["state"]), (&5.into(), &"ended".into()), "{text}");
        assert_eq!(report["processes"][0]["last_exit_code"], 5);

        let latest = Outcome::of(&mut place.agentsh(&["report", "--format", "json"])).expect_code(0);
        let latest: Value = serde_json::from_str(&latest.stdout).unwrap();
        assert_eq!(latest["session"], report["session"]);
        let shown = Outcome::of(&mut place.agentsh(&["report"])).expect_code(0);
        assert!(shown.stdout.contains(report["session"].as_str().unwrap()), "{shown}");
    }
}

/// Before the agent has run for an hour.
#[test]
fn a_report_that_cannot_be_written_stops_the_start() {
    let place = Place::new(Mode::Invoker);
    for (path, part) in
        [("/nonexistent/report.json", "No such file"), ("/", "directory"), ("-", "standard output")]
    {
        let words = ["run", "--quiet", "--report-json", path, "--", "touch", "ran"];
        let outcome = Outcome::of(&mut place.agentsh(&words)).expect_code(125);
        assert!(outcome.stderr.contains(part), "{outcome}");
        assert!(!place.project.join("ran").exists() && !place.project.join("-").exists());
    }
    let words = ["run", "--report-json", "report.json", "--", "no-such-program-here"];
    Outcome::of(&mut place.agentsh(&words)).expect_code(127);
    assert!(!place.project.join("report.json").exists());
}

/// A link that the agent puts in the report's place leads nowhere.
#[test]
fn report_is_written_to_the_file_opened_at_the_start() {
    let place = Place::new(Mode::Invoker);
    let victim = place.write(place.home.join("victim"), "mine");
    let swap = format!("rm report.json; ln -s {} report.json; exit 5", victim.display());
    let words = ["run", "--quiet", "--report-json", "report.json", "--", "sh", "-c", &swap];
    let outcome = Outcome::of(&mut place.agentsh(&words)).expect_code(5);
    assert!(outcome.stderr.contains("cannot write the report"), "{outcome}");
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "mine");
    // A longer file of an earlier run leaves nothing behind.
    std::fs::remove_file(place.project.join("report.json")).unwrap();
    place.write("report.json", "x".repeat(100_000));
    let words = ["run", "--quiet", "--report-json", "report.json", "--", "true"];
    Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    let text = std::fs::read_to_string(place.project.join("report.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["exit_code"], 0);
}

/// The page says what the text says, and nothing in it is markup of others.
#[test]
fn report_is_written_as_an_html_page() {
    let place = Place::new(Mode::Invoker);
    place.shell("exit 5 # <script>alert(1)</script>").expect_code(5);
    let page = Outcome::of(&mut place.agentsh(&["report", "--format", "html"])).expect_code(0).stdout;
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
    assert!(
        page.contains("exit status 5") && page.contains("Protection: enforced and not enforced"),
        "{page}"
    );
    let words = ["report", "--json", "--format", "html"];
    Outcome::of(&mut place.agentsh(&words)).expect_code(2);
}

#[test]
fn the_chain_verifies_and_a_changed_record_does_not() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        for _ in 0..3 {
            place.shell("true").expect_code(0);
        }
        let verify = || Outcome::of(&mut place.agentsh(&["events", "verify"]));
        let outcome = verify().expect_code(0);
        assert!(outcome.stdout.contains("3 sessions (3 ended, 0 open or killed, 0 broken)"), "{outcome}");

        let database = place.home.join(".local/state/agentsh/agentsh.db");
        let mut wal = database.clone().into_os_string();
        wal.push("-wal");
        let mut changed = false;
        for file in [database.into_os_string(), wal] {
            let bytes = std::fs::read(&file).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if text.contains("\"verb\":\"run\"") {
                let bytes = replace(&bytes, b"\"verb\":\"run\"", b"\"verb\":\"ran\"");
                std::fs::write(&file, bytes).unwrap();
                changed = true;
            }
        }
        assert!(changed);
        let outcome = verify();
        assert_eq!(outcome.code, 1, "{mode:?} {outcome}");
    }
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_owned();
    for at in 0..bytes.len().saturating_sub(from.len()) {
        if &bytes[at..at + from.len()] == from {
            out[at..at + to.len()].copy_from_slice(to);
        }
    }
    out
}
