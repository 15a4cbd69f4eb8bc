use std::fs;

use super::super::{Action, ChangeKind, PinnedState, Resolved, Status, compare, decide};
use super::{Machine, text};
use crate::policy::{OnChange, Pinning};

fn changes(pinned: &PinnedState, now: &Resolved) -> Vec<(String, ChangeKind)> {
    match compare(Some(pinned), now) {
        Status::Mismatch(change) => {
            assert_eq!((&change.expected, &change.actual), (&pinned.digest, &now.digest));
            change.changed.iter().map(|file| (text(&file.path), file.kind)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn changed_file_of_every_kind_is_named() {
    let machine = Machine::new();
    machine.program("opt/bin/npx", "#!/usr/bin/env node\n");
    machine.package("project/node_modules", "@s/server", "1.0.0");
    machine.package("project/node_modules", "dep", "1.0.0");
    machine.file("project/node_modules/dep/old.js", "x");
    let line = ["npx", "-y", "@s/server", "/data"];
    let first = machine.ok(&line);
    let pinned = first.state();
    assert_eq!(compare(None, &first), Status::NotPinned);
    assert_eq!(compare(Some(&pinned), &machine.ok(&line)), Status::Match);

    for path in
        ["opt/bin/node", "project/node_modules/@s/server/cli.js", "project/node_modules/dep/package.json"]
    {
        let original = fs::read(machine.at(path)).unwrap();
        let mut tampered = original.clone();
        tampered.push(b' ');
        fs::write(machine.at(path), tampered).unwrap();
        assert!(first.unchanged_since().is_err(), "{path}");
        assert_eq!(changes(&pinned, &machine.ok(&line)), [(text(&machine.at(path)), ChangeKind::Changed)]);
        fs::write(machine.at(path), original).unwrap();
        assert_eq!(compare(Some(&pinned), &machine.ok(&line)), Status::Match);
    }

    let resolved = machine.ok(&line);
    let added = machine.file("project/node_modules/new/index.js", "x");
    assert!(resolved.unchanged_since().is_err());
    assert_eq!(changes(&pinned, &machine.ok(&line)), [(text(&added), ChangeKind::Added)]);
    fs::remove_dir_all(machine.at("project/node_modules/new")).unwrap();

    let resolved = machine.ok(&line);
    fs::remove_file(machine.at("project/node_modules/dep/old.js")).unwrap();
    assert!(resolved.unchanged_since().is_err());
    let removed = (text(&machine.at("project/node_modules/dep/old.js")), ChangeKind::Removed);
    assert_eq!(changes(&pinned, &machine.ok(&line)), [removed]);
    machine.file("project/node_modules/dep/old.js", "x");

    fs::remove_file(machine.at("project/node_modules/.bin/dep")).unwrap();
    machine.link("project/node_modules/.bin/dep", "../@s/server/cli.js");
    let link = (text(&machine.at("project/node_modules/.bin/dep")), ChangeKind::Changed);
    assert_eq!(changes(&pinned, &machine.ok(&line)), [link]);
}

#[test]
fn tampering_with_an_environment_names_the_file() {
    let machine = Machine::new();
    let script = machine.venv("tool/.venv", "server", "1.0.0", "server");
    machine.link("opt/bin/server", &script);
    let pinned = machine.ok(&["server"]).state();
    let site = "tool/.venv/lib/python3.12/site-packages";
    for path in [
        "tool/.venv/pyvenv.cfg",
        "opt/lib/python3.12/json.py",
        &format!("{site}/server/__main__.py"),
        &format!("{site}/server-1.0.0.dist-info/METADATA"),
    ] {
        let original = fs::read(machine.at(path)).unwrap();
        fs::write(machine.at(path), "tampered").unwrap();
        assert_eq!(
            changes(&pinned, &machine.ok(&["server"])),
            [(text(&machine.at(path)), ChangeKind::Changed)]
        );
        fs::write(machine.at(path), original).unwrap();
    }
    // The interpreter is reached directly and through the links of the environment.
    machine.program("opt/bin/python3.12", "\u{7f}ELF tampered");
    let named = changes(&pinned, &machine.ok(&["server"]));
    assert!(named.contains(&(text(&machine.at("opt/bin/python3.12")), ChangeKind::Changed)), "{named:?}");
}

#[test]
fn same_program_at_another_path_is_a_mismatch() {
    let mut machine = Machine::new();
    machine.program("opt/bin/server", "bytes");
    machine.program("other/server", "bytes");
    let pinned = machine.ok(&["server"]).state();
    machine.path = machine.at("other").into_os_string();
    let named = changes(&pinned, &machine.ok(&["server"]));
    let kinds: Vec<ChangeKind> = named.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, [ChangeKind::Removed, ChangeKind::Added]);
}

#[test]
fn a_tree_entry_that_is_written_after_hashing_is_seen_before_execution() {
    let machine = Machine::new();
    machine.file("project/package.json", r#"{"name":"p"}"#);
    machine.file("project/main.js", "x");
    let library = machine.file("project/lib.js", "old");
    let resolved = machine.ok(&["node", "main.js"]);
    machine.file("project/.git/index", "does not belong to the tree");
    resolved.unchanged_since().unwrap();
    let other = machine.file("other.js", "old");
    fs::rename(other, library).unwrap();
    let message = resolved.unchanged_since().unwrap_err().to_string();
    assert!(message.contains("lib.js"), "{message}");
}

#[test]
fn pin_state_round_trips() {
    let machine = Machine::new();
    let resolved = machine.ok(&["node", "-e", "1"]);
    let state = resolved.state();
    let stored: PinnedState = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    assert_eq!(stored, state);
    assert_eq!(compare(Some(&stored), &resolved), Status::Match);
}

#[test]
fn pin_mismatch_actions_follow_the_documented_table() {
    let machine = Machine::new();
    machine.program("opt/bin/server", "x");
    let pinned = machine.ok(&["server"]).state();
    machine.program("opt/bin/server", "y");
    let mismatch = compare(Some(&pinned), &machine.ok(&["server"]));
    let pinning = |auto_trust_first, on_change| Pinning { auto_trust_first, on_change, ..Pinning::default() };
    for (on_change, action) in [
        (OnChange::Block, Action::Refuse),
        (OnChange::Alert, Action::ProceedWithAlert),
        (OnChange::Allow, Action::Proceed),
    ] {
        for trust in [true, false] {
            let policy = pinning(trust, on_change);
            assert_eq!(decide(&Status::Match, &policy), Action::Proceed);
            assert_eq!(decide(&mismatch, &policy), action);
            let first = if trust { Action::PinAndProceed } else { action };
            assert_eq!(decide(&Status::NotPinned, &policy), first);
            let off = Pinning { pin_binary: false, ..policy };
            assert_eq!(decide(&mismatch, &off), Action::Proceed);
        }
    }
}
