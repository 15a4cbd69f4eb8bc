//! The program by itself. What it serves is tested by the suite of `agentsh`, which starts it beside that program; this test
//! also makes cargo build it with the others.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test starts programs, and may stop at the first surprise"
)]

use std::process::Command;

#[test]
fn help_names_what_it_serves() {
    let said = Command::new(env!("CARGO_BIN_EXE_agentsh-server")).arg("--help").output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success() && text.contains("fleet") && text.contains("registry"), "{text}");
}
