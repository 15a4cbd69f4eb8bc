//! A day of work inside: the things that people do in a project, done by the real programs. The table is
//! `docs/a-day.md`.

pub mod credentials;
mod git;
mod ordinary;
mod packages;
mod publish;
mod real_agents;
mod refusals;
mod registries;
mod remotes;
mod ssh;
mod things;
mod toolchains;
mod why;

use std::path::Path;

use crate::support::skip;

/// Whether a program of the machine is there; says when it is not.
fn has(program: &str) -> bool {
    let found =
        ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|place| Path::new(place).join(program).exists());
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}
