#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use nix::errno::Errno;

use super::*;

fn answer(forbidden: &[Result<(), Errno>], allowed: &[Result<(), Errno>]) -> Answer {
    let tries = |list: &[Result<(), Errno>]| list.iter().map(|result| Try::new("thing", *result)).collect();
    Answer {
        probe: "p".to_owned(),
        forbidden: tries(forbidden),
        allowed: tries(allowed),
        facts: BTreeMap::new(),
    }
}

fn state(answer: Option<&Answer>) -> State {
    by_tries("layer", "asked", answer, &["EPERM"]).state
}

#[test]
fn only_attempts_that_this_layer_refused_count() {
    let no = Err(Errno::EPERM);
    assert_eq!(state(Some(&answer(&[no, no], &[Ok(())]))), State::Enforced);
    assert_eq!(state(Some(&answer(&[no, Ok(())], &[]))), State::Degraded);
    assert_eq!(state(Some(&answer(&[Ok(())], &[]))), State::Absent);
    assert_eq!(state(Some(&answer(&[no, Err(Errno::EIO)], &[]))), State::Degraded);
    assert_eq!(state(Some(&answer(&[no], &[no]))), State::Degraded);
}

#[test]
fn missing_answer_does_not_count_as_protection() {
    assert_eq!(state(None), State::Absent);
    assert_eq!(state(Some(&answer(&[], &[Ok(())]))), State::Absent);
    let rows = ordinary_layers(&read("no json\n{}\n"), &[], &Host::default());
    assert!(rows.iter().all(|row| row.state == State::Absent || row.layer == "id-mapped-mounts"), "{rows:?}");
    let root = ordinary_layers(&Answers::new(), &[], &Host { uid: 0, ..Host::default() });
    assert!(root.iter().all(|row| row.state == State::Absent), "{root:?}");
}

#[test]
fn connection_that_arrived_overrides_the_report_from_inside() {
    let mut inside = answer(&[Err(Errno::ENETUNREACH)], &[]);
    inside.probe = "network".to_owned();
    let arrived = Host { reached: 1, ..Host::default() };
    assert_eq!(network(Some(&inside), &Host::default()).state, State::Enforced);
    assert_eq!(network(Some(&inside), &arrived).state, State::Absent);
}

#[test]
fn shared_namespace_is_reported() {
    let mut inside = answer(&[Err(Errno::ESRCH)], &[]);
    for name in NAMESPACES {
        inside.facts.insert(name.to_owned(), format!("{name}:[1]"));
    }
    let mut host = Host::default();
    assert_eq!(processes(Some(&inside), &host).state, State::Enforced);
    host.namespaces.insert("ipc".to_owned(), "ipc:[1]".to_owned());
    let row = processes(Some(&inside), &host);
    assert_eq!((row.state, row.why.as_str()), (State::Absent, "shared with the host: ipc"));
}

#[test]
fn remaining_capability_is_reported() {
    let mut inside = answer(&[Err(Errno::EPERM)], &[]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        inside.facts.insert(set.to_owned(), "0000000000000000".to_owned());
    }
    assert_eq!(capabilities(Some(&inside)).state, State::Enforced);
    inside.facts.insert("CapBnd".to_owned(), "0000000000200000".to_owned());
    assert_eq!(capabilities(Some(&inside)).why, "not empty: CapBnd (CAP_SYS_ADMIN)");
    inside.facts.insert("CapAmb".to_owned(), "8000000000000001".to_owned());
    let why = capabilities(Some(&inside)).why;
    assert_eq!(why, "not empty: CapBnd (CAP_SYS_ADMIN), CapAmb (CAP_CHOWN, 0x8000000000000000)");
}

fn probed(output: &str, ended: ProbeEnd, cgroup: bool, code: u8) -> Probed {
    Probed {
        output: output.to_owned(),
        exit_code: code,
        enforcement: Vec::new(),
        memory_in_cgroup: cgroup,
        cpu_in_cgroup: cgroup,
        throttled: None,
        ended,
    }
}

#[test]
fn a_limit_counts_only_when_it_was_hit() {
    let held = r#"{"probe":"memory","forbidden":[{"what":"hold","error":null}],"allowed":[],"facts":{}}"#;
    let ended =
        r#"{"probe":"memory","forbidden":[{"what":"hold","error":"ECANCELED"}],"allowed":[],"facts":{}}"#;
    assert_eq!(memory(&probed(held, ProbeEnd::ByItself, true, 0)).state, State::Absent);
    assert_eq!(memory(&probed(held, ProbeEnd::ByItself, false, 0)).state, State::Absent);
    assert_eq!(memory(&probed("", ProbeEnd::TooSlow, true, 137)).state, State::Absent);
    assert_eq!(memory(&probed(ended, ProbeEnd::ByItself, true, 0)).state, State::Enforced);
    assert_eq!(memory(&probed("", ProbeEnd::ByTheMemoryWatchdog, false, 137)).state, State::Degraded);
    assert_eq!(cpu(&probed("", ProbeEnd::ByItself, true, 0)).state, State::Degraded);
    assert_eq!(cpu(&probed("", ProbeEnd::ByItself, false, 0)).state, State::Absent);
    let many = r#"{"probe":"pids","forbidden":[{"what":"one more","error":"EAGAIN"}],"allowed":[],"facts":{"made":"90"}}"#;
    assert_eq!(pids(&probed(many, ProbeEnd::ByItself, true, 0)).state, State::Degraded);
}

#[test]
fn changed_program_that_starts_is_a_failure() {
    let mut inside = answer(&[Err(Errno::EROFS)], &[Ok(())]);
    inside.facts.insert("bytes".to_owned(), "good".to_owned());
    let answers = Answers::from([("pinned".to_owned(), inside)]);
    let host = Host { pinned_text: "good".to_owned(), ..Host::default() };
    let refused = Some("check: the file changed after it was checked");
    assert_eq!(pinning_layer(&answers, refused, &host).state, State::Enforced);
    assert_eq!(pinning_layer(&answers, None, &host).state, State::Absent);
    assert_eq!(pinning_layer(&answers, Some("no memory"), &host).state, State::Absent);
    let other = Host { pinned_text: "better".to_owned(), ..Host::default() };
    assert_eq!(pinning_layer(&answers, refused, &other).state, State::Absent);
}
