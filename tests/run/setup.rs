//! Setting up a machine: `setup`, `man`, and the messages of `run` where it cannot work.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Mode, Outcome, Place, skip};

/// Another system in a directory, whose AppArmor restricts user namespaces.
fn restricted(place: &Place) -> std::path::PathBuf {
    let root = place.path("system");
    for directory in ["etc/apparmor.d", "proc/sys/kernel", "usr/sbin"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("proc/sys/kernel/apparmor_restrict_unprivileged_userns"), "1\n").unwrap();
    let parser = root.join("usr/sbin/apparmor_parser");
    fs::write(&parser, "#!/bin/sh\necho \"$1\" >> \"$0.asked\"\n").unwrap();
    fs::set_permissions(&parser, fs::Permissions::from_mode(0o755)).unwrap();
    root
}

#[test]
fn setup_gives_agentsh_a_profile_and_takes_it_away() {
    let place = Place::new(Mode::Invoker);
    let root = restricted(&place);
    let setup = |more: &[&str]| {
        let words = [&["setup", "--root", root.to_str().unwrap()], more].concat();
        Outcome::of(&mut place.agentsh(&words)).expect_code(0)
    };
    let profile = root.join("etc/apparmor.d/agentsh");
    let binary = place.program("agentsh").canonicalize().unwrap();
    let line = format!("profile agentsh {} flags=(unconfined) {{\n  userns,\n", binary.display());

    let shown = setup(&["--print"]);
    assert!(shown.stdout.contains(&line) && !profile.exists(), "{shown}");
    let done = setup(&[]);
    assert!(fs::read_to_string(&profile).unwrap().contains(&line), "{done}");
    setup(&["--undo"]);
    assert!(!profile.exists());
    let asked = fs::read_to_string(root.join("usr/sbin/apparmor_parser.asked")).unwrap();
    assert_eq!(asked, "--replace\n--remove\n");

    // Without the restriction nothing is touched.
    fs::write(root.join("proc/sys/kernel/apparmor_restrict_unprivileged_userns"), "0\n").unwrap();
    let nothing = setup(&[]);
    assert!(nothing.stdout.contains("nothing to do") && !profile.exists(), "{nothing}");
}

#[test]
fn setup_probe_reports_whether_namespaces_are_available() {
    let place = Place::new(Mode::Invoker);
    // The hidden verb that the probe starts, where they can be had and where they cannot.
    let binary = place.program("agentsh").display().to_string();
    let none = format!("echo 0 > /proc/sys/user/max_user_namespaces && exec {binary} __namespaces");
    if Mode::all().contains(&Mode::User) {
        let user = Place::new(Mode::User);
        assert_eq!(Outcome::of(&mut user.agentsh(&["__namespaces"])).code, 0);
        assert_eq!(Outcome::of(user.command("unshare").args(["-Ur", "sh", "-c", &none])).code, 1);
    }
}

#[test]
fn a_run_without_user_namespaces_says_why_and_what_to_do() {
    if !Mode::all().contains(&Mode::User) {
        return skip("an ordinary user cannot make user namespaces here");
    }
    let place = Place::new(Mode::User);
    let run = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec {} run --quiet -- true",
        place.program("agentsh").display()
    );
    let outcome = Outcome::of(place.command("unshare").args(["-Ur", "sh", "-c", &run])).expect_code(125);
    assert!(outcome.stderr.contains("user namespaces are switched off"), "{outcome}");
    assert!(outcome.stderr.contains("sysctl -w user.max_user_namespaces"), "{outcome}");
}

#[test]
fn manual_pages_are_written_for_every_verb() {
    let place = Place::new(Mode::Invoker);
    let directory = place.path("man");
    Outcome::of(&mut place.agentsh(&["man", "--directory", directory.to_str().unwrap()])).expect_code(0);
    for name in ["agentsh.1", "agentsh-run.1", "agentsh-mcp-pins-list.1", "agentsh-setup.1"] {
        let page = fs::read_to_string(directory.join(name)).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH EXAMPLES"), "{name}: {page}");
        assert!(!page.contains('\x1b'), "{name}");
    }
    let shown = Outcome::of(&mut place.agentsh(&["man"])).expect_code(0);
    assert!(shown.stdout.contains(".SH SUBCOMMANDS"), "{shown}");
}

#[test]
fn policy_show_names_the_toolchains_that_are_shown() {
    let place = Place::new(Mode::Invoker);
    let home = &place.home;
    fs::create_dir_all(home.join(".cargo/bin")).unwrap();
    fs::create_dir_all(home.join(".rustup/toolchains")).unwrap();
    let shown = Outcome::of(&mut place.agentsh(&["policy", "show"])).expect_code(0);
    let cargo = format!("toolchain: {}  # shown to the agent", home.join(".cargo/bin").display());
    assert!(shown.stdout.contains("# toolchains found here: ") && shown.stdout.contains("rustup"), "{shown}");
    assert!(shown.stdout.contains(&cargo) && shown.stdout.contains("\ncache: "), "{shown}");
    let json = Outcome::of(&mut place.agentsh(&["policy", "show", "--json"])).expect_code(0);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(json["toolchains"]["found"].as_array().unwrap().contains(&"rustup".into()), "{json}");
    // A policy by its name is that policy alone; one that lists its programs shows none.
    let named = Outcome::of(&mut place.agentsh(&["policy", "show", "strict"])).expect_code(0);
    assert!(!named.stdout.contains("toolchain: "), "{named}");
}
