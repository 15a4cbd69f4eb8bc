//! `cargo xtask walk`: a newcomer's first minutes, in a clean root of Debian with the package and the real agents, each in a
//! terminal of tmux against a scripted model. What is typed and looked for is in `tests/e2e/newcomer.rs`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::run::{capture, cargo, find, is_root, print_text, repository, succeed, target};
use crate::{dist, install};

#[derive(Debug, Args)]
pub struct Options {
    /// Only the walks whose names contain this: claude, codex, gemini, opencode
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Leave the root where it is, to look around in it
    #[arg(long)]
    keep: bool,
}

/// As `tests/e2e/newcomer.rs` has them.
const WALKS: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

const RELEASE: &str = "bookworm";
/// What a newcomer has next to the base system: a terminal, an agent's tools, something to look at pages with.
const PACKAGES: &str = "--include=tmux,git,curl,ca-certificates,procps,libatomic1,libstdc++6";

/// Where the packages of the agents lie in the root, as `npm install --global` puts them.
const MODULES: &str = "usr/local/lib/node_modules";

/// The server that every walk uses, by the name of its program.
const SERVER: &str = "mcp-server-filesystem";

/// # Errors
/// What cannot be had here, or what a walk stumbled over.
pub fn main(options: &Options) -> Result<bool> {
    ensure!(
        WALKS.iter().any(|name| name.contains(&options.only)),
        "no walk has '{}' in its name; there are {}",
        options.only,
        WALKS.join(", ")
    );
    ensure!(is_root(), "a clean root is made and entered by root");
    if !install::is_current() {
        install::ensure()?;
    }
    install::programs(&[("mmdebstrap", "mmdebstrap")])?;
    let place = target().join("walk");
    std::fs::create_dir_all(&place)?;
    let made = dist::make(&place.join("dist"), true)?;
    let root = place.join("root");
    remove(&root)?;
    unpack(&base(&place)?, &root)?;
    furnish(&root)?;
    std::fs::copy(&made.package, root.join("tmp/agentsh.deb")).context("cannot copy the package")?;
    let captured = capture(&mut walk(&root, &options.only))?;
    let told = captured.output.lines().filter(|line| !line.trim().is_empty());
    print_text(&told.map(|line| format!("{line}\n")).collect::<String>());
    if !options.keep {
        remove(&root)?;
    }
    Ok(captured.success)
}

/// A root with nothing of ours in it; made once, since it takes a minute.
fn base(place: &Path) -> Result<PathBuf> {
    let base = place.join(format!("{RELEASE}.tar"));
    if !base.exists() {
        let half = place.join("half.tar");
        succeed(
            Command::new("mmdebstrap")
                .args(["--quiet", "--variant=minbase", PACKAGES, "--format=tar", RELEASE])
                .arg(&half),
        )?;
        std::fs::rename(half, &base)?;
    }
    Ok(base)
}

fn unpack(base: &Path, root: &Path) -> Result<()> {
    std::fs::create_dir_all(root)?;
    succeed(
        Command::new("tar")
            .args(["--extract", "--exclude=./dev/*", "--file"])
            .arg(base)
            .arg("--directory")
            .arg(root),
    )?;
    std::fs::create_dir_all(root.join("dev"))?;
    Ok(())
}

/// Node and the agents, as their own instructions install them.
fn furnish(root: &Path) -> Result<()> {
    let node = find("node").context("no node")?.canonicalize()?;
    std::fs::copy(node, root.join("usr/local/bin/node"))?;
    let installed = install::directory().join("npm/node_modules");
    let modules = root.join(MODULES);
    std::fs::create_dir_all(&modules)?;
    link(&installed, &modules)?;
    for entry in std::fs::read_dir(installed.join(".bin"))? {
        let name = entry?.file_name();
        let _ = symlink(
            Path::new("/").join(MODULES).join(".bin").join(&name),
            root.join("usr/local/bin").join(&name),
        );
    }
    // The server next to its own packages: what it may load is pinned, and that is not every agent.
    let beside = Path::new("usr/local/lib/server/node_modules");
    std::fs::create_dir_all(root.join(beside))?;
    link(&installed, &root.join(beside))?;
    for agent in ["@anthropic-ai", "@google", "@openai", "openai", "opencode-linux-x64", "playwright-core"] {
        let _ = std::fs::remove_dir_all(root.join(beside).join(agent));
    }
    let server = root.join("usr/local/bin").join(SERVER);
    std::fs::remove_file(&server).context("the server is not installed")?;
    symlink(Path::new("/").join(beside).join(".bin").join(SERVER), server)?;
    let opencode = Path::new("/").join(MODULES).join("opencode-linux-x64/bin/opencode");
    symlink(opencode, root.join("usr/local/bin/opencode")).context("cannot name opencode")
}

/// The same bytes at another place: nothing in the root writes them.
fn link(from: &Path, to: &Path) -> Result<()> {
    let copied = |how: &str| {
        succeed(Command::new("cp").args(["--archive", how]).arg(format!("{}/.", from.display())).arg(to))
    };
    if copied("--link").is_err() {
        copied("--reflink=auto")?;
    }
    Ok(())
}

/// The tests, in a network with nothing but loopback.
fn walk(root: &Path, only: &str) -> Command {
    let tests = cargo(["test", "-p", "agentsh", "--locked", "--offline", "--test", "e2e", "--"]);
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command.arg(tests.get_program()).args(tests.get_args()).arg(format!("newcomer_{only}"));
    command.current_dir(repository()).env("RUST_BACKTRACE", "0");
    command.env("AGENTSH_E2E_DIR", install::directory()).env("AGENTSH_E2E_ROOT", root);
    command
}

fn remove(root: &Path) -> Result<()> {
    if root.exists() {
        std::fs::remove_dir_all(root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_walk_has_is_refused_before_anything_is_made() {
        let refused = main(&Options { only: "typo".to_owned(), keep: false });
        assert!(refused.is_err_and(|error| error.to_string().contains("there are claude, codex")));
    }

    #[test]
    fn walks_cover_the_agents_of_the_tests() {
        let text = include_str!("../../tests/e2e/newcomer.rs");
        for name in WALKS {
            assert!(text.contains(&format!("(\"{name}\", {name})")), "{name}");
        }
    }
}
