//! Variables that make a program load or run what an attacker chose. Stopped by: they pass only under their full
//! name, written by the user.

use serde_json::json;

use crate::support::{Mode, Outcome, Peer, Place};

const LOADERS: [&str; 9] = [
    "NODE_OPTIONS",
    "BASH_ENV",
    "ENV",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PERL5OPT",
    "GIT_SSH_COMMAND",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
];

#[test]
fn loader_variables_do_not_pass() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut lines: Vec<String> = LOADERS.iter().map(|name| format!("environment {name}")).collect();
        lines.extend(["environment PATH".to_owned(), "environment HOME".to_owned()]);
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe")).args(&lines).envs(LOADERS.map(|name| (name, "/nonexistent")));
        let outcome = Outcome::of(&mut command);
        let answers: Vec<&str> = outcome.stdout.lines().collect();
        assert_eq!(answers[..LOADERS.len()], ["REFUSED NotFound"; LOADERS.len()], "{mode:?} {outcome}");
        assert_eq!(answers[LOADERS.len()..], ["DONE", "DONE"]);

        let mut command = place.agentsh(&["mcp", "run", "--id", "fixture", "--"]);
        command.arg(place.program("fixture_server")).envs(LOADERS.map(|name| (name, "/nonexistent")));
        let mut peer = Peer::start(&mut command);
        peer.shake_hands();
        for name in LOADERS {
            assert_eq!(peer.text("env", json!({"name": name})), "(not set)", "{mode:?}");
        }
    }
}

#[test]
fn loader_variable_passes_by_full_name_in_the_users_policy() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {env_allow: [NODE_OPTIONS, \"PYTHON*\"]}\n");
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe")).args(["environment NODE_OPTIONS", "environment PYTHONPATH"]);
        command.env("NODE_OPTIONS", "--trace-warnings").env("PYTHONPATH", "/nonexistent");
        assert_eq!(Outcome::of(&mut command).stdout, "DONE\nREFUSED NotFound\n", "{mode:?}");
    }
}
