//! `agentsh why`: asks the session about its policy, from inside a sandbox.

use std::io::Write;
use std::path::{Path, PathBuf};

use agentsh_mcp::bridge;
use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_store::escape;
use agentsh_terminal::exit::{FAILED, NO};

/// Exit code 0: allowed; 1: denied; 125: no answer.
pub fn run(word: &str, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let named = std::env::var_os(bridge::SOCKET_VARIABLE).map(PathBuf::from);
    let socket = named.unwrap_or_else(|| Path::new(OWN_DIRECTORY).join("bridge"));
    if !socket.exists() {
        // The reader may have closed it: ignore that.
        let _ = writeln!(
            err,
            "error: no session here: `agentsh why` works only inside `agentsh run`; outside use \
             `agentsh policy explain --read PATH`, `--write PATH`, `--connect HOST:PORT` or `--exec COMMAND`"
        );
        return FAILED;
    }
    match bridge::ask_session(&socket, &from_here(word)) {
        Ok((allow, text)) => {
            for line in text.lines() {
                let _ = writeln!(out, "{}", escape::line(line));
            }
            if allow && text.starts_with("execute: ") && !is_in_path(word) {
                let _ = writeln!(out, "but no program in PATH has this name here");
            }
            if allow { 0 } else { NO }
        }
        Err(error) => {
            let _ = writeln!(err, "error: {error}");
            FAILED
        }
    }
}

pub(super) fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// A path is relative to the current directory. The name of an existing file is a path, whatever it looks like.
fn from_here(word: &str) -> String {
    let is_relative = !word.starts_with(['/', '~', '$']) && !word.contains("://");
    let looks_like_path = word.starts_with('.') || word.contains('/') || Path::new(word).exists();
    match std::env::current_dir() {
        Ok(here) if is_relative && looks_like_path => here.join(word).display().to_string(),
        _ => word.to_owned(),
    }
}
