#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A system in a directory: with the restriction, and a parser that writes down what it is asked.
fn system(restricted: bool) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for directory in ["etc/apparmor.d", "proc/sys/kernel", "usr/sbin"] {
        std::fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    std::fs::write(root.path().join(RESTRICTION), if restricted { "1\n" } else { "0\n" }).unwrap();
    let parser = root.path().join(PARSERS[0]);
    std::fs::write(
        &parser,
        "#!/bin/sh\ngrep -q broken \"$2\" && { echo bad rule >&2; exit 1; }\necho \"$1\" >> \"$0.asked\"\n",
    )
    .unwrap();
    std::fs::set_permissions(&parser, std::fs::Permissions::from_mode(0o755)).unwrap();
    root
}

/// `answers`: of one probe after the other.
fn machine(root: &Path, executable: &str, answers: &[bool]) -> Machine {
    let answers = RefCell::new(VecDeque::from(answers.to_vec()));
    let probe =
        Box::new(move || answers.borrow_mut().pop_front().map(Some).ok_or("one probe too many".to_owned()));
    Machine { root: root.to_owned(), executable: executable.into(), probe }
}

fn asked(root: &Path) -> String {
    std::fs::read_to_string(root.join(PARSERS[0]).with_extension("asked")).unwrap_or_default()
}

fn done(work: impl FnOnce(&mut Vec<u8>) -> Result<u8, Failure>) -> (u8, String) {
    let mut out = Vec::new();
    let code = work(&mut out).unwrap();
    (code, agentsh_terminal::output::without_colour(out))
}

#[test]
fn setup_writes_nothing_without_the_restriction() {
    let root = system(false);
    let (code, said) = done(|out| machine(root.path(), "/usr/bin/agentsh", &[]).install(out));
    assert!(code == OK && said.contains("nothing to do"), "{said}");
    assert!(!root.path().join(PLACE).exists() && asked(root.path()).is_empty());
}

#[test]
fn setup_writes_loads_tries_and_removes_a_profile() {
    let root = system(true);
    let (code, said) = done(|out| machine(root.path(), "/opt/my tools/agentsh", &[false, true]).install(out));
    assert!(code == OK && said.contains("it works"), "{said}");
    let text = std::fs::read_to_string(root.path().join(PLACE)).unwrap();
    assert!(
        text.contains("profile agentsh \"/opt/my tools/agentsh\" flags=(unconfined) {\n  userns,"),
        "{text}"
    );
    assert_eq!(asked(root.path()), "--replace\n");
    // Again: it is in force.
    let (code, said) = done(|out| machine(root.path(), "/opt/my tools/agentsh", &[true]).install(out));
    assert!(code == OK && said.contains("in force"), "{said}");
    // Another place of the executable: the profile moves with it.
    let (code, said) = done(|out| machine(root.path(), "/usr/bin/agentsh", &[true]).install(out));
    assert!(
        code == OK && said.contains("-profile agentsh \"/opt") && said.contains("+profile agentsh /usr"),
        "{said}"
    );
    let (code, _) = done(|out| machine(root.path(), "/usr/bin/agentsh", &[]).undo(out));
    assert!(code == OK && !root.path().join(PLACE).exists());
    assert!(asked(root.path()).ends_with("--remove\n"));
    let (code, said) = done(|out| machine(root.path(), "/usr/bin/agentsh", &[]).undo(out));
    assert!(code == OK && said.contains("nothing to undo"), "{said}");
}

#[test]
fn setup_says_that_namespaces_are_still_refused() {
    let root = system(true);
    let (code, said) = done(|out| machine(root.path(), "/usr/bin/agentsh", &[false, false]).install(out));
    assert!(code == NO && said.contains("still refused"), "{said}");
}

#[test]
fn profile_that_agentsh_did_not_make_stays() {
    let root = system(true);
    std::fs::write(root.path().join(PLACE), "profile agentsh /usr/bin/agentsh {}\n").unwrap();
    for work in [Machine::install, Machine::undo] {
        let error = work(&machine(root.path(), "/usr/bin/agentsh", &[false]), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("not made by agentsh"), "{error}");
    }
    assert!(root.path().join(PLACE).exists() && asked(root.path()).is_empty());
}

#[test]
fn path_cannot_inject_apparmor_rules() {
    for path in ["/opt/a*/agentsh", "/opt/{a,b}", "/opt/a\" {}", "/opt/a\nb", "relative", "/opt/@{HOME}"] {
        assert!(profile(Path::new(path)).is_err(), "{path}");
    }
    assert!(
        profile(Path::new("/home/me/.cargo/bin/agentsh"))
            .unwrap()
            .contains(" /home/me/.cargo/bin/agentsh flags")
    );
}

#[test]
fn setup_quotes_a_failing_apparmor_parser() {
    let root = system(true);
    let error = machine(root.path(), "/opt/broken/agentsh", &[false]).install(&mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("bad rule"), "{error}");
}
