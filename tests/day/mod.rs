//! A day of work inside: the tasks that people do in a project, done by the real programs. The table is
//! `docs/a-day.md`.

pub mod credentials;
mod file_questions;
mod git;
mod guarded;
mod ordinary;
mod packages;
mod publish;
mod refusals;
mod registries;
mod remotes;
mod ssh;
mod tasks;
mod toolchains;
mod why;

use std::path::{Path, PathBuf};

use crate::support::{Outcome, Place, skip};

/// The directories in which `cargo xtask test all` put tools that no distribution has, if the user of this place can
/// read them.
fn tools(place: &Place) -> Vec<PathBuf> {
    let all = std::env::var_os("AGENTSH_TEST_TOOLS").unwrap_or_default();
    let is_readable = |path: &PathBuf| Outcome::of(place.command("test").arg("-x").arg(path)).code == 0;
    // And the cargo that builds this, at its real path.
    let cargo = Path::new(env!("CARGO")).canonicalize().ok();
    let cargo = cargo.as_deref().and_then(Path::parent).map(Path::to_owned);
    let all = std::env::split_paths(&all).filter(|path| path.is_absolute());
    all.chain(cargo).filter(is_readable).collect()
}

/// Appends them to PATH, after the programs of the machine.
fn use_tools(place: &Place) {
    let mut path = "/usr/local/bin:/usr/bin:/bin".to_owned();
    for directory in tools(place) {
        path = format!("{path}:{}", directory.display());
    }
    place.set("PATH", path);
}

/// Whether a program of the machine is there; says when it is not.
pub fn has(program: &str) -> bool {
    let found =
        ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|place| Path::new(place).join(program).exists());
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}
