//! `agentsh enable AGENT`: a small program with the agent's name, first on PATH, that starts the agent in the sandbox.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use super::client_config::{homes, own_path};
use agentsh_agents::Kind;
use agentsh_authoring::edit;
use agentsh_host::context::SHIMS;
use agentsh_host::copies::write_anew;
use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_store::escape;
use agentsh_terminal::output::{self, Failure, NO, OK};

/// Set to `off`, the agent is started as it is.
const SWITCH: &str = "AGENTSH_SHIM";
const BEGIN: &str = "# >>> agentsh shims >>>";
const END: &str = "# <<< agentsh shims <<<";
/// In the second line of each, by which agentsh knows its own.
const MARK: &str = "# Made by `agentsh enable";

#[derive(Debug, Args)]
pub struct EnableArgs {
    /// Names of agents' programs, such as claude, codex, gemini or opencode
    #[arg(required = true, value_name = "AGENT")]
    agents: Vec<String>,
    /// Also put the directory of these commands into PATH, in a marked block of your shell's file
    #[arg(long)]
    rc: bool,
}

#[derive(Debug, Args)]
pub struct DisableArgs {
    /// Names of agents' programs
    #[arg(required_unless_present = "all", value_name = "AGENT")]
    agents: Vec<String>,
    /// All agents, and the block in your shell's startup file
    #[arg(long)]
    all: bool,
}

pub fn enable(args: &EnableArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let directory = directory()?;
    let failed =
        |error: std::io::Error| Failure::Failed(format!("cannot write {}: {error}", directory.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&directory).map_err(failed)?;
    for agent in &args.agents {
        let name = program(agent)?;
        if real(&name).is_none() {
            writeln!(out, "{name}: not on your PATH yet; it is protected once it is installed")?;
        }
        let path = directory.join(&name);
        if path.exists() && !is_ours(&path) {
            return Err(Failure::Failed(format!("{} is not agentsh's: move it away", path.display())));
        }
        let text = format!(
            "#!/bin/sh\n{MARK} {name}`; `agentsh disable {name}` removes it.\nexec {} shim {name} \"$@\"\n",
            shell_quote(&own_path()?)
        );
        write_anew(&path, text.as_bytes(), 0o755).map_err(failed)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
        writeln!(out, "{name} starts in the sandbox wherever {} comes first on PATH", directory.display())?;
    }
    if is_first(&directory) {
        return Ok(OK);
    }
    let shell = Shell::of_user()?;
    if args.rc {
        let before = edit::read(&shell.file)?;
        let after = format!("{}{}", ending(&without_block(&before)), shell.block(&directory));
        if before != after {
            edit::show(out, &shell.file, &before, &after)?;
            edit::write(&shell.file, &before, &after, 0o644)?;
        }
        writeln!(out, "new shells find it; for this one: `{}`", shell.line(&directory))?;
    } else {
        writeln!(out, "add to {} (or use --rc): `{}`", shell.file.display(), shell.line(&directory))?;
    }
    writeln!(
        out,
        "next: open a new shell and type the agent's name; `agentsh status` says whether the sandbox is used"
    )?;
    Ok(OK)
}

pub fn disable(args: &DisableArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let directory = directory()?;
    let names: Vec<String> = if args.all {
        let all = enabled(&directory);
        if all.is_empty() {
            writeln!(out, "no agent is enabled")?;
        }
        all
    } else {
        args.agents.iter().map(|agent| program(agent)).collect::<Result<_, _>>()?
    };
    for name in &names {
        let path = directory.join(name);
        if !is_ours(&path) {
            writeln!(out, "{name} was not enabled")?;
            continue;
        }
        std::fs::remove_file(&path)
            .map_err(|error| Failure::Failed(format!("cannot remove {}: {error}", path.display())))?;
        writeln!(out, "{name} starts without agentsh again")?;
    }
    // The block is of no use once nothing is in the directory.
    if enabled(&directory).is_empty() {
        let _ = std::fs::remove_dir(&directory);
        let shell = Shell::of_user()?;
        let before = edit::read(&shell.file)?;
        let after = without_block(&before);
        if before != after {
            edit::show(out, &shell.file, &before, &after)?;
            edit::write(&shell.file, &before, &after, 0o644)?;
        }
    }
    Ok(OK)
}

/// Exit status 0: every agent that is enabled is found first; 1: none is enabled, or one is not.
pub fn status(out: &mut dyn Write) -> Result<u8, Failure> {
    let directory = directory()?;
    let names = enabled(&directory);
    if names.is_empty() {
        writeln!(out, "no agent is enabled; to protect one: `agentsh enable claude`")?;
        return Ok(NO);
    }
    let first = is_first(&directory);
    let word = if first { "protected" } else { "not protected in this shell" };
    let row = |name: String| {
        let real = real(&name).map_or_else(|| "not installed".to_owned(), |path| path.display().to_string());
        vec![name, word.to_owned(), real]
    };
    let rows = names.into_iter().map(row).collect();
    output::list(out, output::terminal_width(), &["agent", "status", "program"], rows)?;
    if !first {
        let shell = Shell::of_user()?;
        writeln!(out, "{} does not come first on PATH: `{}`", directory.display(), shell.line(&directory))?;
    }
    Ok(if first { OK } else { NO })
}

/// In place of an agent: becomes `agentsh run -- AGENT`, or the agent itself where it is protected already.
pub fn run(name: &str, args: &[std::ffi::OsString]) -> Result<u8, String> {
    let is_inside = Path::new(OWN_DIRECTORY).join("agentsh").exists();
    let is_off = std::env::var_os(SWITCH).is_some_and(|value| value == "off");
    let path = path_without_shims().map_err(|error| error.to_string())?;
    let mut command = if is_inside || is_off {
        let real = real(name).ok_or_else(|| format!("there is no other program '{name}' on PATH"))?;
        #[expect(clippy::disallowed_methods, reason = "it becomes the program that was meant")]
        Command::new(real)
    } else {
        let own = own_path().map_err(|error| error.to_string())?;
        #[expect(clippy::disallowed_methods, reason = "it becomes agentsh run")]
        let mut command = Command::new(own);
        command.args(["run", "--", name]);
        command
    };
    Err(format!("cannot start {name}: {}", command.args(args).env("PATH", path).exec()))
}

/// The name of the program of an agent, by either of its names.
fn program(agent: &str) -> Result<String, Failure> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name = Kind::named(agent).and_then(Kind::program).unwrap_or(agent);
    let is_name = !name.is_empty() && !name.starts_with(['-', '.']) && name.chars().all(plain);
    if !is_name || name == "agentsh" {
        return Err(Failure::Usage(format!(
            "'{}' is not the name of an agent's program",
            escape::line(agent)
        )));
    }
    Ok(name.to_owned())
}

