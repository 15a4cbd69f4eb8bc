//! Tokens in the environment from which agentsh was started.
//! Stopped by: only standard variables pass; a pattern does not cover names that end like a secret's.

use serde_json::json;

use crate::support::{Mode, Outcome, Peer, Place};

const SECRETS: [&str; 5] =
    ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_PASSWORD", "SSH_AUTH_SOCK", "OPENAI_API_KEY"];

#[test]
fn secret_variables_do_not_pass() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let lines = SECRETS.map(|name| format!("environment {name}"));
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe")).args(&lines).args(["environment USER", "environment-of 1"]);
        command.envs(SECRETS.map(|name| (name, "TOPSECRET")));
        let outcome = Outcome::of(&mut command);
        let answers: Vec<&str> = outcome.stdout.lines().collect();
        assert_eq!(answers[..SECRETS.len()], ["REFUSED NotFound"; SECRETS.len()], "{mode:?}");
        assert_eq!(answers[SECRETS.len()], "DONE");
        assert_ne!(answers[SECRETS.len() + 1], "DONE");

        let mut command = place.agentsh(&["mcp", "run", "--id", "fixture", "--"]);
        command.arg(place.program("fixture_server")).envs(SECRETS.map(|name| (name, "TOPSECRET")));
        let mut peer = Peer::start(&mut command);
        peer.shake_hands();
        for name in SECRETS {
            assert_eq!(peer.text("env", json!({"name": name})), "(not set)", "{mode:?}");
        }
        assert_eq!(peer.text("env", json!({"name": "USER"})), "tester");
    }
}

#[test]
fn secret_variable_passes_by_full_name_and_not_by_pattern() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy("agent: {env_allow: [\"AWS_*\", GITHUB_TOKEN]}\n");
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe"));
        command.args([
            "environment AWS_SECRET_ACCESS_KEY",
            "environment AWS_REGION",
            "environment GITHUB_TOKEN",
        ]);
        command
            .env("AWS_SECRET_ACCESS_KEY", "TOPSECRET")
            .env("AWS_REGION", "x")
            .env("GITHUB_TOKEN", "TOPSECRET");
        assert_eq!(Outcome::of(&mut command).stdout, "REFUSED NotFound\nDONE\nDONE\n", "{mode:?}");
    }
}

/// Names of stripped variables are recorded, values never.
#[test]
fn variable_values_are_not_recorded() {
    let place = Place::new(Mode::Invoker);
    let mut command = place.agentsh(&["run", "--quiet", "--", "true"]);
    Outcome::of(command.env("DEPLOY_TOKEN", "TOPSECRETVALUE")).expect_code(0);
    let state = place.home.join(".local/state/agentsh");
    let mut names = false;
    for entry in std::fs::read_dir(&state).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        let bytes = std::fs::read(entry.path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("TOPSECRETVALUE"), "{}", entry.path().display());
        names |= text.contains("DEPLOY_TOKEN");
    }
    assert!(names);
}
