//! What every test needs: a directory of its own, the modes of this machine, and ways to talk to the binary.

pub mod asking;
pub mod authority;
pub mod browser;
pub mod expect;
pub mod forge;
pub mod http_server;
pub mod outcome;
pub mod peer;
pub mod place;
pub mod postgres;
pub mod processes;
pub mod programs;
pub mod pty;
pub mod receiver;
pub mod routes;
pub mod sandbox;
pub mod schema;
pub mod trusted;

pub use expect::{no, no_with, yes};
pub use outcome::Outcome;
pub use peer::Peer;
pub use place::{Mode, Place, WITHOUT_DEFINITIONS};
pub use pty::{Pty, without_colour};
pub use receiver::{Answer, Receiver};
pub use sandbox::everywhere;

/// Says that something could not be tried here, and why. `cargo test -- --nocapture` shows it.
pub fn skip(reason: &str) {
    use std::io::Write;
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    // Not through the captured stream: what was skipped must be seen.
    let _ = writeln!(std::io::stderr(), "skipped part of {name}: {reason}");
}

/// True for root: some twins can only be done by it.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Tries again until the condition holds or ten seconds are over: a bound for what hangs.
pub fn eventually(condition: impl Fn() -> bool) -> bool {
    within(std::time::Duration::from_secs(10), condition)
}

/// A limit of time on a machine of ordinary speed, stretched where `AGENTSH_TEST_PATIENCE` says how many times slower
/// this one is: an emulated processor is.
pub fn patience(limit: std::time::Duration) -> std::time::Duration {
    let factor = std::env::var("AGENTSH_TEST_PATIENCE").ok().and_then(|factor| factor.parse().ok());
    limit.saturating_mul(factor.unwrap_or(1))
}

pub fn within(limit: std::time::Duration, condition: impl Fn() -> bool) -> bool {
    let start = std::time::Instant::now();
    let limit = patience(limit);
    while !condition() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    true
}

/// The commands that a help lists, those of the second list of `agentsh --help` too (`  Records    sessions, events`).
pub fn commands(help: &str) -> Vec<String> {
    let block = |title: &str| {
        let (_, rest) = help.split_once(title).unwrap_or_default();
        rest.split("\n\n").next().unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut names = Vec::new();
    for line in block("\nCommands:\n") {
        let is_name = line.starts_with("  ") && !line.starts_with("   ");
        names.extend(
            line.split_whitespace().next().filter(|name| is_name && *name != "help").map(str::to_owned),
        );
    }
    for line in block("\nFurther commands:\n") {
        let (_, list) = line.trim().split_once("  ").unwrap();
        names.extend(list.split(", ").map(|name| name.trim().to_owned()));
    }
    names
}
