//! `agentsh client-config` and `agentsh mcp wrap`: puts servers of an MCP client's configuration behind agentsh.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::profile::{self, Profile};
use agentsh_agents::clients::{CLIENTS, ChangedConfiguration, Client};
use agentsh_agents::dialect::Start;
use agentsh_authoring::edit;
use agentsh_store::escape;
use agentsh_terminal::output::{Failure, OK};

fn client(name: &str) -> Result<&'static Client, String> {
    let known: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
    Client::named(name).ok_or_else(|| format!("known are: {}", known.join(", ")))
}

#[derive(Debug, Args)]
pub struct WrapArgs {
    /// Client whose configuration to change: claude, claude-desktop, codex, cursor, vscode, zed, windsurf, cline, continue, gemini, opencode
    #[arg(long, value_parser = client)]
    client: &'static Client,
    /// Configuration file, if not the client's usual one
    #[arg(long)]
    file: Option<PathBuf>,
    /// Write the file; without this option the change is only shown
    #[arg(long)]
    write: bool,
    /// Undo: servers start directly again, without agentsh
    #[arg(long)]
    undo: bool,
}

#[derive(Debug, Args)]
pub struct ClientConfigArgs {
    /// Client: claude, claude-desktop, codex, cursor, vscode, zed, windsurf, cline, continue, gemini, opencode
    #[arg(long, value_parser = client)]
    client: &'static Client,
    /// Write it into the client's file instead of printing it
    #[arg(long)]
    write: bool,
    /// Configuration file, if not the client's usual one
    #[arg(long)]
    file: Option<PathBuf>,
    /// URL of a remote server
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// Name of the server; without a command or --url, also the name of its profile
    #[arg(value_name = "SERVER")]
    server: String,
    /// The server's command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Puts every server of a client behind `agentsh mcp run`, or shows what that would change.
pub fn wrap(args: &WrapArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let path = file(args.client, args.file.as_ref())?;
    let before = edit::read(&path)?;
    if before.is_empty() {
        return Err(Failure::No(format!(
            "{} has no configuration: {} does not exist",
            args.client.title,
            path.display()
        )));
    }
    let changed = if args.undo {
        args.client.without_agentsh(&before, &path)
    } else {
        args.client.wrap_servers(&before, &path, &own_path()?)
    };
    let changed = changed.map_err(|error| Failure::Failed(error.to_string()))?;
    for (id, why) in &changed.left {
        writeln!(out, "server {} is unchanged: {why}", escape::line(id))?;
    }
    apply(args.write, &path, &before, &changed, out)
}

/// Prints one server in the form of a client, or puts it into its file.
pub fn answer(args: &ClientConfigArgs, out: &mut dyn Write) -> Result<u8, Failure> {
    let start = start(args)?;
    let failed = |error: agentsh_agents::AgentError| Failure::Failed(error.to_string());
    let path = file(args.client, args.file.as_ref())?;
    if !args.write {
        let text = args.client.snippet(&args.server, &start).map_err(failed)?;
        out.write_all(text.as_bytes())?;
        return Ok(OK);
    }
    let before = edit::read(&path)?;
    let changed = args.client.with_server(&before, &path, &args.server, &start).map_err(failed)?;
    apply(true, &path, &before, &changed, out)
}

fn start(args: &ClientConfigArgs) -> Result<Start, Failure> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let args = match (&args.url, args.command.is_empty()) {
        (Some(url), _) => words(&["mcp", "run", "--id", &args.server, "--url", url]),
        (None, false) => {
            let mut all = words(&["mcp", "run", "--id", &args.server, "--"]);
            all.extend(from_anywhere(&args.command)?);
            all
        }
        (None, true) => {
            let known: Option<Profile> = profile::find(&args.server)?;
            if known.is_none() {
                return Err(Failure::Usage(format!(
                    "there is no profile '{}': give the command behind `--`, or --url, or make one with `agentsh profile add`",
                    escape::line(&args.server)
                )));
            }
            words(&["mcp", "run", "--profile", &args.server])
        }
    };
    Ok(Start { command: own_path()?, args, env: Default::default() })
}

fn apply(
    write: bool,
    path: &std::path::Path,
    before: &str,
    changed: &ChangedConfiguration,
    out: &mut dyn Write,
) -> Result<u8, Failure> {
    if changed.text == before {
        writeln!(out, "{}: nothing to change", path.display())?;
        return Ok(OK);
    }
    edit::show(out, path, before, &changed.text)?;
    if !write {
        writeln!(out, "nothing was written; add --write to write it")?;
        return Ok(OK);
    }
    let backup = edit::write(path, before, &changed.text, 0o600)?;
    writeln!(out, "{}: written", path.display())?;
    if let Some(backup) = backup {
        writeln!(out, "the previous file: {}", backup.display())?;
    }
    Ok(OK)
}

fn file(client: &Client, named: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return Ok(path.clone());
    }
    let (home, config) = homes()?;
    Ok(client.file(&home, &config))
}

/// The home, and the directory of configurations.
pub(super) fn homes() -> Result<(PathBuf, PathBuf), Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home =
        absolute("HOME").ok_or_else(|| Failure::Failed("HOME is not set to an absolute path".to_owned()))?;
    let config = absolute("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    Ok((home, config))
}

/// The command line in a form that a client can start from any directory.
pub(super) fn from_anywhere(command: &[String]) -> Result<Vec<String>, Failure> {
    let mut command = command.to_vec();
    if let Some(program) = command.first_mut().filter(|program| program.contains('/')) {
        let path = std::path::absolute(&*program)
            .map_err(|error| Failure::Failed(format!("cannot find '{}': {error}", escape::line(program))))?;
        *program = path.to_string_lossy().into_owned();
    }
    Ok(command)
}

pub(super) fn own_path() -> Result<String, Failure> {
    let path = std::env::current_exe()
        .map_err(|error| Failure::Failed(format!("cannot find agentsh's own executable: {error}")))?;
    Ok(path.to_string_lossy().into_owned())
}
