//! The units of systemd: the verbs that they run exist, and their conditions hold where they should.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Server;
use crate::support::{Mode, Outcome, Place, skip};

fn units() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|ending| ending == "service")).collect()
}

#[test]
fn systemd_units_start_existing_commands() {
    let place = Place::new(Mode::Invoker);
    let units = units();
    assert!(units.len() >= 4, "{units:?}");
    for unit in units {
        let text = std::fs::read_to_string(&unit).unwrap();
        let start =
            text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/agentsh ")).expect(&text);
        let words: Vec<&str> =
            start.split(' ').filter(|word| !word.starts_with('$')).chain(["--help"]).collect();
        let outcome = Outcome::of(&mut place.agentsh(&words)).expect_code(0);
        assert!(outcome.stdout.contains("Usage: agentsh"), "{}: {outcome}", unit.display());
    }
}

#[test]
fn forwarder_unit_runs_on_enrolled_hosts_only() {
    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.exists() {
        return skip("systemd is not installed");
    }
    let unit = units().into_iter().find(|unit| unit.ends_with("agentsh-fleet-forward.service")).unwrap();
    let at = Place::new(Mode::Invoker);
    let server = Server::start(&at, at.home.join("fleet.db").to_str().unwrap(), &[]);
    let host = Place::new(Mode::Invoker);
    let runtime = host.path("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let said = || {
        let mut command = Command::new(analyze);
        command.args(["--user", "condition", "--unit=agentsh-fleet-forward.service"]);
        command.env_clear().env("HOME", &host.home).env("XDG_RUNTIME_DIR", &runtime);
        Outcome::of(command.env("SYSTEMD_UNIT_PATH", format!("{}:", unit.parent().unwrap().display())))
    };
    let before = said();
    if !format!("{}{}", before.stdout, before.stderr).contains("Condition") {
        return skip("this systemd-analyze knows no conditions of units");
    }
    assert!(format!("{}{}", before.stdout, before.stderr).contains("Conditions failed"), "{before}");
    server.enrol(&host, "laptop");
    let after = said();
    assert!(format!("{}{}", after.stdout, after.stderr).contains("Conditions succeeded"), "{after}");
}