fn directory() -> Result<PathBuf, Failure> {
    let (home, _) = homes()?;
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Ok(data.unwrap_or_else(|| home.join(".local/share")).join("agentsh").join(SHIMS))
}

fn enabled(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| is_ours(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn is_ours(path: &Path) -> bool {
    edit::read(path).is_ok_and(|text| text.lines().nth(1).is_some_and(|line| line.starts_with(MARK)))
}

fn path_without_shims() -> Result<std::ffi::OsString, Failure> {
    let directory = directory()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::env::split_paths(&path).filter(|entry| *entry != directory))
        .map_err(|error| Failure::Failed(format!("PATH cannot be used: {error}")))
}

/// The program that the name means without us.
fn real(name: &str) -> Option<PathBuf> {
    let path = path_without_shims().ok()?;
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(is_program)
}

fn is_first(directory: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).next().is_some_and(|first| first == directory)
}

/// For `sh`.
fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The startup file of the user's shell.
struct Shell {
    file: PathBuf,
    is_fish: bool,
}

impl Shell {
    fn of_user() -> Result<Self, Failure> {
        let (home, config) = homes()?;
        let shell = std::env::var("SHELL").unwrap_or_default();
        Ok(match shell.rsplit('/').next() {
            Some("fish") => Self { file: config.join("fish/config.fish"), is_fish: true },
            Some("zsh") => Self { file: home.join(".zshrc"), is_fish: false },
            Some("bash") => Self { file: home.join(".bashrc"), is_fish: false },
            _ => Self { file: home.join(".profile"), is_fish: false },
        })
    }

    fn line(&self, directory: &Path) -> String {
        let directory = shell_quote(&directory.to_string_lossy());
        if self.is_fish {
            format!("fish_add_path --path --move {directory}")
        } else {
            format!("export PATH={directory}:\"$PATH\"")
        }
    }

    fn block(&self, directory: &Path) -> String {
        format!("{BEGIN}\n{}\n{END}\n", self.line(directory))
    }
}

/// The text without our block.
fn without_block(text: &str) -> String {
    let Some((before, rest)) = text.split_once(BEGIN) else { return text.to_owned() };
    let Some((_, after)) = rest.split_once(END) else { return text.to_owned() };
    format!("{}{}", before, after.strip_prefix('\n').unwrap_or(after))
}

fn ending(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}
