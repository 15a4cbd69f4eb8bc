use nix::errno::Errno;

use super::*;
use agentsh_base::types::{RuleRef, ServerId};

fn all_refused() -> Vec<Report> {
    let attack = |(by, attack, _): &(&str, &str, &str)| {
        Report::new(by, attack, vec![Try::new("it", Err::<(), _>(Errno::EROFS))])
    };
    let work = |(by, attack, _): &(&str, &str, &str)| {
        Report::new(by, attack, vec![Try::new("it", Ok::<_, Errno>(()))])
    };
    ATTACKS.iter().map(attack).chain(WORKS.iter().map(work)).collect()
}

fn row<'a>(rows: &'a [Row], by: &str, attack: &str) -> &'a Row {
    rows.iter().find(|row| row.by == by && row.attack == attack).unwrap_or(&rows[0])
}

#[test]
fn refused_attacks_and_working_twins_are_good() {
    let rows = rows(&all_refused(), &Observed::default());
    assert!(rows.iter().all(|row| row.outcome.is_good()), "{rows:?}");
    assert_eq!(rows.len(), ATTACKS.len() + WORKS.len());
    assert!(plain(&render(&rows, Some(100))).ends_with("36 attacks refused\n"));
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn every_attack_has_one_line_of_a_narrow_terminal() {
    let rows = rows(&all_refused(), &Observed::default());
    let shown = render(&rows, Some(80));
    let text = plain(&shown);
    assert_eq!(text.lines().count(), rows.len() + 2, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.lines().any(|line| line == "refused        agent         read the key in ~/.ssh"), "{text}");
    assert!(shown.contains("\u{1b}[32mrefused\u{1b}[0m"), "{shown}");
    assert!(plain(&render(&rows, Some(120))).contains("WHICH LAYER OR RULE"));
}

#[test]
fn unreported_attack_is_shown_as_not_tried() {
    let nothing = rows(&[], &Observed::default());
    assert!(nothing.iter().all(|row| row.outcome == Outcome::NotTried));
    let empty = [Report::new("agent", "ssh-key", Vec::new())];
    assert_eq!(row(&rows(&empty, &Observed::default()), "agent", "ssh-key").outcome, Outcome::NotTried);
    // The other side's report does not count for this one.
    let mut reports = all_refused();
    reports.retain(|report| report.by != HOSTILE || report.attack != "ssh-key");
    let rows = rows(&reports, &Observed::default());
    assert_eq!(row(&rows, HOSTILE, "ssh-key").outcome, Outcome::NotTried);
    assert_eq!(row(&rows, "agent", "ssh-key").outcome, Outcome::Refused);
}

#[test]
fn one_attempt_that_came_through_is_a_success_and_named() {
    let mut reports = all_refused();
    for report in &mut reports {
        report.tries.push(Try::new("the other door", Ok::<_, Errno>(())));
    }
    let rows = rows(&reports, &Observed::default());
    let attacks = rows.iter().filter(|row| !row.attack.starts_with("works"));
    for row in attacks {
        assert_eq!(
            (row.outcome, row.happened.as_str()),
            (Outcome::Succeeded, "the other door: came through")
        );
    }
    assert!(plain(&render(&rows, Some(100))).ends_with("0 attacks refused, 36 SUCCEEDED\n"));
}

#[test]
fn host_observation_overrides_the_report_from_inside() {
    let mut seen = Observed::default();
    seen.checks.insert("host-loopback", Err("1 connection arrived".to_owned()));
    seen.checks.insert("git-hook", Ok("the file is unchanged".to_owned()));
    let rows = rows(&all_refused(), &seen);
    assert_eq!(row(&rows, "agent", "host-loopback").outcome, Outcome::Succeeded);
    let hook = row(&rows, "agent", "git-hook");
    assert_eq!((hook.outcome, hook.happened.as_str()), (Outcome::Refused, "EROFS; the file is unchanged"));
}

#[test]
fn a_twin_that_is_refused_is_broken() {
    let mut reports = all_refused();
    reports.retain(|report| !report.attack.starts_with("works"));
    reports.push(Report::new(
        "agent",
        "works-tool",
        vec![Try::answered("call", Some("no".to_owned()), None)],
    ));
    let rows = rows(&reports, &Observed::default());
    assert_eq!(row(&rows, "agent", "works-tool").outcome, Outcome::Broken);
    assert_eq!(row(&rows, "agent", "works-project").outcome, Outcome::NotTried);
}

#[test]
fn demo_shows_the_rule_from_the_record() {
    let reports = [Report::new(
        "agent",
        "denied-tool",
        vec![Try::answered("call it", Some("tool-denied".to_owned()), Some("p.yaml:3 (x)".to_owned()))],
    )];
    let without = rows(&reports, &Observed::default());
    assert_eq!(row(&without, "agent", "denied-tool").refused_by, "p.yaml:3 (x)");
    let event = Event::McpToolCallIntercepted {
        server_id: ServerId(HOSTILE.to_owned()),
        tool_name: "exfiltrate".to_owned(),
        jsonrpc_id: 1.into(),
        tool_hash: None,
        action: agentsh_store::words::Action::Block,
        reason: "tool-denied".to_owned(),
        rule: RuleRef::default_rule("rule"),
    };
    let with = rows(&reports, &Observed { events: vec![event], ..Observed::default() });
    assert!(row(&with, "agent", "denied-tool").refused_by.ends_with("recorded"));
}

#[test]
fn only_seccomp_errors_are_attributed_to_seccomp() {
    let call =
        |number, error: &str| Try { call: Some(number), ..Try::answered("c", Some(error.to_owned()), None) };
    assert!(is_refused_by_filter(&call(libc::SYS_mount, "EPERM")));
    assert!(is_refused_by_filter(&call(libc::SYS_io_uring_setup, "ENOSYS")));
    assert!(!is_refused_by_filter(&call(libc::SYS_mount, "EFAULT")));
    assert!(!is_refused_by_filter(&call(libc::SYS_read, "EPERM")));
    assert_eq!(
        layer_of("internet", &Try::answered("c", Some("ETIMEDOUT".to_owned()), None)),
        "the answer was ETIMEDOUT"
    );
}

#[test]
fn the_json_has_a_stable_shape() {
    let reports = [Report::new("agent", "ssh-key", vec![Try::new("read it", Err::<(), _>(Errno::ENOENT))])];
    let rows = rows(&reports, &Observed::default());
    insta::assert_snapshot!(serde_json::to_string(&rows[0]).unwrap_or_default(), @r#"{"by":"agent","attack":"ssh-key","attempted":"read the key in ~/.ssh","outcome":"refused","happened":"ENOENT","refused_by":"mount tree: it is not there","tries":[{"what":"read it","error":"ENOENT"}]}"#);
}
