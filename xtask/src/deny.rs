//! Licences, sources and banned crates of everything that is built, by cargo-deny. It is installed from its own sources,
//! once: it has no package in distributions.

use anyhow::{Context, Result};

use crate::run::{cargo, succeed, target};

/// The version that `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// True when nothing has to be downloaded or built first.
pub fn is_installed() -> bool {
    program().is_file()
}

fn program() -> std::path::PathBuf {
    root().join("bin/cargo-deny")
}

fn root() -> std::path::PathBuf {
    target().join("tools").join(format!("cargo-deny-{VERSION}"))
}

/// # Errors
/// What the check found, or why it could not be made.
pub fn check() -> Result<()> {
    if !is_installed() {
        let mut install = cargo(["install", "--locked", "cargo-deny", "--version"]);
        // Separate from the workspace's own: nothing that is built here is shared with it. It runs for a second and is built for
        // minutes, so nothing is optimised.
        install.arg(format!("={VERSION}")).arg("--root").arg(root());
        install.env_remove("CARGO_BUILD_BUILD_DIR").env("CARGO_TARGET_DIR", root().join("build"));
        install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_PROFILE_RELEASE_LTO", "off");
        succeed(&mut install).context("cannot install cargo-deny")?;
        // The program is all that is needed.
        let _ = std::fs::remove_dir_all(root().join("build"));
    }
    // Not by way of cargo, which would look for it on PATH.
    let mut check = std::process::Command::new(program());
    check.current_dir(crate::run::repository()).args(["check", "bans", "licenses", "sources"]);
    succeed(&mut check).map(drop)
}
