//! What the end-to-end suite and the tests of a day need: distribution packages, and pinned agents, servers, clients and tools
//! under `target/e2e`. Everything comes through the package managers as they are configured on this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{self, find, is_root, repository, succeed};

/// A program that must be on PATH, and the package of Debian and Ubuntu that brings it.
const PROGRAMS: [(&str, &str); 8] = [
    ("bwrap", "bubblewrap"),
    ("curl", "curl"),
    ("git", "git"),
    ("ip", "iproute2"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("python3", "python3"),
    ("unshare", "util-linux"),
];

/// What single tests start, and say when it is missing.
const USEFUL: [(&str, &str); 9] = [
    ("chromium", "chromium"),
    ("dbus-daemon", "dbus-daemon"),
    ("gh", "gh"),
    ("git-lfs", "git-lfs"),
    ("gnome-keyring-daemon", "gnome-keyring"),
    ("go", "golang-go"),
    ("lowntfs-3g", "ntfs-3g"),
    ("secret-tool", "libsecret-tools"),
    ("strace", "strace"),
];

/// The same, and their packages start a daemon where something starts daemons.
const SERVERS: [(&str, &str); 2] = [("redis-server", "redis-server"), ("/usr/sbin/sshd", "openssh-server")];

/// One Python environment for each generation of the official client, one for the libraries of models, one for what a fleet
/// stands beside, and one for the tools of a day: what is installed, and the list of it.
const ENVIRONMENTS: [(&str, &str); 5] = [
    ("venv-fleet", "tests/e2e/requirements-fleet.txt"),
    ("venv-mcp1", "tests/e2e/requirements-mcp1.txt"),
    ("venv-mcp2", "tests/e2e/requirements-mcp2.txt"),
    ("venv-models", "tests/e2e/requirements-models.txt"),
    ("venv-tools", "tests/day/tools/requirements.txt"),
];

/// The same of npm: the directory holds the list and its lock.
const PACKAGES: [(&str, &str); 2] = [("npm", "tests/e2e"), ("npm-tools", "tests/day/tools")];

/// Agents with packages for some machines, and for some versions of Python, that not every registry has: where they cannot
/// be installed, their tests are skipped.
const AGENTS: (&str, &str) = ("npm-agents", "tests/e2e/agents");
const AIDER: (&str, &str) = ("venv-aider", "tests/e2e/requirements-aider.txt");

/// Where everything is installed.
pub fn directory() -> PathBuf {
    run::target().join("e2e")
}

/// True when the last installation is still the one that the checked-in files ask for.
pub fn is_current() -> bool {
    wanted_stamp().is_ok_and(|wanted| std::fs::read_to_string(stamp()).is_ok_and(|found| found == wanted))
}

pub fn ensure() -> Result<()> {
    system_packages()?;
    if is_current() {
        return Ok(());
    }
    let directory = directory();
    std::fs::create_dir_all(&directory)?;
    // A half-finished installation must not pass for a finished one.
    let _ = std::fs::remove_file(stamp());
    for (name, list) in PACKAGES {
        node_packages(&directory.join(name), &repository().join(list), "ci")
            .with_context(|| format!("cannot install the npm packages of {list}"))?;
    }
    for (name, requirements) in ENVIRONMENTS {
        python_environment(&directory.join(name), requirements)
            .with_context(|| format!("cannot install {requirements}"))?;
    }
    // `ci` wants a lock with what other machines would install, and that is what is not had everywhere.
    let _ = node_packages(&directory.join(AGENTS.0), &repository().join(AGENTS.1), "install");
    let _ = python_environment(&directory.join(AIDER.0), AIDER.1);
    std::fs::write(stamp(), wanted_stamp()?)?;
    Ok(())
}

/// What the black-box suite starts, from the distribution.
///
/// # Errors
/// When one that it cannot do without is not there and cannot be installed.
pub fn system_packages() -> Result<()> {
    programs(&PROGRAMS)?;
    // Without one of these a test says that it is skipped; everything else is tried anyway.
    if is_root() {
        let starts_daemons = Path::new("/run/systemd/system").exists();
        let servers = SERVERS.iter().filter(|_| !starts_daemons);
        let missing = missing_packages(USEFUL.iter().chain(servers));
        if packages(&missing).is_err() {
            for package in missing {
                let _ = packages(&[package]);
            }
        }
    }
    if python().is_none() { packages(&["python3-venv"]) } else { Ok(()) }
}

/// Installs the packages of those programs that are not on PATH.
pub fn programs(wanted: &[(&str, &str)]) -> Result<()> {
    packages(&missing_packages(wanted))
}

/// The packages of those programs that are not on PATH.
fn missing_packages<'a>(wanted: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Vec<&'a str> {
    wanted.into_iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect()
}

fn packages(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if find("apt-get").is_none() {
        bail!("these are missing, and there is no apt-get to install them: {list}");
    }
    let apt = |arguments: &[&str]| {
        let mut command = if is_root() {
            Command::new("apt-get")
        } else {
            let mut sudo = Command::new("sudo");
            sudo.args(["-n", "apt-get"]);
            sudo
        };
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        succeed(&mut command)
    };
    apt(&["update"])
        .and_then(|_| apt(&[&["install", "-y", "--no-install-recommends"], missing].concat()))
        .with_context(|| format!("cannot install {list}; as root: apt-get install {list}"))?;
    Ok(())
}

/// The distribution's own Python where it has what we need, for it is the one that apt can complete.
fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "python3"]
        .into_iter()
        .find(|python| succeed(Command::new(python).args(["-c", "import ensurepip, venv"])).is_ok())
}

const NODE_FILES: [&str; 2] = ["package.json", "package-lock.json"];

fn node_packages(directory: &Path, list: &Path, how: &str) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    for file in NODE_FILES {
        std::fs::copy(list.join(file), directory.join(file))?;
    }
    succeed(Command::new("npm").current_dir(directory).args([
        how,
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]))?;
    Ok(())
}

fn python_environment(directory: &Path, requirements: &str) -> Result<()> {
    let python = python().context("no Python with venv (package python3-venv)")?;
    succeed(Command::new(python).args(["-m", "venv", "--clear"]).arg(directory))?;
    succeed(
        Command::new(directory.join("bin/python3"))
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "-r"])
            .arg(repository().join(requirements)),
    )?;
    Ok(())
}

/// Where the programs of a day are that no distribution has (`AGENTSH_TEST_TOOLS` of the suite); none before they are installed.
pub fn tools() -> Vec<PathBuf> {
    let places = ["npm-tools/node_modules/.bin", "venv-tools/bin"].map(|place| directory().join(place));
    places.into_iter().filter(|place| place.is_dir()).collect()
}

fn stamp() -> PathBuf {
    directory().join("stamp")
}

/// The checked-in lists, and the path of the result: a Python environment cannot be moved.
fn wanted_stamp() -> Result<String> {
    let mut text = format!("{}\n", directory().display());
    let of_npm = PACKAGES
        .iter()
        .chain([&AGENTS])
        .flat_map(|(_, list)| NODE_FILES.map(|file| format!("{list}/{file}")));
    for file in
        of_npm.chain(ENVIRONMENTS.iter().chain([&AIDER]).map(|(_, requirements)| (*requirements).to_owned()))
    {
        text += &std::fs::read_to_string(repository().join(&file))
            .with_context(|| format!("cannot read {file}"))?;
    }
    Ok(text)
}
